"""Identifiers: at most 63 bits, growing, never given twice.

Milliseconds since 2025-01-01 UTC, times 4,096, plus a sequence. The last one given is
stored beside the rows, so a clock that jumps back, or more than 4,096 ids in a
millisecond, only make ids grow by one instead of by time. They have 15 digits, from 2032
on 16, until 2102: few enough for a publisher's token to fit its 159 characters, and exact
in a language whose only numbers are doubles until 2094.
"""

from __future__ import annotations

from fieldbrook.core.errors import StoreError

EPOCH_MS = 1_735_689_600_000
SEQUENCE_BITS = 12
LIMIT = 1 << 63
_TIME_LIMIT_MS = 1 << 41


def next_id(last: int, now_ms: int) -> int:
    """The id to give after `last` at `now_ms` (Unix milliseconds); always above `last`.

    Raises:
        StoreError: all 63 bits are used up.
    """
    since_epoch = min(max(now_ms - EPOCH_MS, 0), _TIME_LIMIT_MS - 1)
    following = max(since_epoch << SEQUENCE_BITS, last + 1)
    if following >= LIMIT:
        raise StoreError(reason="identifiers are used up: the clock was set far ahead once")
    return following


def to_key(identifier: int) -> bytes:
    """Eight bytes that sort as the ids do."""
    return identifier.to_bytes(8, "big")


def from_key(key: bytes) -> int:
    """The id that `to_key` made `key` from."""
    return int.from_bytes(key, "big")
