"""Routing of messages to subscribers: subscriptions, shared subscriptions, retained messages."""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from fieldbrook.core.errors import NodeError
from fieldbrook.gateway.mqtt.protocol.topics import FilterTree, matches, parse_shared
from fieldbrook.gateway.mqtt.sessions.forwarded import pack_properties
from fieldbrook.gateway.mqtt.sessions.groups import Group
from fieldbrook.gateway.mqtt.sessions.limits import ALL_LEVELS, Limits
from fieldbrook.gateway.mqtt.sessions.queues import Queues
from fieldbrook.gateway.mqtt.sessions.readers import (
    REPLIES,
    Readers,
    Rights,
    may_have,
    may_read_reply,
)
from fieldbrook.gateway.mqtt.sessions.retained import Retained, Write
from fieldbrook.gateway.mqtt.sessions.session import (
    Message,
    Outgoing,
    Session,
    Subscribed,
    to_stored,
)
from fieldbrook.observability import metrics
from fieldbrook.storage.mqtt import (
    Enqueue,
    MqttStore,
    Operation,
    PutSession,
)

log = logging.getLogger(__name__)

Done = Callable[[NodeError | None], None]

_AT_ONCE = 16  # deliveries between two readings of the clock


class Slice(Protocol):
    """The part of `connection.time_slices.TimeSlices` that the router needs."""

    @property
    def is_used_up(self) -> bool:
        """Whether the rest of the work has to wait for a later iteration."""

    def continue_later(self, work: Callable[[], object]) -> None:
        """Do the rest of the work in a later iteration, before other waiting work."""


# A session, its subscription, the message, the QoS, and the subscription identifiers.
_Delivery = tuple[Session, Subscribed, Message, int, tuple[int, ...]]


