"""Temporary files and folders of requests, in `data/uploads`.

Their names begin with that of their gateway: when a gateway starts, it removes what it left when it
was killed, and nothing of another gateway that is at work.
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
    """A path in the folder of uploads that nobody else uses.

    Raises:
        OSError: the folder cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"{_prefix(part)}{secrets.token_hex(16)}{suffix}"


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that its owner alone can read.

    Raises:
        OSError: it is there, or cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def remove_left(folder: Path, part: str, parts: Collection[str]) -> int:
    """Remove what a gateway left when it was killed; to be called before it takes requests.

    Args:
        part: the gateway that starts.
        parts: all gateways of the node. The first one removes what is of none of them, too.

    Returns:
        How many files and folders were removed.
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
        except (OSError, RecursionError) as error:  # rmtree recurses: a deep tree is too much
            log.warning("%s, which a killed request left, cannot be removed: %s", path, error)
        else:
            removed += 1
    return removed


def _prefix(part: str) -> str:
    return part.replace(":", "-") + "."
