"""Memory budget for partially received requests, per process.

Other limits bound each request and each connection. This budget bounds their sum, so that
clients that start requests and never finish them cannot exhaust the machine's memory.
"""

from __future__ import annotations

from fieldbrook.core.errors import TooManyRequestsError

NO_ROOM = TooManyRequestsError(what="too many requests are on their way at once")
_LEAST_BYTES = 64 << 20
_LARGEST_REQUESTS = 4


class Room:
    """A memory budget: counts the bytes of incomplete requests against a limit."""

    __slots__ = ("held", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def take(self, size: int) -> bool:
        """Add `size` bytes to the budget; return False when the limit is exceeded.

        The bytes are counted in both cases, until `give_back` releases them.
        """
        self.held += size
        return self.held <= self.limit

    def give_back(self, size: int) -> None:
        """Release `size` bytes."""
        self.held -= size


def room_for(largest_request: int) -> Room:
    """Create the budget of a process: 64 MiB, or four of its largest requests if that is more."""
    return Room(max(_LEAST_BYTES, _LARGEST_REQUESTS * largest_request))
