"""The journal of a worker, shared by its projects and its threads."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.journal.protocol import Journal, JournalFullError


class ProjectRecords:
    """Where one project leaves the record of its prepared batch; see `store.JournalWriter`."""

    def __init__(self, project_id: int, shared: SharedJournal) -> None:
        self.project_id = project_id
        self.waiting: list[tuple[int, bytes]] = []
        self._shared = shared

    def add(self, project_id: int, number: int, batch: bytes) -> None:
        """Keep a record for the next commit.

        Raises:
            JournalFullError: the record is larger than any segment.
        """
        if len(batch) > self._shared.record_limit:
            raise JournalFullError(reason=f"a batch of {len(batch)} bytes exceeds a segment")
        self.waiting.append((number, batch))

    def release(self, project_id: int, number: int) -> None:
        """Note that the project's store has all batches up to `number`."""
        self._shared.release(project_id, number)


class SharedJournal:
    """Commits the records of several projects with one sync; any thread may use it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self.record_limit = journal.record_limit
        self.syncs = 0

    def commit(self, records: Iterable[ProjectRecords]) -> dict[int, StoreError]:
        """Write the records of these projects and sync once.

        Returns:
            The errors of the projects whose record was not written, by project id.
        """
        errors: dict[int, StoreError] = {}
        written: list[int] = []
        with self._lock:
            for project in records:
                waiting, project.waiting = project.waiting, []
                try:
                    for number, batch in waiting:
                        self._journal.add(project.project_id, number, batch)
                except StoreError as error:
                    errors[project.project_id] = error
                else:
                    written.append(project.project_id)
            if written:
                try:
                    self._journal.sync()
                    self.syncs += 1
                except StoreError as error:
                    errors |= dict.fromkeys(written, error)
        return errors

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
