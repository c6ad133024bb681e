"""The files of modules, and when they may go.

A module lies in the folder `modules` under its SHA-256, as it was uploaded and compiled,
once for all accounts. It is there before the registry hears of it, so a file nobody owns
is only garbage when it is older than any upload takes. A resource that its account has
deleted owns its file for as long as an applet needs it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Set
from pathlib import Path

GRACE_S = 300.0


def collect(folder: Path, owned: Set[str], grace_s: float = GRACE_S) -> int:
    """Remove the files, and folders, that nobody owns.

    Args:
        folder: of files whose names start with a SHA-256 and a dot.
        owned: the SHA-256 sums that somebody has a use for.
        grace_s: how long a file is left alone after it was written.

    Returns:
        How many were left alone though nobody owns them.
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
            continue  # whoever wrote it has removed it
    return young
