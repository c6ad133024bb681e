"""PUBLISH and its acknowledgements.

Source: MQTT 3.1.1 and MQTT 5.0, sections 3.3 to 3.7.
"""

from __future__ import annotations

from typing import TypeVar

from fieldbrook.gateway.mqtt.protocol import framing
from fieldbrook.gateway.mqtt.protocol.decoding.checks import (
    NO_PACKET_ID,
    Decode,
    check_code,
    read_packet_id,
    require_end,
)
from fieldbrook.gateway.mqtt.protocol.errors import MalformedPacketError, ProtocolViolationError
from fieldbrook.gateway.mqtt.protocol.fields import NOT_UTF8, SHORT
from fieldbrook.gateway.mqtt.protocol.packets import (
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
)
from fieldbrook.gateway.mqtt.protocol.properties import Place, read_properties
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from fieldbrook.gateway.mqtt.protocol.topics import check_topic_name

_Acknowledgement = TypeVar("_Acknowledgement", PubAck, PubRec, PubRel, PubComp)
_FLAGS = {first: (first >> 1 & 3, first & 1 == 1, first & 8 == 8) for first in framing.PUBLISHES}


def publish_311(first: int, body: bytes) -> Publish:
    """Decode a PUBLISH of 3.1.1."""
    qos, retain, dup = _FLAGS[first]
    end = (body[0] << 8 | body[1]) + 2
    if qos:
        packet_id = body[end] << 8 | body[end + 1]
        if not packet_id:
            raise ProtocolViolationError(NO_PACKET_ID)
        return Publish(_topic(body, end), body[end + 2 :], qos, retain, dup, packet_id)
    if end > len(body):
        raise MalformedPacketError(SHORT)
    return Publish(_topic(body, end), body[end:], 0, retain)


def publish_5(first: int, body: bytes) -> Publish:
    """Decode a PUBLISH of 5.0."""
    qos, retain, dup = _FLAGS[first]
    end = start = (body[0] << 8 | body[1]) + 2
    packet_id = 0
    if qos:
        packet_id = body[end] << 8 | body[end + 1]
        if not packet_id:
            raise ProtocolViolationError(NO_PACKET_ID)
        start += 2
    # This reads the octet after the topic, so it fails if the topic is longer than the packet.
    if not body[start] and end > 2:
        return Publish(_topic(body, end), body[start + 1 :], qos, retain, dup, packet_id)
    properties, start = read_properties(body, start, Place.PUBLISH)
    if end > 2:
        topic = _topic(body, end)
    elif properties.topic_alias is not None:
        topic = ""
    else:
        raise ProtocolViolationError("a message has neither a topic nor a topic alias")
    return Publish(topic, body[start:], qos, retain, dup, packet_id, properties)


def publish_5_of_client(first: int, body: bytes) -> Publish:
    """Decode a PUBLISH of 5.0 that a client sends."""
    packet = publish_5(first, body)
    if packet.properties.subscription_identifiers:  # MQTT-3.3.4-6
        raise ProtocolViolationError("a client sent a subscription identifier with a message")
    return packet


def _topic(body: bytes, end: int) -> str:
    try:
        topic = body[2:end].decode()
    except UnicodeDecodeError:
        raise MalformedPacketError(NOT_UTF8) from None
    if not topic or "+" in topic or "#" in topic or "\0" in topic:
        check_topic_name(topic)
    return topic


def acknowledgement_311(kind: type[_Acknowledgement]) -> Decode:
    """Return the decoder of a PUBACK, PUBREC, PUBREL or PUBCOMP of 3.1.1."""

    def decode(_first: int, body: bytes) -> Packet:
        packet_id = read_packet_id(body)
        require_end(body, 2)
        return kind(packet_id)

    return decode


def acknowledgement_5(
    kind: type[_Acknowledgement], place: Place, codes: dict[int, ReasonCode]
) -> Decode:
    """Return the decoder of a PUBACK, PUBREC, PUBREL or PUBCOMP of 5.0."""

    def decode(_first: int, body: bytes) -> Packet:
        packet_id = read_packet_id(body)
        size = len(body)
        if size == 2:
            return kind(packet_id)
        code = check_code(body[2], codes)
        if size == 3:
            return kind(packet_id, code)
        properties, at = read_properties(body, 3, place)
        require_end(body, at)
        return kind(packet_id, code, properties)

    return decode
