"""Messages of one client that have no acknowledgement yet.

They are acknowledged in the order of arrival. A message that the node cannot handle now is tried
again before all later messages.
"""

from __future__ import annotations

import collections
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fieldbrook.gateway.mqtt.connection.incoming import Incoming
from fieldbrook.gateway.mqtt.event_topics import EventTopic
from fieldbrook.gateway.mqtt.protocol.encoding import encode
from fieldbrook.gateway.mqtt.protocol.errors import ProtocolError, ProtocolViolationError
from fieldbrook.gateway.mqtt.protocol.packets import VERSION_5, Publish, PubRec
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from fieldbrook.gateway.mqtt.sessions.limits import ALIASES, QOS0_IN_PROGRESS, check_topic
from fieldbrook.gateway.mqtt.sessions.session import Session
from fieldbrook.observability import metrics

if TYPE_CHECKING:
    from fieldbrook.gateway.mqtt.connection.connection import Connection
    from fieldbrook.gateway.mqtt.listener.server import MqttServer

_RETRY_S = 1.0
_BUSY_RETRY_S = 0.1


class Inbox:
    """The messages of one connection, from their PUBLISH to their acknowledgement.

    Attributes:
        taken: how many messages have arrived.
    """

    __slots__ = (
        "_aliases",
        "_connection",
        "_deferred",
        "_flushing",
        "_pending",
        "_qos0",
        "_retrying",
        "_server",
        "taken",
    )

    def __init__(self, server: MqttServer, connection: Connection) -> None:
        self._server, self._connection = server, connection
        self._pending: collections.deque[Incoming] = collections.deque()
        self._deferred: list[Incoming] | None = None
        self._retrying = self._flushing = False
        self._qos0 = self.taken = 0
        self._aliases: dict[int, str] | None = None

    def __len__(self) -> int:
        """The number of messages of QoS 1 and 2 without an acknowledgement."""
        return len(self._pending)

    @property
    def is_full(self) -> bool:
        """Whether the node has to stop reading messages."""
        pending, server = self._pending, self._server
        return bool(
            self._deferred
            or self._qos0 >= QOS0_IN_PROGRESS
            or len(pending) >= server.limits.receive_maximum
            or (pending and server.budget.used > server.budget.limit)
        )

    def close(self) -> None:
        """Forget all messages, because the connection has ended. Submitted events are still
        handled."""
        for incoming in self._pending:
            incoming.connection = None
        self._pending.clear()
        deferred, self._deferred = self._deferred, None
        for incoming in deferred or ():
            incoming.defer()

    # ---------------------------------------------------------------- messages

    def take_event(self, session: Session, buffer: bytes, first: int, body: int, end: int) -> bool:
        """Take a PUBLISH that is an event without properties on a known topic.

        Nearly all packets are such a PUBLISH, so this reads them without the general decoder.

        Args:
            buffer: contains the packet. Its first byte is `first`; its body is from `body` to
                `end`.

        Returns:
            False if it is another packet, which the decoder has to read.

        Raises:
            ProtocolError: see `take`.
        """
        qos = first >> 1 & 3
        five = self._connection.version == VERSION_5
        topic_end = body + 2 + (buffer[body] << 8 | buffer[body + 1]) if body + 2 <= end else end
        at = topic_end + (2 if qos else 0)
        if first & 1 or at + five > end or (five and buffer[at]):
            return False
        encoded = buffer[body + 2 : topic_end]
        topic = self._server.publishing.topics.get(encoded)
        if topic is None:
            return False
        packet_id = buffer[topic_end] << 8 | buffer[topic_end + 1] if qos else 0
        if qos and not packet_id:
            raise ProtocolViolationError("the packet id is 0")
        payload = buffer[at + five : end]
        self._submit(session, topic, encoded, payload, qos, packet_id, bool(first & 8))
        return True

    def take(self, session: Session, packet: Publish) -> None:
        """Take a PUBLISH: an event, or a message for other subscribers.

        Raises:
            ProtocolError: the topic, the alias or the packet id is not valid, or there are too many
                messages.
        """
        packet = self._resolve(packet)
        encoded = packet.topic.encode()
        check_topic(packet.topic)
        topic = self._server.publishing.event_topic(encoded)
        rest = packet.payload, packet.qos, packet.packet_id, packet.dup
        if topic is not None:
            self._submit(session, topic, encoded, *rest)
            return
        topic = EventTopic(packet.topic.partition("/")[0], None)
        incoming = self._begin(session, topic, encoded, *rest)
        if incoming is not None:
            self._server.publishing.plain(incoming, packet)

    def _submit(
        self,
        session: Session,
        topic: EventTopic,
        encoded: bytes,
        payload: bytes,
        qos: int,
        packet_id: int,
        repeated: bool,
    ) -> None:
        incoming = self._begin(session, topic, encoded, payload, qos, packet_id, repeated)
        if incoming is not None:
            login = self._server.access.login_for_events(session.principal)
            self._server.publishing.submit(incoming, login)

    def _resolve(self, packet: Publish) -> Publish:
        """Return the packet with its topic; a topic alias is replaced."""
        alias = packet.properties.topic_alias
        if alias is None:
            return packet
        if not 0 < alias <= ALIASES:
            raise ProtocolError("unknown topic alias", code=ReasonCode.TOPIC_ALIAS_INVALID)
        if self._aliases is None:
            self._aliases = {}
        if packet.topic:
            self._aliases[alias] = packet.topic
            return packet
        topic = self._aliases.get(alias)
        if topic is None:
            raise ProtocolError("the topic alias is not set", code=ReasonCode.TOPIC_ALIAS_INVALID)
        return replace(packet, topic=topic)

    def _begin(
        self,
        session: Session,
        topic: EventTopic,
        encoded: bytes,
        payload: bytes,
        qos: int,
        packet_id: int,
        repeated: bool,
    ) -> Incoming | None:
        """Begin to handle a message; None if it was handled before, or is being handled."""
        self.taken += 1
        if qos and not self._is_new(session, qos, packet_id, repeated):
            return None
        metrics.here.row[metrics.EVENTS_RECEIVED] += 1
        publishing = self._server.publishing
        incoming = Incoming(publishing, self._connection, session, topic, payload, qos, packet_id)
        self._server.budget.reserve(len(payload))
        if not qos:
            self._qos0 += 1
            return incoming
        self._pending.append(incoming)
        session.handling[packet_id] = incoming
        if session.is_kept and not publishing.name_delivery(incoming, encoded, repeated=repeated):
            incoming.settle(ReasonCode.SUCCESS)
            return None
        return incoming

    def _is_new(self, session: Session, qos: int, packet_id: int, repeated: bool) -> bool:
        """Whether a message is new: the session has no other message with its packet id."""
        connection = self._connection
        if qos == 2 and packet_id in session.received:
            connection.write(encode(connection.version, PubRec(packet_id)))
            return False
        known = session.handling.get(packet_id)
        if known is not None:
            if known.connection is connection:
                raise ProtocolError(
                    "the packet id is in use", code=ReasonCode.PACKET_IDENTIFIER_IN_USE
                )
            if repeated:  # sent on an earlier connection, and again on this one
                self._take_over(known)
                return False
            # Otherwise the client has lost its session, and the message is a new one.
        if qos == 2:
            limit = self._server.limits.unreleased
            if not session.may_receive(limit):
                raise ProtocolError(
                    "too many messages of QoS 2 are not released",
                    code=ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
                )
            if not session.may_receive(session.may_remember(limit)):
                raise ProtocolError(
                    "too many messages of QoS 2 of all sessions are not released",
                    code=ReasonCode.QUOTA_EXCEEDED,
                )
        return True

    def _take_over(self, incoming: Incoming) -> None:
        """Acknowledge a message on this connection that an earlier connection has received."""
        earlier, incoming.connection = incoming.connection, self._connection
        is_deferred = earlier is not None and earlier.inbox._give_up(incoming)
        self._pending.append(incoming)
        if is_deferred:
            self.defer(incoming)

    def _give_up(self, incoming: Incoming) -> bool:
        """Forget a message; return whether it waits to be tried again."""
        self._pending.remove(incoming)
        if self._deferred is None or incoming not in self._deferred:
            return False
        self._deferred.remove(incoming)
        return True

    # ---------------------------------------------------------------- acknowledgements

    def settled(self) -> None:
        """Note that a message is handled; send the acknowledgements that are due now."""
        if not self._flushing:
            self._flushing = True
            self._server.loop.call_soon(self._flush)

    def qos0_settled(self) -> None:
        """Note that a QoS 0 message is handled or dropped."""
        self._qos0 -= 1
        if self._connection.is_paused:
            self.settled()

    def _flush(self) -> None:
        self._flushing = False
        pending, ready = self._pending, []
        while pending and (acknowledgement := pending[0].acknowledgement) is not None:
            ready.append(acknowledgement)
            pending.popleft()
        if ready:
            self._connection.write(b"".join(ready))
        self._connection.resume()

    def defer(self, incoming: Incoming) -> None:
        """Try a message again later, before all messages that arrived after it."""
        if self._deferred is None:
            self._deferred = []
        self._deferred.append(incoming)
        self._connection.pause()
        if not self._retrying:
            self._retrying = True
            self._server.loop.call_later(_RETRY_S, self._retry)

    def _retry(self) -> None:
        """Submit deferred messages again, in order, if no message is being handled."""
        deferred, session = self._deferred, self._connection.session
        if not deferred or session is None or not self._connection.is_open:
            self._retrying = False
            return
        waiting = sum(each.acknowledgement is None for each in self._pending)
        if waiting > len(deferred):
            self._server.loop.call_later(_BUSY_RETRY_S, self._retry)
            return
        self._retrying = False
        self._deferred = None
        login = self._server.access.login_for_events(session.principal)
        chosen = set(deferred)
        order = [each for each in self._pending if each in chosen]
        slices, submit_again = self._server.slices, self._server.publishing.submit_again
        while order and not self._is_retrying_again():
            slices.run(session.holder, partial(submit_again, order.pop(0), login))
        for incoming in order:  # an earlier one could not be submitted
            self.defer(incoming)
        self._flush()

    def _is_retrying_again(self) -> bool:
        return self._deferred is not None