class Router:
    """Subscriptions, retained messages, and the receivers of each message.

    Attributes:
        queues: the messages that wait for subscribers.
    """

    def __init__(
        self,
        limits: Limits,
        store: MqttStore,
        write: Write,
        rights: Rights,
        slice_: Slice | None = None,
    ) -> None:
        """Load the retained messages. Without a `slice_`, a message is delivered to all subscribers
        at once."""
        self._rights = rights
        self._slice = slice_
        self._write = write
        self._subscriptions: FilterTree[tuple[Session, Subscribed] | Group] = FilterTree()
        self._groups: dict[tuple[str, str], Group] = {}
        self.retained = Retained(limits, store, write)
        self.readers = Readers()
        self.queues = Queues(limits, store, write, rights)
        self.subscription_count = 0
        self.levels = limits.shared(ALL_LEVELS)

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
        """Remove a subscription; return False if there is none."""
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
        """Remove all subscriptions and counts of a session that ends."""
        for topic_filter in list(session.subscriptions):
            self.unsubscribe(session, topic_filter)
        self.queues.forget(session)
        self.readers.remove(session)

    def wire_changed(self, session: Session) -> None:
        """Note that the client of a session has connected or disconnected."""
        for topic_filter, subscribed in session.subscriptions.items():
            shared = parse_shared(topic_filter)
            if shared is not None:
                self._groups[shared].put(session, subscribed)

    def resume(self, session: Session) -> None:
        """Send the waiting messages of a session, the oldest first, on its new connection."""
        self.wire_changed(session)
        self.queues.resume(session)

    def rights_changed(self, session: Session) -> None:
        """Drop the messages in memory that a connected client may not read any more."""
        self.readers.update(session)
        self.queues.rights_changed(session)

    # ---------------------------------------------------------------- messages

    def publish(
        self,
        message: Message,
        done: Done | None = None,
        receipt: tuple[Session, int] | None = None,
    ) -> int:
        """Deliver a message to all subscribers of its topic, and retain it if its flag is set.

        `done` is called when everything that must be stored is on disk. Its argument is None, or
        the error if nothing could be stored. `receipt` is the session and the packet id of a QoS 2
        message; it is stored in the same transaction as the message. Copies that need not be stored
        are delivered until the slice is over, and the rest later.

        Returns:
            The number of sessions that get the message, including those that get it later.
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
        in_memory: collections.deque[_Delivery] = collections.deque()
        for session, subscribed, identifiers in self._subscribers(message):
            kept_flag = message.retain and subscribed.retain_as_published
            copy = message if kept_flag == message.retain else replace(message, retain=kept_flag)
            qos = min(message.qos, subscribed.qos)
            if qos and session.is_kept:
                found += self._deliver(session, copy, qos, identifiers, operations, stored)
            else:
                in_memory.append((session, subscribed, copy, qos, identifiers))
        found += self._deliver_in_memory(in_memory)
        if operations and receipt is not None:
            sender, packet_id = receipt
            sender.stored_received.add(packet_id)
            operations.append(PutSession(sender.stored_session()))
        self._store_all(operations, stored, done)
        return found

    def _deliver_in_memory(self, deliveries: collections.deque[_Delivery]) -> int:
        """Deliver the copies that are not stored, until the slice is over. The rest is delivered
        later, to sessions that are still subscribed."""
        found = 0
        while deliveries:
            session, subscribed, message, qos, identifiers = deliveries.popleft()
            if session.subscriptions.get(subscribed.topic_filter) is subscribed:
                found += self._deliver(session, message, qos, identifiers, [], [])
            if len(deliveries) % _AT_ONCE or not deliveries or self._slice is None:
                continue
            if self._slice.is_used_up:
                self._slice.continue_later(partial(self._deliver_in_memory, deliveries))
                return found + len(deliveries)
        return found

    def _store_all(
        self,
        operations: list[Operation],
        stored: list[tuple[Session, Outgoing]],
        done: Done | None = None,
    ) -> None:
        """Store the copies of a message that have to be kept, then continue with the next
        messages."""
        if not operations:
            if done is not None:
                done(None)
            return

        def written(error: NodeError | None) -> None:
            for session, outgoing in stored:
                self.queues.stored(session, outgoing, error)
            if done is not None:
                done(error)

        self._write(operations, written)

    def _subscribers(
        self, message: Message
    ) -> Iterator[tuple[Session, Subscribed, tuple[int, ...]]]:
        """Yield the sessions that get a message, each once, with highest QoS and identifiers."""
        may_all_read = not message.topic.startswith(REPLIES) or self._rights.opens(message.topic)

        def may_read(session: Session) -> bool:
            return may_all_read or may_read_reply(session, message)

        best: dict[str, tuple[Session, Subscribed, tuple[int, ...]]] = {}
        for session, subscribed, is_shared in (
            self._matching(message) if may_all_read else self._of_readers(message)
        ):
            if subscribed.no_local and message.sender == session.key:
                continue
            if not may_read(session):
                continue
            if is_shared:
                # The client has also a subscription of its own, and gets a second copy.
                yield session, subscribed, _identifiers(subscribed)
                continue
            known = best.get(session.key)
            if known is None:
                best[session.key] = session, subscribed, _identifiers(subscribed)
                continue
            higher = subscribed if subscribed.qos > known[1].qos else known[1]
            best[session.key] = session, higher, known[2] + _identifiers(subscribed)
        yield from best.values()

    def _matching(self, message: Message) -> Iterator[tuple[Session, Subscribed, bool]]:
        """Yield the subscriptions that match a message, and whether each one is shared."""
        for match in self._subscriptions.match(message.topic):
            if not isinstance(match, Group):
                yield *match, False
            elif (member := match.choose()) is not None:
                yield *member, True

    def _of_readers(self, message: Message) -> Iterator[tuple[Session, Subscribed, bool]]:
        """The same for a reply; only subscriptions of clients that may read the reply."""
        groups: collections.defaultdict[tuple[str, str], list[Session]]
        groups = collections.defaultdict(list)
        for session in self.readers.of(message):
            for topic_filter, subscribed in session.subscriptions.items():
                shared = parse_shared(topic_filter)
                if not matches(topic_filter if shared is None else shared[1], message.topic):
                    continue
                if shared is None:
                    yield session, subscribed, False
                else:
                    groups[shared].append(session)
        for shared, sessions in groups.items():
            member = self._groups[shared].choose_of(sessions)
            if member is not None:
                yield *member, True

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
        outgoing = self.queues.add(session, message, qos, identifiers)
        if outgoing is None:
            metrics.add(metrics.MQTT_UNDELIVERED)
            return False
        if session.is_kept:
            row = to_stored(message, qos, pack_properties(message.properties))
            operations.append(Enqueue(session.uid, outgoing.sequence, row))
            stored.append((session, outgoing))
        return True

    def send_retained(self, session: Session, subscribed: Subscribed) -> Iterator[None]:
        """Send the retained messages that a new subscription matches, one in each step of the
        iterator. Messages may be retained and dropped between two steps."""
        identifiers = _identifiers(subscribed)
        for _, message in self.retained.matching(subscribed.topic_filter):
            if may_have(self._rights, session, message) and not self._is_of_earlier_project(
                message
            ):
                operations: list[Operation] = []
                stored: list[tuple[Session, Outgoing]] = []
                qos = min(message.qos, subscribed.qos)
                self._deliver(session, message, qos, identifiers, operations, stored)
                self._store_all(operations, stored)
            yield

    def _is_of_earlier_project(self, message: Message) -> bool:
        """Whether a message was retained for an earlier project with the same name."""
        if not message.project_id or message.topic.startswith(REPLIES):
            return False
        return message.project_id != self._rights.project_of(message.topic)


def _identifiers(subscribed: Subscribed) -> tuple[int, ...]:
    return (subscribed.identifier,) if subscribed.identifier else ()


def levels_of(topic_filter: str) -> int:
    """The number of levels of a filter."""
    return topic_filter.count("/") + 1
