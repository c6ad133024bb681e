"""Segments: the files of a journal, filled with zeros when created, and then used in rotation.

A segment contains heads and journal rounds (`records.py`). A sync of a file whose blocks exist
writes no metadata, and needs no space on the disk. The first two blocks contain a head each. When a
file is used for the next segment, one of the two blocks is written. If this write is interrupted,
the other block still has the head of the file's last segment. The head of a segment names the
previous segment and the end of its valid part, so that the rest of a failed sync is not read.
"""

from __future__ import annotations

import errno
import os
import secrets
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from fieldbrook.core.errors import JournalDamagedError, StoreError
from fieldbrook.observability import fault_points
from fieldbrook.storage.journal.protocol import Damaged, Record
from fieldbrook.storage.journal.records import BLOCK, HEAD_BYTES, head_at, read_records
from fieldbrook.storage.lmdb.environment import store_errors
from fieldbrook.system.fsync import sync_folder
from fieldbrook.system.kernel import allocate

FORMAT = 1
BEGIN = 2 * BLOCK  # offset of the first round
SUFFIX = ".segment"
DAMAGED_SUFFIX = ".damaged"
NEW_SUFFIX = ".new"  # of a file that is being created
WORKER_BYTES = 64  # length of a worker's name

_MAGIC = b"fbjournl"
_HEAD = struct.Struct(f"<8sIIQQQQ{WORKER_BYTES}s")
_CRC = struct.Struct("<I")
_CHUNK = 1 << 20
_COUNT_SHIFT = 32

Sync = Callable[[int], None]
"""Syncs a descriptor to disk: `kernel.sync_data`, or a function of a test."""


class SegmentHead(NamedTuple):
    """The head of a segment, synced before its first record is written.

    `segment` is its id: a count in the upper 32 bits, and random bits in the lower ones, so that no
    handler can write a value that looks like a record of the segment. `previous` is the id of the
    previous segment, whose rounds end at `previous_end`; 0 if there is none. `oldest` is the id of
    the first segment with records that some store may lack.
    """

    size: int
    segment: int
    previous: int
    previous_end: int
    oldest: int


def next_id(segment: int) -> int:
    """Return the id of the segment that follows the segment with this id."""
    return (((segment >> _COUNT_SHIFT) + 1) << _COUNT_SHIFT) | secrets.randbits(_COUNT_SHIFT)


class Found(NamedTuple):
    """A file of a journal as it is on the disk.

    `head` is the newer one of its two heads, and is at block `copy`; None if there is none.
    `segment` is the id of the segment for which the file was last used, 0 for a new file. If the
    head is damaged, the id is that of the first record.
    """

    path: Path
    size: int
    head: SegmentHead | None
    copy: int
    segment: int


class SegmentFile:
    """An open file of the journal, which contains one segment at a time."""

    def __init__(self, found: Found, worker: str, sync: Sync) -> None:
        """Open the file for writing. This and the methods may raise `OSError`."""
        self.path = found.path
        self._copy = found.copy
        self._worker = worker.encode()
        self._sync = sync
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)

    def put_head(self, head: SegmentHead) -> None:
        """Write the head of the file's next segment, and sync it."""
        data = _HEAD.pack(_MAGIC, FORMAT, *head, self._worker)
        data += _CRC.pack(crc32(data))
        self._copy = 1 - self._copy
        fault_points.hit("journal.before_head")
        _write_all(self._descriptor, data + bytes(BLOCK - len(data)), self._copy * BLOCK)
        self._sync(self._descriptor)
        fault_points.hit("journal.head_written")

    def append(self, data: bytes, at: int) -> None:
        """Write a round, and sync it."""
        fault_points.hit("journal.before_append")
        done = 0
        if fault_points.is_armed:
            done = len(data) // 2
            _write_all(self._descriptor, data[:done], at)
            fault_points.hit("journal.half_appended")
        _write_all(self._descriptor, data[done:], at + done)
        fault_points.hit("journal.before_sync")
        self._sync(self._descriptor)
        fault_points.hit("journal.synced")

    def close(self) -> None:
        os.close(self._descriptor)


