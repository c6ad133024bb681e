"""The session of a client: the state that the server keeps for it, also between two connections.

Messages for the client wait in a queue. A session that outlives its connection (a kept session)
stores them on disk. The sequence number of a stored message determines its packet id, so that the
packet id is the same after a restart. Other sessions keep their messages in memory.
"""

from __future__ import annotations

import collections
import enum
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct, field

from fieldbrook.gateway.memory_budget import Shared
from fieldbrook.gateway.mqtt.protocol.properties import NO_PROPERTIES, Properties
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from fieldbrook.gateway.mqtt.sessions.access import ANYBODY, Principal
from fieldbrook.gateway.mqtt.sessions.limits import (
    ALL_PACKET_IDS,
    HANDLED_KEPT,
    LEAST_PACKET_IDS,
    RELEASES_KEPT,
    SENDERS_KEPT,
    Limits,
)
from fieldbrook.storage.mqtt import StoredMessage, StoredSession

if TYPE_CHECKING:
    from fieldbrook.gateway.mqtt.connection.incoming import Incoming

PACKET_IDS = 0xFFFF
NEVER_EXPIRES = 0xFFFFFFFF


class Message(Struct, frozen=True):
    """A message on its way to subscribers.

    `expires_at_ms` is a Unix time, 0 for none. `publisher_id` and `project_id` are set on replies
    to events: only the publisher that sent the event and the account of its project may read a
    reply. `project_id` is also set on handlers' messages. `sender` is the name of the session that
    published it, for subscriptions that want no own messages; `holder` says in whose share of the
    retained messages it is.
    """

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES
    expires_at_ms: int = 0
    publisher_id: int = 0
    project_id: int = 0
    sender: str = ""
    holder: str = ""


class Subscribed(Struct, array_like=True, frozen=True):
    """One subscription of a session."""

    topic_filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int = 0


class WillRecord(Struct, array_like=True, frozen=True):
    """The last will of a client. `properties` are encoded; `delay_s` begins when the connection is
    lost."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    delay_s: int = 0
    expiry_s: int = 0
    properties: bytes = b""


class Record(Struct, array_like=True):
    """The stored record of a session, without its queue. Times are Unix milliseconds.

    `received` has the packet ids of QoS 2 messages that are stored for other sessions: if the
    client sends such a message again, the other sessions must not get it twice. `releases` maps
    recently released packet ids to the number of their releases. `address` is the address of a
    client without a login (`peer_of`), for whose share the session counts.
    `origin` is the uid that the session had on its first host, 0 if it has this uid still: the
    names of its events contain it, so that an event that is repeated on another host runs once.
    """

    principal: str
    client_id: str
    created_at_ms: int
    expiry_s: int
    ended_at_ms: int
    next_sequence: int
    subscriptions: list[Subscribed] = []
    will: WillRecord | None = None
    will_at_ms: int = 0
    received: list[int] = []
    releases: dict[int, int] = {}
    address: str = ""
    origin: int = 0


encode_record = msgspec.msgpack.Encoder().encode
decode_record = msgspec.msgpack.Decoder(Record).decode


class Stage(enum.Enum):
    """The stage of a message's delivery to the client."""

    SENT = 1
    RELEASING = 2  # QoS 2: PUBREC has arrived, and is being stored
    RELEASED = 3  # PUBREL was sent


class Wire(Protocol):
    """The connection of a session, as far as the router uses it."""

    @property
    def is_congested(self) -> bool:
        """Whether there are too many unread packets, of this client or of all clients together."""

    @property
    def send_maximum(self) -> int:
        """The number of messages that the client may leave unacknowledged."""

    def send_publish(
        self,
        message: Message,
        qos: int,
        packet_id: int,
        *,
        repeated: bool,
        identifiers: tuple[int, ...],
    ) -> None:
        """Send a message; one that is too large for the client is dropped."""

    def send_release(self, packet_id: int) -> None:
        """Send PUBREL."""

    def end(self, code: ReasonCode, reason: str) -> None:
        """End the connection."""


class Outgoing(Struct):
    """A message of QoS 1 or 2 that the client has not acknowledged.

    `size` is the number of bytes of topic, payload and properties; the limits use it.
    """

    sequence: int
    message: Message
    qos: int
    size: int = 0
    identifiers: tuple[int, ...] = ()
    stage: Stage = Stage.SENT


def new_uid() -> int:
    """A number that no session has had."""
    return secrets.randbits(62) + 1


def session_key(principal: str, client_id: str) -> str:
    """The key of a session: clients of different principals never share one."""
    return f"{principal}\0{client_id}"


def packet_id_of(sequence: int) -> int:
    """The packet id of a message of the queue."""
    return sequence % PACKET_IDS + 1


