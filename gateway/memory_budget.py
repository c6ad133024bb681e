"""Memory budgets: limits of what many requests or events may hold in memory together.

Other limits bound each request, connection and queue. A budget bounds their sum. The budget for
partially received requests, one per process, keeps clients that start requests and never finish
them from exhausting the machine's memory.
"""

from __future__ import annotations

from fieldbrook.core.errors import TooManyRequestsError

BUDGET_EXCEEDED = TooManyRequestsError(what="too many requests are being received at once")
MULTIPART_SLACK = 64 << 10
"""Bytes of a multipart body beside the uploaded file: boundaries, part headers and `info`."""
_LEAST_BYTES = 64 << 20
_LARGEST_REQUESTS = 4


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


def request_budget(largest_request: int) -> MemoryBudget:
    """Create the budget of a process: 64 MiB, or four of its largest requests if that is more."""
    return MemoryBudget(max(_LEAST_BYTES, _LARGEST_REQUESTS * largest_request))
