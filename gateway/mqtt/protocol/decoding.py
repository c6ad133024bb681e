"""Bytes to packets, of both versions and from both sides.

Every packet is checked as strictly as the standards say, so that whoever works with the values need
not check them again. What depends on the state of a connection is not known here: packet
identifiers in use, the receive maximum, whether a topic alias is known.

Source: MQTT 3.1.1 and MQTT 5.0, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import TypeVar, cast

from fieldbrook.gateway.mqtt.protocol import framing
from fieldbrook.gateway.mqtt.protocol.errors import (
    ClientIdentifierError,
    MalformedPacketError,
    ProtocolError,
    ProtocolViolationError,
    TooManyItemsError,
    UnsupportedVersionError,
)
from fieldbrook.gateway.mqtt.protocol.fields import (
    NOT_UTF8,
    SHORT,
    read_binary,
    read_string,
    read_u16,
)
from fieldbrook.gateway.mqtt.protocol.packets import (
    VERSION_5,
    VERSION_311,
    Auth,
    ClientPacket,
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
    ServerPacket,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Will,
)
from fieldbrook.gateway.mqtt.protocol.properties import (
    ITEMS_LIMIT,
    NO_PROPERTIES,
    Place,
    Properties,
    read_properties,
)
from fieldbrook.gateway.mqtt.protocol.reason_codes import FAILURE, ReasonCode, connack_reason
from fieldbrook.gateway.mqtt.protocol.topics import (
    check_filter,
    check_topic_name,
    check_wildcards,
    parse_shared,
)

TRAILING = "the packet has bytes after its fields"
NO_PACKET_ID = "the packet identifier is 0"

_Decode = Callable[[int, bytes], Packet]
_Acknowledgement = TypeVar("_Acknowledgement", PubAck, PubRec, PubRel, PubComp)

_OK = ReasonCode.SUCCESS
_FROM_CLIENT, _FROM_SERVER = "client", "server"


def decode_client_packet(version: int, first_byte: int, body: bytes) -> ClientPacket:
    """Decode a packet of a client.

    Args:
        version: 4 for 3.1.1 and 3.1, 5 for 5.0; 0 before the CONNECT, which carries its version.
        first_byte: as `framing.next_frame` found it.
        body: all bytes behind the fixed header.

    Raises:
        ProtocolError: the packet is not what the standard allows here. No other error occurs,
            whatever the bytes are.
    """
    try:
        return cast(ClientPacket, _CLIENT[version][first_byte](first_byte, body))
    except IndexError:  # a field was read past the end of the body
        raise MalformedPacketError(SHORT) from None


def decode_server_packet(version: int, first_byte: int, body: bytes) -> ServerPacket:
    """Decode a packet of a server, for tests and tools. `version` is 4 or 5.

    Raises:
        ProtocolError: as for `decode_client_packet`.
    """
    try:
        return cast(ServerPacket, _SERVER[version][first_byte](first_byte, body))
    except IndexError:
        raise MalformedPacketError(SHORT) from None


def _unknown(_first: int, _body: bytes) -> Packet:
    raise MalformedPacketError("the first byte of a packet has an unknown type or wrong flags")


def _not_from_this_side(_first: int, _body: bytes) -> Packet:
    raise ProtocolViolationError("this side never sends packets of this type")


def _before_connect(_first: int, _body: bytes) -> Packet:
    raise ProtocolViolationError("the first packet has to be a CONNECT")  # MQTT-3.1.0-1


def _second_connect(_first: int, _body: bytes) -> Packet:
    raise ProtocolViolationError("a second CONNECT")  # MQTT-3.1.0-2


# CONNECT and CONNACK


def _connect(_first: int, body: bytes) -> Connect:
    name, at = read_string(body, 0)
    level = body[at]
    if (name, level) == ("MQIsdp", 3):
        # Its packets are those of 3.1.1; only flags that repeat a SUBSCRIBE or PUBREL differ.
        name, level = "MQTT", VERSION_311
    if name != "MQTT":
        raise UnsupportedVersionError("the protocol is not MQTT")
    if level not in (VERSION_311, VERSION_5):
        # Bridges of mosquitto set the highest bit, and try without it when they are refused.
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
        raise MalformedPacketError("a password without a user name")
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
    _require_end(body, at)
    if version == VERSION_311 and not client_id and not clean_start:
        raise ClientIdentifierError("a persistent session needs a client identifier")
    return Connect(
        version, client_id, clean_start, keep_alive_s, username, password, will, properties
    )


def _connack_flags(body: bytes) -> bool:
    if body[0] > 1:
        raise MalformedPacketError("reserved flags of CONNACK are set")
    return body[0] == 1


def _connack_311(_first: int, body: bytes) -> ConnAck:
    present = _connack_flags(body)
    code = connack_reason(body[1])
    _require_end(body, 2)
    if code is None:
        raise MalformedPacketError("the return code of CONNACK is reserved")
    return _connack(present, code, NO_PROPERTIES)


def _connack_5(_first: int, body: bytes) -> ConnAck:
    present = _connack_flags(body)
    code = _code(body[1], _CONNACK_CODES)
    properties, at = read_properties(body, 2, Place.CONNACK)
    _require_end(body, at)
    return _connack(present, code, properties)


def _connack(present: bool, code: ReasonCode, properties: Properties) -> ConnAck:
    if present and code:
        raise ProtocolViolationError("a refused connection has no session")  # MQTT-3.2.2-6
    return ConnAck(present, code, properties)


# PUBLISH and its acknowledgements


_FLAGS = {first: (first >> 1 & 3, first & 1 == 1, first & 8 == 8) for first in framing.PUBLISHES}


def _publish_311(first: int, body: bytes) -> Publish:
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


def _publish_5(first: int, body: bytes) -> Publish:
    qos, retain, dup = _FLAGS[first]
    end = start = (body[0] << 8 | body[1]) + 2
    packet_id = 0
    if qos:
        packet_id = body[end] << 8 | body[end + 1]
        if not packet_id:
            raise ProtocolViolationError(NO_PACKET_ID)
        start += 2
    # The octet behind the topic is read, so a topic longer than the packet does not come further.
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


def _publish_5_of_client(first: int, body: bytes) -> Publish:
    packet = _publish_5(first, body)
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


def _acknowledgement_311(kind: type[_Acknowledgement]) -> _Decode:
    def decode(_first: int, body: bytes) -> Packet:
        packet_id = _packet_id(body)
        _require_end(body, 2)
        return kind(packet_id)

    return decode


def _acknowledgement_5(
    kind: type[_Acknowledgement], place: Place, codes: dict[int, ReasonCode]
) -> _Decode:
    def decode(_first: int, body: bytes) -> Packet:
        packet_id = _packet_id(body)
        size = len(body)
        if size == 2:
            return kind(packet_id)
        code = _code(body[2], codes)
        if size == 3:
            return kind(packet_id, code)
        properties, at = read_properties(body, 3, place)
        _require_end(body, at)
        return kind(packet_id, code, properties)

    return decode


# SUBSCRIBE, UNSUBSCRIBE and their acknowledgements


def _subscribe_311(_first: int, body: bytes) -> Subscribe:
    packet_id = _packet_id(body)
    at, size = 2, len(body)
    subscriptions = []
    while at < size:
        topic_filter, at = read_string(body, at)
        qos = body[at]
        if qos > 2:
            raise MalformedPacketError("the requested QoS is 3, or reserved bits are set")
        at += 1
        _check_filter(topic_filter)
        subscriptions.append(Subscription(topic_filter, qos))
        _check_count(subscriptions)
    if not subscriptions:
        raise ProtocolViolationError("a SUBSCRIBE without a filter")
    return Subscribe(packet_id, tuple(subscriptions))


def _subscribe_5(_first: int, body: bytes) -> Subscribe:
    packet_id = _packet_id(body)
    properties, at = read_properties(body, 2, Place.SUBSCRIBE)
    size = len(body)
    subscriptions = []
    while at < size:
        topic_filter, at = read_string(body, at)
        options = body[at]
        at += 1
        _check_filter(topic_filter)
        subscriptions.append(_subscription(topic_filter, options))
        _check_count(subscriptions)
    if not subscriptions:
        raise ProtocolViolationError("a SUBSCRIBE without a filter")
    return Subscribe(packet_id, tuple(subscriptions), properties)


def _subscription(topic_filter: str, options: int) -> Subscription:
    if options <= 2:
        return Subscription(topic_filter, options)
    qos = options & 3
    handling = options >> 4 & 3
    no_local = options & 4 != 0
    if qos == 3 or options & 0xC0:
        raise MalformedPacketError("the requested QoS is 3, or reserved bits are set")
    if handling == 3:
        raise ProtocolViolationError("the retain handling is 3")
    if no_local and parse_shared(topic_filter) is not None:
        raise ProtocolViolationError("no local on a shared subscription")  # MQTT-3.8.3-4
    return Subscription(topic_filter, qos, no_local, options & 8 != 0, handling)


def _check_count(filters: Sized) -> None:
    if len(filters) > ITEMS_LIMIT:
        raise TooManyItemsError(f"a packet may have {ITEMS_LIMIT} filters")


def _check_filter(topic_filter: str) -> None:
    if topic_filter.startswith("$"):
        check_filter(topic_filter)  # it may be a shared subscription
    else:
        check_wildcards(topic_filter)


def _unsubscribe_311(_first: int, body: bytes) -> Unsubscribe:
    return Unsubscribe(_packet_id(body), _filters(body, 2))


def _unsubscribe_5(_first: int, body: bytes) -> Unsubscribe:
    packet_id = _packet_id(body)
    properties, at = read_properties(body, 2, Place.UNSUBSCRIBE)
    return Unsubscribe(packet_id, _filters(body, at), properties)


def _filters(body: bytes, at: int) -> tuple[str, ...]:
    filters = []
    size = len(body)
    while at < size:
        topic_filter, at = read_string(body, at)
        _check_filter(topic_filter)
        filters.append(topic_filter)
        _check_count(filters)
    if not filters:
        raise ProtocolViolationError("an UNSUBSCRIBE without a filter")
    return tuple(filters)


def _suback_311(_first: int, body: bytes) -> SubAck:
    packet_id = _packet_id(body)
    return SubAck(packet_id, _codes(body, 2, (0, 1, 2, FAILURE)))


def _suback_5(_first: int, body: bytes) -> SubAck:
    packet_id = _packet_id(body)
    properties, at = read_properties(body, 2, Place.SUBACK)
    return SubAck(packet_id, _codes(body, at, _SUBACK_CODES), properties)


def _unsuback_311(_first: int, body: bytes) -> UnsubAck:
    packet_id = _packet_id(body)
    _require_end(body, 2)
    return UnsubAck(packet_id)


def _unsuback_5(_first: int, body: bytes) -> UnsubAck:
    packet_id = _packet_id(body)
    properties, at = read_properties(body, 2, Place.UNSUBACK)
    return UnsubAck(packet_id, _codes(body, at, _UNSUBACK_CODES), properties)


def _codes(
    body: bytes, at: int, allowed: dict[int, ReasonCode] | tuple[int, ...]
) -> tuple[int, ...]:
    codes = tuple(body[at:])
    if not codes or not set(codes).issubset(allowed):
        raise ProtocolViolationError("a reason code is missing, or not one of this packet")
    return codes


# PINGREQ, PINGRESP, DISCONNECT, AUTH


def _pingreq(_first: int, body: bytes) -> PingReq:
    _require_end(body, 0)
    return _PINGREQ


def _pingresp(_first: int, body: bytes) -> PingResp:
    _require_end(body, 0)
    return _PINGRESP


def _disconnect_311(_first: int, body: bytes) -> Disconnect:
    _require_end(body, 0)
    return _DISCONNECT


def _disconnect_5(codes: dict[int, ReasonCode], side: str) -> _Decode:
    def decode(_first: int, body: bytes) -> Disconnect:
        if not body:
            return _DISCONNECT
        code = _code(body[0], codes)
        if len(body) == 1:
            return Disconnect(code)
        properties, at = read_properties(body, 1, Place.DISCONNECT)
        _require_end(body, at)
        if side == _FROM_SERVER and properties.session_expiry_interval is not None:
            # MQTT-3.14.2-2
            raise ProtocolViolationError("a server sent a session expiry interval")
        return Disconnect(code, properties)

    return decode


def _auth(codes: dict[int, ReasonCode]) -> _Decode:
    def decode(_first: int, body: bytes) -> Auth:
        if not body:
            return Auth(_code(_OK, codes))
        code = _code(body[0], codes)
        properties, at = read_properties(body, 1, Place.AUTH)
        _require_end(body, at)
        if properties.authentication_method is None:
            raise ProtocolViolationError("an AUTH without an authentication method")
        return Auth(code, properties)

    return decode


# What several packets share


def _packet_id(body: bytes) -> int:
    packet_id = body[0] << 8 | body[1]
    if not packet_id:
        raise ProtocolViolationError(NO_PACKET_ID)
    return packet_id


def _require_end(body: bytes, at: int) -> None:
    if at != len(body):
        raise MalformedPacketError(TRAILING if at < len(body) else SHORT)


def _code(number: int, allowed: dict[int, ReasonCode]) -> ReasonCode:
    code = allowed.get(number)
    if code is None:
        raise ProtocolViolationError("the reason code is not one of this packet")
    return code


def _numbered(*codes: ReasonCode) -> dict[int, ReasonCode]:
    return {int(code): code for code in codes}


_PINGREQ, _PINGRESP, _DISCONNECT = PingReq(), PingResp(), Disconnect()

# Source: tables 3-1, 3-4 to 3-7, 3-8, 3-9, 3-10, 3-11 of MQTT 5.0.
_CONNACK_CODES = _numbered(
    ReasonCode.SUCCESS,
    ReasonCode.UNSPECIFIED_ERROR,
    ReasonCode.MALFORMED_PACKET,
    ReasonCode.PROTOCOL_ERROR,
    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ReasonCode.NOT_AUTHORIZED,
    ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.SERVER_BUSY,
    ReasonCode.BANNED,
    ReasonCode.BAD_AUTHENTICATION_METHOD,
    ReasonCode.TOPIC_NAME_INVALID,
    ReasonCode.PACKET_TOO_LARGE,
    ReasonCode.QUOTA_EXCEEDED,
    ReasonCode.PAYLOAD_FORMAT_INVALID,
    ReasonCode.RETAIN_NOT_SUPPORTED,
    ReasonCode.QOS_NOT_SUPPORTED,
    ReasonCode.USE_ANOTHER_SERVER,
    ReasonCode.SERVER_MOVED,
    ReasonCode.CONNECTION_RATE_EXCEEDED,
)
_RECEIVED_CODES = _numbered(
    ReasonCode.SUCCESS,
    ReasonCode.NO_MATCHING_SUBSCRIBERS,
    ReasonCode.UNSPECIFIED_ERROR,
    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    ReasonCode.NOT_AUTHORIZED,
    ReasonCode.TOPIC_NAME_INVALID,
    ReasonCode.PACKET_IDENTIFIER_IN_USE,
    ReasonCode.QUOTA_EXCEEDED,
    ReasonCode.PAYLOAD_FORMAT_INVALID,
)
_RELEASED_CODES = _numbered(ReasonCode.SUCCESS, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
_SUBACK_CODES = _numbered(
    ReasonCode.GRANTED_QOS_0,
    ReasonCode.GRANTED_QOS_1,
    ReasonCode.GRANTED_QOS_2,
    ReasonCode.UNSPECIFIED_ERROR,
    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    ReasonCode.NOT_AUTHORIZED,
    ReasonCode.TOPIC_FILTER_INVALID,
    ReasonCode.PACKET_IDENTIFIER_IN_USE,
    ReasonCode.QUOTA_EXCEEDED,
    ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    ReasonCode.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
    ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
)
_UNSUBACK_CODES = _numbered(
    ReasonCode.SUCCESS,
    ReasonCode.NO_SUBSCRIPTION_EXISTED,
    ReasonCode.UNSPECIFIED_ERROR,
    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    ReasonCode.NOT_AUTHORIZED,
    ReasonCode.TOPIC_FILTER_INVALID,
    ReasonCode.PACKET_IDENTIFIER_IN_USE,
)
_DISCONNECTS_OF_BOTH = (
    ReasonCode.NORMAL_DISCONNECTION,
    ReasonCode.UNSPECIFIED_ERROR,
    ReasonCode.MALFORMED_PACKET,
    ReasonCode.PROTOCOL_ERROR,
    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    ReasonCode.TOPIC_NAME_INVALID,
    ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
    ReasonCode.TOPIC_ALIAS_INVALID,
    ReasonCode.PACKET_TOO_LARGE,
    ReasonCode.MESSAGE_RATE_TOO_HIGH,
    ReasonCode.QUOTA_EXCEEDED,
    ReasonCode.ADMINISTRATIVE_ACTION,
    ReasonCode.PAYLOAD_FORMAT_INVALID,
)
_CLIENT_DISCONNECT_CODES = _numbered(
    *_DISCONNECTS_OF_BOTH,
    ReasonCode.DISCONNECT_WITH_WILL_MESSAGE,
    ReasonCode.BAD_AUTHENTICATION_METHOD,
)
_SERVER_DISCONNECT_CODES = _numbered(
    *_DISCONNECTS_OF_BOTH,
    ReasonCode.NOT_AUTHORIZED,
    ReasonCode.SERVER_BUSY,
    ReasonCode.SERVER_SHUTTING_DOWN,
    ReasonCode.BAD_AUTHENTICATION_METHOD,
    ReasonCode.KEEP_ALIVE_TIMEOUT,
    ReasonCode.SESSION_TAKEN_OVER,
    ReasonCode.TOPIC_FILTER_INVALID,
    ReasonCode.RETAIN_NOT_SUPPORTED,
    ReasonCode.QOS_NOT_SUPPORTED,
    ReasonCode.USE_ANOTHER_SERVER,
    ReasonCode.SERVER_MOVED,
    ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    ReasonCode.CONNECTION_RATE_EXCEEDED,
    ReasonCode.MAXIMUM_CONNECT_TIME,
    ReasonCode.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
    ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
)
_CLIENT_AUTH_CODES = _numbered(ReasonCode.CONTINUE_AUTHENTICATION, ReasonCode.RE_AUTHENTICATE)
_SERVER_AUTH_CODES = _numbered(ReasonCode.SUCCESS, ReasonCode.CONTINUE_AUTHENTICATION)

_SERVERS_ONLY = (framing.CONNACK, framing.SUBACK, framing.UNSUBACK, framing.PINGRESP)
_CLIENTS_ONLY = (framing.CONNECT, framing.SUBSCRIBE, framing.UNSUBSCRIBE, framing.PINGREQ)

_ACKNOWLEDGEMENTS_311: dict[int, _Decode] = {
    framing.PUBACK: _acknowledgement_311(PubAck),
    framing.PUBREC: _acknowledgement_311(PubRec),
    framing.PUBREL: _acknowledgement_311(PubRel),
    framing.PUBCOMP: _acknowledgement_311(PubComp),
}
_ACKNOWLEDGEMENTS_5: dict[int, _Decode] = {
    framing.PUBACK: _acknowledgement_5(PubAck, Place.PUBACK, _RECEIVED_CODES),
    framing.PUBREC: _acknowledgement_5(PubRec, Place.PUBREC, _RECEIVED_CODES),
    framing.PUBREL: _acknowledgement_5(PubRel, Place.PUBREL, _RELEASED_CODES),
    framing.PUBCOMP: _acknowledgement_5(PubComp, Place.PUBCOMP, _RELEASED_CODES),
}


def _by_first_byte(decoders: dict[int, _Decode], others: dict[int, _Decode]) -> tuple[_Decode, ...]:
    return tuple((others | decoders).get(first, _unknown) for first in range(256))


_LEGAL_FIRST = (
    *framing.PUBLISHES,
    *_SERVERS_ONLY,
    *_CLIENTS_ONLY,
    *_ACKNOWLEDGEMENTS_311,
    framing.DISCONNECT,
    framing.AUTH,
)
_CLIENT = {
    0: _by_first_byte({framing.CONNECT: _connect}, dict.fromkeys(_LEGAL_FIRST, _before_connect)),
    VERSION_311: _by_first_byte(
        {
            framing.CONNECT: _second_connect,
            **dict.fromkeys(framing.PUBLISHES, _publish_311),
            **_ACKNOWLEDGEMENTS_311,
            framing.SUBSCRIBE: _subscribe_311,
            framing.UNSUBSCRIBE: _unsubscribe_311,
            framing.PINGREQ: _pingreq,
            framing.DISCONNECT: _disconnect_311,
        },
        dict.fromkeys(_SERVERS_ONLY, _not_from_this_side),
    ),
    VERSION_5: _by_first_byte(
        {
            framing.CONNECT: _second_connect,
            **dict.fromkeys(framing.PUBLISHES, _publish_5_of_client),
            **_ACKNOWLEDGEMENTS_5,
            framing.SUBSCRIBE: _subscribe_5,
            framing.UNSUBSCRIBE: _unsubscribe_5,
            framing.PINGREQ: _pingreq,
            framing.DISCONNECT: _disconnect_5(_CLIENT_DISCONNECT_CODES, _FROM_CLIENT),
            framing.AUTH: _auth(_CLIENT_AUTH_CODES),
        },
        dict.fromkeys(_SERVERS_ONLY, _not_from_this_side),
    ),
}
_SERVER = {
    VERSION_311: _by_first_byte(
        {
            framing.CONNACK: _connack_311,
            **dict.fromkeys(framing.PUBLISHES, _publish_311),
            **_ACKNOWLEDGEMENTS_311,
            framing.SUBACK: _suback_311,
            framing.UNSUBACK: _unsuback_311,
            framing.PINGRESP: _pingresp,
        },
        dict.fromkeys((*_CLIENTS_ONLY, framing.DISCONNECT), _not_from_this_side),
    ),
    VERSION_5: _by_first_byte(
        {
            framing.CONNACK: _connack_5,
            **dict.fromkeys(framing.PUBLISHES, _publish_5),
            **_ACKNOWLEDGEMENTS_5,
            framing.SUBACK: _suback_5,
            framing.UNSUBACK: _unsuback_5,
            framing.PINGRESP: _pingresp,
            framing.DISCONNECT: _disconnect_5(_SERVER_DISCONNECT_CODES, _FROM_SERVER),
            framing.AUTH: _auth(_SERVER_AUTH_CODES),
        },
        dict.fromkeys(_CLIENTS_ONLY, _not_from_this_side),
    ),
}
