"""Disk reserve for removals: blocks of a store's data file that are allocated in advance.

LMDB writes changed pages to free places of its file; without free places the file grows. Then even
the removal of a row would fail on a full disk. The reserve is a number of blocks after the last
page in use. Writes that add data require a complete reserve; removals may use it up.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from fieldbrook.storage.lmdb.environment import DATA
from fieldbrook.system.kernel import allocate

RESERVE_BYTES = 1 << 20
_STEP_BYTES = 4 << 20
# Error numbers if the file system cannot allocate blocks in advance; glibc writes to each block
# instead.
_CANNOT_ALLOCATE = frozenset({errno.EOPNOTSUPP, errno.EINVAL})


class DiskReserve:
    """The reserve of one open environment; only the owner of this object may write to the
    environment."""

    def __init__(self, folder: Path) -> None:
        """Open the data file, which must exist.

        Raises:
            OSError: the file cannot be opened.
        """
        self._file = os.open(folder / DATA, os.O_RDWR | os.O_CLOEXEC)
        self._allocated = 0

    def ensure(self, used_bytes: int, free_bytes: int) -> None:
        """Make sure that there is a reserve: after the last page or, if the disk is full, as free
        pages of the file.

        Args:
            used_bytes: the offset of the end of the last page.
            free_bytes: how many of these bytes are in free pages.

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
                self._allocate(used_bytes, used_bytes + RESERVE_BYTES)  # may still fit

    def close(self) -> None:
        """Close the file; the allocated blocks stay."""
        os.close(self._file)

    def _allocate(self, begin: int, end: int) -> None:
        allocate(self._file, begin, end - begin)
        self._allocated = end
