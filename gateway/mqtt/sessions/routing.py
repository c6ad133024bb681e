"""Routing of messages to subscribers: subscriptions, shared subscriptions, retained messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from fieldbrook.core import clock
from fieldbrook.core.errors import NodeError, TooManyRequestsError
from fieldbrook.gateway.mqtt.protocol.topics import FilterTree, TopicTree, matches, parse_shared
from fieldbrook.gateway.mqtt.sessions.access import ACKS
from fieldbrook.gateway.mqtt.sessions.forwarded import pack_properties, unpack_properties
from fieldbrook.gateway.mqtt.sessions.limits import RETAINED_BYTES, Limits
from fieldbrook.gateway.mqtt.sessions.session import (
    Message,
    Outgoing,
    Session,
    Stage,
    Subscribed,
    packet_id_of,
    to_stored,
)
from fieldbrook.observability import metrics
from fieldbrook.storage.mqtt import (
    DeleteRetained,
    Dequeue,
    Enqueue,
    MqttStore,
    Operation,
    PutRetained,
    PutSession,
    Release,
    StoredMessage,
)

log = logging.getLogger(__name__)

Done = Callable[[NodeError | None], None]
_REPLIES = f"{ACKS}/"
_PAGE = 50  # rows of a queue that are loaded at once
_IN_MEMORY = 100  # messages of a kept session that wait in memory; the others are in the store


class Write(Protocol):
    """`storage.mqtt.StoreWriter.write`."""

    def __call__(
        self, operations: Sequence[Operation], done: Callable[[NodeError | None], None] | None
    ) -> None:
        """Write operations; `done` is called when they are on disk."""


@dataclass(slots=True)
class _Group:
    """A shared subscription: each message goes to one of its members."""

    members: dict[str, tuple[Session, Subscribed]] = field(default_factory=dict)
    turn: int = 0

    def choose(self, may_read: Callable[[Session], bool]) -> tuple[Session, Subscribed] | None:
        """The next member in turn that may read; one that is connected, where there is one."""
        members = [member for member in self.members.values() if may_read(member[0])]
        self.turn += 1
        order = [members[(self.turn + n) % len(members)] for n in range(len(members))]
        connected = [member for member in order if member[0].wire is not None]
        return next(iter(connected or order), None)


class Router:
    """Subscriptions, retained messages, and the delivery of messages to sessions."""

    def __init__(
        self, limits: Limits, store: MqttStore, write: Write, is_open: Callable[[str], bool]
    ) -> None:
        """Load the retained messages.

        `is_open` tells whether all clients may read a topic, even one of replies.

        Attributes:
            is_parked: whether messages that are in the store stay there; see `outbox.is_parked`.
        """
        self.is_parked = False
        self._is_open = is_open
        self._limits = limits
        self._store = store
        self._write = write
        self._subscriptions: FilterTree[tuple[Session, Subscribed] | _Group] = FilterTree()
        self._groups: dict[tuple[str, str], _Group] = {}
        self._retained: TopicTree[Message] = TopicTree()
        self.retained_count = 0
        self.subscription_count = 0
        self.levels = 0  # of all filters
        for topic, stored in store.retained():
            self._retained.set(topic, message_of(stored))
            self.retained_count += 1

    # ---------------------------------------------------------------- subscriptions

    def subscribe(self, session: Session, subscribed: Subscribed) -> None:
        """Add or replace a subscription of a session."""
        topic_filter = subscribed.topic_filter
        if topic_filter not in session.subscriptions:
            self.subscription_count += 1
            self.levels += levels_of(topic_filter)
        session.subscriptions[topic_filter] = subscribed
        shared = parse_shared(topic_filter)
        if shared is None:
            self._subscriptions.add(topic_filter, session.key, (session, subscribed))
            return
        group = self._groups.get(shared)
        if group is None:
            group = self._groups[shared] = _Group()
            self._subscriptions.add(shared[1], f"$share/{shared[0]}", group)
        group.members[session.key] = session, subscribed

    def unsubscribe(self, session: Session, topic_filter: str) -> bool:
        """Remove a subscription; False when there is none."""
        if session.subscriptions.pop(topic_filter, None) is None:
            return False
        self.subscription_count -= 1
        self.levels -= levels_of(topic_filter)
        shared = parse_shared(topic_filter)
        if shared is None:
            self._subscriptions.remove(topic_filter, session.key)
            return True
        group = self._groups[shared]
        group.members.pop(session.key, None)
        if not group.members:
            del self._groups[shared]
            self._subscriptions.remove(shared[1], f"$share/{shared[0]}")
        return True

    def forget(self, session: Session) -> None:
        """Remove all subscriptions of a session that ends."""
        for topic_filter in list(session.subscriptions):
            self.unsubscribe(session, topic_filter)

    # ---------------------------------------------------------------- messages

    def publish(
        self,
        message: Message,
        done: Done | None = None,
        receipt: tuple[Session, int] | None = None,
    ) -> int:
        """Deliver a message to all who subscribed to its topic, and retain it if it says so.

        `done` is called when all that must be stored is on disk, with None, or with the error that
        prevented it; then nothing was stored. `receipt` is the session and the packet id of a QoS
        2 message: what is stored of the message is stored together with its receipt.

        Returns:
            The number of sessions that get the message.
        """
        operations: list[Operation] = []
        stored: list[tuple[Session, Outgoing]] = []
        if message.retain:
            refusal = self._retain(message, operations)
            if refusal is not None:
                if done is not None:
                    done(refusal)
                return 0
        found = 0
        for session, subscribed, identifiers in self._subscribers(message):
            kept_flag = message.retain and subscribed.retain_as_published
            copy = message if kept_flag == message.retain else replace(message, retain=kept_flag)
            qos = min(message.qos, subscribed.qos)
            found += self._deliver(session, copy, qos, identifiers, operations, stored)
        if operations and receipt is not None:
            sender, packet_id = receipt
            sender.stored_received.add(packet_id)
            operations.append(PutSession(sender.stored_session()))
        self._store_all(operations, stored, done)
        return found

    def _store_all(
        self,
        operations: list[Operation],
        stored: list[tuple[Session, Outgoing]],
        done: Done | None = None,
    ) -> None:
        """Write what has to be kept of a message, and go on with the messages that wait for it."""
        if not operations:
            if done is not None:
                done(None)
            return

        def written(error: NodeError | None) -> None:
            for session, outgoing in stored:
                self._written(session, outgoing, error)
            if done is not None:
                done(error)

        self._write(operations, written)

    def _subscribers(
        self, message: Message
    ) -> Iterator[tuple[Session, Subscribed, tuple[int, ...]]]:
        """Who gets a message: each session once, with its highest QoS and all identifiers."""
        may_all_read = not message.topic.startswith(_REPLIES) or self._is_open(message.topic)

        def may_read(session: Session) -> bool:
            return may_all_read or _may_read(session, message)

        best: dict[str, tuple[Session, Subscribed, tuple[int, ...]]] = {}
        for match in self._subscriptions.match(message.topic):
            member = match.choose(may_read) if isinstance(match, _Group) else match
            if member is None:
                continue
            session, subscribed = member
            if subscribed.no_local and message.sender == session.key:
                continue
            if not may_read(session):
                continue
            if isinstance(match, _Group):
                # A copy of its own: the client has subscribed twice.
                yield session, subscribed, _identifiers(subscribed)
                continue
            known = best.get(session.key)
            if known is None:
                best[session.key] = session, subscribed, _identifiers(subscribed)
                continue
            higher = subscribed if subscribed.qos > known[1].qos else known[1]
            best[session.key] = session, higher, known[2] + _identifiers(subscribed)
        yield from best.values()

    def _deliver(
        self,
        session: Session,
        message: Message,
        qos: int,
        identifiers: tuple[int, ...],
        operations: list[Operation],
        stored: list[tuple[Session, Outgoing]],
    ) -> bool:
        connection = session.wire
        if qos == 0:
            if connection is None or connection.is_congested:
                metrics.add(metrics.MQTT_UNDELIVERED)
                return False
            connection.send_publish(message, 0, 0, repeated=False, identifiers=identifiers)
            return True
        size = len(message.payload)
        if not session.has_space(size, self._limits):
            metrics.add(metrics.MQTT_UNDELIVERED)
            return False
        outgoing = Outgoing(session.take_sequence(), message, qos, identifiers)
        if session.is_kept:
            row = to_stored(message, qos, pack_properties(message.properties))
            operations.append(Enqueue(session.uid, outgoing.sequence, row))
            session.stored += 1
            session.stored_bytes += size
            stored.append((session, outgoing))
        elif connection is not None:
            session.waiting.append(outgoing)
            session.waiting_bytes += size
            self.pump(session)
        return True

    def _written(self, session: Session, outgoing: Outgoing, error: NodeError | None) -> None:
        """Go on with a message of a kept session: it is in the store now, or could not be."""
        if error is not None:
            self._uncount(session, outgoing)
            return
        if session.wire is None or outgoing.sequence <= session.loaded_up_to:
            return
        if session.has_unloaded or len(session.waiting) >= _IN_MEMORY:
            session.has_unloaded = True
            return
        session.loaded_up_to = outgoing.sequence
        session.waiting.append(outgoing)
        session.waiting_bytes += len(outgoing.message.payload)
        self.pump(session)

    # ---------------------------------------------------------------- the queue of a session

    def resume(self, session: Session) -> None:
        """Send what a session has waiting, from its oldest message on: it has a new connection."""
        session.in_flight.clear()
        if session.is_kept:
            session.waiting.clear()
            session.waiting_bytes = 0
            session.loaded_up_to = 0
            session.has_unloaded = session.stored > 0
        self.pump(session)

    def pump(self, session: Session) -> None:
        """Send messages of the queue while the client may have more."""
        connection = session.wire
        while (
            connection is not None
            and not connection.is_congested
            and len(session.in_flight) < connection.send_maximum
        ):
            if not session.waiting and not self._load(session):
                return
            outgoing = session.waiting.popleft()
            session.waiting_bytes -= len(outgoing.message.payload)
            self._send(session, outgoing)

    def _send(self, session: Session, outgoing: Outgoing) -> None:
        connection = session.wire
        assert connection is not None
        packet_id = packet_id_of(outgoing.sequence)
        if outgoing.stage is Stage.RELEASED:
            session.in_flight[packet_id] = outgoing
            connection.send_release(packet_id)
            return
        repeated = outgoing.sequence <= session.sent_up_to
        expires_at_ms = outgoing.message.expires_at_ms
        # A delivery of QoS 2 that has begun is completed (MQTT 5.0, 4.3.3).
        if 0 < expires_at_ms <= clock.now_ms() and not (repeated and outgoing.qos == 2):
            self._finish(session, outgoing)
            return
        session.sent_up_to = max(session.sent_up_to, outgoing.sequence)
        session.in_flight[packet_id] = outgoing
        connection.send_publish(
            outgoing.message,
            outgoing.qos,
            packet_id,
            repeated=repeated,
            identifiers=outgoing.identifiers,
        )

    def _load(self, session: Session) -> bool:
        """Load the next rows of a queue into memory; False when there are none."""
        if not session.has_unloaded or self.is_parked:
            return False
        rows = self._store.queue(session.uid, session.loaded_up_to, _PAGE)
        session.has_unloaded = len(rows) == _PAGE
        for sequence, stored in rows:
            session.loaded_up_to = sequence
            if stored is None:
                outgoing = Outgoing(sequence, Message("", b"", 2), 2, stage=Stage.RELEASED)
            else:
                outgoing = Outgoing(
                    sequence,
                    message_of(stored),
                    stored.qos,
                    tuple(
                        each.identifier
                        for each in session.subscriptions.values()
                        if each.identifier and matches(_filter_of(each), stored.topic)
                    ),
                )
            session.waiting.append(outgoing)
            session.waiting_bytes += len(outgoing.message.payload)
        return bool(rows)

    def acknowledged(self, session: Session, packet_id: int) -> bool:
        """Forget a QoS 1 message, or a refused QoS 2 message; False when it is not in flight."""
        outgoing = session.in_flight.pop(packet_id, None)
        if outgoing is None:
            return False
        self._finish(session, outgoing)
        self.pump(session)
        return True

    def received(self, session: Session, packet_id: int) -> bool:
        """Release a QoS 2 message that the client has received; False when it is not in flight."""
        outgoing = session.in_flight.get(packet_id)
        if outgoing is None or outgoing.qos != 2:
            return False
        if outgoing.stage is Stage.RELEASED and session.wire is not None:
            session.wire.send_release(packet_id)
        if outgoing.stage is not Stage.SENT:
            return True
        if not session.is_kept:
            self._release(session, packet_id, outgoing)
            return True
        outgoing.stage = Stage.RELEASING

        def written(error: NodeError | None) -> None:
            if error is None:
                session.stored_bytes -= len(outgoing.message.payload)
                outgoing.message = Message("", b"", 2)
                self._release(session, packet_id, outgoing)
            else:  # the client sends PUBREC again when it connects again
                outgoing.stage = Stage.SENT

        self._write([Release(session.uid, outgoing.sequence)], written)
        return True

    def _release(self, session: Session, packet_id: int, outgoing: Outgoing) -> None:
        outgoing.stage = Stage.RELEASED
        if session.wire is not None and session.in_flight.get(packet_id) is outgoing:
            session.wire.send_release(packet_id)

    def completed(self, session: Session, packet_id: int) -> bool:
        """Forget a QoS 2 message that the client has completed; False when it is not released."""
        outgoing = session.in_flight.get(packet_id)
        if outgoing is None or outgoing.stage is not Stage.RELEASED:
            return False
        return self.acknowledged(session, packet_id)

    def _finish(self, session: Session, outgoing: Outgoing) -> None:
        if session.is_kept:
            self._uncount(session, outgoing)
            self._write([Dequeue(session.uid, outgoing.sequence)], None)

    def _uncount(self, session: Session, outgoing: Outgoing) -> None:
        session.stored -= 1
        session.stored_bytes -= len(outgoing.message.payload)

    # ---------------------------------------------------------------- retained messages

    def retained(self, topic_filter: str) -> Iterator[tuple[str, Message]]:
        """The retained messages whose topics match, without expired ones."""
        now = clock.now_ms()
        for topic, message in self._retained.match(topic_filter):
            if not 0 < message.expires_at_ms <= now:
                yield topic, message

    def retained_message(self, topic: str) -> Message | None:
        """The retained message of a topic."""
        return self._retained.get(topic)

    def send_retained(self, session: Session, subscribed: Subscribed) -> None:
        """Send the retained messages that a new subscription matches."""
        operations: list[Operation] = []
        stored: list[tuple[Session, Outgoing]] = []
        identifiers = _identifiers(subscribed)
        for _, message in self.retained(subscribed.topic_filter):
            qos = min(message.qos, subscribed.qos)
            self._deliver(session, message, qos, identifiers, operations, stored)
        self._store_all(operations, stored)

    def _retain(self, message: Message, operations: list[Operation]) -> NodeError | None:
        """Retain a message, or drop the one of its topic; the error says why it cannot be."""
        topic = message.topic
        known = self._retained.get(topic) is not None
        if not message.payload:
            if known:
                self.remove_retained(topic, operations)
            return None
        if len(message.payload) > RETAINED_BYTES:
            return TooManyRequestsError(
                what=f"a retained message may have {RETAINED_BYTES} bytes at most"
            )
        if not known and self.retained_count >= self._limits.retained:
            return TooManyRequestsError(
                what=f"{self.retained_count} retained messages, which is the limit"
            )
        if self._limits.retained_expiry_s:
            latest = clock.now_ms() + 1_000 * self._limits.retained_expiry_s
            if not 0 < message.expires_at_ms < latest:
                message = replace(message, expires_at_ms=latest)
        self._retained.set(topic, message)
        self.retained_count += not known
        row = to_stored(message, message.qos, pack_properties(message.properties))
        operations.append(PutRetained(topic, row))
        return None

    def remove_retained(self, topic: str, operations: list[Operation] | None = None) -> bool:
        """Drop the retained message of a topic; False when there is none."""
        if self._retained.get(topic) is None:
            return False
        self._retained.remove(topic)
        self.retained_count -= 1
        if operations is None:
            self._write([DeleteRetained(topic)], None)
        else:
            operations.append(DeleteRetained(topic))
        return True

    def expire_retained(self) -> None:
        """Drop the retained messages that have expired; called once in a while."""
        now = clock.now_ms()
        expired = [
            topic
            for topic, message in self._retained.match("#")
            if 0 < message.expires_at_ms <= now
        ]
        for topic in expired:
            self.remove_retained(topic)


def message_of(stored: StoredMessage) -> Message:
    """A message from the store."""
    return Message(
        stored.topic,
        stored.payload,
        stored.qos,
        stored.retain,
        unpack_properties(stored.properties),
        stored.expires_at_ms,
    )


def _filter_of(subscribed: Subscribed) -> str:
    shared = parse_shared(subscribed.topic_filter)
    return subscribed.topic_filter if shared is None else shared[1]


def _identifiers(subscribed: Subscribed) -> tuple[int, ...]:
    return (subscribed.identifier,) if subscribed.identifier else ()


def levels_of(topic_filter: str) -> int:
    """The number of levels of a filter."""
    return topic_filter.count("/") + 1


def _may_read(session: Session, message: Message) -> bool:
    """Whether a session may read a message below `ack/`.

    Other topics were checked when the client subscribed.
    """
    principal = session.principal
    if principal.is_admin:
        return True
    if not message.publisher_id:
        key = message.topic[len(_REPLIES) :]
        return key in session.sender_keys or key == principal.publisher_key
    return (
        message.publisher_id in session.senders
        or message.publisher_id == principal.publisher_id
        or message.project_id in principal.project_ids
    )