def create(path: Path, size: int) -> Found:
    """Create a file of zeros, and rename it to its name when it is complete. It may raise
    `OSError`."""
    new = path.with_suffix(NEW_SUFFIX)
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        allocate(descriptor, 0, size)  # fails on a full disk, before anything is written
        for at in range(0, size, _CHUNK):
            _write_all(descriptor, bytes(min(_CHUNK, size - at)), at)
        os.fsync(descriptor)
        new.replace(path)
        sync_folder(path.parent)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    return Found(path, size, None, 1, 0)


def _write_all(descriptor: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written


# ---------------------------------------------------------------- reading


def find(folder: Path, worker: str) -> list[Found]:
    """Find all files of a journal; it removes nothing.

    Raises:
        StoreError: a file cannot be read, has another format, or belongs to another worker.
    """
    with store_errors(folder):
        return [_look(path, worker) for path in sorted(folder.glob(f"*{SUFFIX}"))]


def _look(path: Path, worker: str) -> Found:
    if not path.is_file():  # a pipe would be waited for
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with path.open("rb") as file:
        data = memoryview(file.read(BEGIN + HEAD_BYTES))
        size = os.fstat(file.fileno()).st_size
    head, copy = None, 1
    for block in range(2):
        read = _read_head(path, bytes(data[block * BLOCK : (block + 1) * BLOCK]), worker)
        if read is not None and (head is None or read.segment > head.segment):
            head, copy = read, block
    first = head_at(data, BEGIN)
    segment = max(head.segment if head else 0, first.segment if first else 0)
    return Found(path, size, head if head and head.segment == segment else None, copy, segment)


def _read_head(path: Path, block: bytes, worker: str) -> SegmentHead | None:
    data = block[: _HEAD.size]
    if not data.startswith(_MAGIC) or block[_HEAD.size :][: _CRC.size] != _CRC.pack(crc32(data)):
        return None
    _, form, *fields, name = _HEAD.unpack(data)
    if form != FORMAT:
        raise StoreError(reason=f"{path}: journal of format {form}; this version reads {FORMAT}")
    owner = name.rstrip(b"\0").decode("utf-8", "replace")
    if owner != worker:
        raise StoreError(reason=f"{path}: it belongs to the journal of worker {owner!r}")
    return SegmentHead(*fields)


def read_segments(found: list[Found], damaged: Damaged) -> Iterator[Record]:
    """Iterate over the records of a journal that a store may lack, in their order.

    Raises:
        JournalDamagedError: from `damaged`.
        StoreError: a file cannot be read.
    """
    for part, end in _in_order(found, damaged):

        def bad(at: int, to: int, project_id: int, number: int, path: Path = part.path) -> None:
            what = f"batch {number} of project {project_id}" if number else "unknown batches"
            damaged(
                _damage(path, at, f"bytes {at} to {to} are damaged: {what}", project_id, number)
            )

        with store_errors(part.path):
            data = memoryview(part.path.read_bytes())
        if part.head is None:
            damaged(_damage(part.path, 0, "the head of the segment is damaged"))
        yield from read_records(data, BEGIN, end, part.segment, bad)
        if part.head is not None and part.head.size != len(data):
            reason = f"the file has {len(data)} bytes instead of {part.head.size}"
            damaged(_damage(part.path, len(data), reason))


def _in_order(found: list[Found], damaged: Damaged) -> list[tuple[Found, int | None]]:
    """Return the segments to read, oldest first, and the offset at which the last round of each
    ends."""
    for part in found:
        if part.size < BEGIN:
            damaged(_damage(part.path, part.size, f"the file has only {part.size} bytes"))
    by_id = {part.segment: part for part in found if part.segment}
    oldest = max((part.head.oldest for part in found if part.head), default=0)
    chain: list[tuple[Found, int | None]] = []
    segment, end = max(by_id, default=0), None
    while segment and segment >= oldest:
        part = by_id[segment]
        chain.append((part, end))
        earlier = max((one for one in by_id if one < segment), default=0)
        if part.head is None:
            segment, end = earlier, None
        elif part.head.previous < oldest or part.head.previous in by_id:
            segment, end = part.head.previous, part.head.previous_end
        else:
            count = part.head.previous >> _COUNT_SHIFT
            damaged(_damage(part.path, 0, f"the previous segment, {count}, is missing"))
            segment, end = earlier, None
    return chain[::-1]


def _damage(
    path: Path, offset: int, what: str, project_id: int = 0, number: int = 0
) -> JournalDamagedError:
    return JournalDamagedError(
        reason=f"{path}: {what}", file=path.name, offset=offset, project=project_id, number=number
    )
