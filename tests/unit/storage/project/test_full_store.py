"""A store with a journal that becomes full: answered events are kept, further events are
refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

from fieldbrook.core.errors import BatchTooLargeError, StoreError
from fieldbrook.storage.journal.memory import MemoryJournal
from fieldbrook.storage.project import store as project_store
from fieldbrook.storage.project.store import ProjectStore

MAP_BYTES = 1 << 20
VALUE = bytes(20_000)


class Worker:
    """A store with its journal, like in a worker."""

    def __init__(self, path: Path) -> None:
        self.path, self.journal = path, MemoryJournal()
        self.start()

    def start(self) -> None:
        """Start; after a crash, recover the journal."""
        self.store = ProjectStore(self.path, MAP_BYTES, journal=self.journal, project_id=7)
        for _, number, batch in self.journal.records():
            self.store.apply(number, batch)
        self.store.checkpoint()
        self.journal.begin()

    def crash(self) -> None:
        """Lose the data in memory."""
        self.store._stored.close()
        self.journal.crash()
        self.start()

    def fill(self, limit: int = 200) -> int:
        """Write batches of one large value until one is refused; return the number of accepted
        ones."""
        for number in range(limit):
            self.store.overlay[b"%d" % number] = VALUE
            try:
                self.store.commit()
            except StoreError:
                return number
        return limit

    def has(self, count: int) -> bool:
        """Return whether the store has exactly this number of these batches."""
        found = [self.store.read(b"%d" % number) for number in range(count + 1)]
        return found == [VALUE] * count + [None]

    @property
    def map_size(self) -> int:
        return int(self.store._stored.environment.info()["map_size"])


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    opened = Worker(tmp_path / "p")
    yield opened
    opened.store.close()


def test_a_batch_without_room_is_refused_before_it_is_answered_and_no_other_is_lost(
    worker: Worker,
) -> None:
    count = worker.fill()
    assert count > MAP_BYTES * 3 // 4 // len(VALUE)
    assert worker.has(count)
    assert worker.map_size == MAP_BYTES
    worker.crash()
    assert worker.has(count)
    for number in range(10):
        worker.store.overlay[b"%d" % number] = None
    worker.store.commit()
    worker.store.overlay[b"again"] = VALUE
    worker.store.commit()
    assert worker.store.read(b"again") == VALUE


def test_a_batch_larger_than_the_store_is_told_from_one_without_room(worker: Worker) -> None:
    worker.store.overlay[b"large"] = bytes(2 * MAP_BYTES)
    with pytest.raises(BatchTooLargeError):
        worker.store.commit()
    assert (worker.store.read(b"large"), worker.store.number) == (None, 0)


def test_what_was_answered_is_written_beyond_the_limit_and_then_all_is_refused(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.fill()
    monkeypatch.setattr(worker.store._stored.space, "has", lambda *_: True)
    for number in range(20):
        worker.store.overlay[b"more %d" % number] = VALUE
        worker.store.commit()
    monkeypatch.undo()
    worker.store.checkpoint()
    assert worker.map_size > MAP_BYTES
    assert worker.store.read(b"more 19") == VALUE
    worker.store.overlay[b"next"] = b"1"
    assert not worker.store.prepare(), "it is written at once"
    worker.crash()
    assert worker.store.read(b"more 19") == VALUE
    assert worker.fill() == 0


def test_while_checkpoints_fail_only_so_much_is_taken_and_it_is_kept(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_store, "WAITING_LIMIT", 5 * len(VALUE))

    def fail(*_: Any) -> Any:
        raise lmdb.DiskError("no space left")

    monkeypatch.setattr(worker.store._tables, "put", fail)
    assert worker.fill() == 5
    with pytest.raises(StoreError, match="the disk is full"):
        worker.store.checkpoint()
    assert worker.has(5)
    monkeypatch.undo()
    worker.store.checkpoint()
    assert worker.store.waiting_bytes == 0
    assert worker.has(5)
