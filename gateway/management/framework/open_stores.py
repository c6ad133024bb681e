"""The stores of projects that a gateway reads in: how many are open, and until when."""

from __future__ import annotations

from pathlib import Path
from weakref import WeakValueDictionary

from fieldbrook.storage.project.store import ProjectStoreReader, store_path
from fieldbrook.system.process import descriptors

OPEN_LIMIT = 64
_LEAST = 4
_SHARE = 16  # of the process's descriptors: a store takes two


def open_limit() -> int:
    """How many stores a gateway keeps open: fewer where a process may open few files."""
    most = descriptors()
    return OPEN_LIMIT if most is None else max(_LEAST, min(OPEN_LIMIT, most // _SHARE))


class OpenStores:
    """Keeps stores open for the next look at them.

    A search reads in a thread and may outlive the store's place here, so a store is let go of
    and not closed: LMDB closes it with the last reference. Nor may a store be opened twice in a
    process, so one that is still read in is taken back.
    """

    def __init__(self, projects: Path, limit: int = OPEN_LIMIT) -> None:
        self._projects = projects
        self._limit = limit
        self._kept: dict[int, ProjectStoreReader] = {}
        self._open: WeakValueDictionary[int, ProjectStoreReader] = WeakValueDictionary()

    def get(self, project_id: int) -> ProjectStoreReader | None:
        """The store of a project; None when it has never run.

        Raises:
            StoreError: it cannot be read.
        """
        store = self._kept.pop(project_id, None) or self._open.get(project_id)
        if store is None:
            store = ProjectStoreReader.open_if_exists(store_path(self._projects, project_id))
            if store is None:
                return None
            self._open[project_id] = store
        while len(self._kept) >= self._limit:
            del self._kept[next(iter(self._kept))]  # for the longest not asked for
        self._kept[project_id] = store
        return store

    def let_go(self, project_id: int) -> None:
        """The project was removed: an open file would keep its room on the disk."""
        self._kept.pop(project_id, None)
