"""SUBSCRIBE, UNSUBSCRIBE and their acknowledgements.

Source: MQTT 3.1.1 and MQTT 5.0, sections 3.8 to 3.11.
"""

from __future__ import annotations

from collections.abc import Sized

from fieldbrook.gateway.mqtt.protocol.decoding.allowed_codes import SUBACK_CODES, UNSUBACK_CODES
from fieldbrook.gateway.mqtt.protocol.decoding.checks import read_packet_id, require_end
from fieldbrook.gateway.mqtt.protocol.errors import (
    MalformedPacketError,
    ProtocolViolationError,
    TooManyItemsError,
)
from fieldbrook.gateway.mqtt.protocol.fields import read_string
from fieldbrook.gateway.mqtt.protocol.packets import (
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
)
from fieldbrook.gateway.mqtt.protocol.properties import ITEMS_LIMIT, Place, read_properties
from fieldbrook.gateway.mqtt.protocol.reason_codes import FAILURE, ReasonCode
from fieldbrook.gateway.mqtt.protocol.topics import check_filter, check_wildcards, parse_shared


def subscribe_311(_first: int, body: bytes) -> Subscribe:
    """Decode a SUBSCRIBE of 3.1.1."""
    packet_id = read_packet_id(body)
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


def subscribe_5(_first: int, body: bytes) -> Subscribe:
    """Decode a SUBSCRIBE of 5.0."""
    packet_id = read_packet_id(body)
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
        # MQTT-3.8.3-4
        raise ProtocolViolationError("No Local is not allowed on a shared subscription")
    return Subscription(topic_filter, qos, no_local, options & 8 != 0, handling)


def _check_count(filters: Sized) -> None:
    if len(filters) > ITEMS_LIMIT:
        raise TooManyItemsError(f"a packet may have at most {ITEMS_LIMIT} filters")


def _check_filter(topic_filter: str) -> None:
    if topic_filter.startswith("$"):
        check_filter(topic_filter)  # it may be a shared subscription
    else:
        check_wildcards(topic_filter)


def unsubscribe_311(_first: int, body: bytes) -> Unsubscribe:
    """Decode an UNSUBSCRIBE of 3.1.1."""
    return Unsubscribe(read_packet_id(body), _filters(body, 2))


def unsubscribe_5(_first: int, body: bytes) -> Unsubscribe:
    """Decode an UNSUBSCRIBE of 5.0."""
    packet_id = read_packet_id(body)
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


def suback_311(_first: int, body: bytes) -> SubAck:
    """Decode a SUBACK of 3.1.1."""
    packet_id = read_packet_id(body)
    return SubAck(packet_id, _codes(body, 2, (0, 1, 2, FAILURE)))


def suback_5(_first: int, body: bytes) -> SubAck:
    """Decode a SUBACK of 5.0."""
    packet_id = read_packet_id(body)
    properties, at = read_properties(body, 2, Place.SUBACK)
    return SubAck(packet_id, _codes(body, at, SUBACK_CODES), properties)


def unsuback_311(_first: int, body: bytes) -> UnsubAck:
    """Decode an UNSUBACK of 3.1.1."""
    packet_id = read_packet_id(body)
    require_end(body, 2)
    return UnsubAck(packet_id)


def unsuback_5(_first: int, body: bytes) -> UnsubAck:
    """Decode an UNSUBACK of 5.0."""
    packet_id = read_packet_id(body)
    properties, at = read_properties(body, 2, Place.UNSUBACK)
    return UnsubAck(packet_id, _codes(body, at, UNSUBACK_CODES), properties)


def _codes(
    body: bytes, at: int, allowed: dict[int, ReasonCode] | tuple[int, ...]
) -> tuple[int, ...]:
    codes = tuple(body[at:])
    if not codes or not set(codes).issubset(allowed):
        raise ProtocolViolationError("a reason code is missing, or this packet may not have it")
    return codes
