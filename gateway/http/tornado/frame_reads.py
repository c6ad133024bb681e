"""Which part of a WebSocket's frame Tornado reads next.

Tornado reads a frame in three or four steps and keeps the pieces of a message until the last one
has come. From the steps the stream sees how much of a message is held, before it has arrived.

Source: RFC 6455, 5.1 and 5.2.
"""

from __future__ import annotations

_HEAD, _LENGTH, _MASK, _PAYLOAD = range(4)
_LONGEST_SHORT = 125  # a longer payload has a length of its own
_CONTROL, _OPCODE = 0x8, 0xF
_MASKED, _SIZE = 0x80, 0x7F


class FrameReads:
    """The reads of one connection, from its first frame on."""

    def __init__(self) -> None:
        self._step = _HEAD
        self._is_control = False

    @property
    def belongs_to_message(self) -> bool:
        """Whether the next read is a piece of a message, and not of a ping, pong or close."""
        return self._step == _PAYLOAD and not self._is_control

    def note(self, data: bytes) -> bool:
        """Note what was read; False for a frame that is not masked, as all of clients must be."""
        if self._step == _HEAD:
            self._is_control = bool(data[0] & _OPCODE & _CONTROL)
            self._step = _LENGTH if data[1] & _SIZE > _LONGEST_SHORT else _MASK
            return bool(data[1] & _MASKED)
        self._step = _HEAD if self._step == _PAYLOAD else self._step + 1
        return True
