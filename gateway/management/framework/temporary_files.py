"""Temporary files and folders of requests, in `data/uploads`.

The name of each file begins with the name of its gateway. A gateway that starts removes the files
that it left behind when it was killed, but no files of another gateway that is running.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
from collections.abc import Collection
from pathlib import Path

log = logging.getLogger(__name__)

FIRST_PART = "http:0"


def new_path(folder: Path, part: str, suffix: str) -> Path:
    """Return a new, unique path in the folder of uploads; create the folder if it does not exist.

    Raises:
        OSError: the folder cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"{_prefix(part)}{secrets.token_hex(16)}{suffix}"


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read (mode 0600).

    Raises:
        OSError: the file exists already, or cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def remove_leftovers(folder: Path, part: str, parts: Collection[str]) -> int:
    """Remove the files that a killed gateway left. Call this before the gateway accepts requests.

    Args:
        part: the gateway that starts.
        parts: all gateways of the node. The gateway `FIRST_PART` also removes files that belong to
            no gateway.

    Returns:
        The number of files and folders that were removed.
    """
    others = tuple(_prefix(other) for other in parts if other != part)
    removed = 0
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        mine = path.name.startswith(_prefix(part))
        if not mine and (part != FIRST_PART or path.name.startswith(others)):
            continue
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        except (OSError, RecursionError) as error:  # rmtree is recursive: the tree may be too deep
            log.warning("cannot remove %s, a temporary file of a killed request: %s", path, error)
        else:
            removed += 1
    return removed


def _prefix(part: str) -> str:
    return part.replace(":", "-") + "."
