"""LMDB's lock file: its readers' table, which all processes write to through a map.

LMDB makes the file as large as it needs and leaves the blocks to the first write to each page.
On a full disk that write has no way to fail but SIGBUS, which ends the process. So the blocks
are allocated here, before LMDB maps the file. (The data file needs none of this: without
`writemap`, which no store of ours uses, LMDB writes to it by system calls, and those return an
error.)
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

NAME = "lock.mdb"
_HEADER_BYTES = 4096  # more than LMDB's own header has
_READER_BYTES = 64
_BLOCK_BYTES = 512  # the unit of `st_blocks`, whatever the file system's is
# musl says so; glibc writes to each block instead.
_CANNOT_ALLOCATE = frozenset({errno.EOPNOTSUPP, errno.EINVAL})


def allocate(folder: Path, max_readers: int, *, resize: bool) -> int:
    """Have the lock file of the environment in `folder`, with all its blocks.

    Call it before LMDB opens the environment, never while this process has it open: closing a
    file gives up the process's locks on it, and LMDB holds one.

    Args:
        folder: the environment's; it exists.
        max_readers: for how many readers a file that is made here has room.
        resize: whether an existing file that nobody uses gets that room, too.

    Returns:
        For how many readers the file has room: what LMDB is to be told.

    Raises:
        OSError: no room on the disk, or no permission.
    """
    wanted = _HEADER_BYTES + max_readers * _READER_BYTES
    path = folder / NAME
    size = _allocated_size(path)
    if not size or (resize and size != wanted):
        size = _allocate(path, wanted, resize=resize)
    return max(1, (size - _HEADER_BYTES) // _READER_BYTES)


def _allocated_size(path: Path) -> int:
    """The size of a file that has all its blocks; 0 for any other."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0
    return found.st_size if found.st_blocks * _BLOCK_BYTES >= found.st_size else 0


def _allocate(path: Path, wanted: int, *, resize: bool) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        alone = _lock(descriptor)
        size = os.fstat(descriptor).st_size
        if size <= _HEADER_BYTES or (alone and resize):
            if size > wanted:
                os.ftruncate(descriptor, wanted)
            size = wanted
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            if error.errno not in _CANNOT_ALLOCATE:
                raise
        return size
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Whether no process uses the file; waits while another one is where we are. The lock is
    LMDB's own, so that no process maps the file meanwhile."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        fcntl.lockf(descriptor, fcntl.LOCK_SH, 1)
        return False
    return True
