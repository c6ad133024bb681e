"""Keeps the count of a node's handled messages in a file, read from the journals of its workers.

    python -m benchmarks.count_watch JOURNALS PROJECT APPLET COUNT

The count is what the applet's `tally` handler has left in the newest batch, looked at every
millisecond. A batch is seen as soon as it is written, so up to one sync before it is committed;
the peers count in memory. Reading beside the node takes no time of the node's processes.
"""

from __future__ import annotations

import mmap
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import msgspec

from fieldbrook.storage.journal.records import HEAD_BYTES, head_at, padded
from fieldbrook.storage.journal.segments import BEGIN, find
from fieldbrook.storage.lmdb.codec import decode_record
from fieldbrook.storage.project import kv

_EVERY_S = 0.001


class _Pairs(msgspec.Struct, array_like=True):
    """The first fields of a `Batch`; the others are not decoded."""

    number: int
    pairs: list[tuple[bytes, bytes | None]]


class JournalTail:
    """Reads the records of one project that its worker adds to a journal from now on."""

    def __init__(self, folder: Path, project_id: int) -> None:
        self._folder, self._project_id = folder, project_id
        self._segment, self._at, self._data = 0, BEGIN, memoryview(b"")
        self._open_newest()

    def batches(self) -> Iterator[bytes]:
        """The batches that were added since the last time."""
        while True:
            head = head_at(self._data, self._at)
            if head is None or head.segment != self._segment:
                if not self._open_newest():
                    return
                continue
            begin = self._at + HEAD_BYTES
            following = begin + head.length
            batch = bytes(self._data[begin:following])
            if crc32(batch) != head.crc:
                return  # it is being written
            if head.project_id == self._project_id:
                yield batch
            self._at = following if head.left else padded(following)

    def _open_newest(self) -> bool:
        """Go on with the segment after the present one, if there is one."""
        found = find(self._folder, self._folder.name)
        later = [each for each in found if each.segment > self._segment]
        if not later:
            return False
        chosen = min(later, key=lambda one: one.segment)
        with chosen.path.open("rb") as file:
            self._data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self._segment, self._at = chosen.segment, BEGIN
        return True


def main(journals: Path, project_id: int, applet_id: int, count_file: Path) -> None:
    """Look until the process is ended; the workers must have started."""
    key = kv.stored_key(kv.scope(applet_id), b"count")
    tails = [JournalTail(folder, project_id) for folder in journals.iterdir() if folder.is_dir()]
    with count_file.open("r+b") as file:
        cell = mmap.mmap(file.fileno(), 8)
    while True:
        for tail in tails:
            for batch in tail.batches():
                value = dict(decode_record(batch, _Pairs).pairs).get(key)
                if value is not None:
                    cell[:] = value
        time.sleep(_EVERY_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
