"""The properties of MQTT 5: one table has the type of each one, and the packets in which it is
allowed.

Source: MQTT 5.0, 2.2.2 and table 2-4.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import Struct

from fieldbrook.gateway.mqtt.protocol.errors import (
    MalformedPacketError,
    ProtocolViolationError,
    TooManyItemsError,
)
from fieldbrook.gateway.mqtt.protocol.fields import (
    SHORT,
    binary,
    read_binary,
    read_string,
    read_u16,
    read_u32,
    read_varint,
    string,
    varint,
)
from fieldbrook.gateway.mqtt.protocol.topics import check_topic_name


class Properties(Struct, frozen=True):
    """All properties of one packet or will. The value of an absent property is None."""

    payload_format_indicator: int | None = None
    message_expiry_interval: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    session_expiry_interval: int | None = None
    assigned_client_identifier: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: bool | None = None
    will_delay_interval: int | None = None
    request_response_information: bool | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: bool | None = None
    maximum_packet_size: int | None = None
    wildcard_subscription_available: bool | None = None
    subscription_identifier_available: bool | None = None
    shared_subscription_available: bool | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    subscription_identifiers: tuple[int, ...] = ()

    def __repr__(self) -> str:
        """Show the present properties, except authentication data, which must not be logged."""
        shown = (
            f"{name}={value!r}"
            for name in self.__struct_fields__
            if (value := getattr(self, name)) not in (None, ()) and name != "authentication_data"
        )
        return f"Properties({', '.join(shown)})"


NO_PROPERTIES = Properties()

ITEMS_LIMIT = 1_000
"""The limit of user properties, or of filters, of one packet. They are read in one piece, which
takes about 2 ms at the limit. Without it, a packet of a megabyte could have 200,000."""


class Place(Enum):
    """Where properties are: in a packet, or in the will of a CONNECT."""

    CONNECT = auto()
    WILL = auto()
    CONNACK = auto()
    PUBLISH = auto()
    PUBACK = auto()
    PUBREC = auto()
    PUBREL = auto()
    PUBCOMP = auto()
    SUBSCRIBE = auto()
    SUBACK = auto()
    UNSUBSCRIBE = auto()
    UNSUBACK = auto()
    DISCONNECT = auto()
    AUTH = auto()


class _Type(NamedTuple):
    """The data type of a property: functions that read and write its value."""

    read: Callable[[bytes, int], tuple[Any, int]]
    write: Callable[[Any], bytes]


def _read_bit(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    if value > 1:
        raise ProtocolViolationError("a property that is 0 or 1 has another value")
    return value, at + 1


def _read_flag(data: bytes, at: int) -> tuple[bool, int]:
    value, at = _read_bit(data, at)
    return value == 1, at


def _positive(
    read: Callable[[bytes, int], tuple[int, int]],
) -> Callable[[bytes, int], tuple[int, int]]:
    def read_positive(data: bytes, at: int) -> tuple[int, int]:
        value, at = read(data, at)
        if value == 0:
            raise ProtocolViolationError("a property that has to be positive is 0")
        return value, at

    return read_positive


def _read_topic(data: bytes, at: int) -> tuple[str, int]:
    topic, at = read_string(data, at)
    check_topic_name(topic)
    return topic, at


def _read_pair(data: bytes, at: int) -> tuple[tuple[str, str], int]:
    name, at = read_string(data, at)
    value, at = read_string(data, at)
    return (name, value), at


def _write_pair(pair: tuple[str, str]) -> bytes:
    return string(pair[0]) + string(pair[1])


def _write_u8(value: int) -> bytes:
    return value.to_bytes(1)


def _write_u16(value: int) -> bytes:
    return value.to_bytes(2)


def _write_u32(value: int) -> bytes:
    return value.to_bytes(4)


_BIT = _Type(_read_bit, _write_u8)
_FLAG = _Type(_read_flag, _write_u8)
_U16 = _Type(read_u16, _write_u16)
_U32 = _Type(read_u32, _write_u32)
_POSITIVE_U16 = _Type(_positive(read_u16), _write_u16)
_POSITIVE_U32 = _Type(_positive(read_u32), _write_u32)
_POSITIVE_VARINT = _Type(_positive(read_varint), varint)
_STRING = _Type(read_string, string)
_TOPIC = _Type(_read_topic, string)
_BINARY = _Type(read_binary, binary)
_PAIR = _Type(_read_pair, _write_pair)

_MESSAGE = frozenset({Place.PUBLISH, Place.WILL})
_SESSION = frozenset({Place.CONNECT, Place.CONNACK})
_CONNECT = frozenset({Place.CONNECT})
_CONNACK = frozenset({Place.CONNACK})
_LOGIN = _SESSION | {Place.AUTH}
_ANSWERS = frozenset(Place) - {
    Place.CONNECT,
    Place.WILL,
    Place.PUBLISH,
    Place.SUBSCRIBE,
    Place.UNSUBSCRIBE,
}


class _Rule(NamedTuple):
    """One property: its number, its field in `Properties`, its type, and the packets that allow
    it."""

    identifier: int
    name: str
    type: _Type
    places: frozenset[Place]


_USER_PROPERTY = 0x26
_SUBSCRIPTION_IDENTIFIER = 0x0B

TABLE = (
    _Rule(0x01, "payload_format_indicator", _BIT, _MESSAGE),
    _Rule(0x02, "message_expiry_interval", _U32, _MESSAGE),
    _Rule(0x03, "content_type", _STRING, _MESSAGE),
    _Rule(0x08, "response_topic", _TOPIC, _MESSAGE),
    _Rule(0x09, "correlation_data", _BINARY, _MESSAGE),
    _Rule(
        _SUBSCRIPTION_IDENTIFIER,
        "subscription_identifiers",
        _POSITIVE_VARINT,
        frozenset({Place.PUBLISH, Place.SUBSCRIBE}),
    ),
    _Rule(0x11, "session_expiry_interval", _U32, _SESSION | {Place.DISCONNECT}),
    _Rule(0x12, "assigned_client_identifier", _STRING, _CONNACK),
    _Rule(0x13, "server_keep_alive", _U16, _CONNACK),
    _Rule(0x15, "authentication_method", _STRING, _LOGIN),
    _Rule(0x16, "authentication_data", _BINARY, _LOGIN),
    _Rule(0x17, "request_problem_information", _FLAG, _CONNECT),
    _Rule(0x18, "will_delay_interval", _U32, frozenset({Place.WILL})),
    _Rule(0x19, "request_response_information", _FLAG, _CONNECT),
    _Rule(0x1A, "response_information", _STRING, _CONNACK),
    _Rule(0x1C, "server_reference", _STRING, _CONNACK | {Place.DISCONNECT}),
    _Rule(0x1F, "reason_string", _STRING, _ANSWERS),
    _Rule(0x21, "receive_maximum", _POSITIVE_U16, _SESSION),
    _Rule(0x22, "topic_alias_maximum", _U16, _SESSION),
    _Rule(0x23, "topic_alias", _POSITIVE_U16, frozenset({Place.PUBLISH})),
    _Rule(0x24, "maximum_qos", _BIT, _CONNACK),
    _Rule(0x25, "retain_available", _FLAG, _CONNACK),
    _Rule(_USER_PROPERTY, "user_properties", _PAIR, frozenset(Place)),
    _Rule(0x27, "maximum_packet_size", _POSITIVE_U32, _SESSION),
    _Rule(0x28, "wildcard_subscription_available", _FLAG, _CONNACK),
    _Rule(0x29, "subscription_identifier_available", _FLAG, _CONNACK),
    _Rule(0x2A, "shared_subscription_available", _FLAG, _CONNACK),
)
"""Every property of MQTT 5."""

_ALLOWED = {
    place: {rule.identifier: rule for rule in TABLE if place in rule.places} for place in Place
}
_LISTS = (_USER_PROPERTY, _SUBSCRIPTION_IDENTIFIER)
_SINGLE = {
    place: tuple(
        (rule.identifier, rule.name, rule.type.write)
        for rule in allowed.values()
        if rule.identifier not in _LISTS
    )
    for place, allowed in _ALLOWED.items()
}
# One call checks all fields that have to be at their defaults, because this runs for every message.
_FORBIDDEN = {
    place: attrgetter(*(rule.name for rule in TABLE if place not in rule.places)) for place in Place
}
_ABSENT = {place: forbidden(NO_PROPERTIES) for place, forbidden in _FORBIDDEN.items()}
assert {rule.name for rule in TABLE} == set(Properties.__struct_fields__)


def read_properties(data: bytes, at: int, place: Place) -> tuple[Properties, int]:
    """Read the properties of a packet or will, which begin with their length.

    Raises:
        MalformedPacketError: a property is unknown, not allowed here, or cannot be read.
        ProtocolViolationError: a property occurs twice, or has a forbidden value.
        TooManyItemsError: there are more than `ITEMS_LIMIT` properties of the repeatable kinds.
        IndexError: the packet ends within a property.
    """
    length = data[at]
    if length == 0:
        return NO_PROPERTIES, at + 1
    length, at = read_varint(data, at)
    end = at + length
    if end > len(data):
        raise MalformedPacketError(SHORT)
    allowed = _ALLOWED[place]
    values: dict[str, Any] = {}
    pairs: list[tuple[str, str]] = []
    subscriptions: list[int] = []
    while at < end:
        # An identifier is a variable byte integer, but none has more than one byte.
        identifier = data[at]
        rule = allowed.get(identifier)
        if rule is None:
            raise MalformedPacketError("a property is unknown, or not allowed in this packet")
        read, at = rule.type.read(data, at + 1)
        if identifier == _USER_PROPERTY:
            pairs.append(read)
        elif identifier == _SUBSCRIPTION_IDENTIFIER and place is Place.PUBLISH:
            subscriptions.append(read)
        elif rule.name in values:
            raise ProtocolViolationError("a property occurs twice")
        elif identifier == _SUBSCRIPTION_IDENTIFIER:
            values[rule.name] = (read,)
        else:
            values[rule.name] = read
        if len(pairs) + len(subscriptions) > ITEMS_LIMIT:
            raise TooManyItemsError(f"a packet may have at most {ITEMS_LIMIT} user properties")
    if at != end:
        raise MalformedPacketError("a property is longer than the length of all properties")
    if pairs:
        values["user_properties"] = tuple(pairs)
    if subscriptions:
        values["subscription_identifiers"] = tuple(subscriptions)
    if "authentication_data" in values and "authentication_method" not in values:
        raise ProtocolViolationError("authentication data without an authentication method")
    return Properties(**values), at


def write_properties(properties: Properties, place: Place) -> bytes:
    """Write properties with their length in front.

    Raises:
        ValueError: a property is not allowed here, or its value does not fit into its type.
    """
    if properties is NO_PROPERTIES:
        return b"\0"
    if _FORBIDDEN[place](properties) != _ABSENT[place]:
        raise ValueError(f"a property is not allowed in {place.name}")
    written = bytearray()
    for identifier, name, write in _SINGLE[place]:
        given = getattr(properties, name)
        if given is not None:
            written.append(identifier)
            written += write(given)
    for number in properties.subscription_identifiers:
        written.append(_SUBSCRIPTION_IDENTIFIER)
        written += varint(number)
    for pair in properties.user_properties:
        written.append(_USER_PROPERTY)
        written += _write_pair(pair)
    return varint(len(written)) + written
