"""Disk reserve for removals: blocks of a store's data file that are allocated in advance.

LMDB writes changed pages to free places of its file, and lets the file grow when there are none.
On a full disk even the removal of a row would fail then. A reserve keeps blocks behind the last
page in use. Only writes that add data need a complete reserve; removals may use it up.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from fieldbrook.storage.lmdb.environment import DATA
from fieldbrook.system.kernel import allocate

RESERVE_BYTES = 1 << 20
_STEP_BYTES = 4 << 20
# The file system cannot allocate blocks ahead; glibc writes to each block instead.
_CANNOT_ALLOCATE = frozenset({errno.EOPNOTSUPP, errno.EINVAL})


class DiskReserve:
    """The reserve of one open environment, whose only writer is its owner."""

    def __init__(self, folder: Path) -> None:
        """Open the data file, which must exist.

        Raises:
            OSError: it cannot be opened.
        """
        self._file = os.open(folder / DATA, os.O_RDWR | os.O_CLOEXEC)
        self._allocated = 0

    def ensure(self, used_bytes: int, free_bytes: int) -> None:
        """Make sure that there is a reserve, if not behind the last page then within the file.

        Args:
            used_bytes: where the last page ends.
            free_bytes: how much of this is free, since it was removed.

        Raises:
            OSError: the disk has no room for the reserve.
        """
        if self._allocated >= used_bytes + RESERVE_BYTES:
            return
        try:
            self._allocate(used_bytes, used_bytes + _STEP_BYTES)
        except OSError as error:
            if error.errno in _CANNOT_ALLOCATE:
                self._allocated = 1 << 62
            elif free_bytes < RESERVE_BYTES:
                self._allocate(used_bytes, used_bytes + RESERVE_BYTES)  # may fit still

    def close(self) -> None:
        """Close the file; what is allocated stays."""
        os.close(self._file)

    def _allocate(self, begin: int, end: int) -> None:
        allocate(self._file, begin, end - begin)
        self._allocated = end
