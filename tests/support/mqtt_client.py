"""A blocking MQTT client of both versions that sends any packet and returns each answer."""

from __future__ import annotations

import itertools
import os
import socket
from typing import Any, Self, TypeVar

from fieldbrook.gateway.mqtt.protocol.decoding.decoder import decode_server_packet
from fieldbrook.gateway.mqtt.protocol.encoding import encode
from fieldbrook.gateway.mqtt.protocol.framing import next_frame
from fieldbrook.gateway.mqtt.protocol.packets import (
    VERSION_5,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    Will,
)
from fieldbrook.gateway.mqtt.protocol.properties import NO_PROPERTIES, Properties
from tests.support.tools import LIMIT_S

_READ_BYTES = 64 << 10
_numbers = itertools.count()
P = TypeVar("P")


def new_id(name: str = "client") -> str:
    """Return a client id that no other client has."""
    return f"{name}-{os.getpid()}-{next(_numbers)}"


class MqttClient:
    """One connection, which begins with a connected socket; `connect` sends CONNECT."""

    def __init__(
        self,
        port: int,
        version: int = VERSION_5,
        limit_s: float = LIMIT_S,
        source: str = "127.0.0.1",
    ) -> None:
        """`source` is the client's address, one of the loopback network."""
        self.version = version
        self.socket = socket.create_connection(("127.0.0.1", port), limit_s, (source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._packet_ids = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def connect(
        self,
        client_id: str | None = None,
        *,
        clean: bool = True,
        username: str | None = None,
        password: str | None = None,
        will: Will | None = None,
        keep_alive_s: int = 0,
        expiry_s: int | None = None,
        **properties: Any,
    ) -> ConnAck:
        """Send CONNECT and return the answer."""
        if expiry_s is not None:
            properties["session_expiry_interval"] = expiry_s
        self.send(
            Connect(
                self.version,
                new_id() if client_id is None else client_id,
                clean,
                keep_alive_s,
                username,
                None if password is None else password.encode(),
                will,
                Properties(**properties) if properties else NO_PROPERTIES,
            )
        )
        return self.expect(ConnAck)

    def send(self, *packets: Packet) -> None:
        """Send packets in one piece."""
        self.send_bytes(b"".join(encode(self.version, packet) for packet in packets))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes unchanged."""
        self.socket.sendall(data)

    def read(self) -> Packet:
        """Return the next packet.

        Raises:
            EOFError: the server has closed the connection.
        """
        while True:
            framed = next_frame(self._buffer, 0)
            if framed is not None:
                first, begin, end = framed
                body, self._buffer = self._buffer[begin:end], self._buffer[end:]
                return decode_server_packet(self.version, first, body)
            data = self.socket.recv(_READ_BYTES)
            if not data:
                raise EOFError("the server has closed the connection")
            self._buffer += data

    def expect(self, kind: type[P]) -> P:
        """Return the next packet, which must be of this kind."""
        packet = self.read()
        assert isinstance(packet, kind), packet
        return packet

    def next_id(self) -> int:
        """Return a packet id that is not in use."""
        return next(self._packet_ids) % 0xFFFF + 1

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 1,
        *,
        retain: bool = False,
        dup: bool = False,
        packet_id: int | None = None,
        **properties: Any,
    ) -> PubAck | PubRec | None:
        """Publish, and return the answer; QoS 2 is released if it was received."""
        packet_id = (self.next_id() if packet_id is None else packet_id) if qos else 0
        values = Properties(**properties) if properties else NO_PROPERTIES
        self.send(Publish(topic, payload, qos, retain, dup, packet_id, values))
        if qos == 1:
            acknowledged = self.expect(PubAck)
            assert acknowledged.packet_id == packet_id
            return acknowledged
        if qos == 2:
            received = self.expect(PubRec)
            assert received.packet_id == packet_id
            if received.code < 0x80:
                self.send(PubRel(packet_id))
                assert self.expect(PubComp).packet_id == packet_id
            return received
        return None

    def subscribe(self, topic_filter: str, qos: int = 1, **options: Any) -> int:
        """Subscribe to one filter and return the reason code."""
        identifier = options.pop("identifier", 0)
        values = Properties(subscription_identifiers=(identifier,)) if identifier else NO_PROPERTIES
        packet_id = self.next_id()
        self.send(Subscribe(packet_id, (Subscription(topic_filter, qos, **options),), values))
        answer = self.expect(SubAck)
        assert answer.packet_id == packet_id
        return answer.codes[0]

    def receive(self) -> Publish:
        """Return the next message, after acknowledging it according to its QoS."""
        message = self.expect(Publish)
        if message.qos == 1:
            self.send(PubAck(message.packet_id))
        elif message.qos == 2:
            self.send(PubRec(message.packet_id))
            assert self.expect(PubRel).packet_id == message.packet_id
            self.send(PubComp(message.packet_id))
        return message

    def ended(self) -> Disconnect | None:
        """Wait for the end of the connection; return the server's DISCONNECT, if there is one."""
        last: Disconnect | None = None
        try:
            while True:
                packet = self.read()
                last = packet if isinstance(packet, Disconnect) else last
        except (EOFError, ConnectionError):
            return last

    def disconnect(self, **properties: Any) -> None:
        """Send DISCONNECT and wait for the end of the connection."""
        values = Properties(**properties) if properties else NO_PROPERTIES
        self.send(Disconnect(properties=values))
        self.ended()
        self.socket.close()
