"""The journal of a worker, shared by its projects and its threads.

When its disk fails, it is unknown which of the last batches are durable. A second sync would prove
nothing, because the kernel may have dropped the data that it could not write. So the worker ends at
once, as after a crash. The batches that the next worker finds in the journal count as committed.
Gateways treat unanswered events as after every death of a worker.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn, Protocol

from fieldbrook.core.errors import JournalFailedError, JournalFullError, NodeError
from fieldbrook.storage.journal.protocol import Journal, Record

log = logging.getLogger(__name__)

DISK_FAILED = 74
"""Exit status of a worker whose journal has failed (`EX_IOERR`); no project is suspected then."""


class WorkerJournal(Protocol):
    """The journal of a worker: `SharedJournal`, or `ReplicatedJournal` on a host of a cluster."""

    @property
    def is_complete(self) -> bool:
        """Whether each batch has to be in the journal, even if the store alone could keep it."""

    def take_over(self, project_id: int, folder: Path) -> list[Record]:
        """Prepare to commit batches of a project; its store in `folder` must be closed.

        Returns:
            The batches that the store lacks.

        Raises:
            StoreError: the project cannot run here.
        """

    def give_up(self, project_id: int, number: int) -> None:
        """Note that a project has ended in this worker; its last batch is `number`."""

    def commit(self, records: Iterable[ProjectRecords]) -> set[int]:
        """Commit the records of these projects; those that are `in_flight` afterwards end later.

        Returns:
            The ids of the projects for whose record the journal has no room.
        """

    def commit_now(self, project: ProjectRecords) -> None:
        """Commit the record of one project, and wait until it is stored.

        Raises:
            StoreError: the record is not stored.
        """

    def await_answers(self, limit_s: float) -> None:
        """Wait until no record is in flight."""

    def wants_snapshot(self, project_id: int, used_bytes: int) -> bool:
        """Whether `snapshot` is due for a project whose store has `used_bytes`."""

    def snapshot(self, project_id: int, number: int, folder: Path) -> None:
        """Replace the records up to batch `number` by the copy of the store in a folder.

        Raises:
            StoreError: it could not be kept.
        """

    def release(self, project_id: int, number: int) -> None:
        """Note that the project's store has all batches up to `number`."""

    def must_release(self) -> Mapping[int, int]:
        """The projects that have to make a checkpoint, because the journal needs free segments."""

    def close(self) -> None:
        """Close the journal."""


class ProjectRecords:
    """Takes the record of one project's prepared batch; see `store.JournalWriter`.

    Attributes:
        waiting: number and content of the record, until the commit.
        in_flight: whether the commit has begun and is not settled.
        turn_is_over: whether the turn has ended, except for the commit in flight.
        outcome: the result of a commit that has ended before the turn is over.
    """

    def __init__(self, project_id: int, shared: WorkerJournal) -> None:
        self.project_id = project_id
        self.waiting: list[tuple[int, bytes]] = []
        self.in_flight = self.turn_is_over = False
        self.outcome: tuple[NodeError | None] | None = None
        self._shared = shared

    @property
    def is_complete(self) -> bool:
        """See `WorkerJournal`."""
        return self._shared.is_complete

    def take_over(self, folder: Path) -> list[Record]:
        """See `WorkerJournal`."""
        return self._shared.take_over(self.project_id, folder)

    def give_up(self, number: int) -> None:
        """See `WorkerJournal`."""
        self._shared.give_up(self.project_id, number)

    def wants_snapshot(self, used_bytes: int) -> bool:
        """See `WorkerJournal`."""
        return self._shared.wants_snapshot(self.project_id, used_bytes)

    def snapshot(self, number: int, folder: Path) -> None:
        """See `WorkerJournal`."""
        self._shared.snapshot(self.project_id, number, folder)

    def add(self, project_id: int, number: int, batch: bytes) -> None:
        """Keep a record for the next commit."""
        self.waiting.append((number, batch))

    def sync(self) -> None:
        """Commit this project's record alone.

        Raises:
            StoreError: it could not be committed.
        """
        self._shared.commit_now(self)

    def release(self, project_id: int, number: int) -> None:
        """Note that the project's store has all batches up to `number`."""
        self._shared.release(project_id, number)


class SharedJournal:
    """Commits the records of several projects with one sync; any thread may use it.

    The batches that a store lacked were written into it when the journal was opened.
    """

    is_complete = False

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self.syncs = 0

    def commit(self, records: Iterable[ProjectRecords]) -> set[int]:
        """Write the records of these projects and sync once. If that fails, the process ends.

        Returns:
            The ids of the projects for whose record the journal has no room.
        """
        full: set[int] = set()
        with self._lock:
            try:
                for project in records:
                    waiting, project.waiting = project.waiting, []
                    for number, batch in waiting:
                        if not self._add(project.project_id, number, batch):
                            full.add(project.project_id)
                self._journal.sync()
            except JournalFailedError as error:
                _end(error)
            self.syncs += 1
        return full

    def commit_now(self, project: ProjectRecords) -> None:
        """Commit the record of one project.

        Raises:
            JournalFullError: the journal has no room for it.
        """
        if self.commit([project]):
            raise JournalFullError(reason="the journal has no room for the batch")

    def take_over(self, project_id: int, folder: Path) -> list[Record]:
        """Return nothing: the stores are complete."""
        return []

    def give_up(self, project_id: int, number: int) -> None:
        """Do nothing: no other worker waits for this project."""

    def await_answers(self, limit_s: float) -> None:
        """Do nothing: commits are never in flight."""

    def wants_snapshot(self, project_id: int, used_bytes: int) -> bool:
        """Return False: the journal has the latest batches only."""
        return False

    def snapshot(self, project_id: int, number: int, folder: Path) -> None:
        """Do nothing: see `wants_snapshot`."""

    def _add(self, project_id: int, number: int, batch: bytes) -> bool:
        """Add a record; return whether the journal has room for it."""
        for _ in range(2):
            try:
                self._journal.add(project_id, number, batch)
            except JournalFullError:
                self._journal.sync()  # all records of a sync go into one segment
            else:
                return True
        return False

    def release(self, project_id: int, number: int) -> None:
        """Note that a project's store has all batches up to `number`."""
        with self._lock:
            self._journal.release(project_id, number)

    def must_release(self) -> Mapping[int, int]:
        """If few segments are free, return the projects whose records are in the oldest segment."""
        with self._lock:
            return self._journal.oldest() if self._journal.low else {}

    def close(self) -> None:
        """Close the journal."""
        with self._lock:
            self._journal.close()


def _end(error: JournalFailedError) -> NoReturn:
    """End this process, because only the next one can find out which records the journal has."""
    log.critical("the journal failed, the worker ends: %s", error)
    os._exit(DISK_FAILED)
