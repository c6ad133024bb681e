"""One connection of an MQTT client: packets in, packets out.

A PUBLISH is read here and not by the general decoder, because nearly every packet is one. The
connection is not read from while too many of its messages are unacknowledged, while one of them
has to be tried again, or while its client does not read.
"""

from __future__ import annotations

import asyncio
import collections
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from fieldbrook.core import clock
from fieldbrook.core.errors import NodeError
from fieldbrook.gateway.listening.listener import peer_of
from fieldbrook.gateway.mqtt.connection.incoming import Incoming
from fieldbrook.gateway.mqtt.event_topics import EventTopic
from fieldbrook.gateway.mqtt.inspection import Transport
from fieldbrook.gateway.mqtt.protocol.decoding import decode_client_packet
from fieldbrook.gateway.mqtt.protocol.encoding import PINGRESP, encode, puback, publish_311
from fieldbrook.gateway.mqtt.protocol.errors import (
    ProtocolError,
    ProtocolViolationError,
)
from fieldbrook.gateway.mqtt.protocol.framing import PUBLISHES, next_frame
from fieldbrook.gateway.mqtt.protocol.packets import (
    VERSION_5,
    Auth,
    ClientPacket,
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    Unsubscribe,
)
from fieldbrook.gateway.mqtt.protocol.properties import NO_PROPERTIES, Properties
from fieldbrook.gateway.mqtt.protocol.reason_codes import FAILURE, WITHOUT_CONNACK_311, ReasonCode
from fieldbrook.gateway.mqtt.sessions.access import LOGIN_ENDED
from fieldbrook.gateway.mqtt.sessions.forwarded import outgoing_properties
from fieldbrook.gateway.mqtt.sessions.limits import (
    ALIASES,
    CONNECT_LIMIT_S,
    CONTROL_BYTES,
    KEEP_ALIVE_SHARE,
    PACKET_LIMIT_S,
    QOS0_IN_PROGRESS,
    SAVES_IN_PROGRESS,
    UNREAD_LIMIT_S,
    UNWRITTEN_BYTES,
    check_topic,
)
from fieldbrook.gateway.mqtt.sessions.routing import Done
from fieldbrook.gateway.mqtt.sessions.session import Message, Session
from fieldbrook.observability import metrics

if TYPE_CHECKING:
    from fieldbrook.gateway.mqtt.listener.server import MqttServer

log = logging.getLogger(__name__)

_RETRY_S = 1.0
_BUSY_RETRY_S = 0.1
_IS_PUBLISH = bytes(first in PUBLISHES for first in range(256))


