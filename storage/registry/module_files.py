"""Garbage collection of module files.

The folder `modules` holds each module once for all accounts, under its SHA-256, both as it was
uploaded and compiled. The file is written before its resource is added to the registry. So a file
without an owner is garbage only if its age exceeds the duration of any upload. A deleted resource
still owns its file as long as an applet needs the file.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Set
from pathlib import Path

GRACE_S = 300.0


def collect(folder: Path, owned: Set[str], grace_s: float = GRACE_S) -> int:
    """Remove the files and folders that have no owner and are older than `grace_s`.

    Args:
        folder: the folder of files whose names start with a SHA-256 and a dot.
        owned: the SHA-256 sums of modules that are in use.
        grace_s: age in seconds below which a file without an owner is kept.

    Returns:
        The number of files without an owner that were kept because they are too young.
    """
    oldest = time.time() - grace_s
    young = 0
    for path in folder.iterdir():
        if path.name.partition(".")[0] in owned:
            continue
        try:
            if path.stat().st_mtime > oldest:
                young += 1
            elif path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        except FileNotFoundError:
            continue  # the file was removed meanwhile
    return young
