"""Routing of messages to subscribers: subscriptions, shared subscriptions, retained messages."""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from fieldbrook.core import clock
from fieldbrook.core.errors import NodeError
from fieldbrook.gateway.mqtt.protocol.topics import FilterTree, matches, parse_shared
from fieldbrook.gateway.mqtt.sessions.access import Principal
from fieldbrook.gateway.mqtt.sessions.forwarded import pack_properties, size_of
from fieldbrook.gateway.mqtt.sessions.groups import Group
from fieldbrook.gateway.mqtt.sessions.limits import ALL_LEVELS, ROW_BYTES, Limits
from fieldbrook.gateway.mqtt.sessions.readers import REPLIES, Readers
from fieldbrook.gateway.mqtt.sessions.retained import Retained, Write, message_of
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
    Dequeue,
    Enqueue,
    MqttStore,
    Operation,
    PutSession,
    Release,
)

log = logging.getLogger(__name__)

Done = Callable[[NodeError | None], None]
_PAGE = 50  # rows of a queue that are loaded at once
_IN_MEMORY = 100  # messages of a kept session that wait in memory; the others are in the store


class Rights(Protocol):
    """What the router asks of `Access`."""

    def opens(self, topic: str) -> bool:
        """Whether all clients may read a topic, even one of replies."""

    def may_read(self, principal: Principal, topic: str) -> bool:
        """Whether a client may read a topic that is none of replies."""

    def project_of(self, topic: str) -> int:
        """The id of the project to which a topic belongs; 0 for topics of none."""


