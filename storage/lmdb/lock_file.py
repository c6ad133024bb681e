"""LMDB's lock file: the table of readers, which all processes write through a memory map.

LMDB creates a sparse file: the disk blocks are allocated by the first write to each page. On a
full disk such a write raises SIGBUS, which ends the process. This module therefore allocates
the blocks before LMDB maps the file. The data file does not need this: no store here uses
`writemap`, so LMDB writes it with system calls, which return an error.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from fieldbrook.system import kernel

NAME = "lock.mdb"
_HEADER_BYTES = 4096  # larger than LMDB's own header
_READER_BYTES = 64
_BLOCK_BYTES = 512  # the unit of `st_blocks`, independent of the file system
# Error numbers if the file system cannot allocate blocks, with musl; glibc writes to each block
# instead.
_CANNOT_ALLOCATE = frozenset({errno.EOPNOTSUPP, errno.EINVAL})


def allocate(folder: Path, max_readers: int, *, resize: bool) -> int:
    """Make sure that the lock file of the environment in `folder` exists with all its blocks.

    Call it before LMDB opens the environment, never while this process has it open: closing the
    file releases all of the process's POSIX locks on it, and LMDB holds one.

    Args:
        folder: the folder of the environment; it must exist.
        max_readers: the number of reader slots of a new file.
        resize: whether an existing file that no process uses is resized to `max_readers`.

    Returns:
        The number of reader slots in the file, to be passed to LMDB.

    Raises:
        OSError: the disk is full, or permission is denied.
    """
    wanted = _HEADER_BYTES + max_readers * _READER_BYTES
    path = folder / NAME
    size = _allocated_size(path)
    if not size or (resize and size != wanted):
        size = _allocate(path, wanted, resize=resize)
    return max(1, (size - _HEADER_BYTES) // _READER_BYTES)


def _allocated_size(path: Path) -> int:
    """Return the size of the file when all its blocks are allocated, otherwise 0."""
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
            kernel.allocate(descriptor, 0, size)
        except OSError as error:
            if error.errno not in _CANNOT_ALLOCATE:
                raise
        return size
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock the file and return whether no other process uses it.

    This function waits while another process holds the lock exclusively. LMDB itself locks the same
    byte, so no process can map the file meanwhile.
    """
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        fcntl.lockf(descriptor, fcntl.LOCK_SH, 1)
        return False
    return True
