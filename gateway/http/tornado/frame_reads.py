"""Tracks which part of a WebSocket's frame Tornado reads next.

Tornado reads a frame in three or four steps and keeps the pieces of a message until the last one
has arrived. From these steps the stream derives how much of an incomplete message Tornado holds.

Source: RFC 6455, 5.1 and 5.2.
"""

from __future__ import annotations

_HEAD, _LENGTH, _MASK, _PAYLOAD = range(4)
_LONGEST_SHORT = 125  # the length of a longer payload is in an additional field
_CONTROL, _OPCODE = 0x8, 0xF
_MASKED, _SIZE = 0x80, 0x7F


class FrameReads:
    """The reads of one connection, from its first frame on."""

    def __init__(self) -> None:
        self._step = _HEAD
        self._is_control = False

    @property
    def belongs_to_message(self) -> bool:
        """Return whether the next read is a piece of a message, and not of a ping, pong or
        close."""
        return self._step == _PAYLOAD and not self._is_control

    def note(self, data: bytes) -> bool:
        """Note the bytes that were read; return False for an unmasked frame, because clients must
        mask all frames."""
        if self._step == _HEAD:
            self._is_control = bool(data[0] & _OPCODE & _CONTROL)
            self._step = _LENGTH if data[1] & _SIZE > _LONGEST_SHORT else _MASK
            return bool(data[1] & _MASKED)
        self._step = _HEAD if self._step == _PAYLOAD else self._step + 1
        return True
