"""The store of a chain: each change is atomic, for its monitors and watchers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.backup import backup
from fieldbrook.storage.chain.store import (
    AnnouncedEvent,
    ChainState,
    ChainStore,
    ChainStoreReader,
    Cursor,
    EndpointState,
    chain_path,
    replace_monitor_tables,
)
from fieldbrook.storage.registry.service import RegistryWriter

A, B = b"\xaa" * 32, b"\xbb" * 32
SIZE = 16 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChainStore]:
    made = ChainStore(tmp_path / "chain", SIZE)
    yield made
    made.close()


def told(block: int, index: int = 0, block_hash: bytes = A) -> AnnouncedEvent:
    return AnnouncedEvent(block, block_hash, index, b"payload of %d" % block)


def test_what_is_written_is_there_after_it_was_opened_again(tmp_path: Path) -> None:
    first = ChainStore(tmp_path / "c", SIZE)
    cursor = Cursor(7, A, events=3, error="why", time_ms=5)
    state = ChainState(head=9, reorganisations=1, endpoints=[EndpointState("https://e", 9, 2)])
    first.put_cursors({1: cursor, 2: Cursor(-1)})
    first.put_blocks({8: A, 9: B}, ())
    first.put_state(state)
    first.close()
    again = ChainStore(tmp_path / "c", SIZE)
    assert again.cursors() == {1: cursor, 2: Cursor(-1)}
    assert again.cursor(3) is None
    assert again.blocks() == {8: A, 9: B}
    assert again.state() == state
    again.close()


def test_blocks_change_together_with_the_cursors_that_go_back(store: ChainStore) -> None:
    store.put_blocks({1: A, 2: A, 3: A}, ())
    store.put_cursors({7: Cursor(3, A)})
    store.put_blocks({2: B, 3: B, 4: B}, (2, 3), {7: Cursor(3, A, rewind=1)})
    assert store.blocks() == {1: A, 2: B, 3: B, 4: B}
    assert store.cursor(7) == Cursor(3, A, rewind=1)


def test_what_was_told_is_listed_in_the_order_of_the_chain_and_by_monitor(
    store: ChainStore,
) -> None:
    rows = [told(300), told(2, 1), told(2, 0), told(256)]
    store.announce({1: rows, 2: [told(5)], 258: [told(6)]})
    assert [(row.block, row.index) for row in store.announced(1)] == [
        *((2, 0), (2, 1), (256, 0), (300, 0))
    ]
    assert [row.block for row in store.announced(1, 256)] == [256, 300]
    assert [row.block for row in store.announced(2)] == [5]
    assert store.announced(3) == []


def test_what_is_taken_back_stays_and_counts_how_often(store: ChainStore) -> None:
    store.announce({1: [told(5), told(6)]})
    (row,) = store.announced(1, 6)
    store.retract(1, [row], Cursor(5, A, removed=1))
    (back,) = store.announced(1, 6)
    assert (back.removed, back.round, back.payload) == (True, 1, row.payload)
    assert store.cursor(1) == Cursor(5, A, removed=1)
    store.retract(1, [back], Cursor(5, A))
    assert store.announced(1, 6)[0].round == 2


def test_what_lies_deep_is_forgotten_and_what_is_newer_kept(store: ChainStore) -> None:
    store.announce({n: [told(block) for block in range(1, 8)] for n in (1, 2, 3)})
    store.announce({4: [told(100)]})
    assert store.delete_announced(before_block=6) == 15
    assert [row.block for n in (1, 2, 3) for row in store.announced(n)] == [6, 7] * 3
    assert store.delete_announced(before_block=1_000) == 7
    assert store.announced(4) == []
    assert store.delete_announced(before_block=1_000) == 0


def test_monitors_that_are_gone_leave_nothing(store: ChainStore) -> None:
    store.put_cursors({n: Cursor(n) for n in (1, 2, 3)})
    store.announce({n: [told(1), told(2)] for n in (1, 2, 3)})
    assert store.delete_other_monitors([2]) == [1, 3]
    assert list(store.cursors()) == [2]
    assert (store.announced(1), len(store.announced(2)), store.announced(3)) == ([], 2, [])


def test_a_reader_sees_what_the_writer_has_and_nothing_before_that(tmp_path: Path) -> None:
    path = chain_path(tmp_path, 4690)
    assert ChainStoreReader.open_if_exists(path) is None
    path.mkdir(parents=True)
    lmdb.open(str(path), max_dbs=4).close()
    assert ChainStoreReader.open_if_exists(path) is None, "its process is just making it"
    writer = ChainStore(path, SIZE)
    writer.put_cursors({1: Cursor(5)})
    writer.close()  # a process can open an environment only once
    reader = ChainStoreReader.open_if_exists(path)
    assert reader is not None
    assert reader.cursor(1) == Cursor(5)
    reader.close()


def test_a_store_of_another_kind_is_refused(tmp_path: Path) -> None:
    environment = lmdb.open(str(tmp_path / "c"), max_dbs=4)
    environment.open_db(b"something")
    environment.close()
    with pytest.raises(StoreError, match="not a chain's store"):
        ChainStore(tmp_path / "c", SIZE)


def test_a_copys_monitors_are_those_of_the_older_copy_and_the_rest_its_own(
    tmp_path: Path,
) -> None:
    older = ChainStore(tmp_path / "older", SIZE)
    older.put_cursors({1: Cursor(5), 2: Cursor(6)})
    older.announce({1: [told(5)]})
    older.close()
    newer = ChainStore(tmp_path / "newer", SIZE)
    newer.put_cursors({1: Cursor(9), 3: Cursor(9)})
    rest = newer.environment.open_db(b"rest")
    with newer.environment.begin(write=True, db=rest) as txn:
        txn.put(b"k", b"v")
    newer.close()
    replace_monitor_tables(tmp_path / "older", tmp_path / "newer")
    result = ChainStore(tmp_path / "newer", SIZE)
    assert result.cursors() == {1: Cursor(5), 2: Cursor(6)}
    assert [row.block for row in result.announced(1)] == [5]
    with result.environment.begin(db=result.environment.open_db(b"rest")) as txn:
        assert txn.get(b"k") == b"v"
    result.close()
    replace_monitor_tables(tmp_path / "nothing", tmp_path / "newer")
    result = ChainStore(tmp_path / "newer", SIZE)
    assert result.cursors() == {}
    result.close()


def test_a_backup_has_monitors_where_they_were_before_its_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, target = tmp_path / "data", tmp_path / "copy"
    target.mkdir()
    RegistryWriter(data / "registry", SIZE, lambda: 1, b"k" * 32).close()

    def put(cursors: dict[int, Cursor]) -> None:
        chain = ChainStore(data / "chains" / "1", SIZE)
        chain.put_cursors(cursors)
        chain.close()

    put({1: Cursor(5)})
    copy_projects = backup._copy_projects

    def meanwhile(source: Path, to: Path) -> tuple[set[int], list[str]]:
        put({1: Cursor(9), 2: Cursor(9)})
        return copy_projects(source, to)

    monkeypatch.setattr(backup, "_copy_projects", meanwhile)
    backup.copy_data(data, target)
    assert sorted(path.name for path in target.iterdir()) == ["chains", "registry"]
    copied = ChainStoreReader.open_if_exists(target / "chains" / "1")
    assert copied is not None
    assert copied.cursors() == {1: Cursor(5)}
    copied.close()
