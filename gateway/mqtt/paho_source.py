"""The source for an external MQTT broker: paho, driven by the gateway's own event loop.

The session is persistent and has a fixed client id. After a reconnect, the broker delivers the
unacknowledged messages again, first and in order. PUBACK is sent when the gateway has acknowledged
the message.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Self

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.reasoncodes import ReasonCode

from fieldbrook.gateway.mqtt.buffered_socket import BufferedSocket, open_socket, start_tls
from fieldbrook.gateway.mqtt.event_topics import masked
from fieldbrook.gateway.mqtt.sources import (
    UNACKNOWLEDGED_HIGH,
    UNACKNOWLEDGED_HIGH_BYTES,
    UNACKNOWLEDGED_LOW,
    UNACKNOWLEDGED_LOW_BYTES,
    Delivery,
    OnDelivery,
    filters_of,
    is_ingress,
    next_delay,
)

log = logging.getLogger(__name__)

FILTERS_PER_PACKET = 100
_QOS = 1
_KEEPALIVE_S = 30
_TICK_S = 5.0
_CONNECT_LIMIT_S = 5.0
_STOP_LIMIT_S = 2.0
_UNSENT_LIMIT_BYTES = 1 << 20
_PACKET_SLACK = 128 << 10  # for the topic, which may have 64 KiB


class PahoSource:
    """An external broker as a source; see `sources.Source`."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        username: str | None = None,
        password: str | None = None,
        context: ssl.SSLContext | None = None,
        payload_limit_bytes: int = 1 << 20,
    ) -> None:
        """Create a source that is not connected yet.

        Args:
            host: the broker's host.
            port: its port.
            client_id: that of the session.
            username: the user name of the node at the broker.
            password: its password.
            context: for TLS; None means a plain socket.
            payload_limit_bytes: the size of the largest event. Longer messages are delivered cut,
                but still longer than this, so that they are refused like any other long event.
        """
        self._context = context
        self._address = f"{host}:{port}"
        self._host, self._port = host, port
        self._client = client = _Client(client_id, payload_limit_bytes + _PACKET_SLACK)
        if username is not None:
            client.username_pw_set(username, password)
        client.connect_async(host, port, _KEEPALIVE_S)
        client.on_socket_open = self._on_socket_open
        client.on_socket_close = self._on_socket_close
        client.on_socket_register_write = self._on_register_write
        client.on_socket_unregister_write = self._on_unregister_write
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        self._task: asyncio.Task[None] | None = None
        self._deliver: OnDelivery
        self._projects: frozenset[str] = frozenset()
        self._subscribed: frozenset[str] = frozenset()
        self._asked: set[int | None] = set()
        self._unacknowledged: dict[int, int] = {}
        self._unacknowledged_bytes = 0
        self._numbers = itertools.count()
        self._reading = False
        self._write_scheduled = False
        self._connected = False
        self._is_ending = False

    @property
    def connected(self) -> bool:
        """Whether messages can arrive now: the session is open and every SUBSCRIBE is answered."""
        return self._connected and not self._asked

    async def start(self, on_delivery: OnDelivery) -> None:
        """Begin to connect."""
        self._deliver = on_delivery
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    def set_topics(self, projects: frozenset[str]) -> None:
        """Serve these projects: subscribe to new ones, unsubscribe from removed ones."""
        self._projects = projects
        if self._connected:
            self._change_subscriptions()

    def publish(self, topic: str, payload: bytes) -> None:
        """Send a message with QoS 0; it is lost without a connection or without room."""
        buffer = self._client.buffer
        if self._connected and buffer is not None and buffer.unsent < _UNSENT_LIMIT_BYTES:
            self._client.publish(topic, payload)

    async def stop(self) -> None:
        """Send the acknowledgements given so far and disconnect."""
        if self._task is None:
            return
        self._stop_reading()
        self._unacknowledged.clear()
        self._is_ending = True
        if self._client.buffer is not None:
            self._flush()
            await self._end_session()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._task = None

    async def _run(self) -> None:
        delay_s, was_connected = 0.0, True
        while True:
            self._answer: asyncio.Future[str] = self._loop.create_future()
            self._lost: asyncio.Future[str] = self._loop.create_future()
            try:
                await self._connect()
                log.info("connected to the broker at %s", self._address)
                delay_s, was_connected = 0.0, True
                reason = await self._watch()
            except (OSError, TimeoutError) as error:
                reason = str(error) or type(error).__name__
            except Exception as error:
                log.exception("the connection to the broker at %s failed", self._address)
                reason = type(error).__name__
            finally:
                self._disconnect()
            if was_connected:
                log.warning("no connection to the broker at %s: %s", self._address, reason)
            was_connected = False
            delay_s = next_delay(delay_s)
            await asyncio.sleep(delay_s)

    async def _connect(self) -> None:
        """Open the socket, then the session.

        Raises:
            OSError: the connection failed, or the broker refuses the session.
            TimeoutError: the broker did not answer within 5 s.
        """
        async with asyncio.timeout(_CONNECT_LIMIT_S):
            opened = await open_socket(self._loop, self._host, self._port)
            if self._context is not None:
                opened = await start_tls(self._loop, opened, self._context, self._host)
            self._client.opened = opened
            self._client.reconnect()
            refusal = await self._answer
        if refusal:
            raise ConnectionError(refusal)
        self._connected = True
        self._change_subscriptions()

    async def _watch(self) -> str:
        """Keep the session alive until it is lost; return the reason of the loss."""
        while True:
            done, _ = await asyncio.wait([self._lost], timeout=_TICK_S)
            if done:
                return self._lost.result()
            if self._reading:
                self._client.loop_misc()
            elif not self._is_ending:  # at the end, nothing may be written any more
                # Reading is paused, so a missing answer to a ping proves nothing: only send pings.
                self._client._send_pingreq()

    def _disconnect(self) -> None:
        self._connected = False
        self._client.close_socket()
        self._subscribed = frozenset()
        self._asked.clear()
        self._unacknowledged.clear()  # from here on, messages of this session are stale
        self._unacknowledged_bytes = 0

    async def _end_session(self) -> None:
        """Disconnect after the broker has read every acknowledgement.

        paho alone would close the socket at once and lose the bytes that were not sent yet. If
        messages are unread at the close, the kernel resets the connection, and the broker loses
        bytes that it has not read.
        """
        buffer = self._client.buffer
        if buffer is None:
            return
        self._loop.remove_writer(buffer.fileno())
        try:
            async with asyncio.timeout(_STOP_LIMIT_S):
                await buffer.finish(self._loop)
        except (OSError, TimeoutError) as error:
            log.debug("disconnecting from the broker at %s: %r", self._address, error)

    # Subscriptions.

    def _change_subscriptions(self) -> None:
        gone = self._subscribed - self._projects
        new = self._projects - self._subscribed
        self._subscribed = self._projects
        for filters in _packets(gone):
            self._client.unsubscribe(filters)
        for filters in _packets(new):
            _, packet_id = self._client.subscribe([(name, _QOS) for name in filters])
            self._asked.add(packet_id)

    def _on_subscribe(
        self, client: mqtt.Client, userdata: Any, mid: int, codes: list[ReasonCode], *_: Any
    ) -> None:
        self._asked.discard(mid)
        refused = sum(code.is_failure for code in codes)
        if refused:
            log.error("the broker at %s refused %d subscriptions", self._address, refused)

    # The session.

    def _on_connect(
        self, client: mqtt.Client, userdata: Any, flags: Any, code: ReasonCode, *_: Any
    ) -> None:
        if code.is_failure:
            self._end(f"the broker refuses the session: {code}")
        elif not self._answer.done():
            self._answer.set_result("")

    def _on_disconnect(
        self, client: mqtt.Client, userdata: Any, flags: Any, code: ReasonCode, *_: Any
    ) -> None:
        self._end(str(code))

    def _end(self, reason: str) -> None:
        for future in (self._answer, self._lost):
            if not future.done():
                future.set_result(reason)

    # Messages.

    def _on_message(self, client: mqtt.Client, userdata: Any, message: mqtt.MQTTMessage) -> None:
        topic = message.topic
        # The broker sends a retained message again for each subscription. The event was its first
        # delivery, which had no retain flag.
        if message.retain or not is_ingress(topic, self._projects):
            client.ack(message.mid, message.qos)
            return
        number, size = next(self._numbers), len(message.payload)
        self._unacknowledged[number] = size
        self._unacknowledged_bytes += size
        payload = bytes(message.payload)
        ack = partial(self._acknowledge, number, message.mid, message.qos)
        sequence = _sequence(message) if message.qos else ""
        stale = partial(self._is_stale, number) if message.qos else _never
        try:
            self._deliver(
                Delivery(topic, payload, message.qos, sequence, ack, message.dup, stale=stale)
            )
        except Exception:
            log.exception(
                "the message on %s could not be processed; it stays at the broker", masked(topic)
            )
        if self._is_full:
            self._stop_reading()

    def _acknowledge(self, number: int, mid: int, qos: int) -> None:
        size = self._unacknowledged.pop(number, None)
        if size is None:
            return
        self._unacknowledged_bytes -= size
        self._client.ack(mid, qos)
        if not self._reading and self._has_room:
            self._start_reading()

    def _is_stale(self, number: int) -> bool:
        return number not in self._unacknowledged

    @property
    def _is_full(self) -> bool:
        return (
            len(self._unacknowledged) >= UNACKNOWLEDGED_HIGH
            or self._unacknowledged_bytes >= UNACKNOWLEDGED_HIGH_BYTES
        )

    @property
    def _has_room(self) -> bool:
        return (
            len(self._unacknowledged) <= UNACKNOWLEDGED_LOW
            and self._unacknowledged_bytes <= UNACKNOWLEDGED_LOW_BYTES
        )

    # The socket, driven by the loop.

    def _on_socket_open(self, client: mqtt.Client, userdata: Any, sock: Any) -> None:
        self._start_reading()

    def _on_socket_close(self, client: mqtt.Client, userdata: Any, sock: Any) -> None:
        self._stop_reading()
        self._loop.remove_writer(sock.fileno())
        self._client.buffer = None

    def _start_reading(self) -> None:
        buffer = self._client.buffer
        if buffer is not None:
            self._reading = True
            self._loop.add_reader(buffer.fileno(), self._read)
            if buffer.pending():
                self._loop.call_soon(self._read)

    def _stop_reading(self) -> None:
        buffer = self._client.buffer
        self._reading = False
        if buffer is not None:
            self._loop.remove_reader(buffer.fileno())

    def _read(self) -> None:
        """Read once, and handle the packets that have arrived.

        Then the event loop can do other work, above all answer messages that were read before.
        """
        buffer = self._client.buffer
        if buffer is None or not self._reading:
            return
        hidden = False
        if not buffer.pending():
            try:
                hidden = buffer.fill()
            except OSError as error:
                self._end(str(error))
                return
        while self._client.loop_read() == MQTTErrorCode.MQTT_ERR_SUCCESS:
            if self._client.holds_messages():
                self._end("the broker sends messages with QoS 2, which nobody has asked for")
                return
            if not self._has_more(buffer):
                break
        if hidden:
            self._loop.call_soon(self._read)

    def _has_more(self, buffer: BufferedSocket) -> bool:
        """Whether to handle another packet; the previous packet may have stopped the reading."""
        return self._reading and buffer is self._client.buffer and buffer.pending() > 0

    def _on_register_write(self, client: mqtt.Client, userdata: Any, sock: Any) -> None:
        # paho sends each acknowledgement separately. Here the acknowledgements of one iteration of
        # the event loop are collected and sent in one write.
        if not self._write_scheduled:
            self._write_scheduled = True
            self._loop.call_soon(self._flush)

    def _on_unregister_write(self, client: mqtt.Client, userdata: Any, sock: Any) -> None:
        """Do nothing: `_flush` runs once for each registration."""

    def _flush(self) -> None:
        self._write_scheduled = False
        buffer = self._client.buffer
        if buffer is None:
            return
        self._client.loop_write()
        try:
            if buffer.flush():
                self._loop.remove_writer(buffer.fileno())
            else:
                self._loop.add_writer(buffer.fileno(), self._flush)
        except OSError as error:
            self._end(str(error))


