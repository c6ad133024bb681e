"""The records that the listener stores, and the operations that change them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

KEY_LIMIT_BYTES = 1 << 10
RECORD_LIMIT_BYTES = 64 << 10
_OVERHEAD_BYTES = 64  # size of a row without its texts: its key, its numbers, its place in a page


class StoredMessage(msgspec.Struct, frozen=True):
    """A queued message for a subscriber, or a retained message.

    `properties` are encoded by the gateway. `expires_at_ms` is a Unix time, 0 for never.
    If the message is a reply to a publisher, `publisher_id` and `project_id` name that publisher;
    otherwise they are 0. `holder` names the login or address whose share of the retained messages
    it uses.
    """

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: bytes
    expires_at_ms: int
    publisher_id: int = 0
    project_id: int = 0
    holder: str = ""

    @property
    def size(self) -> int:
        """The size of topic, payload and properties in bytes."""
        return len(self.topic.encode()) + len(self.payload) + len(self.properties)


class StoredSession(msgspec.Struct, frozen=True):
    """A session of a client.

    `key` names the client, in at most `KEY_LIMIT_BYTES`. Rows of the queue belong to `uid`, a
    random number of 63 bits that is never used again: a new session with an old key does not get
    the rows of the old session. `record` is encoded by the gateway, in at most
    `RECORD_LIMIT_BYTES`.
    """

    key: str
    uid: int
    record: bytes


class PutSession(msgspec.Struct, frozen=True):
    """Store a new or changed session. If another session has the same key, its queue is removed."""

    session: StoredSession


class DeleteSession(msgspec.Struct, frozen=True):
    """Remove a session and its queue. A session with the same key and another uid stays."""

    key: str
    uid: int


class Enqueue(msgspec.Struct, frozen=True):
    """Add a message to the queue of a session. Sequence numbers are below 2**63."""

    uid: int
    sequence: int
    message: StoredMessage


class Dequeue(msgspec.Struct, frozen=True):
    """Remove a row of a queue, if it exists."""

    uid: int
    sequence: int


class Release(msgspec.Struct, frozen=True):
    """Replace the message of a row, if the row exists, by the mark *released*.

    That is the state of a QoS 2 message between PUBREC and PUBCOMP.
    """

    uid: int
    sequence: int


class PutRetained(msgspec.Struct, frozen=True):
    """Store the retained message of a topic, which is also the topic of the message."""

    topic: str
    message: StoredMessage


class DeleteRetained(msgspec.Struct, frozen=True):
    """Remove the retained message of a topic, if there is one."""

    topic: str


Addition = PutSession | Enqueue | PutRetained
Removal = DeleteSession | Dequeue | Release | DeleteRetained
Operation = Addition | Removal


def only_removes(operations: Iterable[Operation]) -> bool:
    """Return whether none of the operations needs additional space in the store."""
    return not any(isinstance(operation, Addition) for operation in operations)


def size_of(operation: Operation) -> int:
    """Return the approximate size of an operation in bytes, which is about the same in memory and
    on disk."""
    match operation:
        case Enqueue(message=message) | PutRetained(message=message):
            return message.size + _OVERHEAD_BYTES
        case PutSession(session):
            return len(session.key) + len(session.record) + _OVERHEAD_BYTES
        case _:
            return _OVERHEAD_BYTES
