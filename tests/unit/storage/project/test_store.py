"""The store of a project, on a real LMDB."""

from __future__ import annotations

import errno
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.errors import BatchTooLargeError, StoreError
from fieldbrook.storage.journal.memory import MemoryJournal
from fieldbrook.storage.journal.unapplied import apply_records
from fieldbrook.storage.lmdb import new_environment, rows
from fieldbrook.storage.lmdb.environment import open_environment
from fieldbrook.storage.project import kv, tables
from fieldbrook.storage.project.commit import effects
from fieldbrook.storage.project.dead_letters import DeadLetter
from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.project.rows import LogRow, MetricRow
from fieldbrook.storage.project.store import ProjectStore
from tests.support.replicated_journal import ReplicatedJournal
from tests.support.stores import reader_of

APPLET, OTHER = 7, 8
KEY = kv.stored_key(kv.scope(APPLET), b"k")
OTHER_KEY = kv.stored_key(kv.scope(OTHER), b"k")


def row(text: str) -> LogRow:
    return LogRow(1, 4, "wasmCode", 3, "a", "e", text)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProjectStore]:
    opened = ProjectStore(tmp_path / "p", 1 << 20)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProjectStore]:
    opened = ProjectStore(tmp_path_factory.mktemp("paged") / "p", 1 << 20)
    yield opened
    opened.close()


def texts(store: ProjectStore, after: int = 0, limit: int = 1000) -> list[str]:
    return [numbered.row.text for numbered in reader_of(store).logs(after, limit)]


def test_a_read_sees_the_batch_before_the_last_commit(store: ProjectStore) -> None:
    assert store.read(KEY) is None
    store.overlay[KEY] = b"1"
    assert store.read(KEY) == b"1"
    assert reader_of(store).kv_get(APPLET, b"k") is None
    store.commit()
    assert store.read(KEY) == b"1"
    assert reader_of(store).kv_get(APPLET, b"k") == b"1"
    store.overlay[KEY] = b""
    assert store.read(KEY) == b""


def test_what_was_committed_is_there_after_the_store_is_opened_again(tmp_path: Path) -> None:
    first = ProjectStore(tmp_path / "p", 1 << 20)
    first.overlay[KEY] = b"1"
    first.log(row("one"))
    first.commit()
    first.log(row("two"))
    first.close()
    second = ProjectStore(tmp_path / "p", 1 << 20)
    second.log(row("three"))
    second.overlay[KEY] = b"lost"
    second.close()
    third = ProjectStore(tmp_path / "p", 1 << 20)
    assert third.read(KEY) == b"1"
    assert texts(third) == ["one", "two", "three"]
    third.close()


def test_a_batch_that_does_not_fit_is_refused_whole_and_the_next_one_is_taken(
    store: ProjectStore,
) -> None:
    store.overlay[KEY] = b"before"
    store.commit()
    store.overlay[KEY] = b"after"
    for number in range(20):
        store.overlay[kv.stored_key(kv.scope(APPLET), b"%d" % number)] = bytes(100_000)
    with pytest.raises(StoreError, match="the store has room for"):
        store.commit()
    assert store.overlay == {}
    assert store.read(KEY) == b"before"
    store.overlay[KEY] = b"next"
    store.commit()
    assert store.read(KEY) == b"next"


def test_log_rows_wait_for_a_commit_or_their_time(
    store: ProjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.log(row("one"))
    store.commit()
    assert texts(store) == []
    store.overlay[KEY] = b"1"
    store.commit()
    assert texts(store) == ["one"]
    store.log(row("two"))
    monkeypatch.setattr(effects, "_LOG_FLUSH_S", 0.0)
    store.commit()
    assert texts(store) == ["one", "two"]


def test_a_part_of_the_log_can_be_read_from_either_end(store: ProjectStore) -> None:
    for number in range(10):
        store.log(row(str(number)))
    store.overlay[KEY] = b"1"
    store.commit()
    assert texts(store, after=0, limit=3) == ["0", "1", "2"]
    assert texts(store, after=7) == ["7", "8", "9"]
    assert texts(store, after=-2) == ["8", "9"]
    assert texts(store, after=-100) == [str(n) for n in range(10)]
    assert texts(store, after=10) == []


def test_the_log_keeps_the_newest_rows_within_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "LOG_ROWS_LIMIT", 50)
    monkeypatch.setattr(rows, "_SLACK", 5)
    store = ProjectStore(tmp_path / "p", 1 << 20)
    for number in range(200):
        store.log(row(str(number)))
        store.overlay[KEY] = b"1"
        store.commit()
    kept = texts(store)
    assert 50 <= len(kept) < 56
    assert kept == [str(n) for n in range(200 - len(kept), 200)]
    store.close()


