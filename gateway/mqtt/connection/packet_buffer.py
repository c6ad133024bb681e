"""A buffer of received bytes that were not decoded yet."""

from __future__ import annotations

from fieldbrook.gateway.mqtt.sessions.limits import PACKET_LIMIT_S


class PacketBuffer:
    """The received bytes that were not read yet.

    While a large packet is incomplete, received bytes are only collected: joining the pieces at
    each arrival would take time that grows with the square of the packet's size.

    Attributes:
        data: the bytes that may be decoded.
        incomplete_since: when the incomplete packet began to wait, in seconds of the loop's clock;
            0 without one.
    """

    __slots__ = ("_missing", "_rest", "data", "incomplete_since")

    def __init__(self) -> None:
        self.data = b""
        self.incomplete_since = 0.0
        self._rest: bytearray | None = None
        self._missing = 0  # how many bytes `_rest` needs until the packet is complete

    @property
    def size(self) -> int:
        """The number of bytes in the buffer."""
        return len(self.data) + len(self._rest or b"")

    def add(self, data: bytes) -> bool:
        """Add received bytes; return whether there may be a complete packet now."""
        if self._rest is not None:
            self._rest += data
            if len(self._rest) < self._missing:
                return False
            data, self._rest = bytes(self._rest), None
        self.data = self.data + data if self.data else data
        return True

    def is_late(self, now: float) -> bool:
        """Whether a packet has been incomplete for too long."""
        return bool(self.incomplete_since) and now - self.incomplete_since > PACKET_LIMIT_S

    def take(self) -> bytes:
        """Remove and return the bytes that may be decoded."""
        data, self.data = self.data, b""
        return data

    def keep(self, rest: bytes, limit: int, now: float) -> None:
        """Keep the remaining bytes: the beginning of a packet, or packets that must wait.

        Args:
            limit: the largest size of a packet in bytes.
        """
        self.data = rest
        if not rest:
            self.incomplete_since = 0.0
            return
        self.incomplete_since = self.incomplete_since or now
        missing = _missing(rest)
        if missing > 0 and len(rest) + missing <= limit:
            self._rest, self._missing = bytearray(), missing

    def clear(self) -> None:
        """Remove all bytes."""
        self.data, self._rest = b"", None


def _missing(rest: bytes) -> int:
    """Return the number of missing bytes of the packet at the start of `rest`; 0 if unknown."""
    length = shift = 0
    for at in range(1, min(5, len(rest))):
        length |= (rest[at] & 0x7F) << shift
        shift += 7
        if rest[at] < 0x80:
            return at + 1 + length - len(rest)
    return 0
