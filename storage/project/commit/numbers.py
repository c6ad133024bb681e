"""Numbers of the rows that batches add to tables: the same on all hosts of a cluster, never used
twice.

The number contains the batch that added the row, and the place in that batch.
"""

from __future__ import annotations

_PLACE_BITS = 20  # a batch adds fewer rows to a table
_FIRST = 1 << 56  # above the numbers of earlier versions, which were times in microseconds


def first_number(batch: int) -> int:
    """Return the number of the first row that a batch adds; the next rows have the next numbers."""
    return _FIRST + first_offset(batch)


def first_offset(batches: int) -> int:
    """Return the distance between the first numbers of two batches, one of which is `batches`
    before the other."""
    return batches << _PLACE_BITS
