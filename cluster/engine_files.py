"""Changes the stream files of a replication engine so that an engine without peers can read them.

A stream's folder has its configuration in `meta.inf`, and its checksum in `meta.sum`. An engine
without peers refuses streams with several replicas. The other files in the folder are the same with
one replica.

Source: nats-server 2.15, server/filestore.go (`writeStreamMeta`, `writeMsgRecordLocked`). The
checksum is HighwayHash-64 (J. Alakuijala, B. Cox and J. Wassenberg, Fast keyed hash/pseudo-random
function using SIMD multiply and permute, 2016), whose key is the SHA-256 of the stream's name.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from fieldbrook.core.errors import JournalDamagedError

_STREAMS = "jetstream/*/streams/*/meta.inf"
_MASK = (1 << 64) - 1
_LOW = (1 << 32) - 1
_PACKET = 32
_LANES = struct.Struct("<4Q")
# The length of the whole record, its number, the time, and the length of its subject.
_HEAD = struct.Struct("<IQ8xH")
_LENGTH_BITS = (1 << 31) - 1  # the highest bit is set if the record has headers
_NO_RECORD = 0b11 << 62  # one of these bits is set: a removed record, or the mark of one
_MULTIPLIERS_0 = (
    *(0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3),
)
_MULTIPLIERS_1 = (
    *(0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377),
)


def make_single(streams: Path) -> int:
    """Set all streams in a folder to one replica; return the number of streams.

    Args:
        streams: the `store_dir` of an engine that is not running. It should be a copy.

    Raises:
        JournalDamagedError: a configuration does not match its checksum, or has an unknown form.
        OSError: a file cannot be read or written.
    """
    found = sorted(streams.glob(_STREAMS))
    for path in found:
        key = hashlib.sha256(path.parent.name.encode()).digest()
        body, checksum = path.read_bytes(), path.with_name("meta.sum")
        if checksum.read_text("ascii").strip() != _checksum(key, body):
            raise JournalDamagedError(reason=f"{path} does not match its checksum")
        try:
            configuration = {**json.loads(body), "num_replicas": 1}
        except (ValueError, TypeError) as error:
            raise JournalDamagedError(reason=f"{path} has an unknown form: {error}") from error
        body = json.dumps(configuration).encode()
        path.write_bytes(body)
        checksum.write_text(_checksum(key, body), "ascii")
    return len(found)


def _checksum(key: bytes, body: bytes) -> str:
    return _HighwayHash(key).digest(body).to_bytes(8, "little").hex()


class _HighwayHash:
    """HighwayHash-64 of one message; only for short messages, because it is slow."""

    def __init__(self, key: bytes) -> None:
        lanes: tuple[int, ...] = _LANES.unpack(key)
        self._mul0, self._mul1 = list(_MULTIPLIERS_0), list(_MULTIPLIERS_1)
        self._v0 = [mul ^ lane for mul, lane in zip(_MULTIPLIERS_0, lanes, strict=True)]
        self._v1 = [mul ^ _swap(lane) for mul, lane in zip(_MULTIPLIERS_1, lanes, strict=True)]

    def digest(self, body: bytes) -> int:
        """Return the hash of the whole message."""
        whole = len(body) - len(body) % _PACKET
        for lanes in _LANES.iter_unpack(body[:whole]):
            self._update(lanes)
        if body[whole:]:
            self._update_last(body[whole:])
        for _ in range(4):
            v0 = self._v0
            self._update((_swap(v0[2]), _swap(v0[3]), _swap(v0[0]), _swap(v0[1])))
        return sum(lanes[0] for lanes in (self._v0, self._v1, self._mul0, self._mul1)) & _MASK

    def _update(self, lanes: Sequence[int]) -> None:
        v0, v1, mul0, mul1 = self._v0, self._v1, self._mul0, self._mul1
        for lane in range(4):
            v1[lane] = (v1[lane] + mul0[lane] + lanes[lane]) & _MASK
            mul0[lane] ^= (v1[lane] & _LOW) * (v0[lane] >> 32)
            v0[lane] = (v0[lane] + mul1[lane]) & _MASK
            mul1[lane] ^= (v0[lane] & _LOW) * (v1[lane] >> 32)
        for source, target in ((v1, v0), (v0, v1)):
            for lane in (0, 2):
                _add_zipped(source[lane], source[lane + 1], target, lane)

    def _update_last(self, rest: bytes) -> None:
        """Add the last bytes of a message, which are fewer than a packet."""
        size, words = len(rest), len(rest) & ~3
        for lane in range(4):
            self._v0[lane] = (self._v0[lane] + (size << 32) + size) & _MASK
            low, high = self._v1[lane] & _LOW, self._v1[lane] >> 32
            self._v1[lane] = _rotate(low, size) | (_rotate(high, size) << 32)
        packet = bytearray(_PACKET)
        packet[:words] = rest[:words]
        if size & 16:
            packet[28:32] = rest[-4:]
        elif size & 3:
            tail = rest[words:]
            packet[16:19] = bytes((tail[0], tail[len(tail) >> 1], tail[-1]))
        self._update(_LANES.unpack(packet))


def _add_zipped(low: int, high: int, target: list[int], lane: int) -> None:
    """Add the bytes of two lanes to two others, in the order of HighwayHash."""
    a, b = low.to_bytes(8, "little"), high.to_bytes(8, "little")
    zipped_0 = bytes((a[3], b[4], a[2], a[5], b[6], a[1], b[7], a[0]))
    zipped_1 = bytes((b[3], a[4], b[2], b[5], b[1], a[6], b[0], a[7]))
    target[lane] = (target[lane] + int.from_bytes(zipped_0, "little")) & _MASK
    target[lane + 1] = (target[lane + 1] + int.from_bytes(zipped_1, "little")) & _MASK


def _rotate(half: int, bits: int) -> int:
    return ((half << bits) | (half >> (32 - bits))) & _LOW


def _swap(lane: int) -> int:
    return (lane >> 32) | (lane << 32) & _MASK


def last_records(stream: Path) -> dict[bytes, int]:
    """Return the position of the last record of each subject in the files of a stream.

    An engine that finds damage skips the damaged record, or all records after it, and reports this
    only in its log. This function reads only the headers of records, so it also finds the skipped
    records.

    Args:
        stream: the folder of a stream; its engine must not be running.

    Raises:
        JournalDamagedError: a file ends within a record, or a record does not begin where it
            should.
        OSError: a file cannot be read.
    """
    by_subject = dict[bytes, int]()
    for path in (stream / "msgs").glob("*.blk"):
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            at = 0
            while at < size:
                head = file.read(_HEAD.size)
                if len(head) < _HEAD.size:
                    raise JournalDamagedError(reason=f"{path} is damaged at {at}")
                length, number, subject_length = _HEAD.unpack(head)
                length &= _LENGTH_BITS
                if length < _HEAD.size + subject_length or at + length > size:
                    raise JournalDamagedError(reason=f"{path} is damaged at {at}")
                if not number & _NO_RECORD:
                    subject = file.read(subject_length)
                    by_subject[subject] = max(by_subject.get(subject, 0), number)
                at += length
                file.seek(at)
    return by_subject
