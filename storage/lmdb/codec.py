"""Encoding of records: one byte of format version, then msgpack.

New fields are only ever added at the end of a record, with a default, and need no new
version. The version is raised when old bytes would be decoded wrongly.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from fieldbrook.core.errors import StoreError

FORMAT = 1

_PREFIX = bytes([FORMAT])
_ENCODER = msgspec.msgpack.Encoder()
_R = TypeVar("_R")

_decoders: dict[type, msgspec.msgpack.Decoder[Any]] = {}


def _decoder(kind: type[_R]) -> msgspec.msgpack.Decoder[_R]:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    return decoder


def encode_record(record: msgspec.Struct) -> bytes:
    """Encode `record` as it is stored."""
    return _PREFIX + _ENCODER.encode(record)


def decode_record(data: bytes, kind: type[_R]) -> _R:
    """Decode a record that `encode_record` encoded.

    Raises:
        StoreError: `data` has another format version, or is not a record of this kind.
    """
    if data[:1] != _PREFIX:
        found: Any = data[0] if data else "none"
        raise StoreError(
            reason=f"{kind.__name__} record has format {found}; this version reads {FORMAT}"
        )
    try:
        return _decoder(kind).decode(memoryview(data)[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreError(reason=f"{kind.__name__} record cannot be read: {error}") from error