class _Client(mqtt.Client):
    """A paho client that uses a buffered socket, which the event loop has connected.

    It keeps at most `packet_limit_bytes` of a packet. A broker may send 256 MiB, of which paho
    makes two copies.
    """

    def __init__(self, client_id: str, packet_limit_bytes: int) -> None:
        super().__init__(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=False,
            protocol=mqtt.MQTTv311,
            manual_ack=True,
        )
        self.opened: socket.socket | None = None
        self.buffer: BufferedSocket | None = None
        self._packet_limit_bytes = packet_limit_bytes

    def _packet_read(self) -> MQTTErrorCode:
        # paho makes a new `bytearray` for each packet.
        if not isinstance(self._in_packet["packet"], _CutPacket):
            self._in_packet["packet"] = _CutPacket(self._packet_limit_bytes)
        return super()._packet_read()

    def holds_messages(self) -> bool:
        """Whether paho keeps received messages of QoS 2 until the broker releases them.

        Nothing limits their number, and a subscription with QoS 1 gets none.
        """
        return bool(self._in_messages)

    def _create_socket(self) -> Any:
        if self.opened is None:
            raise ConnectionError("no socket was opened")
        self.buffer = BufferedSocket(self.opened)
        self.opened = None
        return self.buffer

    def close_socket(self) -> None:
        """Close the connection, if there is one, without sending DISCONNECT."""
        self._sock_close()
        if self.opened is not None:
            self.opened.close()
            self.opened = None


class _CutPacket(bytearray):
    """The beginning of a packet; bytes beyond the limit are dropped."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__()
        self._limit_bytes = limit_bytes

    # mypy compares it with `__add__`, which nobody calls.
    def __iadd__(self, data: bytes, /) -> Self:  # type: ignore[misc, override]
        super().__iadd__(data[: max(0, self._limit_bytes - len(self))])
        return self


def _never() -> bool:
    return False


def _packets(projects: Iterable[str]) -> Iterable[list[str]]:
    filters = [each for project in sorted(projects) for each in filters_of(project)]
    for start in range(0, len(filters), FILTERS_PER_PACKET):
        yield filters[start : start + FILTERS_PER_PACKET]


def _sequence(message: mqtt.MQTTMessage) -> str:
    """Identify a message by its packet id and a hash of topic and body.

    The broker keeps the packet id for as long as it redelivers the message.
    """
    body = hashlib.blake2b(message.payload, digest_size=12, key=message.topic.encode()[:64])
    return f"{message.mid}-{body.hexdigest()}"
