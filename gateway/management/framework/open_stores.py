"""Cache of the project stores that a gateway has open for reading."""

from __future__ import annotations

from pathlib import Path
from weakref import WeakValueDictionary

from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.project.store import store_path
from fieldbrook.system.process import descriptor_limit

OPEN_LIMIT = 64
_LEAST = 4
_SHARE = 16  # stores may use this fraction (1/16) of the process's descriptors; each takes two


def open_limit() -> int:
    """Return the number of stores that a gateway keeps open: 64, or fewer if the process has few
    descriptors."""
    most = descriptor_limit()
    return OPEN_LIMIT if most is None else max(_LEAST, min(OPEN_LIMIT, most // _SHARE))


class OpenStores:
    """Keeps the most recently used stores open for the next request.

    A search reads in a thread and may still use a store that was removed from the cache. Therefore
    the cache only drops its reference, and LMDB closes the store with the last reference. A process
    must not open a store twice, so a removed store that is still in use is put back into the cache.
    """

    def __init__(self, projects: Path, limit: int = OPEN_LIMIT) -> None:
        self._projects = projects
        self._limit = limit
        self._kept: dict[int, ProjectStoreReader] = {}
        self._open: WeakValueDictionary[int, ProjectStoreReader] = WeakValueDictionary()

    def get(self, project_id: int) -> ProjectStoreReader | None:
        """The store of a project; None if the project has never run.

        Raises:
            StoreError: the store cannot be read.
        """
        store = self._kept.pop(project_id, None) or self._open.get(project_id)
        if store is None:
            store = ProjectStoreReader.open_if_exists(store_path(self._projects, project_id))
            if store is None:
                return None
            self._open[project_id] = store
        while len(self._kept) >= self._limit:
            del self._kept[next(iter(self._kept))]  # the least recently used one
        self._kept[project_id] = store
        return store

    def drop(self, project_id: int) -> None:
        """Drop the store of a removed project, because an open file still takes disk space."""
        self._kept.pop(project_id, None)
