"""WebSockets that have not sent a token yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

UNAUTHENTICATED_LIMIT = 64
"""How many of them a gateway process keeps."""


class UnauthenticatedStreams:
    """The streams of clients that have not said yet whose they are, the oldest first.

    They cost nothing to open, so a new one is never refused: whoever opened them all could keep
    everybody else out. At the limit, the oldest one of the address that has most is ended for it.
    """

    def __init__(self, limit: int = UNAUTHENTICATED_LIMIT) -> None:
        self._limit = limit
        self._waiting: dict[Callable[[], None], str] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, end: Callable[[], None], address: str) -> None:
        """Add a stream, which `end` closes at once."""
        if len(self._waiting) >= self._limit:
            ((most, _),) = Counter(self._waiting.values()).most_common(1)
            oldest = next(each for each, its in self._waiting.items() if its == most)
            self.discard(oldest)
            oldest()
        self._waiting[end] = address

    def discard(self, end: Callable[[], None]) -> None:
        """Remove a stream: its token has come, or never will."""
        self._waiting.pop(end, None)