class Session(Struct):
    """One session; `wire` is its connection, None while the client is not connected."""

    client_id: str
    principal: Principal = ANYBODY
    principal_name: str = ""
    address: str = ""  # of a client without a login; see `Record`
    uid: int = field(default_factory=new_uid)
    origin: int = 0  # see `Record`
    expiry_s: int = 0
    expires_now: bool = False  # whether a kept session ends with its present connection
    created_at_ms: int = 0
    ended_at_ms: int = 0
    wire: Wire | None = None
    opening: Wire | None = None  # a connection before its CONNACK, to which nothing may be sent
    subscriptions: dict[str, Subscribed] = field(default_factory=dict)
    will: WillRecord | None = None
    will_at_ms: int = 0
    # Publishers whose events this connection has sent: it may read their replies.
    senders: set[int] = field(default_factory=set)
    # Projects and keys of these publishers. Project 0 is for messages without a project.
    sender_keys: set[tuple[int, str]] = field(default_factory=set)
    # Messages to the client.
    next_sequence: int = 1
    waiting: collections.deque[Outgoing] = field(default_factory=collections.deque)
    waiting_bytes: int = 0
    in_flight: dict[int, Outgoing] = field(default_factory=dict)  # by packet id
    queued: int = 0  # messages in the store (kept session) or in memory, and their bytes
    queued_bytes: int = 0
    record_bytes: int = 0  # size of its record in the store
    sent_up_to: int = 0
    loaded_up_to: int = 0  # rows up to this sequence number were sent, or wait in memory
    has_unloaded: bool = False  # whether the store has later rows
    # Messages from the client.
    handling: dict[int, Incoming] = field(default_factory=dict)  # by packet id
    received: set[int] = field(default_factory=set)  # QoS 2, PUBREC sent, PUBREL not received
    stored_received: set[int] = field(default_factory=set)  # see `Record.received`
    releases: dict[int, int] = field(default_factory=dict)  # see `Record.releases`
    releasing: set[int] = field(default_factory=set)  # packet ids whose release is being stored
    handled: dict[int, bytes] = field(default_factory=dict)  # QoS 1: digests by packet id
    version: int = 4
    # The counter of remembered packet ids of all sessions, and the share of this session.
    packet_ids: Shared = field(default_factory=lambda: Shared(ALL_PACKET_IDS, 100))
    counted: int = 0
    is_removed: bool = False
    unsaved: list[Callable[[], None]] = field(default_factory=list)  # see `Sessions.save_surely`

    @property
    def holder(self) -> str:
        """The holder for whose share the session counts."""
        return self.principal_name or self.address

    @property
    def key(self) -> str:
        """The key under which the session is found."""
        return session_key(self.principal_name, self.client_id)

    @property
    def event_prefix(self) -> str:
        """What the names of its events begin with, on each host to which it moves."""
        return f"mqtt-{self.origin or self.uid:x}"

    @property
    def is_kept(self) -> bool:
        """Whether the session outlives its connection."""
        return self.expiry_s > 0

    def may_receive(self, limit: int) -> bool:
        """Whether fewer than `limit` QoS 2 messages of the client are not released."""
        left = limit - len(self.received)
        return len(self.handling) < left or sum(m.qos == 2 for m in self.handling.values()) < left

    def may_remember(self, most: int) -> int:
        """How many packet ids of a kind the session may remember: `most`, or few if all sessions
        together have too many."""
        return most if self.packet_ids.has(self.holder) else min(most, LEAST_PACKET_IDS)

    def count_packet_ids(self) -> None:
        """Count the packet ids that it remembers, after a change."""
        count = len(self.received) + len(self.releases) + len(self.handled)
        if self.is_removed:
            count = 0
        if count != self.counted:
            self.packet_ids.add(self.holder, count - self.counted)
            self.counted = count

    def expires_at_ms(self) -> int | None:
        """The time at which a session without a connection ends; None if it does not end."""
        if self.expiry_s == NEVER_EXPIRES:
            return None
        return self.ended_at_ms + 1_000 * self.expiry_s

    def stored_session(self) -> StoredSession:
        """The session as the store keeps it."""
        record = Record(
            self.principal_name,
            self.client_id,
            self.created_at_ms,
            self.expiry_s,
            self.ended_at_ms,
            self.next_sequence,
            list(self.subscriptions.values()),
            self.will,
            self.will_at_ms,
            sorted(self.stored_received),
            self.releases,
            self.address,
            self.origin,
        )
        return StoredSession(self.key, self.uid, encode_record(record))

    def remember_handled(self, packet_id: int, digest: bytes) -> None:
        """Remember a QoS 1 message whose acknowledgement the client may not have received."""
        known = self.handled.pop(packet_id, None)
        self.handled[packet_id] = digest
        count = len(self.handled)
        if count > HANDLED_KEPT or count > self.may_remember(HANDLED_KEPT):
            del self.handled[next(iter(self.handled))]
        elif known is None:
            self.count_packet_ids()

    def note_release(self, packet_id: int) -> None:
        """Note that a packet id was released, so it can be used for another message."""
        self.stored_received.discard(packet_id)
        self.releases[packet_id] = self.releases.pop(packet_id, 0) + 1
        self.releasing.add(packet_id)
        if len(self.releases) > self.may_remember(RELEASES_KEPT):
            # The name of a message in progress contains the number of releases of its packet id.
            for old in self.releases:
                if not (old in self.handling or old in self.received or old in self.releasing):
                    del self.releases[old]
                    break
        self.count_packet_ids()

    def add_sender(self, publisher_id: int, project_id: int, publisher_key: str) -> None:
        """Remember a publisher whose events this connection has sent: it may read the publisher's
        replies."""
        if len(self.senders) < SENDERS_KEPT:
            self.senders.add(publisher_id)
            self.sender_keys.update(((project_id, publisher_key), (0, publisher_key)))

    def has_space(self, size: int, limits: Limits) -> bool:
        """Whether the queue may take one more message of `size` bytes."""
        used = self.queued_bytes if self.is_kept else self.waiting_bytes
        return self.queued < limits.queued_messages and (
            not self.queued or used + size <= limits.queued_bytes
        )

    def take_sequence(self) -> int:
        """The sequence number of the next message."""
        sequence = self.next_sequence
        self.next_sequence += 1
        return sequence


def to_stored(message: Message, qos: int, properties: bytes) -> StoredMessage:
    """A message as the store keeps it."""
    return StoredMessage(
        message.topic,
        message.payload,
        qos,
        message.retain,
        properties,
        message.expires_at_ms,
        message.publisher_id,
        message.project_id,
        message.holder if message.retain else "",
    )
