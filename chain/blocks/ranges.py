"""The number of blocks in the next log query, adapted to the limit of an endpoint.

Endpoints do not declare their limits. Some name a limit when they refuse a range; otherwise the
size is found by trial.
"""

from __future__ import annotations

import re

from fieldbrook.core.networks import DEFAULT_LOG_RANGE

FIRST = 1_000  # blocks in the first request
_LEAST = 1
_FEW_LOGS, _MANY_LOGS = 2_000, 8_000  # fewer logs let the range grow; more logs let it shrink
_STEPS_UNTIL_TRIED_AGAIN, _STEPS_MOST = 16, 1_024  # successes before a refused size is tried again
# Consecutive queries without an answer that halve the range: for a size that was never answered,
# for one that was answered before, and for a small one (up to `_SMALL` blocks). The less likely the
# size is the cause, the higher the number is.
_UNANSWERED, _PROVEN_UNANSWERED, _SMALL_UNANSWERED, _SMALL = 2, 4, 6, 64
_NAMED = 8  # sizes named by refusals that are accepted even if they are only a little smaller
_TEXT_CHARACTERS = 4_096
_BLOCK = r"(0x[0-9a-f]{1,16}|\d{1,16})"
_BLOCKS = re.compile(rf"(?:\[|range )\s?{_BLOCK}\s?[,-]\s?{_BLOCK}", re.IGNORECASE)
_NUMBER = re.compile(
    r"(?<![\w.])\d{1,3}(?:,\d{3}){1,4}(?!\w)|(?<![\w.])\d{1,9}(?:k\b|(?!\w))", re.IGNORECASE
)


class BlockRange:
    """The size of the next range in blocks: doubled after success, halved after a refusal.

    A refused size is not tried again until some queries have succeeded, twice as many after each
    refusal.
    """

    def __init__(self, first: int = FIRST, most: int = DEFAULT_LOG_RANGE) -> None:
        """`first` is the first size to try, and `most` is the largest size, both in blocks."""
        self.size = min(first, most)
        self._most = self._ceiling = most
        self._went_well = self._unanswered = 0  # consecutive queries
        self._answered = 0  # the largest size that was answered and has not been refused since
        self._until_tried_again = _STEPS_UNTIL_TRIED_AGAIN
        self._named: set[int] = set()  # sizes that refusals named

    @property
    def is_proven(self) -> bool:
        """Whether a range of this size was answered, so that several may be requested at once."""
        return self.size <= self._answered

    def record_success(self, blocks: int, logs: int) -> None:
        """Record an answered range of so many blocks with so many logs."""
        self._unanswered = 0
        self._answered = max(self._answered, blocks)
        if blocks < self.size:  # a range that was shorter for another reason shows nothing
            return
        self._went_well += 1
        if self._went_well >= self._until_tried_again:
            self._went_well = 0
            self._until_tried_again = min(2 * self._until_tried_again, _STEPS_MOST)
            self._ceiling = min(self._most, self._ceiling * 2)
        if logs > _MANY_LOGS:
            self.size = max(_LEAST, self.size // 2)
        elif logs < _FEW_LOGS:
            self.size = min(self._ceiling, self.size * 2)

    def record_refusal(self, blocks: int, text: str = "") -> None:
        """Record that a range of so many blocks was refused or not answered.

        Args:
            blocks: the size of the range.
            text: the text of the refusal; empty if no answer came. A range without an answer
                may be too large, but a single failure does not make the range smaller.
        """
        self._unanswered += not text
        if not text and self._unanswered < self._unanswered_limit(blocks):
            return
        self._went_well = self._unanswered = 0
        self._answered = min(self._answered, blocks - 1)
        named = named_size(text, blocks)
        if named is not None and self._may_be_meant(named, blocks):
            self._named.add(named)
            self._ceiling = self.size = named
        else:
            self._ceiling = max(_LEAST, min(self._ceiling, blocks * 3 // 4))
            self.size = max(_LEAST, min(self.size, blocks // 2))

    def _unanswered_limit(self, blocks: int) -> int:
        if blocks <= _SMALL:
            return _SMALL_UNANSWERED
        return _PROVEN_UNANSWERED if blocks <= self._answered else _UNANSWERED

    def _may_be_meant(self, named: int, blocks: int) -> bool:
        """Return whether to use a size that a refusal names.

        An endpoint that always names a slightly smaller size would make the search endless.
        Therefore the number of different sizes is limited, except for sizes that are at least
        10 % smaller.
        """
        return named in self._named or len(self._named) < _NAMED or named * 10 <= blocks * 9


def named_size(text: str, blocks: int) -> int | None:
    """Return the number of blocks that a refusal names as allowed; None if it names none.

    Args:
        text: the refusal, e.g. `maximum is set to 2048`, or `try with this block range [0x1, 0x2]`.
        blocks: the size of the refused range; only smaller numbers count.
    """
    text = text[:_TEXT_CHARACTERS]
    span = _BLOCKS.search(text)
    if span is not None:
        first, last = (int(part, 16 if part[:2].lower() == "0x" else 10) for part in span.groups())
        return last - first + 1 if first <= last < first + blocks - 1 else None
    if "block" not in text.lower() and "range" not in text.lower():
        return None
    numbers = (
        match[0].lower().replace(",", "").replace("k", "000") for match in _NUMBER.finditer(text)
    )
    return max((n for n in map(int, numbers) if 1 < n < blocks), default=None)
