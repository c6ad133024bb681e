"""Disk space that a copy of a stopped node's data folder needs while it is made.

The result is an upper limit: stores are copied without their free pages, and archives are
compressed. Batches that a killed node has left in its journals may need the same space again in the
copy.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fieldbrook.storage.journal.recovery import JOURNALS

# These are not copied: files of a running node, earlier copies, and files that the node makes
# again.
_LEFT_OUT = frozenset({"run", "uploads", "broker", "rollback", JOURNALS})
_MADE_AGAIN = (".cwasm", "lock.mdb")
_BLOCK = 4096  # the smallest size of a file on the disk; sizes are rounded up to a multiple
_SLACK = 1 << 20


def bytes_to_copy(data: Path) -> int:
    """Return how many bytes `back_up_stopped` may need: the copied files, and then the archive.

    While the files are copied, there are also copies of the journals. These are removed before the
    archive is written.

    Raises:
        OSError: the folder cannot be read.
    """
    files = sum(map(_on_disk, _files(data)))
    journals = sum(map(_on_disk, (data / JOURNALS).rglob("*")))
    return files + max(files, journals) + _SLACK


def _files(data: Path) -> Iterator[Path]:
    for top in data.iterdir():
        if top.name not in _LEFT_OUT:
            yield top
            yield from (path for path in top.rglob("*") if not path.name.endswith(_MADE_AGAIN))


def _on_disk(path: Path) -> int:
    """Return the size of a file in whole blocks; the size of a folder is one block."""
    try:
        size = os.lstat(path).st_size
    except FileNotFoundError:  # a running node has removed it
        return 0
    return -(-max(size, 1) // _BLOCK) * _BLOCK
