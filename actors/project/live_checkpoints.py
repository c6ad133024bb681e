"""How often a project writes to its store for pages that follow it.

A checkpoint keeps the events that come meanwhile waiting. Four of them in a second would be in the
way of more than one event in a hundred.
"""

from __future__ import annotations

FEW_ROWS = 32
"""So few rows are written whenever they are asked for: hardly an event comes meanwhile."""
SHARE = 200
"""More rows wait until this times as long has passed as the last checkpoint took."""
LONGEST_S = 2.0
"""They wait for this time at most."""


class LiveCheckpoints:
    """Decides whether a checkpoint that only pages want is made now."""

    def __init__(self) -> None:
        self._next = 0.0

    def wrote(self, began: float, ended: float) -> None:
        """Take notice of a checkpoint, whoever wanted it; times are in seconds."""
        self._next = ended + min(LONGEST_S, SHARE * (ended - began))

    def is_due(self, rows: int, now: float) -> bool:
        """Whether so many rows are written now."""
        return rows <= FEW_ROWS or now >= self._next