class Router:
    """Subscriptions, retained messages, and the delivery of messages to sessions."""

    def __init__(self, limits: Limits, store: MqttStore, write: Write, rights: Rights) -> None:
        """Load the retained messages.

        Attributes:
            is_parked: whether messages that are in the store stay there; see `outbox.is_parked`.
        """
        self.is_parked = False
        self._rights = rights
        self._limits = limits
        self._store = store
        self._write = write
        self._subscriptions: FilterTree[tuple[Session, Subscribed] | Group] = FilterTree()
        self._groups: dict[tuple[str, str], Group] = {}
        self.retained = Retained(limits, store, write)
        self.readers = Readers()
        self.subscription_count = 0
        self.levels = limits.shared(ALL_LEVELS)
        self._stored = limits.shared(limits.store_bytes)

    # ---------------------------------------------------------------- subscriptions

    def subscribe(self, session: Session, subscribed: Subscribed) -> None:
        """Add or replace a subscription of a session."""
        topic_filter = subscribed.topic_filter
        if topic_filter not in session.subscriptions:
            self.subscription_count += 1
            self.levels.add(session.holder, levels_of(topic_filter))
        session.subscriptions[topic_filter] = subscribed
        shared = parse_shared(topic_filter)
        if shared is None:
            self._subscriptions.add(topic_filter, session.key, (session, subscribed))
            return
        group = self._groups.get(shared)
        if group is None:
            group = self._groups[shared] = Group()
            self._subscriptions.add(shared[1], f"$share/{shared[0]}", group)
        group.put(session, subscribed)

    def unsubscribe(self, session: Session, topic_filter: str) -> bool:
        """Remove a subscription; False when there is none."""
        if session.subscriptions.pop(topic_filter, None) is None:
            return False
        self.subscription_count -= 1
        self.levels.add(session.holder, -levels_of(topic_filter))
        shared = parse_shared(topic_filter)
        if shared is None:
            self._subscriptions.remove(topic_filter, session.key)
            return True
        group = self._groups[shared]
        group.remove(session)
        if not (group.connected or group.away):
            del self._groups[shared]
            self._subscriptions.remove(shared[1], f"$share/{shared[0]}")
        return True

    def forget(self, session: Session) -> None:
        """Remove all subscriptions of a session that ends, and what it counts for."""
        for topic_filter in list(session.subscriptions):
            self.unsubscribe(session, topic_filter)
        self._count(session, -session.queued, -session.queued_bytes)
        self.count_record(session, 0)
        self.readers.remove(session)

    def has_room(self, holder: str, size: int) -> bool:
        """Whether the share of a holder has room for what makes a session's record longer."""
        return self._stored.has_share(holder, size)

    def count_record(self, session: Session, size: int) -> None:
        """Count the record of a session, which has `size` bytes now."""
        self._stored.add(session.holder, size - session.record_bytes)
        session.record_bytes = size

    def loaded(self, session: Session) -> None:
        """Count the rows that a session has in the store when it is loaded."""
        self._stored.add(session.holder, session.queued * ROW_BYTES + session.queued_bytes)

    def wire_changed(self, session: Session) -> None:
        """Note that the client of a session has connected, or has gone."""
        for topic_filter, subscribed in session.subscriptions.items():
            shared = parse_shared(topic_filter)
            if shared is not None:
                self._groups[shared].put(session, subscribed)

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
            project_id = message.project_id or self._rights.project_of(message.topic)
            message = replace(message, project_id=project_id)
            refusal = self.retained.put(message, operations)
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
        may_all_read = not message.topic.startswith(REPLIES) or self._rights.opens(message.topic)

        def may_read(session: Session) -> bool:
            return may_all_read or _may_read_reply(session, message)

        best: dict[str, tuple[Session, Subscribed, tuple[int, ...]]] = {}
        for match in (
            self._subscriptions.match(message.topic) if may_all_read else self._of_readers(message)
        ):
            member = match.choose(may_read) if isinstance(match, Group) else match
            if member is None:
                continue
            session, subscribed = member
            if subscribed.no_local and message.sender == session.key:
                continue
            if not may_read(session):
                continue
            if isinstance(match, Group):
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

    def _of_readers(self, message: Message) -> Iterator[tuple[Session, Subscribed] | Group]:
        """The subscriptions that match a reply, of those who may read it."""
        groups: dict[tuple[str, str], Group] = {}
        for session in self.readers.of(message):
            for topic_filter, subscribed in session.subscriptions.items():
                shared = parse_shared(topic_filter)
                if not matches(topic_filter if shared is None else shared[1], message.topic):
                    continue
                if shared is None:
                    yield session, subscribed
                else:
                    groups[shared] = self._groups[shared]
        yield from groups.values()

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
        size = size_of(message)
        if not self._has_space(session, size):
            metrics.add(metrics.MQTT_UNDELIVERED)
            return False
        self._count(session, 1, size)
        outgoing = Outgoing(session.take_sequence(), message, qos, size, identifiers)
        if session.is_kept:
            row = to_stored(message, qos, pack_properties(message.properties))
            operations.append(Enqueue(session.uid, outgoing.sequence, row))
            stored.append((session, outgoing))
        else:
            session.waiting.append(outgoing)
            session.waiting_bytes += size
            self.pump(session)
        return True

    def _has_space(self, session: Session, size: int) -> bool:
        """Whether a message may wait in the queue of a session."""
        if not session.has_space(size, self._limits):
            return False
        if session.is_kept:  # the store refuses what all cannot have
            return self._stored.has_share(session.holder, size + ROW_BYTES)
        return session.wire is not None and self._stored.has(session.holder, size + ROW_BYTES)

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
        session.waiting_bytes += outgoing.size
        self.pump(session)

    def send_retained(self, session: Session, subscribed: Subscribed) -> None:
        """Send the retained messages that a new subscription matches."""
        operations: list[Operation] = []
        stored: list[tuple[Session, Outgoing]] = []
        identifiers = _identifiers(subscribed)
        for _, message in self.retained.matching(subscribed.topic_filter):
            if not self._may_have(session, message) or self._is_of_earlier_project(message):
                continue
            qos = min(message.qos, subscribed.qos)
            self._deliver(session, message, qos, identifiers, operations, stored)
        self._store_all(operations, stored)

    def _is_of_earlier_project(self, message: Message) -> bool:
        """Whether a message was retained for a project that had the name of the present one."""
        if not message.project_id or message.topic.startswith(REPLIES):
            return False
        return message.project_id != self._rights.project_of(message.topic)

    # ---------------------------------------------------------------- the queue of a session

    def resume(self, session: Session) -> None:
        """Send what a session has waiting, from its oldest message on: it has a new connection."""
        session.in_flight.clear()
        self.wire_changed(session)
        if session.is_kept:
            session.waiting.clear()
            session.waiting_bytes = 0
            session.loaded_up_to = 0
            session.has_unloaded = session.queued > 0
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
            session.waiting_bytes -= outgoing.size
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
        while session.has_unloaded and not self.is_parked and not session.waiting:
            self._load_page(session)
        return bool(session.waiting)

    def _load_page(self, session: Session) -> None:
        """Load some rows, without those that the client may not read any more."""
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
                    stored.size,
                    tuple(
                        each.identifier
                        for each in session.subscriptions.values()
                        if each.identifier and matches(_filter_of(each), stored.topic)
                    ),
                )
                if not self._may_have(session, outgoing.message):
                    self._drop(session, outgoing)
                    continue
            session.waiting.append(outgoing)
            session.waiting_bytes += outgoing.size

    def _may_have(self, session: Session, message: Message) -> bool:
        """Whether the client may have a message that it could get when it was published."""
        topic = message.topic
        if not topic.startswith(REPLIES):
            return self._rights.may_read(session.principal, topic)
        return self._rights.opens(topic) or _may_read_reply(session, message)

    def _drop(self, session: Session, outgoing: Outgoing) -> None:
        metrics.add(metrics.MQTT_UNDELIVERED)
        self._finish(session, outgoing)

    def rights_changed(self, session: Session) -> None:
        """Drop the messages in memory that a connected client may not read any more."""
        self.readers.update(session)
        waiting = session.waiting
        session.waiting = collections.deque()
        session.waiting_bytes = 0
        for outgoing in waiting:
            # A message without a topic is released: the client has it.
            if not outgoing.message.topic or self._may_have(session, outgoing.message):
                session.waiting.append(outgoing)
                session.waiting_bytes += outgoing.size
            else:
                self._drop(session, outgoing)
        self.pump(session)

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
                self._count(session, 0, -outgoing.size)
                outgoing.message, outgoing.size = Message("", b"", 2), 0
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
        self._uncount(session, outgoing)
        if session.is_kept:
            self._write([Dequeue(session.uid, outgoing.sequence)], None)

    def _uncount(self, session: Session, outgoing: Outgoing) -> None:
        self._count(session, -1, -outgoing.size)

    def _count(self, session: Session, rows: int, size: int) -> None:
        """Count messages of a session's queue, and their bytes."""
        if not session.is_removed:
            session.queued += rows
            session.queued_bytes += size
            self._stored.add(session.holder, rows * ROW_BYTES + size)


def _filter_of(subscribed: Subscribed) -> str:
    shared = parse_shared(subscribed.topic_filter)
    return subscribed.topic_filter if shared is None else shared[1]


def _identifiers(subscribed: Subscribed) -> tuple[int, ...]:
    return (subscribed.identifier,) if subscribed.identifier else ()


def levels_of(topic_filter: str) -> int:
    """The number of levels of a filter."""
    return topic_filter.count("/") + 1


def _may_read_reply(session: Session, message: Message) -> bool:
    """Whether a session may read a message below `ack/` that is not open to all.

    Besides replies to events, that is what handlers and administrators publish there. Publishers
    of different projects may have the same key.
    """
    principal = session.principal
    if principal.is_admin or message.project_id in principal.project_ids:
        return True
    if message.publisher_id:
        return (
            message.publisher_id in session.senders
            or message.publisher_id == principal.publisher_id
        )
    project_id, key = message.project_id, message.topic[len(REPLIES) :]
    if (project_id, key) in session.sender_keys:
        return True
    return key == principal.publisher_key and project_id in (0, principal.project_id)
