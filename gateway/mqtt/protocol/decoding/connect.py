"""CONNECT and CONNACK.

Source: MQTT 3.1.1 and MQTT 5.0, sections 3.1 and 3.2.
"""

from __future__ import annotations

from fieldbrook.gateway.mqtt.protocol.decoding.allowed_codes import CONNACK_CODES
from fieldbrook.gateway.mqtt.protocol.decoding.checks import check_code, require_end
from fieldbrook.gateway.mqtt.protocol.errors import (
    ClientIdentifierError,
    MalformedPacketError,
    ProtocolError,
    ProtocolViolationError,
    UnsupportedVersionError,
)
from fieldbrook.gateway.mqtt.protocol.fields import SHORT, read_binary, read_string, read_u16
from fieldbrook.gateway.mqtt.protocol.packets import VERSION_5, VERSION_311, ConnAck, Connect, Will
from fieldbrook.gateway.mqtt.protocol.properties import (
    NO_PROPERTIES,
    Place,
    Properties,
    read_properties,
)
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode, connack_reason
from fieldbrook.gateway.mqtt.protocol.topics import check_topic_name


def connect(_first: int, body: bytes) -> Connect:
    """Decode a CONNECT, of any version."""
    name, at = read_string(body, 0)
    level = body[at]
    if (name, level) == ("MQIsdp", 3):
        # Version 3.1 has the same packets as 3.1.1, except for flags of a repeated SUBSCRIBE or
        # PUBREL.
        name, level = "MQTT", VERSION_311
    if name != "MQTT":
        raise UnsupportedVersionError("the protocol is not MQTT")
    if level not in (VERSION_311, VERSION_5):
        # Bridges of mosquitto set the highest bit; when they are refused, they try without it.
        answer = VERSION_5 if VERSION_5 < level < 0x80 else VERSION_311
        raise UnsupportedVersionError("the protocol version is not supported", version=answer)
    try:
        return _connect_fields(level, body, at + 1)
    except IndexError:
        raise MalformedPacketError(SHORT, version=level) from None
    except ProtocolError as error:
        error.version = level
        raise


def _connect_fields(version: int, body: bytes, at: int) -> Connect:
    flags = body[at]
    has_username, has_password, has_will = flags & 0x80, flags & 0x40, flags & 0x04
    will_qos = flags >> 3 & 3
    if flags & 0x01:
        raise MalformedPacketError("the reserved connect flag is set")
    if will_qos == 3 or (not has_will and flags & 0x38):
        raise MalformedPacketError("the will flags contradict each other")
    if version == VERSION_311 and has_password and not has_username:
        raise MalformedPacketError("CONNECT has a password without a user name")
    clean_start = flags & 0x02 != 0
    keep_alive_s, at = read_u16(body, at + 1)
    properties = NO_PROPERTIES
    if version == VERSION_5:
        properties, at = read_properties(body, at, Place.CONNECT)
    client_id, at = read_string(body, at)
    will = None
    if has_will:
        will_properties = NO_PROPERTIES
        if version == VERSION_5:
            will_properties, at = read_properties(body, at, Place.WILL)
        topic, at = read_string(body, at)
        check_topic_name(topic)
        payload, at = read_binary(body, at)
        will = Will(topic, payload, will_qos, flags & 0x20 != 0, will_properties)
    username = password = None
    if has_username:
        username, at = read_string(body, at)
    if has_password:
        password, at = read_binary(body, at)
    require_end(body, at)
    if version == VERSION_311 and not client_id and not clean_start:
        raise ClientIdentifierError("a persistent session needs a client identifier")
    return Connect(
        version, client_id, clean_start, keep_alive_s, username, password, will, properties
    )


def _connack_flags(body: bytes) -> bool:
    if body[0] > 1:
        raise MalformedPacketError("reserved flags of CONNACK are set")
    return body[0] == 1


def connack_311(_first: int, body: bytes) -> ConnAck:
    """Decode a CONNACK of 3.1.1."""
    present = _connack_flags(body)
    code = connack_reason(body[1])
    require_end(body, 2)
    if code is None:
        raise MalformedPacketError("the return code of CONNACK is reserved")
    return _connack(present, code, NO_PROPERTIES)


def connack_5(_first: int, body: bytes) -> ConnAck:
    """Decode a CONNACK of 5.0."""
    present = _connack_flags(body)
    code = check_code(body[1], CONNACK_CODES)
    properties, at = read_properties(body, 2, Place.CONNACK)
    require_end(body, at)
    return _connack(present, code, properties)


def _connack(present: bool, code: ReasonCode, properties: Properties) -> ConnAck:
    if present and code:
        raise ProtocolViolationError("a refused connection has no session")  # MQTT-3.2.2-6
    return ConnAck(present, code, properties)
