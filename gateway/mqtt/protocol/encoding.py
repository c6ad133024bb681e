"""Encodes packets as bytes, for both versions of MQTT, and for clients and servers.

Source: MQTT 3.1.1 and MQTT 5.0, section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fieldbrook.gateway.mqtt.protocol import framing
from fieldbrook.gateway.mqtt.protocol.fields import MAX_FIELD_BYTES, binary, string, varint
from fieldbrook.gateway.mqtt.protocol.packets import (
    VERSION_5,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
)
from fieldbrook.gateway.mqtt.protocol.properties import NO_PROPERTIES, Place, write_properties
from fieldbrook.gateway.mqtt.protocol.reason_codes import FAILURE, connack_311

_Encode = Callable[[bool, Any], bytes]
"""Writes a packet of one type; the first argument is whether it is for MQTT 5."""

PINGRESP = b"\xd0\x00"
"""The only bytes of a PINGRESP."""


def encode(version: int, packet: Packet) -> bytes:
    """Write a packet. For 3.1.1, everything that only MQTT 5 has is left out.

    Args:
        version: 4 for 3.1.1, 5 for 5.0; a CONNECT is written in its own version.

    Raises:
        ValueError: a text or bytes do not fit into their field, a property is not allowed in this
            packet, or an AUTH is written for 3.1.1.
        OverflowError: an integer does not fit into its field.
    """
    return _ENCODERS[type(packet)](version == VERSION_5, packet)


def puback(packet_id: int) -> bytes:
    """The PUBACK of a success, the same in both versions."""
    return (0x4002_0000 | packet_id).to_bytes(4)


def publish_311(
    topic_utf8: bytes, payload: bytes, qos: int, packet_id: int, dup: bool, retain: bool
) -> bytes:
    """A PUBLISH of 3.1.1. `packet_id` counts for QoS 1 and 2.

    Raises:
        ValueError: the topic is longer than 65,535 bytes, or the packet than 256 MiB.
    """
    return _publish_bytes(topic_utf8, b"", payload, qos, packet_id, dup, retain)


def _publish_bytes(
    topic: bytes,
    properties: bytes,
    payload: bytes,
    qos: int,
    packet_id: int,
    dup: bool,
    retain: bool,
) -> bytes:
    first = framing.PUBLISH | dup << 3 | qos << 1 | retain
    size = len(topic)
    if size > MAX_FIELD_BYTES:
        raise ValueError("the topic is longer than 65,535 bytes")
    length = 2 + size + len(properties) + len(payload)
    if qos:
        length += 2
        properties = packet_id.to_bytes(2) + properties
    if length < 0x80:
        head = (first << 24 | length << 16 | size).to_bytes(4)
    else:
        head = first.to_bytes(1) + varint(length) + size.to_bytes(2)
    return b"".join((head, topic, properties, payload))


def _packet(first: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    size = len(body)
    if size < 0x80:
        return (first << 8 | size).to_bytes(2) + body
    return b"".join((first.to_bytes(1), varint(size), body))


def _publish(five: bool, packet: Publish) -> bytes:
    return _publish_bytes(
        packet.topic.encode(),
        write_properties(packet.properties, Place.PUBLISH) if five else b"",
        packet.payload,
        packet.qos,
        packet.packet_id,
        packet.dup,
        packet.retain,
    )


def _acknowledgement(first: int, place: Place) -> _Encode:
    start = bytes((first, 2))

    def encode_acknowledgement(five: bool, packet: PubAck | PubRec | PubRel | PubComp) -> bytes:
        code, properties = packet.code, packet.properties
        if not five or (not code and properties is NO_PROPERTIES):
            return start + packet.packet_id.to_bytes(2)
        head = packet.packet_id.to_bytes(2) + code.to_bytes(1)
        if properties is NO_PROPERTIES:
            return _packet(first, head)
        return _packet(first, head, write_properties(properties, place))

    return encode_acknowledgement


def _connect(_five: bool, packet: Connect) -> bytes:
    five = packet.version == VERSION_5
    flags = packet.clean_start << 1
    payload = [string(packet.client_id)]
    will = packet.will
    if will is not None:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
        if five:
            payload.append(write_properties(will.properties, Place.WILL))
        payload += [string(will.topic), binary(will.payload)]
    if packet.username is not None:
        flags |= 0x80
        payload.append(string(packet.username))
    if packet.password is not None:
        flags |= 0x40
        payload.append(binary(packet.password))
    return _packet(
        framing.CONNECT,
        string("MQTT"),
        packet.version.to_bytes(1),
        flags.to_bytes(1),
        packet.keep_alive_s.to_bytes(2),
        write_properties(packet.properties, Place.CONNECT) if five else b"",
        *payload,
    )


def _connack(five: bool, packet: ConnAck) -> bytes:
    flags = packet.session_present.to_bytes(1)
    if not five:
        return _packet(framing.CONNACK, flags, connack_311(packet.code).to_bytes(1))
    properties = write_properties(packet.properties, Place.CONNACK)
    return _packet(framing.CONNACK, flags, packet.code.to_bytes(1), properties)


def _subscribe(five: bool, packet: Subscribe) -> bytes:
    parts = [packet.packet_id.to_bytes(2)]
    if five:
        parts.append(write_properties(packet.properties, Place.SUBSCRIBE))
    for subscription in packet.subscriptions:
        parts.append(string(subscription.filter))
        parts.append((_options(subscription) if five else subscription.qos).to_bytes(1))
    return _packet(framing.SUBSCRIBE, *parts)


def _options(subscription: Subscription) -> int:
    return (
        subscription.qos
        | subscription.no_local << 2
        | subscription.retain_as_published << 3
        | subscription.retain_handling << 4
    )


def _suback(five: bool, packet: SubAck) -> bytes:
    packet_id = packet.packet_id.to_bytes(2)
    if not five:
        return _packet(framing.SUBACK, packet_id, bytes(min(c, FAILURE) for c in packet.codes))
    properties = write_properties(packet.properties, Place.SUBACK)
    return _packet(framing.SUBACK, packet_id, properties, bytes(packet.codes))


def _unsubscribe(five: bool, packet: Unsubscribe) -> bytes:
    properties = write_properties(packet.properties, Place.UNSUBSCRIBE) if five else b""
    packet_id = packet.packet_id.to_bytes(2)
    return _packet(framing.UNSUBSCRIBE, packet_id, properties, *map(string, packet.filters))


def _unsuback(five: bool, packet: UnsubAck) -> bytes:
    packet_id = packet.packet_id.to_bytes(2)
    if not five:
        return _packet(framing.UNSUBACK, packet_id)
    properties = write_properties(packet.properties, Place.UNSUBACK)
    return _packet(framing.UNSUBACK, packet_id, properties, bytes(packet.codes))


def _pingreq(_five: bool, _packet: PingReq) -> bytes:
    return b"\xc0\x00"


def _pingresp(_five: bool, _packet: PingResp) -> bytes:
    return PINGRESP


def _disconnect(five: bool, packet: Disconnect) -> bytes:
    if not five or (not packet.code and packet.properties is NO_PROPERTIES):
        return b"\xe0\x00"
    properties = write_properties(packet.properties, Place.DISCONNECT)
    return _packet(framing.DISCONNECT, packet.code.to_bytes(1), properties)


def _auth(five: bool, packet: Auth) -> bytes:
    if not five:
        raise ValueError("3.1.1 has no AUTH")
    if not packet.code and packet.properties is NO_PROPERTIES:
        return b"\xf0\x00"
    properties = write_properties(packet.properties, Place.AUTH)
    return _packet(framing.AUTH, packet.code.to_bytes(1), properties)


_ENCODERS: dict[type[Packet], _Encode] = {
    Publish: _publish,
    PubAck: _acknowledgement(framing.PUBACK, Place.PUBACK),
    PubRec: _acknowledgement(framing.PUBREC, Place.PUBREC),
    PubRel: _acknowledgement(framing.PUBREL, Place.PUBREL),
    PubComp: _acknowledgement(framing.PUBCOMP, Place.PUBCOMP),
    Connect: _connect,
    ConnAck: _connack,
    Subscribe: _subscribe,
    SubAck: _suback,
    Unsubscribe: _unsubscribe,
    UnsubAck: _unsuback,
    PingReq: _pingreq,
    PingResp: _pingresp,
    Disconnect: _disconnect,
    Auth: _auth,
}
