"""Checks that the decoders of several packets share."""

from __future__ import annotations

from collections.abc import Callable

from fieldbrook.gateway.mqtt.protocol.errors import MalformedPacketError, ProtocolViolationError
from fieldbrook.gateway.mqtt.protocol.fields import SHORT
from fieldbrook.gateway.mqtt.protocol.packets import Packet
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode

TRAILING = "the packet has bytes after its fields"
NO_PACKET_ID = "the packet identifier is 0"

Decode = Callable[[int, bytes], Packet]
"""Decodes a packet from its first byte and its body; raises `ProtocolError`, or `IndexError` if the
body is too short."""


def read_packet_id(body: bytes) -> int:
    """Read the packet identifier at the beginning of a body."""
    packet_id = body[0] << 8 | body[1]
    if not packet_id:
        raise ProtocolViolationError(NO_PACKET_ID)
    return packet_id


def require_end(body: bytes, at: int) -> None:
    """Check that a packet has no bytes after its fields."""
    if at != len(body):
        raise MalformedPacketError(TRAILING if at < len(body) else SHORT)


def check_code(number: int, allowed: dict[int, ReasonCode]) -> ReasonCode:
    """Return the reason code with this number if the packet may have it."""
    code = allowed.get(number)
    if code is None:
        raise ProtocolViolationError("this packet may not have this reason code")
    return code