def test_applets_do_not_see_each_others_keys(store: ProjectStore) -> None:
    for applet in (APPLET, OTHER):
        for key in (b"a", b"ab", b"b", b""):
            store.overlay[kv.stored_key(kv.scope(applet), key)] = b"%d" % applet
    store.commit()
    reader = reader_of(store)
    assert reader.kv_get(OTHER, b"a") == b"8"
    assert reader.kv_keys(APPLET, b"", 10) == [b"", b"a", b"ab", b"b"]
    assert reader.kv_keys(APPLET, b"a", 10) == [b"a", b"ab"]
    assert reader.kv_keys(APPLET, b"", 2) == [b"", b"a"]
    assert reader.kv_get(APPLET, b"") == b"7"


def test_a_key_that_a_batch_deletes_is_gone_at_once_and_after_the_commit(
    store: ProjectStore,
) -> None:
    store.overlay[KEY] = store.overlay[OTHER_KEY] = b"1"
    store.commit()
    store.overlay[KEY] = None
    assert store.read(KEY) is None
    store.commit()
    assert (store.read(KEY), store.read(OTHER_KEY)) == (None, b"1")
    store.overlay[KEY] = b"again"
    store.commit()
    assert store.read(KEY) == b"again"


def test_a_staged_batch_remembers_the_keys_that_it_deletes(store: ProjectStore) -> None:
    store.overlay[KEY] = b"1"
    store.commit()
    store.overlay[KEY] = None
    store._stored.put_stage(store._take_batch(1))
    store._stored.settle(lambda: 1)
    assert store.read(KEY) is None


@given(
    st.sets(st.binary(max_size=3), max_size=12), st.binary(max_size=2), st.integers(1, 3), st.data()
)
def test_pages_of_keys_and_pairs_give_each_key_once_and_in_order(
    paged: ProjectStore, keys: set[bytes], prefix: bytes, size: int, data: st.DataObject
) -> None:
    scope = kv.scope(data.draw(st.integers(1, 1 << 62), "owner"))
    owner = int.from_bytes(scope, "big")
    for key in keys:
        paged.overlay[kv.stored_key(scope, key)] = key * 3
    paged.commit()
    reader, wanted = reader_of(paged), sorted(key for key in keys if key.startswith(prefix))
    for limit_bytes in (1 << 20, 1):
        pairs: list[tuple[bytes, bytes]] = []
        listed: list[bytes] = []
        while len(pairs) < len(wanted):
            after = pairs[-1][0] if pairs else None
            page = reader.kv_pairs(owner, prefix, size, after, limit_bytes)
            assert 1 <= len(page) <= (size if limit_bytes > 1 else 1)
            pairs += page
            listed += reader.kv_keys(owner, prefix, len(page), after)
        assert pairs == [(key, key * 3) for key in wanted]
        assert listed == wanted
        last = pairs[-1][0] if pairs else None
        assert reader.kv_pairs(owner, prefix, size, last, limit_bytes) == []
    for key in keys:
        paged.overlay[kv.stored_key(scope, key)] = None
    paged.commit()
    assert reader.kv_keys(owner, b"", 100) == []


@given(st.lists(st.binary(max_size=600), unique=True, max_size=20))
def test_keys_of_any_length_are_kept_apart_and_fit_the_store(keys: list[bytes]) -> None:
    stored = [kv.stored_key(kv.scope(APPLET), key) for key in keys]
    assert len(set(stored)) == len(keys)
    assert all(0 < len(key) <= 511 for key in stored)


def test_a_batch_that_no_store_would_take_is_told_from_one_that_finds_no_room(
    store: ProjectStore,
) -> None:
    store.overlay[KEY] = bytes(1 << 20)
    with pytest.raises(BatchTooLargeError):
        store.commit()
    large = bytes(900_000)
    store.overlay[KEY] = large
    store.commit()
    store.overlay[OTHER_KEY] = large
    with pytest.raises(StoreError) as refused:
        store.commit()
    assert not isinstance(refused.value, BatchTooLargeError)
    assert store.read(KEY) == large


