"""Encodes packets to one client, for its version and within its limits."""

from __future__ import annotations

from msgspec.structs import replace

from fieldbrook.gateway.mqtt.protocol.encoding import encode, publish_311
from fieldbrook.gateway.mqtt.protocol.errors import ProtocolError
from fieldbrook.gateway.mqtt.protocol.packets import (
    VERSION_5,
    ConnAck,
    Connect,
    Disconnect,
    PubAck,
    Publish,
    PubRec,
)
from fieldbrook.gateway.mqtt.protocol.properties import Properties
from fieldbrook.gateway.mqtt.protocol.reason_codes import WITHOUT_CONNACK_311
from fieldbrook.gateway.mqtt.sessions.forwarded import outgoing_properties
from fieldbrook.gateway.mqtt.sessions.session import Message


class Encoder:
    """Encodes packets with the version and limits of a client's CONNECT."""

    __slots__ = ("_packet_maximum", "_version", "_wants_reasons")

    def __init__(self, packet: Connect) -> None:
        properties = packet.properties
        self._version = packet.version
        self._packet_maximum = properties.maximum_packet_size or 0
        self._wants_reasons = (
            packet.version == VERSION_5 and properties.request_problem_information is not False
        )

    def fits(self, data: bytes) -> bool:
        """Whether a packet is within the client's maximum packet size."""
        return not self._packet_maximum or len(data) <= self._packet_maximum

    def with_reason(self, packet: ConnAck | Disconnect | PubAck | PubRec, reason: str) -> bytes:
        """Encode a packet, with a reason string if the client wants one and it fits."""
        if self._wants_reasons and reason:
            properties = Properties(reason_string=reason)
            data = encode(self._version, replace(packet, properties=properties))
            if self.fits(data):
                return data
        return encode(self._version, packet)

    def publish(
        self,
        message: Message,
        qos: int,
        packet_id: int,
        *,
        repeated: bool,
        identifiers: tuple[int, ...],
    ) -> bytes | None:
        """Encode a message; None if it is too large for the client."""
        if self._version != VERSION_5:
            return publish_311(
                message.topic.encode(), message.payload, qos, packet_id, repeated, message.retain
            )
        data = encode(
            self._version,
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
        return data if self.fits(data) else None


def refused_connect(error: ProtocolError) -> bytes:
    """The answer to a CONNECT that breaks the rules; empty if its MQTT version has no such
    answer."""
    version = error.version
    if version == VERSION_5:
        properties = Properties(reason_string=error.text)
        return encode(version, ConnAck(False, error.code, properties))
    if not version or error.code in WITHOUT_CONNACK_311:
        return b""
    return encode(version, ConnAck(False, error.code))
