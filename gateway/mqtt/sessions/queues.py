"""The queues of sessions: messages of QoS 1 and 2 on their way to subscribers.

Messages of a kept session are stored first. Some of them also wait in memory.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence

from fieldbrook.core import clock
from fieldbrook.core.errors import NodeError
from fieldbrook.gateway.mqtt.protocol.topics import matches, parse_shared
from fieldbrook.gateway.mqtt.sessions.forwarded import size_of
from fieldbrook.gateway.mqtt.sessions.limits import ROW_BYTES, Limits
from fieldbrook.gateway.mqtt.sessions.readers import Rights, may_have
from fieldbrook.gateway.mqtt.sessions.retained import Write, message_of
from fieldbrook.gateway.mqtt.sessions.session import (
    Message,
    Outgoing,
    Session,
    Stage,
    Subscribed,
    packet_id_of,
)
from fieldbrook.observability import metrics
from fieldbrook.storage.mqtt import Dequeue, MqttStore, Release

_PAGE = 50  # rows of a queue that are loaded at once
_IN_MEMORY = 100  # messages of a kept session that wait in memory; the others are in the store


class Queues:
    """Adds messages to the queues of sessions, sends them, and counts them.

    Attributes:
        is_parked: whether stored messages are held back; see `outbox.is_parked`.
    """

    def __init__(self, limits: Limits, store: MqttStore, write: Write, rights: Rights) -> None:
        self.is_parked = False
        self._limits = limits
        self._store = store
        self._write = write
        self._rights = rights
        self._stored = limits.shared(limits.store_bytes)

    def has_room(self, holder: str, size: int) -> bool:
        """Whether the share of a holder has room for a longer record of a session."""
        return self._stored.has_share(holder, size)

    def count_record(self, session: Session, size: int) -> None:
        """Count the record of a session, which has `size` bytes now."""
        self._stored.add(session.holder, size - session.record_bytes)
        session.record_bytes = size

    def loaded(self, session: Session) -> None:
        """Count the rows that a session has in the store when it is loaded."""
        self._stored.add(session.holder, session.queued * ROW_BYTES + session.queued_bytes)

    def adopted(self, session: Session, sizes: Sequence[int]) -> None:
        """Count rows that were stored for a session that has come from another host."""
        self._count(session, len(sizes), sum(sizes))

    def forget(self, session: Session) -> None:
        """Stop counting a session that ends."""
        self._count(session, -session.queued, -session.queued_bytes)
        self.count_record(session, 0)

    def add(
        self, session: Session, message: Message, qos: int, identifiers: tuple[int, ...]
    ) -> Outgoing | None:
        """Add a message of QoS 1 or 2 to the queue of a session; return None if there is no space.

        If the session is kept, the caller then stores the message and calls `stored`.
        """
        size = size_of(message)
        if not self._has_space(session, size):
            return None
        self._count(session, 1, size)
        outgoing = Outgoing(session.take_sequence(), message, qos, size, identifiers)
        if not session.is_kept:
            session.waiting.append(outgoing)
            session.waiting_bytes += size
            self.pump(session)
        return outgoing

    def _has_space(self, session: Session, size: int) -> bool:
        """Whether a message may wait in the queue of a session."""
        if not session.has_space(size, self._limits):
            return False
        if session.is_kept:  # the store checks the limit of all sessions
            return self._stored.has_share(session.holder, size + ROW_BYTES)
        return session.wire is not None and self._stored.has(session.holder, size + ROW_BYTES)

    def stored(self, session: Session, outgoing: Outgoing, error: NodeError | None) -> None:
        """Continue with a message of a kept session after the store has written or refused it."""
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

    def resume(self, session: Session) -> None:
        """Send the waiting messages of a session, the oldest first."""
        session.in_flight.clear()
        if session.is_kept:
            session.waiting.clear()
            session.waiting_bytes = 0
            session.loaded_up_to = 0
            session.has_unloaded = session.queued > 0
        self.pump(session)

    def pump(self, session: Session) -> None:
        """Send messages of the queue while the client's limits permit it."""
        connection = session.wire
        while (
            connection is not None
            and not connection.is_congested
            and len(session.in_flight) < connection.send_maximum
        ):
            if not session.waiting and not self._load(session):
                return
            if packet_id_of(session.waiting[0].sequence) in session.in_flight:
                return  # sequence numbers have gaps: the session was on other hosts
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
        # An expired message is sent if its QoS 2 delivery has begun (MQTT 5.0, 4.3.3).
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
        """Load the next rows of a queue into memory; return False if there are none."""
        while session.has_unloaded and not self.is_parked and not session.waiting:
            self._load_page(session)
        return bool(session.waiting)

    def _load_page(self, session: Session) -> None:
        """Load some rows, without messages that the client may not read any more."""
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
                if not may_have(self._rights, session, outgoing.message):
                    self._drop(session, outgoing)
                    continue
            session.waiting.append(outgoing)
            session.waiting_bytes += outgoing.size

    def _drop(self, session: Session, outgoing: Outgoing) -> None:
        metrics.add(metrics.MQTT_UNDELIVERED)
        self._finish(session, outgoing)

    def rights_changed(self, session: Session) -> None:
        """Drop the messages in memory that a connected client may not read any more."""
        waiting = session.waiting
        session.waiting = collections.deque()
        session.waiting_bytes = 0
        for outgoing in waiting:
            # A message without a topic is released, so the client has received it.
            if not outgoing.message.topic or may_have(self._rights, session, outgoing.message):
                session.waiting.append(outgoing)
                session.waiting_bytes += outgoing.size
            else:
                self._drop(session, outgoing)
        self.pump(session)

    def acknowledged(self, session: Session, packet_id: int) -> bool:
        """Forget a QoS 1 message, or a refused QoS 2 message; return False if it is not in
        flight."""
        outgoing = session.in_flight.pop(packet_id, None)
        if outgoing is None:
            return False
        self._finish(session, outgoing)
        self.pump(session)
        return True

    def received(self, session: Session, packet_id: int) -> bool:
        """Release a QoS 2 message that the client has received; return False if it is not in
        flight."""
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
            else:  # after the next connect, the client sends PUBREC again
                outgoing.stage = Stage.SENT

        self._write([Release(session.uid, outgoing.sequence)], written)
        return True

    def _release(self, session: Session, packet_id: int, outgoing: Outgoing) -> None:
        outgoing.stage = Stage.RELEASED
        if session.wire is not None and session.in_flight.get(packet_id) is outgoing:
            session.wire.send_release(packet_id)

    def completed(self, session: Session, packet_id: int) -> bool:
        """Forget a QoS 2 message that the client has completed; return False if it is not
        released."""
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
