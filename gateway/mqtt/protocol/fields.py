"""The data types of packets: integers, strings and bytes, read and written.

A function that reads takes the whole body and an offset, and returns the value and the offset after
it. If it reads past the end of the body, it raises IndexError; the decoder of a packet turns this
into `MalformedPacketError`, once for all fields. Before anything is copied or allocated, the length
of a field is compared with the received bytes.

Source: MQTT 5.0, 1.5; MQTT 3.1.1, 1.5.
"""

from __future__ import annotations

from fieldbrook.gateway.mqtt.protocol.errors import MalformedPacketError

SHORT = "the packet ends before its fields do"
NOT_UTF8 = "a string is not well-formed UTF-8"
WITH_NULL = "a string contains U+0000"
LONG_INTEGER = "a variable byte integer is longer than it needs to be, or than four bytes"

MAX_VARINT = 268_435_455
MAX_FIELD_BYTES = 65_535


def read_u16(data: bytes, at: int) -> tuple[int, int]:
    """Read a two byte integer."""
    return data[at] << 8 | data[at + 1], at + 2


def read_u32(data: bytes, at: int) -> tuple[int, int]:
    """Read a four byte integer."""
    value = data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
    return value, at + 4


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a variable byte integer, which has to be in its shortest form (MQTT-1.5.5-1)."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for shift in (7, 14, 21):
        at += 1
        octet = data[at]
        if octet < 0x80:
            if octet == 0:
                break
            return value | octet << shift, at + 1
        value |= (octet & 0x7F) << shift
    raise MalformedPacketError(LONG_INTEGER)


def read_binary(data: bytes, at: int) -> tuple[bytes, int]:
    """Read binary data."""
    start = at + 2
    end = start + (data[at] << 8 | data[at + 1])
    if end > len(data):
        raise MalformedPacketError(SHORT)
    return data[start:end], end


def read_string(data: bytes, at: int) -> tuple[str, int]:
    """Read a UTF-8 string. Python's decoder refuses surrogates and overlong forms itself."""
    start = at + 2
    end = start + (data[at] << 8 | data[at + 1])
    if end > len(data):
        raise MalformedPacketError(SHORT)
    try:
        text = data[start:end].decode()
    except UnicodeDecodeError:
        raise MalformedPacketError(NOT_UTF8) from None
    if "\0" in text:
        raise MalformedPacketError(WITH_NULL)
    return text, end


def varint(value: int) -> bytes:
    """Write a variable byte integer.

    Raises:
        ValueError: the value is negative or above `MAX_VARINT`.
    """
    if 0 <= value < 0x80:
        return value.to_bytes(1)
    if not 0 <= value <= MAX_VARINT:
        raise ValueError(f"{value} is no variable byte integer")
    octets = bytearray()
    while value >= 0x80:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def binary(data: bytes) -> bytes:
    """Write binary data.

    Raises:
        ValueError: it is longer than 65,535 bytes.
    """
    if len(data) > MAX_FIELD_BYTES:
        raise ValueError(f"{len(data)} bytes are too long for a field")
    return len(data).to_bytes(2) + data


def string(text: str) -> bytes:
    """Write a UTF-8 string.

    Raises:
        ValueError: it is longer than 65,535 bytes, or contains U+0000 or a surrogate.
    """
    if "\0" in text:
        raise ValueError(WITH_NULL)
    return binary(text.encode())
