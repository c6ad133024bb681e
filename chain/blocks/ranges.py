"""Range size for log queries, found by trial because endpoints do not declare their limits."""

from __future__ import annotations

_LEAST, _MOST, _FIRST = 1, 20_000, 1_000
_FEW_LOGS, _MANY_LOGS = 2_000, 8_000
_STEPS_UNTIL_TRIED_AGAIN = 16


class BlockRange:
    """The size of the next range in blocks: doubled after success, halved after a refusal.

    A refused size is not tried again until `_STEPS_UNTIL_TRIED_AGAIN` queries have succeeded.
    """

    def __init__(self, first: int = _FIRST, most: int = _MOST) -> None:
        self.size = first
        self._most = self._ceiling = most
        self._went_well = 0

    def record_success(self, blocks: int, logs: int) -> None:
        """Record an answered range with its number of logs."""
        if blocks < self.size:  # the range was cut for another reason and says nothing
            return
        self._went_well += 1
        if self._went_well >= _STEPS_UNTIL_TRIED_AGAIN:
            self._went_well = 0
            self._ceiling = min(self._most, self._ceiling * 2)
        if logs > _MANY_LOGS:
            self.size = max(_LEAST, self.size // 2)
        elif logs < _FEW_LOGS:
            self.size = min(self._ceiling, self.size * 2)

    def record_refusal(self, blocks: int) -> bool:
        """Record a range refused as too large; returns whether a smaller one is possible."""
        self._went_well = 0
        smaller = max(_LEAST, blocks // 2)
        self._ceiling = max(_LEAST, blocks * 3 // 4)
        self.size = smaller
        return blocks > _LEAST

    def record_failure(self, blocks: int) -> None:
        """Record a range that got no answer, perhaps because the query takes too long."""
        self.size = max(min(blocks, 64), blocks // 2)
