"""Restart backoff of children: pure decisions over counts and times."""

from __future__ import annotations

import msgspec

# Delays in seconds before the restarts. A start uses a core for up to a second. So with the longest
# delay, a child that cannot run uses a fifth of a core. When it can run again, for example because
# a full disk has space again, it is up within 5 s.
BACKOFF_S = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0)
STEADY_S = 10.0  # the death of a child that has lived this long counts as the first one
UNREACHABLE_AFTER = 4  # from this failure in a row on, events that wait for the child are refused


class Restarts(msgspec.Struct, frozen=True):
    """The number of deaths of a child in a row, and the backoff that follows from it."""

    failures: int = 0

    def after_exit(self, lived_s: float) -> Restarts:
        """The count after a death: 1 when the child lived at least `STEADY_S`, else one more."""
        return Restarts(1 if lived_s >= STEADY_S else self.failures + 1)

    @property
    def delay_s(self) -> float:
        """The backoff in seconds before the next start."""
        return BACKOFF_S[min(max(self.failures, 1), len(BACKOFF_S)) - 1]

    @property
    def unreachable(self) -> bool:
        """Whether waiting events should be refused instead of kept waiting."""
        return self.failures >= UNREACHABLE_AFTER
