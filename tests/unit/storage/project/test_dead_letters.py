"""Dead letters and the history of events, on a real LMDB."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.journal.unapplied import apply_records
from fieldbrook.storage.lmdb.rows import table_bytes
from fieldbrook.storage.project import dead_letters
from fieldbrook.storage.project.dead_letters import (
    ANY_LETTER,
    DeadLetter,
    LetterFilter,
    LetterRange,
    read_letters,
)
from fieldbrook.storage.project.history.tables import HistoryLimits
from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.project.store import ProjectStore
from tests.support.replicated_journal import ReplicatedJournal
from tests.support.stores import reader_of


def letter(event_id: str, payload: bytes = b"p") -> DeadLetter:
    return DeadLetter(1, event_id, "T", 7, payload, 2, 3, 4, "applet", "start", "trap")


def add_dead_letters(store: ProjectStore, *event_ids: str, payload: bytes = b"p") -> None:
    store.dead_letters.extend(letter(event_id, payload) for event_id in event_ids)
    store.commit()


def ids(reader: ProjectStoreReader, before: int | None = None, limit: int = 100) -> list[str]:
    return [found.letter.event_id for found in reader.dead_letters(before, limit)[0]]


def test_letters_are_read_newest_first_and_page_by_page(tmp_path: Path) -> None:
    store = ProjectStore(tmp_path / "p", 1 << 22)
    add_dead_letters(store, "a", "b", "c")
    add_dead_letters(store, "d")
    reader = reader_of(store)
    assert ids(reader) == ["d", "c", "b", "a"]
    (first, second), total = reader.dead_letters(None, 2)
    assert total == 4
    assert ids(reader, before=second.number) == ["b", "a"]
    assert ids(reader, before=first.number + 1_000, limit=1) == ["d"]
    found = reader.dead_letter(first.number)
    assert found is not None
    assert found.event_id == "d"
    assert reader.dead_letter(1) is None
    store.close()


def test_numbers_are_not_used_twice_although_the_last_letter_is_gone(tmp_path: Path) -> None:
    store = ProjectStore(tmp_path / "p", 1 << 22)
    add_dead_letters(store, "a")
    store.close()
    store = ProjectStore(tmp_path / "p", 1 << 22)
    reader = reader_of(store)
    (number, _), *_ = reader.dead_letters(None, 1)[0]
    store.resolved.append(number)
    store.commit()
    add_dead_letters(store, "b")
    assert reader.dead_letters(None, 1)[0][0].number > number
    assert ids(reader) == ["b"]
    store.close()


def test_the_oldest_letters_go_when_there_are_too_many_or_too_large_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "LETTERS_LIMIT", 5)
    store = ProjectStore(tmp_path / "p", 1 << 22, limits=HistoryLimits(letters_bytes=3 * 4096))
    for number in range(9):
        add_dead_letters(store, str(number))
    reader = reader_of(store)
    assert ids(reader) == ["8", "7", "6", "5", "4"]
    add_dead_letters(store, "large", payload=b"x" * 7_000)
    assert ids(reader)[0] == "large"
    add_dead_letters(store, "too large", payload=b"x" * 13_000)
    assert ids(reader) == ["too large"], "the newest letter stays, however large it is"
    store.close()


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 9_000), min_size=1, max_size=60), max_size=8))
def test_letters_take_no_more_of_the_disk_than_their_limit(commits: list[list[int]]) -> None:
    limit = 40_960
    with tempfile.TemporaryDirectory() as folder:
        limits = HistoryLimits(letters_bytes=limit)
        store = ProjectStore(Path(folder) / "p", 1 << 23, limits=limits)
        written: list[str] = []
        for sizes in commits:
            for size in sizes:
                written.append(str(len(written)))
                store.dead_letters.append(letter(written[-1], b"x" * size))
            store.commit()
            environment = store._stored.environment
            with environment.begin() as txn:
                assert table_bytes(txn, environment.open_db(dead_letters.DATABASE)) <= limit
            kept = ids(reader_of(store))
            assert kept, "those that fit stay"
            assert kept == written[-len(kept) :][::-1], "the newest stay"
            assert store.dead_letter_count == len(kept)
        store.close()


def test_a_commit_that_fails_leaves_letters_as_they_were(tmp_path: Path) -> None:
    store = ProjectStore(tmp_path / "p", 1 << 20)
    add_dead_letters(store, "kept")
    with pytest.raises(StoreError, match="the store has room for"):
        add_dead_letters(store, "too large", payload=b"x" * (2 << 20))
    add_dead_letters(store, "next")
    reader = reader_of(store)
    assert ids(reader) == ["next", "kept"]
    store.close()


def test_letters_are_selected_and_counted_by_what_failed(tmp_path: Path) -> None:
    store = ProjectStore(tmp_path / "p", 1 << 22)
    for n in range(12):
        store.dead_letters.append(
            DeadLetter(
                *(n, f"e{n}", "AB"[n % 2], 7, b"p", 2, 3, 4 + n % 2, "applet", "start"),
                reason=("trap", "deadline", "trap")[n % 3],
                version=1 + n // 6,
            )
        )
    store.commit()
    reader = reader_of(store)

    def found(wanted: LetterFilter) -> list[str]:
        return [one.letter.event_id for one in reader.dead_letters(None, 100, wanted)[0]][::-1]

    assert found(LetterFilter(reason="deadline")) == ["e1", "e4", "e7", "e10"]
    assert found(LetterFilter(applet_id=5, version=2)) == ["e7", "e9", "e11"]
    assert found(LetterFilter(event_type="A", reason="deadline")) == ["e4", "e10"]
    assert found(LetterFilter(handler="stop")) == []
    groups = reader.dead_letter_groups(LetterFilter(applet_id=4))
    assert [(g.reason, g.letters, g.oldest, g.newest) for g in groups] == [
        ("trap", 4, 0, 8),
        ("deadline", 2, 4, 10),
    ]
    store.close()


def test_a_selection_ends_with_the_letters_that_were_there_when_it_began(tmp_path: Path) -> None:
    store = ProjectStore(tmp_path / "p", 1 << 22)
    add_dead_letters(store, "a", "b", "c")
    reader = reader_of(store)
    (first,), until = reader.select_dead_letters(ANY_LETTER, LetterRange(), 1)
    add_dead_letters(store, "new")
    rest, _ = reader.select_dead_letters(ANY_LETTER, LetterRange(first, until), 100)
    assert (len(rest), max(rest)) == (2, until)
    assert len(reader.select_dead_letters(ANY_LETTER, LetterRange(), 100)[0]) == 4
    store.close()


def test_a_letter_that_was_resolved_stays_resolved_with_the_next_owner(tmp_path: Path) -> None:
    """The store of the next owner has only some of the batches, or none."""
    journal = ReplicatedJournal()
    with (
        closing(ProjectStore(tmp_path / "owner", 1 << 20, journal=journal)) as owner,
        closing(ProjectStore(tmp_path / "second", 1 << 20)) as second,
        closing(ProjectStore(tmp_path / "third", 1 << 20)) as third,
    ):
        for name in ("one", "two", "three"):
            owner.dead_letters.append(letter(name))
            owner.commit()
        owner.checkpoint()
        apply_records(second, journal.kept)
        page = numbers(owner)
        owner.resolved.append(page[1])
        owner.commit()
        owner.checkpoint()
        apply_records(second, journal.kept)
        apply_records(third, journal.kept)
        assert numbers(owner) == numbers(second) == numbers(third) == [page[0], page[2]]
        assert (owner.dead_letter_count, third.dead_letter_count) == (2, 2)


def numbers(store: ProjectStore) -> list[int]:
    with store._stored.begin() as txn:
        found, _ = read_letters(txn, store._tables.dead_letters._database, None, 99)
    return [each.number for each in found]
