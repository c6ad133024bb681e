"""Readers of project stores in the process that writes them."""

from __future__ import annotations

from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.project.store import ProjectStore


def reader_of(store: ProjectStore) -> ProjectStoreReader:
    """Return a reader like that of another process. LMDB forbids two environments of a store in one
    process, so the reader uses the environment of the store."""
    reader = ProjectStoreReader.__new__(ProjectStoreReader)
    reader._environment = store._stored.environment
    reader._kv, reader._logs = store._tables.kv, store._tables.logs
    return reader
