"""Whether a project's handlers are worth several processes: pure decisions over figures.

Telling a shard of a run and reading what it found costs the project's process tens of
microseconds, so light handlers are faster where they are. And where most of what shards find
has to be thrown away, because handlers read what others have just written, they only heat
the room.
"""

from __future__ import annotations

# Of computing; a run of at least so long is worth it (docs/decisions/0032-shards.md).
HEAVY_S = 200e-6
WINDOW_S = 0.25  # of computing in runs; each window is one decision
PAUSE_S = 30.0
_LIGHT_SHARE = 0.5  # of `heavy_s`: between the two, what was decided stays
_TRIED = 64  # findings after which it is known how many could be kept
_KEPT_SHARE = 0.5


class Worth:
    """Decides from what runs cost and how many findings could be kept.

    Args:
        heavy_s: mean seconds of computing of a run from which on shards are used.
        window_s: seconds of computing in runs that make one decision.
        pause_s: for how long shards are not used when too little can be kept.
    """

    def __init__(
        self, heavy_s: float = HEAVY_S, window_s: float = WINDOW_S, pause_s: float = PAUSE_S
    ) -> None:
        self._heavy_s = heavy_s
        self._window_s, self._pause_s = window_s, pause_s
        self.mean_s = heavy_s
        self._heavy = heavy_s <= 0
        self._spent_s = 0.0
        self._runs = 0
        self._tried = self._kept = 0
        self._paused_until = 0.0

    def good(self, now: float) -> bool:
        """Whether shards are to be used; `now` is on the monotonic clock."""
        return self._heavy and now >= self._paused_until

    def spent(self, seconds: float, runs: int) -> None:
        """So many runs computed for so long, wherever they were made."""
        self._spent_s += seconds
        self._runs += runs
        if self._spent_s < self._window_s or not self._runs:
            return
        self.mean_s = self._spent_s / self._runs
        self._heavy = self.mean_s >= self._heavy_s * (_LIGHT_SHARE if self._heavy else 1)
        self._spent_s, self._runs = 0.0, 0

    def tried(self, now: float, *, kept: bool) -> None:
        """A shard's finding was kept, or the run had to be made again."""
        self._tried += 1
        self._kept += kept
        if self._tried < _TRIED:
            return
        if self._kept < _KEPT_SHARE * self._tried:
            self._paused_until = now + self._pause_s
        self._tried = self._kept = 0
