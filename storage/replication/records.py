"""Records of a replicated journal as bytes.

A project has a subject in a stream, and so has the registry. The records of a subject form a chain:
each names the position of the record before it. The stream stores a record only if the record
before it is still the last one of the subject. So after a takeover the previous owner host cannot
append any more, whatever clocks and networks do.
"""

from __future__ import annotations

import zlib
from enum import StrEnum

import msgspec

from fieldbrook.core.errors import JournalDamagedError

FORMAT = 1
"""The newest format of records. A host writes the newest format that all hosts of its cluster can
read."""
_CRC_BYTES = 4


class Kind(StrEnum):
    """The kind of a record."""

    TAKEOVER = "t"
    BATCH = "b"
    SNAPSHOT = "s"
    RELEASE = "r"


class Entry(msgspec.Struct, array_like=True, frozen=True):
    """The content of a record.

    Attributes:
        format: see `FORMAT`.
        kind: the kind of the record.
        previous: the position of the previous record of the subject; 0 for the first one.
        term: increases by one with each takeover.
        host: the host that wrote it.
        number: the number of the owner's last batch, this one included.
        body: the batch; for other kinds see `takeover.py` and `snapshots.py`.
        place: the number of the record within its term, so that a host recognises its own records.
    """

    format: int
    kind: Kind
    previous: int
    term: int
    host: str
    number: int
    body: bytes
    place: int


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Entry)


def encode_entry(entry: Entry) -> bytes:
    """Encode a record, with a checksum."""
    data = _encode(entry)
    return zlib.crc32(data).to_bytes(_CRC_BYTES, "big") + data


def decode_entry(subject: str, position: int, data: bytes) -> Entry:
    """Decode a record that `encode_entry` encoded.

    Raises:
        JournalDamagedError: its checksum is wrong, or a newer version wrote it.
    """
    content = memoryview(data)[_CRC_BYTES:]
    where = f"record {position} of {subject}"
    if zlib.crc32(content).to_bytes(_CRC_BYTES, "big") != data[:_CRC_BYTES]:
        raise JournalDamagedError(reason=f"{where} is damaged: its checksum is wrong")
    try:
        entry = _decoder.decode(content)
    except msgspec.MsgspecError as error:
        raise JournalDamagedError(reason=f"{where} cannot be read: {error}") from error
    if entry.format > FORMAT:
        raise JournalDamagedError(
            reason=f"{where} has format {entry.format}; this version reads {FORMAT}"
        )
    return entry
