"""Keeps the count of a node's handled messages in a file, read from the project's store.

    python -m benchmarks.count_watch STORE APPLET COUNT

The count is what the applet's `tally` handler has committed, looked at every millisecond;
reading beside the node takes no time of the node's processes.
"""

from __future__ import annotations

import mmap
import sys
import time
from pathlib import Path

from fieldbrook.storage.project.reader import ProjectStoreReader

_EVERY_S = 0.001


def main(store: Path, applet_id: int, count_file: Path) -> None:
    """Look until the process is ended; the store must exist."""
    with count_file.open("r+b") as file:
        cell = mmap.mmap(file.fileno(), 8)
    reader = ProjectStoreReader(store)
    while True:
        value = reader.kv_get(applet_id, b"count")
        if value is not None:
            cell[:] = value
        time.sleep(_EVERY_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
