"""The properties of a message that the server forwards to subscribers without a change."""

from __future__ import annotations

import msgspec

from fieldbrook.core import clock
from fieldbrook.gateway.mqtt.protocol.properties import NO_PROPERTIES, Properties
from fieldbrook.gateway.mqtt.sessions.session import Message


class _Packed(msgspec.Struct, array_like=True, frozen=True):
    payload_format_indicator: int | None
    content_type: str | None
    response_topic: str | None
    correlation_data: bytes | None
    user_properties: tuple[tuple[str, str], ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Packed).decode


def forwarded(properties: Properties) -> Properties:
    """Return the properties that belong to the message, without those of its packet."""
    if properties is NO_PROPERTIES:
        return NO_PROPERTIES
    return Properties(
        payload_format_indicator=properties.payload_format_indicator,
        content_type=properties.content_type,
        response_topic=properties.response_topic,
        correlation_data=properties.correlation_data,
        user_properties=properties.user_properties,
    )


def pack_properties(properties: Properties) -> bytes:
    """Encode forwarded properties for the store; empty for none."""
    if properties is NO_PROPERTIES or properties == NO_PROPERTIES:
        return b""
    return _encode(
        _Packed(
            properties.payload_format_indicator,
            properties.content_type,
            properties.response_topic,
            properties.correlation_data,
            properties.user_properties,
        )
    )


def size_of(message: Message) -> int:
    """The bytes of a message's topic, payload and properties, as `StoredMessage.size`."""
    texts = len(message.topic.encode()) + len(message.payload)
    return texts + len(pack_properties(message.properties))


def unpack_properties(data: bytes) -> Properties:
    """Decode what `pack_properties` made."""
    if not data:
        return NO_PROPERTIES
    packed = _decode(data)
    return Properties(
        payload_format_indicator=packed.payload_format_indicator,
        content_type=packed.content_type,
        response_topic=packed.response_topic,
        correlation_data=packed.correlation_data,
        user_properties=packed.user_properties,
    )


def outgoing_properties(message: Message, identifiers: tuple[int, ...]) -> Properties:
    """The properties of a PUBLISH to a subscriber."""
    properties = message.properties
    if not identifiers and not message.expires_at_ms:
        return properties
    left = None
    if message.expires_at_ms:
        left = max(1, (message.expires_at_ms - clock.now_ms() + 999) // 1_000)
    return Properties(
        payload_format_indicator=properties.payload_format_indicator,
        message_expiry_interval=left,
        content_type=properties.content_type,
        response_topic=properties.response_topic,
        correlation_data=properties.correlation_data,
        user_properties=properties.user_properties,
        subscription_identifiers=identifiers,
    )
