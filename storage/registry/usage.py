"""How much of the disk projects take, as the quota of an account counts it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

StoredBytes = Callable[[int], int]
"""What a project (its id) takes on the disk, in bytes; 0 when it has no store."""

_BLOCK = 512  # POSIX: the unit of `st_blocks`, whatever the file system's is


def nothing_stored(_project_id: int) -> int:
    """A `StoredBytes` for a registry without stores beside it."""
    return 0


def stored_bytes_in(projects: Path) -> StoredBytes:
    """A `StoredBytes` that looks at the folders of projects: the key-value store, and the SQL
    database where that is a file. Files with holes count as far as they are filled."""

    def stored(project_id: int) -> int:
        total = 0
        try:
            with os.scandir(projects / str(project_id)) as found:
                for entry in found:
                    total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
        except FileNotFoundError:  # it has none, or is being removed
            return total
        return total

    return stored
