"""Bounded reading of files that another user may have made."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

FILE_LIMIT_BYTES = 256 << 20


def read_regular_file(path: Path, limit_bytes: int = FILE_LIMIT_BYTES) -> bytes:
    """Read a regular file, or the regular file to which a symbolic link leads.

    A pipe without a writer does not block, and a device such as /dev/zero is not read.

    Raises:
        OSError: the file cannot be read, is not a regular file, or has more than `limit_bytes`;
            `strerror` has the reason.
    """
    with open(path, "rb", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise OSError(errno.EFBIG, f"more than {limit_bytes} bytes", str(path))
    return content


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
