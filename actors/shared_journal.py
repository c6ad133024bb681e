"""The journal of a worker, shared by its projects and its threads.

When its disk fails, it is open which of the last batches happened, and asking the disk again
would not tell: the kernel may have dropped what it could not write. So the worker ends at once,
as after a crash. The next one reads the journal, and what it finds there has happened; gateways
settle what has no answer as after every death of a worker.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Mapping
from typing import NoReturn

from fieldbrook.core.errors import JournalFailedError, JournalFullError
from fieldbrook.storage.journal.protocol import Journal

log = logging.getLogger(__name__)

DISK_FAILED = 74
"""Exit status of a worker whose journal has failed (`EX_IOERR`): no project has caused that."""


class ProjectRecords:
    """Where one project leaves the record of its prepared batch; see `store.JournalWriter`."""

    def __init__(self, project_id: int, shared: SharedJournal) -> None:
        self.project_id = project_id
        self.waiting: list[tuple[int, bytes]] = []
        self._shared = shared

    def add(self, project_id: int, number: int, batch: bytes) -> None:
        """Keep a record for the next commit."""
        self.waiting.append((number, batch))

    def sync(self) -> None:
        """Commit this project's record alone.

        Raises:
            JournalFullError: the journal has no room for it.
        """
        if self._shared.commit([self]):
            raise JournalFullError(reason="the journal has no room for the batch")

    def release(self, project_id: int, number: int) -> None:
        """Note that the project's store has all batches up to `number`."""
        self._shared.release(project_id, number)


class SharedJournal:
    """Commits the records of several projects with one sync; any thread may use it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self.syncs = 0

    def commit(self, records: Iterable[ProjectRecords]) -> set[int]:
        """Write the records of these projects and sync once. It ends the process if that fails.

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
        """The projects whose records keep the oldest segment, when few segments are free."""
        with self._lock:
            return self._journal.oldest() if self._journal.low else {}

    def close(self) -> None:
        """Close the journal."""
        with self._lock:
            self._journal.close()


def _end(error: JournalFailedError) -> NoReturn:
    """End this process: only the next one can find out which records the journal has."""
    log.critical("the journal failed, the worker ends: %s", error)
    os._exit(DISK_FAILED)
