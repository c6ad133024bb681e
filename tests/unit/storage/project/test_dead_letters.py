"""Dead letters and the history of events, on a real LMDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.project import dead_letters
from fieldbrook.storage.project.dead_letters import DeadLetter
from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.project.store import ProjectStore


def letter(event_id: str, payload: bytes = b"p") -> DeadLetter:
    return DeadLetter(1, event_id, "T", 7, payload, 2, 3, 4, "applet", "start", "trap")


def add_dead_letters(store: ProjectStore, *event_ids: str, payload: bytes = b"p") -> None:
    store.dead_letters.extend(letter(event_id, payload) for event_id in event_ids)
    store.commit()


def reader_of(store: ProjectStore) -> ProjectStoreReader:
    """A second process's view; LMDB forbids two in one, so the environment is shared."""
    reader = ProjectStoreReader.__new__(ProjectStoreReader)
    reader._environment = store._environment
    reader._kv, reader._logs = store._kv, store._tables.logs
    return reader


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
    monkeypatch.setattr(dead_letters, "BYTES_LIMIT", 3_000)
    store = ProjectStore(tmp_path / "p", 1 << 22)
    for number in range(9):
        add_dead_letters(store, str(number))
    reader = reader_of(store)
    assert ids(reader) == ["8", "7", "6", "5", "4"]
    add_dead_letters(store, "large", payload=b"x" * 2_900)
    assert ids(reader)[0] == "large"
    assert len(ids(reader)) < 5
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
