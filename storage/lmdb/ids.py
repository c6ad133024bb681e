"""Identifiers: at most 63 bits, increasing, never reused.

An id is the milliseconds since 2025-01-01 UTC, times 4,096, plus a sequence number. The last
id is stored beside the rows: when the clock jumps back, or a millisecond needs more than 4,096
ids, each id is the last one plus one. Ids have 15 digits, and from 2032 until 2102 they have
16. This is short enough for a publisher's token to fit its 159 characters. Until 2094, ids are
exact in languages that only have doubles as numbers.
"""

from __future__ import annotations

from fieldbrook.core.errors import StoreError

EPOCH_MS = 1_735_689_600_000
SEQUENCE_BITS = 12
LIMIT = 1 << 63
_TIME_LIMIT_MS = 1 << 41


def next_id(last: int, now_ms: int) -> int:
    """Return the id that follows `last` at `now_ms` (Unix milliseconds); always above `last`.

    Raises:
        StoreError: there are no more ids of 63 bits.
    """
    since_epoch = min(max(now_ms - EPOCH_MS, 0), _TIME_LIMIT_MS - 1)
    following = max(since_epoch << SEQUENCE_BITS, last + 1)
    if following >= LIMIT:
        raise StoreError(reason="identifiers are used up: the clock was set far ahead once")
    return following


def to_key(identifier: int) -> bytes:
    """Encode an id as eight bytes that sort in the order of the ids."""
    return identifier.to_bytes(8, "big")


def from_key(key: bytes) -> int:
    """Decode an id that `to_key` encoded."""
    return int.from_bytes(key, "big")
