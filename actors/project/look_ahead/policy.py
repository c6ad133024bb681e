"""Decides whether speculation pays off for a project, from figures alone.

A run in another thread takes tens of microseconds more than a run in the project's own thread, most
of them under the interpreter's lock. So light handlers are faster in one thread. Speculation also
wastes CPU time when most of its results are invalid because handlers read keys that other handlers
have just written.
"""

from __future__ import annotations

HEAVY_S = 200e-6  # CPU time of a run from which on speculation saves time (decision 42)
WINDOW_S = 0.25  # CPU time of the runs between two decisions
PAUSE_S = 30.0
_LIGHT_SHARE = 0.5  # of `heavy_s`; hysteresis: between both values the last decision stays
_TRIED = 64  # speculative runs, after which the share of valid runs is checked
_KEPT_SHARE = 0.5


class SpeculationPolicy:
    """Decides from the CPU time of runs and the share of valid speculative runs.

    Reading the CPU time of a thread is a system call. So for projects with light handlers only wall
    time is measured, until the mean wall time per run is long.

    Attributes:
        measures: whether the caller should measure the CPU time of runs.

    Args:
        heavy_s: speculation is used if the mean CPU time of a run is at least this, in seconds.
        window_s: the CPU time of the runs between two decisions, in seconds.
        pause_s: the pause of speculation after too few valid runs, in seconds.
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
        """Record the CPU time of runs, of all threads."""
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
        """Record the wall time of runs whose CPU time was not measured."""
        self._passed_s += seconds
        self._passed_runs += runs
        if self._passed_s >= self._window_s and self._passed_runs:
            mean_s = self._passed_s / self._passed_runs
            self.measures = mean_s >= self._heavy_s * _LIGHT_SHARE
            self._passed_s, self._passed_runs = 0.0, 0

    def add_result(self, now: float, *, kept: bool) -> None:
        """Record whether a speculative run was valid, or the handler had to run again."""
        self._tried += 1
        self._kept += kept
        if self._tried < _TRIED:
            return
        if self._kept < _KEPT_SHARE * self._tried:
            self._paused_until = now + self._pause_s
        self._tried = self._kept = 0
