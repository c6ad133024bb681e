"""Files that are either whole or not there."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from fieldbrook.system.fsync import sync_folder

TEMPORARY_PREFIX = ".new-"


def write_atomically(path: Path, data: bytes) -> None:
    """Put a file in place, synced, readable by its owner only.

    Raises:
        OSError: it could not be written; what was there before still is.
    """
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-{path.name}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def remove_temporary(folder: Path, pid: int) -> None:
    """Remove what a process that was killed left half written."""
    for path in folder.glob(f"{TEMPORARY_PREFIX}{pid}-*"):
        with suppress(FileNotFoundError):
            path.unlink()