class Connection(asyncio.Protocol):
    """A client's connection, from its first byte to its last."""

    __slots__ = (
        "_aliases",
        "_buffer",
        "_deferred",
        "_flushing",
        "_heard_at",
        "_incomplete_since",
        "_is_closing",
        "_is_congested",
        "_missing",
        "_packet_maximum",
        "_pending",
        "_qos0",
        "_reserved",
        "_rest",
        "_retrying",
        "_saving",
        "_server",
        "_transport",
        "_unread_since",
        "_unwritten",
        "_waits",
        "address",
        "bytes_in",
        "bytes_out",
        "connected_at_ms",
        "is_connecting",
        "keep_alive_s",
        "kind",
        "messages_in",
        "messages_out",
        "opened_at",
        "peer",
        "send_maximum",
        "session",
        "version",
        "wants_reasons",
    )

    def __init__(self, server: MqttServer, kind: Transport = "tcp") -> None:
        self._server = server
        self.kind = kind
        self.address = self.peer = ""
        self.session: Session | None = None
        self.version = 0
        self.wants_reasons = False
        self.send_maximum = 0
        self._is_congested = False
        self._unwritten = 0
        self.is_connecting = False
        self.connected_at_ms = 0
        self.messages_in = self.messages_out = self.bytes_in = self.bytes_out = 0
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        # While a large packet is incomplete: what came after `_buffer`, and how much is missing.
        self._rest: bytearray | None = None
        self._missing = 0
        self._reserved = 0
        self._incomplete_since = 0.0
        self._pending: collections.deque[Incoming] = collections.deque()
        self._deferred: list[Incoming] | None = None
        self._retrying = self._flushing = self._is_closing = self._waits = False
        self._qos0 = self._saving = 0
        self._aliases: dict[int, str] | None = None
        self.keep_alive_s = 0
        self._packet_maximum = 0
        self.opened_at = self._heard_at = self._unread_since = 0.0

    # ---------------------------------------------------------------- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(UNWRITTEN_BYTES)
        peer = transport.get_extra_info("peername")
        if peer and not self.address:
            self.address = str(peer[0])
            self.peer = peer_of(self.address)
        self.opened_at = self._heard_at = self._server.now()
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection. Events that it has sent are still handled."""
        self._transport = None
        self._reserve(0)
        self._count_unwritten()
        for incoming in self._pending:
            incoming.connection = None
        self._pending.clear()
        deferred, self._deferred = self._deferred, None
        for incoming in deferred or ():
            incoming.defer()
        self._server.closed(self)

    def data_received(self, data: bytes) -> None:
        """Read the packets that have arrived."""
        self._heard_at = self._server.now()
        self.bytes_in += len(data)
        if self._rest is not None:
            self._rest += data
            if len(self._rest) < self._missing:
                self._reserve(len(self._buffer) + len(self._rest))
                return
            data, self._rest = bytes(self._rest), None
        self._buffer = self._buffer + data if self._buffer else data
        self._read()

    def pause_writing(self) -> None:
        """Stop reading: the client does not read what was sent to it."""
        self._is_congested = True
        self._unread_since = self._server.now()
        self._pause()

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        self._is_congested = False
        self._server.loop.call_soon(self._went_on)

    def _went_on(self) -> None:
        if self.session is not None and self._transport is not None and not self._is_congested:
            self._server.router.pump(self.session)
        self._resume()

    @property
    def is_congested(self) -> bool:
        """See `session.Wire`."""
        return self._is_congested or self._server.unwritten.is_exceeded(self.peer)

    def _count_unwritten(self) -> None:
        """Count what the client has not read yet."""
        size = 0 if self._transport is None else self._transport.get_write_buffer_size()
        if size != self._unwritten:
            self._server.unwritten.add(self.peer, size - self._unwritten)
            self._unwritten = size

    def _check_unwritten(self) -> None:
        """Stop or go on when too much, of all or of its address, is unread."""
        self._count_unwritten()
        if self._is_congested:
            if not self._unwritten:
                self.resume_writing()
        elif self._unwritten and self.is_congested:
            self.pause_writing()
        elif self.session is not None and (self.session.waiting or self.session.has_unloaded):
            self._server.router.pump(self.session)

    # ---------------------------------------------------------------- reading

    @property
    def _may_read(self) -> bool:
        return not (
            self._is_congested
            or self.is_connecting
            or self._waits
            or self._deferred
            or self._saving >= SAVES_IN_PROGRESS
            or self._qos0 >= QOS0_IN_PROGRESS
            or len(self._pending) >= self._server.limits.receive_maximum
            or (self._pending and self._server.budget.used > self._server.budget.limit)
        )

    def _pause(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def _resume(self) -> None:
        transport = self._transport
        if transport is None or self._is_closing or transport.is_reading() or not self._may_read:
            return
        self._heard_at = self._server.now()  # the client was not read from
        transport.resume_reading()
        if self._buffer:
            self._incomplete_since = self._heard_at
            self._server.loop.call_soon(self._read)

    def _read(self) -> None:
        """Handle the packets in the buffer."""
        buffer, at, packet_bytes = self._buffer, 0, self._server.limits.packet_bytes
        end = len(buffer)
        self._buffer = b""
        try:
            while at < end and not self._is_closing:
                if self._transport is None:
                    return
                if not self._may_read:
                    self._pause()
                    break
                # Other packets are read as a whole in one turn of the loop, and have many items.
                limit = packet_bytes if _IS_PUBLISH[buffer[at]] else CONTROL_BYTES
                framed = next_frame(buffer, at, limit, self.version == VERSION_5)
                if framed is None:
                    break
                begin, (first, body, at) = at, framed
                if self.session is None:
                    self._connect(decode_client_packet(self.version, first, buffer[body:at]))
                elif not (_IS_PUBLISH[first] and self._publish_event(buffer, first, body, at)):
                    turns, holder = self._server.turns, self.session.holder
                    if not turns.may(holder):
                        at = begin
                        self._wait_for_turn(self.session)
                        break
                    turns.do(holder, partial(self._handle, first, buffer[body:at]))
        except ProtocolError as error:
            self.refuse(error)
            return
        if self._is_closing:
            return
        if at:
            buffer = buffer[at:]
            self._incomplete_since = 0.0
        self._keep_rest(buffer, packet_bytes)

    def _wait_for_turn(self, session: Session) -> None:
        """Read on when others were served, too."""
        self._waits = True
        self._pause()
        self._server.turns.wait(session.holder, self._go_on)

    def _go_on(self) -> None:
        self._waits = False
        if self._transport is not None and not self._is_closing:
            self._read()
            self._resume()

    def _keep_rest(self, rest: bytes, limit: int) -> None:
        """Keep what is left of the buffer: the beginning of a packet, or what must wait."""
        self._buffer = rest
        if not rest:
            self._incomplete_since = 0.0
            self._reserve(0)
            return
        self._incomplete_since = self._incomplete_since or self._server.now()
        self._reserve(len(rest))
        missing = _missing(rest)
        if missing > 0 and len(rest) + missing <= limit:
            self._rest, self._missing = bytearray(), missing

    def _reserve(self, size: int) -> None:
        """Count an incomplete packet. At the limit of all or of its address, end the connection;
        one whose messages are being handled is not read from until they are acknowledged."""
        if size == self._reserved:
            return
        incomplete = self._server.incomplete
        incomplete.add(self.peer, size - self._reserved)
        self._reserved = size
        if not size or not incomplete.is_exceeded(self.peer):
            return
        if self._pending:
            self._pause()
        else:
            self.end(ReasonCode.QUOTA_EXCEEDED, "too many packets are being received at once")

    def _publish_event(self, buffer: bytes, first: int, body: int, end: int) -> bool:
        """Handle a PUBLISH that is an event without properties on a known topic.

        Returns:
            False when it is another one, which the decoder has to read.
        """
        qos = first >> 1 & 3
        five = self.version == VERSION_5
        topic_end = body + 2 + (buffer[body] << 8 | buffer[body + 1]) if body + 2 <= end else end
        at = topic_end + (2 if qos else 0)
        if not first & 1 and at + five <= end and not (five and buffer[at]):
            encoded = buffer[body + 2 : topic_end]
            topic = self._server.publishing.topics.get(encoded)
            if topic is not None:
                packet_id = buffer[topic_end] << 8 | buffer[topic_end + 1] if qos else 0
                if qos and not packet_id:
                    raise ProtocolViolationError("the packet id is 0")
                self._take_event(
                    topic, encoded, buffer[at + five : end], qos, packet_id, bool(first & 8)
                )
                return True
        return False

    def _publish(self, packet: Publish) -> None:
        alias = packet.properties.topic_alias
        if alias is not None:
            packet = self._resolve(packet, alias)
        encoded = packet.topic.encode()
        check_topic(packet.topic)
        topic = self._server.publishing.event_topic(encoded)
        if topic is not None:
            self._take_event(
                topic, encoded, packet.payload, packet.qos, packet.packet_id, packet.dup
            )
            return
        topic = EventTopic(packet.topic.partition("/")[0], None)
        incoming = self._incoming(
            topic, encoded, packet.payload, packet.qos, packet.packet_id, packet.dup
        )
        if incoming is not None:
            self._server.publishing.plain(incoming, packet)

    def _resolve(self, packet: Publish, alias: int) -> Publish:
        """The packet with its topic, which a topic alias may stand for."""
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
        return Publish(
            topic,
            packet.payload,
            packet.qos,
            packet.retain,
            packet.dup,
            packet.packet_id,
            packet.properties,
        )

    def _take_event(
        self,
        topic: EventTopic,
        encoded: bytes,
        payload: bytes,
        qos: int,
        packet_id: int,
        repeated: bool,
    ) -> None:
        incoming = self._incoming(topic, encoded, payload, qos, packet_id, repeated)
        if incoming is not None:
            login = self._server.access.login_for_events(incoming.session.principal)
            self._server.publishing.submit(incoming, login)

    def _incoming(
        self,
        topic: EventTopic,
        encoded: bytes,
        payload: bytes,
        qos: int,
        packet_id: int,
        repeated: bool,
    ) -> Incoming | None:
        """Begin to handle a message; None when it was handled or is being handled already."""
        session, server = self.session, self._server
        assert session is not None
        self.messages_in += 1
        if qos and not self._is_new(session, qos, packet_id, repeated):
            return None
        metrics.here.row[metrics.EVENTS_RECEIVED] += 1
        incoming = Incoming(server.publishing, self, session, topic, payload, qos, packet_id)
        server.budget.reserve(len(payload))
        if not qos:
            self._qos0 += 1
            return incoming
        self._pending.append(incoming)
        session.handling[packet_id] = incoming
        if session.is_kept and not server.publishing.name_delivery(
            incoming, encoded, repeated=repeated
        ):
            incoming.settle(ReasonCode.SUCCESS)
            return None
        return incoming

    def _take_over(self, incoming: Incoming) -> None:
        """Acknowledge a message here that is being handled for an earlier connection."""
        earlier, incoming.connection = incoming.connection, self
        is_deferred = earlier is not None and earlier._give_up(incoming)
        self._pending.append(incoming)
        if is_deferred:
            self.defer(incoming)

    def _give_up(self, incoming: Incoming) -> bool:
        """Forget a message; returns whether it was to be tried again."""
        self._pending.remove(incoming)
        if self._deferred is None or incoming not in self._deferred:
            return False
        self._deferred.remove(incoming)
        return True

    def _is_new(self, session: Session, qos: int, packet_id: int, repeated: bool) -> bool:
        """Whether a packet id is not that of a message that the session knows."""
        if qos == 2 and packet_id in session.received:
            self._send(encode(self.version, PubRec(packet_id)))
            return False
        known = session.handling.get(packet_id)
        if known is not None:
            if known.connection is self:
                raise ProtocolError(
                    "the packet id is in use", code=ReasonCode.PACKET_IDENTIFIER_IN_USE
                )
            if repeated:  # sent on an earlier connection, and again on this one
                self._take_over(known)
                return False
            # A client that has forgotten its session: the message is another one.
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

    # ---------------------------------------------------------------- acknowledgements

    def settled(self) -> None:
        """A message is handled: send the acknowledgements whose turn it is."""
        if not self._flushing:
            self._flushing = True
            self._server.loop.call_soon(self._flush)

    def qos0_settled(self) -> None:
        """A QoS 0 message is handled or dropped."""
        self._qos0 -= 1
        if self._transport is not None and not self._transport.is_reading():
            self.settled()

    def _flush(self) -> None:
        self._flushing = False
        pending, ready = self._pending, []
        while pending and (acknowledgement := pending[0].acknowledgement) is not None:
            ready.append(acknowledgement)
            pending.popleft()
        if ready:
            self._send(b"".join(ready))
        self._resume()

    def defer(self, incoming: Incoming) -> None:
        """Try a message again later, before all that come after it."""
        if self._deferred is None:
            self._deferred = []
        self._deferred.append(incoming)
        self._pause()
        if not self._retrying:
            self._retrying = True
            self._server.loop.call_later(_RETRY_S, self._retry)

    def _retry(self) -> None:
        """Submit deferred messages again, in their order, when none is being handled."""
        deferred, session = self._deferred, self.session
        if not deferred or session is None or self._transport is None or self._is_closing:
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
        while order and not self._is_retrying_again():
            self._server.publishing.submit_again(order.pop(0), login)
        for incoming in order:  # an earlier one could not be submitted
            self.defer(incoming)
        self._flush()

    def _is_retrying_again(self) -> bool:
        return self._deferred is not None

    # ---------------------------------------------------------------- other packets

    def _handle(self, first: int, body: bytes) -> None:
        session, server = self.session, self._server
        assert session is not None
        router = server.router
        match decode_client_packet(self.version, first, body):
            case Publish() as packet:
                self._publish(packet)
            case PubAck(packet_id=packet_id):
                router.acknowledged(session, packet_id)
            case PubRec(packet_id=packet_id, code=code):
                if code >= FAILURE:
                    router.acknowledged(session, packet_id)
                elif not router.received(session, packet_id):
                    code = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
                    self._send(encode(self.version, PubRel(packet_id, code)))
            case PubRel(packet_id=packet_id):
                self._release(session, packet_id)
            case PubComp(packet_id=packet_id):
                router.completed(session, packet_id)
            case Subscribe() as packet:
                server.subscribing.subscribe(self, session, packet)
            case Unsubscribe() as packet:
                server.subscribing.unsubscribe(self, session, packet)
            case PingReq():
                self._send(PINGRESP)
            case Disconnect(code=code, properties=properties):
                expiry_s = properties.session_expiry_interval
                if expiry_s and (not session.is_kept or session.expires_now):
                    raise ProtocolViolationError("a session that ends cannot be kept after all")
                if expiry_s is not None:
                    server.sessions.set_expiry(session, expiry_s)
                if code is ReasonCode.NORMAL_DISCONNECTION:
                    session.will = None
                self._close()
            case Auth():
                raise ProtocolViolationError("no extended authentication was begun")
            case _:  # a second CONNECT
                raise ProtocolViolationError("CONNECT may be sent only once")

    def save(self, session: Session, done: Done) -> None:
        """Store the session; the client is not read from while much of it is being stored."""
        self._saving += 1

        def saved(error: NodeError | None) -> None:
            self._saving -= 1
            done(error)
            self._resume()

        self._server.sessions.save(session, saved)

    def _release(self, session: Session, packet_id: int) -> None:
        """Answer PUBREL. A session that is kept stores the release first: otherwise the next
        message with this packet id could be taken for the last one after a crash. While it cannot
        be stored, the client waits."""
        if packet_id not in session.received and packet_id not in session.releasing:
            code = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
            self._send(encode(self.version, PubComp(packet_id, code)))
            return

        def stored() -> None:
            self._saving -= 1
            session.received.discard(packet_id)
            session.releasing.discard(packet_id)
            session.count_packet_ids()
            self._send(encode(self.version, PubComp(packet_id)))
            self._resume()

        if session.is_kept and packet_id not in session.releasing:
            session.note_release(packet_id)
        self._saving += 1
        self._server.sessions.save_surely(session, stored)

    def _connect(self, packet: ClientPacket) -> None:
        if not isinstance(packet, Connect):
            raise ProtocolViolationError("the first packet must be CONNECT")
        self.version = packet.version
        properties = packet.properties
        self.wants_reasons = (
            packet.version == VERSION_5 and properties.request_problem_information is not False
        )
        own = self._server.limits
        self.send_maximum = min(properties.receive_maximum or 0xFFFF, own.queued_messages, 1_000)
        if packet.version != VERSION_5:
            self.send_maximum = min(self.send_maximum, own.receive_maximum)
        self._packet_maximum = properties.maximum_packet_size or 0
        self.is_connecting = True
        self._server.connecting.connect(self, packet)

    def accept(self, session: Session, answer: ConnAck, keep_alive_s: int) -> None:
        """Send CONNACK; the client is connected now."""
        self.session = session
        session.wire, session.opening = self, None
        self._server.accepted(session)
        self.is_connecting = False
        self.connected_at_ms = clock.now_ms()
        self.keep_alive_s = keep_alive_s
        data = encode(self.version, answer)
        if not self._fits(data):
            self._close()
            return
        self._send(data)
        self._server.router.resume(session)
        self._resume()
        if self._buffer:
            self._server.loop.call_soon(self._read)

    def reject(self, code: ReasonCode, reason: str) -> None:
        """Answer CONNECT with an error and close."""
        data = self.with_reason(ConnAck(False, code), reason)
        if self._fits(data):
            self._send(data)
        self._close()

    # ---------------------------------------------------------------- sending

    def _fits(self, data: bytes) -> bool:
        """Whether a packet is within the client's maximum packet size."""
        return not self._packet_maximum or len(data) <= self._packet_maximum

    def with_reason(self, packet: ConnAck | Disconnect | PubAck | PubRec, reason: str) -> bytes:
        """Encode a packet, with a reason string if the client wants one and it fits."""
        if self.wants_reasons and reason:
            properties = Properties(reason_string=reason)
            data = encode(self.version, replace(packet, properties=properties))
            if self._fits(data):
                return data
        return encode(self.version, packet)

    def send_publish(
        self,
        message: Message,
        qos: int,
        packet_id: int,
        *,
        repeated: bool,
        identifiers: tuple[int, ...],
    ) -> None:
        """See `session.Wire`."""
        if self.version != VERSION_5:
            data = publish_311(
                message.topic.encode(), message.payload, qos, packet_id, repeated, message.retain
            )
        else:
            data = encode(
                self.version,
                Publish(
                    message.topic,
                    message.payload,
                    qos,
                    message.retain,
                    repeated,
                    packet_id,
                    outgoing_properties(message, identifiers),
                ),
            )
            if not self._fits(data):
                # As if it was delivered: it can never be (MQTT 5.0, 3.1.2.11.4).
                metrics.add(metrics.MQTT_UNDELIVERED)
                if qos and self.session is not None:
                    loop, router = self._server.loop, self._server.router
                    loop.call_soon(router.acknowledged, self.session, packet_id)
                return
        self.messages_out += 1
        self._send(data)
        self._count_unwritten()

    def send_release(self, packet_id: int) -> None:
        """See `session.Wire`."""
        self._send(encode(self.version, PubRel(packet_id)))

    def send(self, data: bytes) -> None:
        """Send an encoded packet; end the connection if it is too large for the client."""
        if self._fits(data):
            self._send(data)
        else:
            self.end(ReasonCode.PACKET_TOO_LARGE, "the answer exceeds the maximum packet size")

    def acknowledge_again(self, packet_id: int) -> None:
        """Acknowledge a QoS 1 message that was handled on an earlier connection."""
        self._send(puback(packet_id))

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self.bytes_out += len(data)
            self._transport.write(data)

    # ---------------------------------------------------------------- the end

    def refuse(self, error: ProtocolError) -> None:
        """End the connection of a client that broke the rules."""
        metrics.add(metrics.MQTT_PROTOCOL_ERRORS)
        log.debug("%s: %s", self.address, error.text)
        if self.session is None:
            answered = error.version == VERSION_5 or error.code not in WITHOUT_CONNACK_311
            if error.version and answered:
                self.version = error.version
                properties = NO_PROPERTIES
                if error.version == VERSION_5:
                    properties = Properties(reason_string=error.text)
                self._send(encode(error.version, ConnAck(False, error.code, properties)))
            self._close()
            return
        self.end(error.code, error.text)

    def end(self, code: ReasonCode, reason: str) -> None:
        """End the connection; MQTT 5 clients are told why."""
        if self.session is not None and self.version == VERSION_5:
            data = self.with_reason(Disconnect(code), reason)
            if self._fits(data):
                self._send(data)
        self._close()

    def _close(self) -> None:
        self._is_closing = True
        self._buffer, self._rest = b"", None
        self._reserve(0)
        transport = self._transport
        if transport is None:
            return
        if self._is_congested:
            transport.abort()
        else:
            transport.close()

    def drop(self) -> None:
        """End the connection at once, without a word."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    @property
    def unacknowledged(self) -> int:
        """The number of messages of the client that have no acknowledgement."""
        return len(self._pending)

    def check(self, now: float) -> None:
        """End the connection if its client has been silent, slow or deaf for too long."""
        transport = self._transport
        if transport is None:
            return
        self._check_unwritten()
        if self._is_closing:
            if now - self._heard_at > UNREAD_LIMIT_S:
                transport.abort()
        elif self.session is not None and self.session.principal.has_expired():
            self.end(ReasonCode.NOT_AUTHORIZED, LOGIN_ENDED)
        elif self._is_congested:
            if now - self._unread_since > UNREAD_LIMIT_S:
                transport.abort()
        elif self.session is None:
            if not self.is_connecting and now - self.opened_at > CONNECT_LIMIT_S:
                self._close()
        elif not transport.is_reading():
            return
        elif self._incomplete_since and now - self._incomplete_since > PACKET_LIMIT_S:
            self.end(ReasonCode.MALFORMED_PACKET, "a packet stayed incomplete")
        elif self.keep_alive_s and now - self._heard_at > KEEP_ALIVE_SHARE * self.keep_alive_s:
            self.end(ReasonCode.KEEP_ALIVE_TIMEOUT, "nothing was heard within the keep-alive time")


def _missing(rest: bytes) -> int:
    """How many bytes the packet at the beginning of `rest` lacks; 0 when that is not known yet."""
    length = shift = 0
    for at in range(1, min(5, len(rest))):
        length |= (rest[at] & 0x7F) << shift
        shift += 7
        if rest[at] < 0x80:
            return at + 1 + length - len(rest)
    return 0
