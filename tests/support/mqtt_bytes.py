"""Bytes of MQTT packets for clients that write them by hand."""

from __future__ import annotations


def remaining_length(size: int) -> bytes:
    """The remaining length of a packet as a variable byte integer."""
    encoded = bytearray()
    while True:
        size, low = divmod(size, 128)
        encoded.append(low | (0x80 if size else 0))
        if not size:
            return bytes(encoded)