def test_a_project_that_never_ran_has_no_store_to_read(tmp_path: Path) -> None:
    assert ProjectStoreReader.open_if_exists(tmp_path / "p") is None


def test_a_store_that_is_being_made_reads_as_one_that_has_never_run(tmp_path: Path) -> None:
    open_environment(tmp_path / "p", map_size=1 << 20).close()
    assert (tmp_path / "p" / "data.mdb").stat().st_size > 0
    assert ProjectStoreReader.open_if_exists(tmp_path / "p") is None
    ProjectStore(tmp_path / "p", 1 << 20).close()
    made = ProjectStoreReader.open_if_exists(tmp_path / "p")
    assert made is not None
    made.close()


def test_a_cleared_log_has_no_rows_of_that_instance_written_or_waiting(
    store: ProjectStore,
) -> None:
    store.log(row("written"))
    store.log(LogRow(1, 4, "wasmCode", 4, "b", "e", "another's"))
    store.overlay[KEY] = b"1"
    store.commit()
    store.log(row("waiting"))
    store.overlay[KEY] = b"2"
    store.clear_log(3)
    assert store.read(KEY) == b"2", "the batch goes on"
    store.commit()
    assert texts(store) == ["another's"]
    store.log(row("later"))
    store.overlay[KEY] = b"3"
    store.commit()
    assert texts(store, -1) == ["later"]


def test_the_tables_of_a_new_store_are_made_in_one_transaction(tmp_path: Path) -> None:
    store = ProjectStore(tmp_path / "p", 1 << 20)
    assert store._stored.environment.info()["last_txnid"] == 1
    store.close()


def test_a_store_with_a_journal_appears_with_its_first_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = MemoryJournal()
    journal.begin()
    store = ProjectStore(tmp_path / "p", 1 << 20, journal=journal)
    store.overlay[KEY] = b"1"
    store.commit()
    assert ProjectStoreReader.open_if_exists(tmp_path / "p") is None
    monkeypatch.setattr(new_environment, "sync_folder", _fail_to_sync)
    with pytest.raises(StoreError, match="failing"):
        store.checkpoint()
    assert store.read(KEY) == b"1"
    monkeypatch.undo()
    store.checkpoint()
    assert reader_of(store).kv_get(APPLET, b"k") == b"1"
    store.overlay[KEY] = b"2"
    store.commit()
    store.close()
    assert {path.name for path in (tmp_path / "p").iterdir()} == {"data.mdb", "lock.mdb"}
    assert stat.S_IMODE((tmp_path / "p").stat().st_mode) == 0o700
    again = ProjectStore(tmp_path / "p", 1 << 20)
    assert (again.read(KEY), again.number) == (b"2", 2)
    again.close()


def _fail_to_sync(_path: Path) -> None:
    raise OSError(errno.EIO, "input/output error")


@pytest.mark.parametrize("kind", ["logs", "metrics", "dead letters"])
def test_what_is_kept_for_looking_at_leaves_room_for_pairs(tmp_path: Path, kind: str) -> None:
    store = ProjectStore(tmp_path / "p", 8 << 20)
    text = "x" * 4_000
    for number in range(150):
        for _ in range(32):
            match kind:
                case "logs":
                    store.log(row(text[:1_000]))
                case "metrics":
                    store.metrics.append(MetricRow(1, 3, "a", "e", text))
                case _:
                    letter = DeadLetter(1, "e", "T", 1, text.encode(), 1, 1, 1, "a", "h", "r")
                    store.dead_letters.append(letter)
        store.overlay[kv.stored_key(kv.scope(APPLET), b"%d" % number)] = bytes(1_000)
        store.commit()
    assert store.read(kv.stored_key(kv.scope(APPLET), b"149")) == bytes(1_000)
    store.close()


def test_the_next_owner_gets_the_newest_rows_of_the_log_when_they_are_committed(
    tmp_path: Path,
) -> None:
    journal = ReplicatedJournal()
    with closing(ProjectStore(tmp_path / "owner", 1 << 20, journal=journal)) as owner:
        owner.log(row("last"))
        owner.commit()
        assert journal.kept == []
        owner.commit_rows()
        owner.commit_rows()
        with closing(ProjectStore(tmp_path / "next", 1 << 20)) as following:
            apply_records(following, journal.kept)
            assert texts(following) == ["last"]
    assert len(journal.kept) == 1
