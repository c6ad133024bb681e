"""Memory budgets: limits of what many requests or events may hold in memory together.

Other limits bound each request, connection and queue. A budget bounds their sum. The budget for
partially received requests, one per process, keeps clients that start requests and never finish
them from exhausting the machine's memory.
"""

from __future__ import annotations

from fieldbrook.core.errors import TooManyRequestsError

BUDGET_EXCEEDED = TooManyRequestsError(what="too many requests are being received at once")
MULTIPART_SLACK = 64 << 10
"""Bytes of a multipart body in addition to the uploaded file: boundaries, part headers and
`info`."""
UNCHARGED_BYTES = 4 << 10
"""The bytes of each unfinished request that no budget counts, enough for an ordinary event with its
head. So such an event is received even if many large requests are unfinished. The limit of
connections bounds the sum of these bytes."""
_LEAST_BYTES = 64 << 20
_LARGEST_REQUESTS = 4
_SHARE_PERCENT = 50


class MemoryBudget:
    """Counts bytes in use against a limit."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def reserve(self, size: int) -> bool:
        """Add `size` bytes; return False when the limit is exceeded.

        The bytes are counted in both cases, until `release`.
        """
        self.used += size
        return self.used <= self.limit

    def release(self, size: int) -> None:
        """Subtract `size` bytes."""
        self.used -= size


class Shared:
    """Counts the usage of one limit, by all clients and by each holder.

    A holder is the login of a client, or the address of a client without a login (`peer_of`). Usage
    of the holder "" counts only for the limit.
    """

    def __init__(self, limit: int, share_percent: int) -> None:
        self.limit = limit
        self.share = max(1, limit * share_percent // 100)
        self.used = 0
        self._by_holder: dict[str, int] = {}

    def has(self, holder: str, size: int = 1) -> bool:
        """Return whether `size` still fits into the limit and into the holder's share."""
        return self.used + size <= self.limit and self.has_share(holder, size)

    def has_share(self, holder: str, size: int) -> bool:
        """Return whether `size` still fits into the holder's share."""
        return self.of(holder) + size <= self.share

    def is_exceeded(self, holder: str) -> bool:
        """Return whether the total usage exceeds the limit, or the holder exceeds its share."""
        return self.used > self.limit or self.of(holder) > self.share

    def add(self, holder: str, size: int = 1) -> None:
        """Count `size`; a negative value is subtracted."""
        self.used += size
        if not holder:
            return
        held = self._by_holder.get(holder, 0) + size
        if held:
            self._by_holder[holder] = held
        else:
            self._by_holder.pop(holder, None)

    def of(self, holder: str) -> int:
        """Return the amount that a holder uses."""
        return self._by_holder.get(holder, 0)


class Charge:
    """The bytes that one unfinished request, or one connection, uses of a budget."""

    __slots__ = ("_budget", "_holder", "_size")

    def __init__(self, budget: Shared, holder: str) -> None:
        """Charge nothing yet. `holder` is the client's address, as `peer_of` returns it."""
        self._budget = budget
        self._holder = holder
        self._size = 0

    def set(self, received: int) -> bool:
        """Charge `received` bytes instead of those of the last call; 0 ends the charge.

        Return False if the request must be refused: the bytes have increased, and the budget or the
        share of the holder is exceeded.
        """
        size = max(0, received - UNCHARGED_BYTES)
        added = size - self._size
        if not added:
            return True
        self._size = size
        self._budget.add(self._holder, added)
        return added < 0 or not self._budget.is_exceeded(self._holder)


def request_budget(largest_request: int, share_percent: int = _SHARE_PERCENT) -> Shared:
    """Create the budget for the unfinished requests of a process.

    It has 64 MiB, or four of the largest requests if that is more. The holders are the addresses
    of clients.
    """
    return Shared(max(_LEAST_BYTES, _LARGEST_REQUESTS * largest_request), share_percent)
