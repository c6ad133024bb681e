"""Framing: finds the packets in a stream of bytes.

Source: MQTT 3.1.1 and MQTT 5.0, 2.2 and 2.1: the fixed header.
"""

from __future__ import annotations

from fieldbrook.gateway.mqtt.protocol.errors import MalformedPacketError, PacketTooLargeError

PUBLISH = 0x30
CONNECT, CONNACK = 0x10, 0x20
PUBACK, PUBREC, PUBREL, PUBCOMP = 0x40, 0x50, 0x62, 0x70
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK = 0x82, 0x90, 0xA2, 0xB0
PINGREQ, PINGRESP, DISCONNECT, AUTH = 0xC0, 0xD0, 0xE0, 0xF0
"""The allowed first bytes: the type of a packet, with the flags that the standard demands for
it."""

PUBLISHES = tuple(
    PUBLISH | dup << 3 | qos << 1 | retain
    for dup in (0, 1)
    for qos in (0, 1, 2)
    for retain in (0, 1)
    if qos or not dup  # MQTT-3.3.1-2
)
"""The first bytes of a PUBLISH: QoS 3 does not exist, and QoS 0 is never sent twice."""

_LEGAL = bytes(
    first
    in (
        *PUBLISHES,
        *(CONNECT, CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, SUBACK),
        *(UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH),
    )
    for first in range(256)
)
MAX_PACKET_BYTES = 268_435_460
"""The largest packet that can be written: 256 MiB and its fixed header."""

Frame = tuple[int, int, int]
"""The first byte of a packet, and the offsets where its body begins and ends."""


def next_frame(
    buffer: bytes | bytearray | memoryview,
    start: int,
    limit: int = MAX_PACKET_BYTES,
    shortest: bool = False,
) -> Frame | None:
    """Find the packet that begins at `start`.

    Args:
        buffer: the received bytes; they are not copied.
        start: the offset of the packet's first byte; it may be the end of the buffer.
        limit: the largest packet that is accepted, in bytes and with its fixed header, as
            MQTT 5 counts it (3.1.2.11.4). It is checked before the body has arrived.
        shortest: whether the remaining length has to be in its shortest form. MQTT 5
            demands it (MQTT-1.5.5-1), and 3.1.1 does not.

    Returns:
        The packet, or None while it is incomplete.

    Raises:
        MalformedPacketError: the first byte is not allowed, or the length has more than four bytes.
        PacketTooLargeError: the packet exceeds the limit.
    """
    size = len(buffer)
    if start >= size:
        return None
    first = buffer[start]
    if not _LEGAL[first]:
        raise MalformedPacketError("the first byte of a packet has an unknown type or wrong flags")
    if start + 1 >= size:
        return None
    body = start + 2
    length = buffer[start + 1]
    if length >= 0x80:
        length &= 0x7F
        shift = 7
        while True:
            if body >= size:
                # If the length is already too large, its other bytes can only increase it.
                if body + length - start > limit:
                    raise PacketTooLargeError("the packet is larger than the limit")
                return None
            octet = buffer[body]
            body += 1
            length |= (octet & 0x7F) << shift
            if octet < 0x80:
                if shortest and octet == 0:
                    raise MalformedPacketError("the remaining length is not in its shortest form")
                break
            shift += 7
            if shift > 21:
                raise MalformedPacketError("the remaining length has more than four bytes")
    end = body + length
    if end - start > limit:
        raise PacketTooLargeError("the packet is larger than the limit")
    return (first, body, end) if end <= size else None
