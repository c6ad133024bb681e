"""Decides whether speculation pays off for a project, from figures alone.

A run in another thread costs tens of microseconds more than one in the project's own, most of it
under the interpreter's lock, so light handlers are faster in one thread. Speculation also wastes
CPU time when most of its results are invalid, because handlers read what others have just written.
"""

from __future__ import annotations

HEAVY_S = 200e-6  # CPU time of runs for which speculation pays off (decision 42)
WINDOW_S = 0.25  # CPU time of runs; one decision per window
PAUSE_S = 30.0
_LIGHT_SHARE = 0.5  # of `heavy_s`: hysteresis, between the two the last decision stays
_TRIED = 64  # speculative runs per decision on the share of valid ones
_KEPT_SHARE = 0.5


class SpeculationPolicy:
    """Decides from the CPU time of runs and the share of valid speculative runs.

    Reading the CPU time of a thread is a system call, so light projects only have the time measured
    that has passed, until that is long for the number of runs.

    Attributes:
        measures: whether the CPU time of runs is wanted.

    Args:
        heavy_s: mean CPU seconds per run from which on speculation is used.
        window_s: CPU seconds of runs per decision.
        pause_s: seconds without speculation after too few speculative runs were valid.
    """

    def __init__(
        self, heavy_s: float = HEAVY_S, window_s: float = WINDOW_S, pause_s: float = PAUSE_S
    ) -> None:
        self._heavy_s = heavy_s
        self._window_s, self._pause_s = window_s, pause_s
        self.mean_s = heavy_s
        self._heavy = self.measures = heavy_s <= 0
        self._spent_s = self._passed_s = 0.0
        self._runs = self._passed_runs = 0
        self._tried = self._kept = 0
        self._paused_until = 0.0

    def is_worthwhile(self, now: float) -> bool:
        """Whether to speculate; `now` is on the monotonic clock."""
        return self._heavy and now >= self._paused_until

    def add_cpu_time(self, seconds: float, runs: int) -> None:
        """Record the CPU time of runs, in whichever thread they were made."""
        self._spent_s += seconds
        self._runs += runs
        if self._spent_s < self._window_s or not self._runs:
            return
        self.mean_s = self._spent_s / self._runs
        light_s = self._heavy_s * _LIGHT_SHARE
        self._heavy = self.mean_s >= (light_s if self._heavy else self._heavy_s)
        self.measures = self.mean_s >= light_s
        self._spent_s, self._runs = 0.0, 0

    def add_wall_time(self, seconds: float, runs: int) -> None:
        """Record how long runs took whose CPU time was not measured."""
        self._passed_s += seconds
        self._passed_runs += runs
        if self._passed_s >= self._window_s and self._passed_runs:
            mean_s = self._passed_s / self._passed_runs
            self.measures = mean_s >= self._heavy_s * _LIGHT_SHARE
            self._passed_s, self._passed_runs = 0.0, 0

    def add_result(self, now: float, *, kept: bool) -> None:
        """Record whether a speculative run was kept or had to be made again."""
        self._tried += 1
        self._kept += kept
        if self._tried < _TRIED:
            return
        if self._kept < _KEPT_SHARE * self._tried:
            self._paused_until = now + self._pause_s
        self._tried = self._kept = 0
