"""Atomic file writes: a file is either complete or absent."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from fieldbrook.system.fsync import sync_folder

TEMPORARY_PREFIX = ".new-"


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file atomically and fsync it. Only its owner can read it.

    Raises:
        OSError: the file could not be written, or its folder could not be synced. Before the
            rename, an earlier file stays as it was.
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
    """Remove the incomplete files of a killed process."""
    for path in folder.glob(f"{TEMPORARY_PREFIX}{pid}-*"):
        with suppress(FileNotFoundError):
            path.unlink()
