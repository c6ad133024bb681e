"""Files in memory that several processes append to (Linux only).

Such a file has no name on a disk: it lasts as long as one of the processes that inherited its
descriptor, whichever of them is killed.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
from pathlib import Path

_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # flags of fallocate(2)

_libc = ctypes.CDLL(None, use_errno=True)


def create_memory_file(name: str, start: int) -> int:
    """Create an empty file in memory whose first byte will have the offset `start`.

    The kernel appends each write as a whole: writers need no lock, so that one that is stopped or
    killed holds up no other. A killed writer can leave the beginning of its last write.

    Args:
        name: shown in `/proc/PID/fd`, for people.
        start: offset in bytes; a file keeps no memory for what lies before.

    Returns:
        The descriptor, which forks inherit and other programs do not.

    Raises:
        OSError: the system has no such files, or `start` is above the limit of file sizes.
    """
    if not hasattr(os, "memfd_create"):
        raise OSError("this system has no files in memory")
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, start)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_RDWR | os.O_APPEND)
        free_before(descriptor, start)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_memory_file(descriptor: int, name: str) -> bool:
    """Whether a descriptor is open and is a file that `create_memory_file` made with `name`."""
    try:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
    except OSError:
        return False
    return str(target).startswith(f"/memfd:{name} ")


def free_before(descriptor: int, offset: int) -> None:
    """Free the memory of a file up to an offset; these bytes read as zeros from then on.

    Raises:
        OSError: the system cannot free parts of a file.
    """
    arguments = (ctypes.c_int64(0), ctypes.c_int64(offset))
    if _libc.fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, *arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
