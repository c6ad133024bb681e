"""Live checkpoints: how often a project writes to its store for dashboard pages that follow it.

Events that arrive during a checkpoint wait for its end. Four checkpoints per second would delay
more than 1 % of the events.
"""

from __future__ import annotations

FEW_ROWS = 32
"""A checkpoint with at most this number of rows is made at every request: it delays few events."""
SHARE = 200
"""A checkpoint with more rows waits for this multiple of the duration of the last checkpoint."""
LONGEST_S = 2.0
"""The longest time that rows wait."""


class LiveCheckpoints:
    """Decides whether a checkpoint that only pages have requested is made now."""

    def __init__(self) -> None:
        self._next = 0.0

    def wrote(self, began: float, ended: float) -> None:
        """Record a checkpoint, whoever requested it; times are in seconds."""
        self._next = ended + min(LONGEST_S, SHARE * (ended - began))

    def is_due(self, rows: int, now: float) -> bool:
        """Whether a checkpoint with `rows` rows is made now."""
        return rows <= FEW_ROWS or now >= self._next
