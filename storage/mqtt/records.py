"""The rows of the MQTT listener's store: keys, and encoding of values.

| table | key | value |
|---|---|---|
| `sessions` | `text_key` of the session's key | `SessionRecord` |
| `queue` | uid of the session, sequence number: 8 bytes each | `MessageRecord`; empty if released |
| `retained` | `text_key` of the topic | `MessageRecord` |
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.lmdb.codec import decode_record, encode_record
from fieldbrook.storage.lmdb.ids import from_key, to_key
from fieldbrook.storage.lmdb.table import text_key
from fieldbrook.storage.mqtt.operations import (
    KEY_LIMIT_BYTES,
    RECORD_LIMIT_BYTES,
    StoredMessage,
    StoredSession,
)

SESSIONS, QUEUE, RETAINED = b"sessions", b"queue", b"retained"
RELEASED = b""
_UID_BYTES = 8


class SessionRecord(msgspec.Struct, array_like=True, frozen=True):
    """A session; see `StoredSession`."""

    key: str
    uid: int
    record: bytes


class MessageRecord(msgspec.Struct, array_like=True, frozen=True):
    """A message; see `StoredMessage`.

    Rows of earlier versions lack the last three fields, and their size is that of the payload
    alone.
    """

    size: int
    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: bytes
    expires_at_ms: int
    publisher_id: int = 0
    project_id: int = 0
    holder: str = ""


class _Size(msgspec.Struct, array_like=True, frozen=True):
    size: int


_decode_size = msgspec.msgpack.Decoder(_Size).decode


def encode_session(session: StoredSession) -> bytes:
    """Encode a session.

    Raises:
        StoreError: the key or the record of the session is too long.
    """
    for what, size, limit in (
        ("key", len(session.key.encode()), KEY_LIMIT_BYTES),
        ("record", len(session.record), RECORD_LIMIT_BYTES),
    ):
        if size > limit:
            reason = f"the {what} of an MQTT session has {size} bytes; the limit is {limit}"
            raise StoreError(reason=reason)
    return encode_record(SessionRecord(session.key, session.uid, session.record))


def decode_session(data: bytes) -> StoredSession:
    """Decode a session.

    Raises:
        StoreError: the session cannot be read.
    """
    found = decode_record(data, SessionRecord)
    return StoredSession(found.key, found.uid, found.record)


def encode_message(topic: str, message: StoredMessage) -> bytes:
    """Encode a message under the topic `topic`."""
    return encode_record(
        MessageRecord(
            message.size,
            topic,
            message.payload,
            message.qos,
            message.retain,
            message.properties,
            message.expires_at_ms,
            message.publisher_id,
            message.project_id,
            message.holder,
        )
    )


def decode_message(data: bytes) -> StoredMessage:
    """Decode a message.

    Raises:
        StoreError: the message cannot be read.
    """
    found = decode_record(data, MessageRecord)
    return StoredMessage(
        found.topic,
        found.payload,
        found.qos,
        found.retain,
        found.properties,
        found.expires_at_ms,
        found.publisher_id,
        found.project_id,
        found.holder,
    )


def message_size(data: memoryview | bytes) -> int:
    """Return the size of the message in a row of the queue, without reading the whole row.

    Raises:
        StoreError: the row cannot be read.
    """
    try:
        return _decode_size(data[1:]).size if data else 0
    except msgspec.MsgspecError as error:
        raise StoreError(reason=f"a row of an MQTT queue cannot be read: {error}") from error


def row_key(uid: int, sequence: int) -> bytes:
    """Return the key of a row of the queue. Keys sort by session, then by sequence number."""
    return to_key(uid) + to_key(sequence)


def uid_of(key: bytes) -> int:
    """Return the session to which a row of the queue belongs."""
    return from_key(key[:_UID_BYTES])


def sequence_of(key: bytes) -> int:
    """Return the sequence number of a row of the queue."""
    return from_key(key[_UID_BYTES:])


def _check_session(key: bytes, data: bytes) -> None:
    if text_key(decode_session(data).key) != key:
        raise ValueError("the session has another key")


def _check_row(key: bytes, data: bytes) -> None:
    if len(key) != len(row_key(0, 0)):
        raise ValueError("not the key of a row of a queue")
    if data:
        message = decode_message(data)
        if message_size(data) not in (message.size, len(message.payload)):
            raise ValueError("the message has another size")


def _check_retained(key: bytes, data: bytes) -> None:
    if text_key(decode_message(data).topic) != key:
        raise ValueError("the message has another topic")


CHECKS: dict[bytes, Callable[[bytes, bytes], None]] = {
    SESSIONS: _check_session,
    QUEUE: _check_row,
    RETAINED: _check_retained,
}
"""The function that checks a row, by table. It raises StoreError or ValueError if the row is
damaged."""
