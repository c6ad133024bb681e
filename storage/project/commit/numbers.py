"""Numbers of what batches add to tables: the same on all hosts of a cluster, never used twice.

The number says in which batch something was added, and at which place in that batch.
"""

from __future__ import annotations

_PLACE_BITS = 20  # a batch adds fewer things to a table
_FIRST = 1 << 56  # above the numbers of earlier versions, which were times in microseconds


def first_number(batch: int) -> int:
    """Return the number of the first thing that a batch adds; those after it follow."""
    return _FIRST + first_offset(batch)


def first_offset(batches: int) -> int:
    """Return how far the first number of a batch is from that of a batch `batches` before it."""
    return batches << _PLACE_BITS
