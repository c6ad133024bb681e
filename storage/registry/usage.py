"""Disk usage of projects, as the byte quota of an account counts it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

StoredBytes = Callable[[int], int]
"""Returns the disk usage of a project in bytes, given its id; 0 when it has no store."""

_BLOCK = 512  # bytes; the unit of `st_blocks`, whatever the block size of the file system is


def nothing_stored(_project_id: int) -> int:
    """Return 0: the `StoredBytes` of a registry that has no project stores beside it."""
    return 0


def stored_bytes_in(projects: Path) -> StoredBytes:
    """Return a `StoredBytes` that measures the folders of projects.

    A folder holds the key-value store, and the SQL database when it is a SQLite file. Sparse
    files count with their allocated blocks only.
    """

    def stored(project_id: int) -> int:
        total = 0
        try:
            with os.scandir(projects / str(project_id)) as found:
                for entry in found:
                    total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
        except FileNotFoundError:  # the project has no folder, or is being removed
            return total
        return total

    return stored
