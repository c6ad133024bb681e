"""When a dead child is started again: pure decisions over counts and times."""

from __future__ import annotations

from dataclasses import dataclass

# A start costs a core about a second: with the last of these a node that cannot run takes a
# fifth of one, and one that can again is back soon.
BACKOFF_S = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)
STEADY_S = 10.0  # a child that lived this long starts its count afresh
UNREACHABLE_AFTER = 4  # from this failure on, what waits for the child is refused


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often a child died in a row."""

    failures: int = 0

    def after_exit(self, lived_s: float) -> Restarts:
        """The count after a death: 1 when the child had been steady, else one more."""
        return Restarts(1 if lived_s >= STEADY_S else self.failures + 1)

    @property
    def delay_s(self) -> float:
        """Seconds to wait before the next start."""
        return BACKOFF_S[min(max(self.failures, 1), len(BACKOFF_S)) - 1]

    @property
    def unreachable(self) -> bool:
        """Whether those who wait should be told instead of kept waiting."""
        return self.failures >= UNREACHABLE_AFTER
