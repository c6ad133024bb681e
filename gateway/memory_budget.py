"""How much of what has not arrived whole one process holds.

Each request is bounded, and so is each connection; what many of them hold together is
bounded here, so that clients that begin and never end cannot take the machine's memory.
"""

from __future__ import annotations

from fieldbrook.core.errors import TooManyRequestsError

NO_ROOM = TooManyRequestsError(what="too many requests are on their way at once")
_LEAST_BYTES = 64 << 20
_LARGEST_REQUESTS = 4


class Room:
    """Bytes of incomplete requests, counted."""

    __slots__ = ("held", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def take(self, size: int) -> bool:
        """Count bytes that are kept; False when they are more than there is room for. They
        are counted all the same, until they are given back."""
        self.held += size
        return self.held <= self.limit

    def give_back(self, size: int) -> None:
        """They are not kept any more."""
        self.held -= size


def room_for(largest_request: int) -> Room:
    """Room in a process whose largest request has so many bytes."""
    return Room(max(_LEAST_BYTES, _LARGEST_REQUESTS * largest_request))
