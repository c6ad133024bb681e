"""One connection of an MQTT client: packets in, packets out.

The node does not read from the connection while too many of its messages are unacknowledged, while
one of them has to be tried again, or while the client does not read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from fieldbrook.core import clock
from fieldbrook.core.errors import NodeError
from fieldbrook.gateway.listening.listener import peer_of
from fieldbrook.gateway.listening.reads import limit_reads
from fieldbrook.gateway.memory_budget import Charge
from fieldbrook.gateway.mqtt.connection.encoder import Encoder, refused_connect
from fieldbrook.gateway.mqtt.connection.inbox import Inbox
from fieldbrook.gateway.mqtt.connection.packet_buffer import PacketBuffer
from fieldbrook.gateway.mqtt.inspection import Transport
from fieldbrook.gateway.mqtt.protocol.decoding.decoder import decode_client_packet
from fieldbrook.gateway.mqtt.protocol.encoding import encode
from fieldbrook.gateway.mqtt.protocol.errors import ProtocolError, ProtocolViolationError
from fieldbrook.gateway.mqtt.protocol.framing import PUBLISHES, next_frame
from fieldbrook.gateway.mqtt.protocol.packets import (
    VERSION_5,
    VERSION_311,
    ClientPacket,
    ConnAck,
    Connect,
    Disconnect,
    PubRel,
)
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from fieldbrook.gateway.mqtt.sessions.access import LOGIN_ENDED
from fieldbrook.gateway.mqtt.sessions.limits import (
    CONNECT_LIMIT_S,
    CONTROL_BYTES,
    KEEP_ALIVE_SHARE,
    SAVES_IN_PROGRESS,
    UNREAD_LIMIT_S,
    UNWRITTEN_BYTES,
)
from fieldbrook.gateway.mqtt.sessions.routing import Done
from fieldbrook.gateway.mqtt.sessions.session import Message, Session
from fieldbrook.observability import metrics

if TYPE_CHECKING:
    from fieldbrook.gateway.mqtt.listener.server import MqttServer

log = logging.getLogger(__name__)

_BEFORE_CONNECT = Encoder(Connect(VERSION_311, ""))
_EVENTS_AT_ONCE = 8  # events between two readings of the clock
_REFUSALS_AT_ONCE = 4  # refused messages of one connection before it waits again
_IS_PUBLISH = bytes(first in PUBLISHES for first in range(256))


class Connection(asyncio.Protocol):
    """A client's connection, from its first byte to its last."""

    __slots__ = (
        "_charge",
        "_heard_at",
        "_is_closing",
        "_is_congested",
        "_received",
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
        "encoder",
        "inbox",
        "is_accepted",
        "is_connecting",
        "keep_alive_s",
        "kind",
        "messages_out",
        "opened_at",
        "peer",
        "send_maximum",
        "session",
        "version",
    )

    def __init__(self, server: MqttServer, kind: Transport = "tcp") -> None:
        self._server = server
        self.kind = kind
        self.address = self.peer = ""
        self.session: Session | None = None
        self.inbox = Inbox(server, self)
        self.version = 0
        self.send_maximum = 0
        self.is_accepted = False  # whether the last message or login was accepted
        self.is_connecting = False
        self.connected_at_ms = 0
        self.keep_alive_s = 0
        self.messages_out = self.bytes_in = self.bytes_out = 0
        self._transport: asyncio.Transport | None = None
        self._received = PacketBuffer()
        self.encoder = _BEFORE_CONNECT
        self._charge = Charge(server.incomplete, "")
        self._unwritten = self._saving = 0
        self._is_congested = self._is_closing = self._waits = False
        self.opened_at = self._heard_at = self._unread_since = 0.0

    # ---------------------------------------------------------------- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(UNWRITTEN_BYTES)
        limit_reads(transport)
        peer = transport.get_extra_info("peername")
        if peer and not self.address:
            self.name(str(peer[0]))
        self.opened_at = self._heard_at = self._server.now()
        self._server.opened(self)
        if peer is None:
            # The client has reset the connection. Answers would get lost, and a waiting CONNECT
            # could take over the session from the client's next connection.
            self._transport.abort()

    def name(self, address: str) -> None:
        """Count further bytes and packets for this client address."""
        self.address, self.peer = address, peer_of(address)
        self._charge = Charge(self._server.incomplete, self.peer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection. Events that it has sent are still handled."""
        self._transport = None
        self._reserve(0)
        self._count_unwritten()
        self.inbox.close()
        self._server.closed(self)

    def data_received(self, data: bytes) -> None:
        """Read the packets that have arrived."""
        self._heard_at = self._server.now()
        self.bytes_in += len(data)
        if self._received.add(data):
            self._read()
        else:
            self._reserve(self._received.size)

    def pause_writing(self) -> None:
        """Stop reading: the client does not read the packets that were sent to it."""
        self._is_congested = True
        self._unread_since = self._server.now()
        self.pause()

    def resume_writing(self) -> None:
        """Read again: the client has read its packets."""
        self._is_congested = False
        self._server.loop.call_soon(self._went_on)

    def _went_on(self) -> None:
        if self.session is not None and self._transport is not None and not self._is_congested:
            self._server.router.queues.pump(self.session)
        self.resume()

    @property
    def is_congested(self) -> bool:
        """See `session.Wire`."""
        return self._is_congested or self._server.unwritten.is_exceeded(self.peer)

    def _count_unwritten(self) -> None:
        """Count the bytes that the client has not read yet."""
        size = 0 if self._transport is None else self._transport.get_write_buffer_size()
        if size != self._unwritten:
            self._server.unwritten.add(self.peer, size - self._unwritten)
            self._unwritten = size

    def _check_unwritten(self) -> None:
        """Stop or resume reading, depending on the unread bytes of all clients and of its
        address."""
        self._count_unwritten()
        if self._is_congested:
            if not self._unwritten:
                self.resume_writing()
        elif self._unwritten and self.is_congested:
            self.pause_writing()
        elif self.session is not None and (self.session.waiting or self.session.has_unloaded):
            self._server.router.queues.pump(self.session)

    # ---------------------------------------------------------------- reading

    @property
    def _may_read(self) -> bool:
        return not (
            self._is_congested
            or self.is_connecting
            or self._waits
            or self._saving >= SAVES_IN_PROGRESS
            or self.inbox.is_full
        )

    @property
    def is_open(self) -> bool:
        """Whether the node still reads from and writes to the client."""
        return self._transport is not None and not self._is_closing

    @property
    def is_paused(self) -> bool:
        """Whether the client is connected, but the node does not read from it."""
        return self._transport is not None and not self._transport.is_reading()

    def pause(self) -> None:
        """Stop reading from the client for now."""
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read from the client again, unless there is another reason not to."""
        transport = self._transport
        if transport is None or self._is_closing or transport.is_reading() or not self._may_read:
            return
        self._heard_at = self._server.now()  # the time without reading does not count
        transport.resume_reading()
        if self._received.data:
            self._received.incomplete_since = self._heard_at
            self._server.loop.call_soon(self._read)

    def _read(self) -> None:
        """Handle the packets in the buffer when the time slices permit it."""
        slices, holder = self._server.slices, self._holder
        if not self._may_read:
            self._read_packets()
        elif slices.may_run(holder, last=not self.is_accepted):
            slices.run(holder, self._read_packets)
        else:
            self._wait_for_turn()
            self._reserve(self._received.size)

    @property
    def _holder(self) -> str:
        """The holder whose time slice the reading uses."""
        return self.peer if self.session is None else self.session.holder

    def _read_packets(self) -> None:
        """Handle the packets in the buffer, until the slice is over."""
        buffer, at, packet_bytes = self._received.take(), 0, self._server.limits.packet_bytes
        end, slices, packets = len(buffer), self._server.slices, 0
        try:
            while at < end and not self._is_closing:
                if self._transport is None:
                    return
                if not self._may_read:
                    self.pause()
                    break
                # Other packets are read as a whole in one iteration of the loop, and may have many
                # items.
                limit = packet_bytes if _IS_PUBLISH[buffer[at]] else CONTROL_BYTES
                framed = next_frame(buffer, at, limit, self.version == VERSION_5)
                if framed is None:
                    break
                first, body, at = framed
                if self.session is None:
                    self._connect(decode_client_packet(self.version, first, buffer[body:at]))
                    continue
                packets += 1
                if not _IS_PUBLISH[first] or not self.inbox.take_event(
                    self.session, buffer, first, body, at
                ):
                    self._server.requests.handle(self, self.session, first, buffer[body:at])
                elif self.is_accepted and packets % _EVENTS_AT_ONCE:
                    continue
                refused = not self.is_accepted and packets >= _REFUSALS_AT_ONCE
                if at < end and (refused or slices.is_used_up):
                    self._wait_for_turn()
                    break
        except ProtocolError as error:
            self.refuse(error)
            return
        if self._is_closing:
            return
        if at:
            buffer = buffer[at:]
            self._received.incomplete_since = 0.0
        self._received.keep(buffer, packet_bytes, self._server.now())
        self._reserve(len(buffer))

    def _wait_for_turn(self) -> None:
        """Continue to read after other clients were served."""
        self._waits = True
        self.pause()
        last = not self.is_accepted
        self._server.slices.enqueue(self._holder, self._go_on, last=last)

    def _go_on(self) -> None:
        self._waits = False
        if self._transport is not None and not self._is_closing:
            self._read()
            self.resume()

    def _reserve(self, size: int) -> None:
        """Count an incomplete packet. At the limit of all clients or of its address, end the
        connection. If some of its messages are being handled, only stop reading until they are
        acknowledged."""
        if self._charge.set(size):
            return
        if self.inbox:
            self.pause()
        else:
            self.end(ReasonCode.QUOTA_EXCEEDED, "too many packets are being received at once")

    # ---------------------------------------------------------------- the session

    def save(self, session: Session, done: Done) -> None:
        """Store the session; reading stops while too many of its changes are being stored."""
        self._saving += 1

        def saved(error: NodeError | None) -> None:
            self._saving -= 1
            done(error)
            self.resume()

        self._server.sessions.save(session, saved)

    def save_surely(self, session: Session, done: Callable[[], None]) -> None:
        """Store the session, with any number of tries; see `save`."""
        self._saving += 1

        def saved() -> None:
            self._saving -= 1
            done()
            self.resume()

        self._server.sessions.save_surely(session, saved)

    def _connect(self, packet: ClientPacket) -> None:
        if not isinstance(packet, Connect):
            raise ProtocolViolationError("the first packet must be CONNECT")
        self.version = packet.version
        self.encoder = Encoder(packet)
        self.send_maximum = self._server.limits.send_maximum(packet)
        self.is_connecting = True
        self._server.connecting.connect(self, packet)

    def accept(self, session: Session, answer: ConnAck, keep_alive_s: int) -> None:
        """Send CONNACK; the client is connected now."""
        self.session = session
        self.is_accepted = bool(session.principal.name)
        session.wire, session.opening = self, None
        self._server.accepted(session)
        self.is_connecting = False
        self.connected_at_ms = clock.now_ms()
        self.keep_alive_s = keep_alive_s
        data = encode(self.version, answer)
        if not self.encoder.fits(data):
            self.close()
            return
        self.write(data)
        self._server.router.resume(session)
        self.resume()
        if self._received.data:
            self._server.loop.call_soon(self._read)

    def reject(self, code: ReasonCode, reason: str) -> None:
        """Answer CONNECT with an error and close."""
        data = self.encoder.with_reason(ConnAck(False, code), reason)
        if self.encoder.fits(data):
            self.write(data)
        self.close()

    # ---------------------------------------------------------------- sending

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
        data = self.encoder.publish(
            message, qos, packet_id, repeated=repeated, identifiers=identifiers
        )
        if data is None:
            # The message can never be delivered, so it counts as delivered (MQTT 5.0, 3.1.2.11.4).
            metrics.add(metrics.MQTT_UNDELIVERED)
            if qos and self.session is not None:
                loop, router = self._server.loop, self._server.router
                loop.call_soon(router.queues.acknowledged, self.session, packet_id)
            return
        self.messages_out += 1
        self.write(data)
        self._count_unwritten()

    def send_release(self, packet_id: int) -> None:
        """See `session.Wire`."""
        self.write(encode(self.version, PubRel(packet_id)))

    def send(self, data: bytes) -> None:
        """Send an encoded packet; end the connection if it is too large for the client."""
        if self.encoder.fits(data):
            self.write(data)
        else:
            self.end(ReasonCode.PACKET_TOO_LARGE, "the answer exceeds the maximum packet size")

    def write(self, data: bytes) -> None:
        """Send an encoded packet, without a check of the client's maximum packet size."""
        if self._transport is not None and not self._transport.is_closing():
            self.bytes_out += len(data)
            self._transport.write(data)

    # ---------------------------------------------------------------- the end

    def refuse(self, error: ProtocolError) -> None:
        """End the connection of a client that broke the rules."""
        metrics.add(metrics.MQTT_PROTOCOL_ERRORS)
        log.debug("%s: %s", self.address, error.text)
        if self.session is None:
            self.write(refused_connect(error))
            self.close()
            return
        self.end(error.code, error.text)

    def end(self, code: ReasonCode, reason: str) -> None:
        """End the connection; MQTT 5 clients get the reason."""
        if self.session is not None and self.version == VERSION_5:
            data = self.encoder.with_reason(Disconnect(code), reason)
            if self.encoder.fits(data):
                self.write(data)
        self.close()

    def close(self) -> None:
        """End the connection after the client has received the sent packets."""
        self._is_closing = True
        self._received.clear()
        self._reserve(0)
        transport = self._transport
        if transport is None:
            return
        if self._is_congested:
            transport.abort()
        else:
            transport.close()

    def drop(self) -> None:
        """End the connection at once, without a packet."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def check(self, now: float) -> None:
        """End the connection if its client has been silent or slow, or has not read, for too
        long."""
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
            is_late = now - self.opened_at > CONNECT_LIMIT_S
            if is_late and not (self.is_connecting or self._waits):
                self.close()
        elif not transport.is_reading():
            return
        elif self._received.is_late(now):
            self.end(ReasonCode.MALFORMED_PACKET, "a packet was incomplete for too long")
        elif self.keep_alive_s and now - self._heard_at > KEEP_ALIVE_SHARE * self.keep_alive_s:
            self.end(
                ReasonCode.KEEP_ALIVE_TIMEOUT, "nothing was received within the keep-alive time"
            )
