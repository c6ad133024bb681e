"""Records as bytes. A journal round is what one `sync` writes: whole blocks, zeros at the end.

A synced block is never written again, so a power cut damages the last round only. The head of a
record contains the number of records that follow in its round: zeros after the last one are the end
of the round, and zeros anywhere else are damage. The head has its own checksum, so that the project
and the number of a damaged batch can still be read.

If a later round follows a bad record, the bad record is damage, because a round is written only
when the previous one is on disk. If no round follows, the bad record may be the rest of a write
that a crash interrupted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

from fieldbrook.storage.journal.protocol import Record

BLOCK = 4_096
# Length and CRC-32 of the batch, the segment's id, the place in the round, how many records of
# the round follow, project, number; then the CRC-32 of this head.
_HEAD = struct.Struct("<IIQIIQQ")
_CRC = struct.Struct("<I")
HEAD_BYTES = _HEAD.size + _CRC.size

Bad = Callable[[int, int, int, int], None]
"""Called for a damaged place: offset of the first byte, offset after the last byte, project and
number (0 if unknown)."""


class Head(NamedTuple):
    """The head of a record, before its batch."""

    length: int
    crc: int
    segment: int
    place: int
    left: int
    project_id: int
    number: int


def padded(size: int) -> int:
    """Round a size in bytes up to whole blocks."""
    return -(-size // BLOCK) * BLOCK


def pack_round(records: Sequence[Record], segment: int) -> bytes:
    """Pack records as one round of the segment with this id."""
    parts: list[bytes] = []
    left = len(records)
    for place, (project_id, number, batch) in enumerate(records):
        left -= 1
        head = _HEAD.pack(len(batch), crc32(batch), segment, place, left, project_id, number)
        parts += (head, _CRC.pack(crc32(head)), batch)
    size = sum(map(len, parts))
    parts.append(bytes(padded(size) - size))
    return b"".join(parts)


def head_at(data: memoryview, at: int) -> Head | None:
    """Return the head at an offset; None if there is no valid head."""
    if at + HEAD_BYTES > len(data):
        return None
    crc = _CRC.unpack_from(data, at + _HEAD.size)[0]
    if crc32(data[at : at + _HEAD.size]) != crc:
        return None
    return Head._make(_HEAD.unpack_from(data, at))


def read_records(
    data: memoryview, begin: int, end: int | None, segment: int, bad: Bad
) -> Iterator[Record]:
    """Iterate over the records of a segment.

    Args:
        data: the file.
        begin: offset of the first round.
        end: the offset at which the last round ends. If it is None (unknown), a bad record that no
            round follows ends the reading.
        segment: the segment's id; the file has older records of other segments.
        bad: called for each damaged place.
    """
    at, limit = begin, len(data) if end is None else end
    while at < limit:
        head = head_at(data, at)
        if head is not None and head.segment != segment:
            head = None
        following = 0 if head is None else at + HEAD_BYTES + head.length
        batch = data[at + HEAD_BYTES : following]
        if head is not None and following <= limit and crc32(batch) == head.crc:
            yield Record(head.project_id, head.number, bytes(batch))
        else:
            later = _next_round(data, at, limit, segment)
            if later is None and end is None:
                return
            if head is None or following > limit:
                bad(at, later or limit, 0, 0)
                at = later or limit
                continue
            bad(at, following, head.project_id, head.number)
        at = following if head.left else padded(following)


def _next_round(data: memoryview, at: int, limit: int, segment: int) -> int | None:
    """Return the offset of the next round after `at`, or None."""
    for block in range((at // BLOCK + 1) * BLOCK, limit, BLOCK):
        head = head_at(data, block)
        if head is not None and head.segment == segment and head.place == 0:
            return block
    return None
