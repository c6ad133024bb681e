"""The node's figures over time, in memory, for charts.

One sample a second is taken from the shared metrics table. It is kept at three steps: 1 s for
15 minutes, 10 s for 3 hours and 60 s for 24 hours. Rates and quantiles cover a whole step, and
levels are the highest within it. Nothing is written to the disk: the series begin with the process.
"""

from __future__ import annotations

import asyncio
import math
import struct
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import add

from fieldbrook.gateway.metrics import readings
from fieldbrook.gateway.metrics.processes import Processes, Usage
from fieldbrook.gateway.metrics.readings import LEVELS, NAMES, PROJECT_NAMES, Reading
from fieldbrook.observability.metrics_table import Table

STEPS = {1: 900, 10: 1_080, 60: 1_440}
"""The steps in seconds, and how many samples of each are kept."""
PROJECTS_LIMIT = 200
"""How many projects have series of their own."""
_HALF_MOST = 65_504.0  # the largest number of IEEE 754's half precision
_PAIR = struct.Struct("<2e")
_PROJECTS_AT_ONCE = 16


class Step:
    """The samples of one step: a ring with a row for each sample.

    A project's two rates take 4 bytes a sample, in half precision (three digits), and memory only
    from the project's first sample on: 200 projects take 2.7 MiB at all three steps.
    """

    def __init__(self, step_s: int, rows: int) -> None:
        self.step_s = step_s
        self._rows = rows
        self._times = array("d", bytes(8 * rows))
        self._numbers = array("f", bytes(4 * rows * len(NAMES)))
        self._projects: dict[int, bytearray] = {}
        self._taken = 0
        self._before: Reading | None = None
        self._highest = [0.0] * len(LEVELS)
        self.rates: dict[int, tuple[float, float]] = {}
        """Events and failed runs per second in the newest sample, by project."""

    def add(self, now: Reading) -> None:
        """Take a reading; a step that is over becomes a sample."""
        before = self._before
        if before is not None and now.at <= before.at:  # the clock was set back
            before = self._before = None
        self._highest = list(map(max, self._highest, now.levels))
        # The timer is up to half a second late.
        if before is not None and now.at - before.at < self.step_s - 0.5:
            return
        if before is not None:
            self._keep(before, now)
        self._before, self._highest = now, [0.0] * len(LEVELS)

    def _keep(self, before: Reading, now: Reading) -> None:
        at, width = self._taken % self._rows, len(NAMES)
        self._times[at] = now.at
        found = readings.figures(before, now, self._highest)
        self._numbers[at * width : (at + 1) * width] = array("f", found)
        self.rates = readings.project_figures(before, now)
        place, projects = _PAIR.size * at, self._projects
        for project_id, (events, failed) in self.rates.items():
            ring = projects.get(project_id)
            if ring is None:
                if len(projects) >= PROJECTS_LIMIT:
                    continue
                ring = projects[project_id] = bytearray(_PAIR.size * self._rows)
            _PAIR.pack_into(ring, place, min(events, _HALF_MOST), min(failed, _HALF_MOST))
        self._taken += 1

    @property
    def oldest(self) -> float:
        """The time of the oldest sample in Unix seconds; infinity without one."""
        if not self._taken:
            return math.inf
        return self._times[self._taken % self._rows if self._taken > self._rows else 0]

    def _span(self, begin: float, end: float) -> list[int]:
        """The places of the samples from `begin` to `end`, oldest first."""
        first = self._taken % self._rows if self._taken > self._rows else 0
        kept = min(self._taken, self._rows)
        places = [(first + n) % self._rows for n in range(kept)]
        times = [self._times[place] for place in places]
        return places[bisect_left(times, begin) : bisect_right(times, end)]

    def of_node(self, names: Sequence[str], begin: float, end: float) -> list[list[float]]:
        """The times, and a column for each name of `NAMES`."""
        places, width = self._span(begin, end), len(NAMES)
        columns = [[self._times[place] for place in places]]
        for name in names:
            column = NAMES.index(name)
            columns.append([self._numbers[place * width + column] for place in places])
        return columns

    async def of_projects(
        self, project_ids: Iterable[int], names: Sequence[str], begin: float, end: float
    ) -> list[list[float]]:
        """The times, and for each name of `PROJECT_NAMES` the sum over the projects.

        It yields to the event loop: the sum of 200 projects takes 15 ms.
        """
        places = self._span(begin, end)
        times = [self._times[place] for place in places]
        sums: list[list[float]] = [[0.0] * self._rows for _ in PROJECT_NAMES]
        for number, project_id in enumerate(project_ids):
            ring = self._projects.get(project_id)
            if ring is not None:
                pairs = struct.unpack(f"<{2 * self._rows}e", ring)
                sums = [list(map(add, sums[at], pairs[at::2])) for at in range(2)]
            if number % _PROJECTS_AT_ONCE == 0:
                await asyncio.sleep(0)
        wanted = [sums[PROJECT_NAMES.index(name)] for name in names]
        return [times, *([column[place] for place in places] for column in wanted)]


class Series:
    """The samples of all steps; `sample` is called once a second."""

    def __init__(
        self,
        table: Callable[[], Table | None],
        more: Callable[[], Sequence[tuple[str, int]]] = tuple,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`more` gives parts and pids of processes without a row in the table."""
        self._table, self._more = table, more
        self._clock, self._monotonic = clock, monotonic
        self._steps = {step_s: Step(step_s, rows) for step_s, rows in STEPS.items()}
        self._processes = Processes()

    def sample(self) -> None:
        """Read the table once, and add the reading to all steps."""
        table = self._table()
        if table is None:
            return
        now, running = readings.read_table(table, self._clock())
        usage: Usage = self._processes.read([*running, *self._more()], self._monotonic())
        readings.add_usage(now, usage)
        for step in self._steps.values():
            step.add(now)

    def fitting(self, begin: float, now: float) -> int:
        """The finest step whose samples reach back to a time in Unix seconds."""
        return next(
            (step_s for step_s, rows in STEPS.items() if now - begin <= step_s * rows),
            max(STEPS),
        )

    def step(self, step_s: int) -> Step:
        """The samples of a step."""
        return self._steps[step_s]
