"""The journal of a worker, shared by its projects and its threads."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from fieldbrook.core.errors import JournalFullError, StoreError
from fieldbrook.storage.journal.protocol import Journal


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
            StoreError: it was not written; see `Journal`.
        """
        errors = self._shared.commit([self])
        if errors:
            raise errors[self.project_id]

    def release(self, project_id: int, number: int) -> None:
        """Note that the project's store has all batches up to `number`."""
        self._shared.release(project_id, number)


class SharedJournal:
    """Commits the records of several projects with one sync; any thread may use it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self.syncs = 0

    def commit(self, records: Iterable[ProjectRecords]) -> dict[int, StoreError]:
        """Write the records of these projects and sync once.

        Returns:
            The errors of the projects whose record was not written, by project id.
        """
        errors: dict[int, StoreError] = {}
        added: list[int] = []
        with self._lock:
            for project in records:
                waiting, project.waiting = project.waiting, []
                for number, batch in waiting:
                    try:
                        try:
                            self._journal.add(project.project_id, number, batch)
                        except JournalFullError:
                            # All records of a sync go into one segment.
                            errors |= self._sync(added)
                            self._journal.add(project.project_id, number, batch)
                        added.append(project.project_id)
                    except StoreError as error:
                        errors[project.project_id] = error
            errors |= self._sync(added)
        return errors

    def _sync(self, added: list[int]) -> dict[int, StoreError]:
        """Sync what was added; return the error for these projects, if there is one."""
        projects = added.copy()
        added.clear()
        if not projects:
            return {}
        try:
            self._journal.sync()
        except StoreError as error:
            return dict.fromkeys(projects, error)
        self.syncs += 1
        return {}

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
