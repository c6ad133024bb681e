"""Live streams whose clients have not sent a token yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

UNAUTHENTICATED_LIMIT = 64
"""The most such streams of a gateway process."""


class UnauthenticatedStreams:
    """The unauthenticated streams of a gateway process, the oldest first.

    A new stream is never refused. Otherwise one client could block all others by opening streams up
    to the limit. At the limit, a new stream replaces the oldest stream of the peer (`peer_of`) that
    has the most.
    """

    def __init__(self, limit: int = UNAUTHENTICATED_LIMIT) -> None:
        self._limit = limit
        self._waiting: dict[Callable[[], None], str] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, end: Callable[[], None], peer: str) -> None:
        """Add a stream; `end` closes it at once."""
        if len(self._waiting) >= self._limit:
            ((most, _),) = Counter(self._waiting.values()).most_common(1)
            oldest = next(each for each, its in self._waiting.items() if its == most)
            self.discard(oldest)
            oldest()
        self._waiting[end] = peer

    def discard(self, end: Callable[[], None]) -> None:
        """Remove a stream that has sent its token or has ended."""
        self._waiting.pop(end, None)
