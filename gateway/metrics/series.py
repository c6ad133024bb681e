"""The time series of the node, in memory, for charts.

One sample a second is taken from the shared metrics table. Samples are kept at three steps: 1 s for
15 minutes, 10 s for 3 hours and 60 s for 24 hours. Rates and quantiles cover a whole step, and
levels are the highest values within it. Nothing is written to the disk, so the series begin with
the process.
"""

from __future__ import annotations

import math
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence

from fieldbrook.gateway.metrics import readings
from fieldbrook.gateway.metrics.processes import Processes, Usage
from fieldbrook.gateway.metrics.readings import LEVELS, NAMES, PROJECT_NAMES, Reading, added
from fieldbrook.gateway.metrics.rings import NOTHING, Rates, Rings
from fieldbrook.observability.metrics_table import Table

STEPS = {1: 900, 10: 1_080, 60: 1_440}
"""The steps in seconds, and the number of samples that are kept of each."""
PROJECTS_LIMIT = 200
"""The most projects with events within a day that have series."""
ACCOUNTS_LIMIT = 64
"""The most accounts with sums of their own. An account whose events all came from one project with
a series needs no sums."""


class Owners:
    """The rates of projects, or the sums of accounts, at one step."""

    def __init__(self, rows: int, limit: int) -> None:
        self.rings = Rings(rows, limit)
        self.counts: dict[int, Rates] = {}  # since the last sample
        self.rates: dict[int, Rates] = {}  # of the last sample, where they are not 0

    def count(self, counts: Mapping[int, Rates]) -> None:
        """Count the events since the last reading."""
        for owner, pair in counts.items():
            self.counts[owner] = added(self.counts.get(owner, NOTHING), pair)

    def append(self, number: int, took_s: float) -> None:
        """Append a sample of the counts."""
        counts, self.counts = self.counts, {}
        self.rates = {owner: (a / took_s, b / took_s) for owner, (a, b) in counts.items()}
        self.rings.put(number, self.rates)


class AccountProjects:
    """The accounts that had events of only one project; the series of this project is the account's
    sum."""

    def __init__(self, account_of: Callable[[int], int | None]) -> None:
        self.account_of = account_of
        self._first: dict[int, int] = {}
        self._several: set[int] = set()

    def record(self, account_id: int, project_id: int) -> None:
        """Record that a project of an account had events."""
        if self._first.setdefault(account_id, project_id) != project_id:
            self._several.add(account_id)

    def first(self, account_id: int) -> int | None:
        """The first project that had events."""
        return self._first.get(account_id)

    def only(self, account_id: int) -> int | None:
        """The only project that had events."""
        return None if account_id in self._several else self.first(account_id)


class Step:
    """The samples of one step: a ring with a row for each sample.

    200 projects and 64 accounts take 3.7 MiB at all three steps.
    """

    def __init__(self, step_s: int, rows: int, account_projects: AccountProjects) -> None:
        self.step_s = step_s
        self._rows = rows
        self._account_projects = account_projects
        self._times = array("d", bytes(8 * rows))
        self._numbers = array("f", bytes(4 * rows * len(NAMES)))
        self.projects = Owners(rows, PROJECTS_LIMIT)
        self.accounts = Owners(rows, ACCOUNTS_LIMIT)
        self._taken = 0
        self._before: Reading | None = None
        self._highest = [0.0] * len(LEVELS)

    def add(
        self, now: Reading, projects: Mapping[int, Rates], accounts: Mapping[int, Rates]
    ) -> None:
        """Add a reading, and the counts of each project and account since the last reading.

        At the end of a step, a sample is stored.
        """
        before = self._before
        if before is not None and now.at <= before.at:  # then the clock was set back
            before = self._before = None
            self.projects.counts, self.accounts.counts = {}, {}
        self._highest = list(map(max, self._highest, now.levels))
        for owners, counts in ((self.projects, projects), (self.accounts, accounts)):
            owners.count(counts if before is not None else {})
        # The timer may be up to half a second late.
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
        self.projects.append(self._taken, now.at - before.at)
        self._share_rings()
        self.accounts.append(self._taken, now.at - before.at)
        self._taken += 1

    def _share_rings(self) -> None:
        """Remove accounts whose only project has a ring. An account that now has events from
        several projects gets a copy of this ring."""
        rings, known = self.projects.rings, self._account_projects
        for account_id in list(self.accounts.counts):
            only, first = known.only(account_id), known.first(account_id)
            if account_id in self.accounts.rings:
                continue
            if only is not None and only in rings:
                del self.accounts.counts[account_id]
            elif first is not None:
                self.accounts.rings.begin(account_id, self._taken, rings, first)

    @property
    def oldest(self) -> float:
        """The time of the oldest sample in Unix seconds; infinity without a sample."""
        if not self._taken:
            return math.inf
        return self._times[self._taken % self._rows if self._taken > self._rows else 0]

    def _span(self, begin: float, end: float) -> list[int]:
        """Return the places of the samples from `begin` to `end`, oldest first."""
        first = self._taken % self._rows if self._taken > self._rows else 0
        kept = min(self._taken, self._rows)
        places = [(first + n) % self._rows for n in range(kept)]
        times = [self._times[place] for place in places]
        return places[bisect_left(times, begin) : bisect_right(times, end)]

    def of_node(self, names: Sequence[str], begin: float, end: float) -> list[list[float]]:
        """Return the times, and a column for each name in `NAMES`."""
        places, width = self._span(begin, end), len(NAMES)
        columns = [[self._times[place] for place in places]]
        for name in names:
            column = NAMES.index(name)
            columns.append([self._numbers[place * width + column] for place in places])
        return columns

    def of_project(
        self, project_id: int, names: Sequence[str], begin: float, end: float
    ) -> list[list[float]]:
        """Return the times, and a column for each name in `PROJECT_NAMES`."""
        return self._of_owner(self.projects.rings, project_id, names, begin, end)

    def of_account(
        self, account_id: int, names: Sequence[str], begin: float, end: float
    ) -> list[list[float]]:
        """Return the times, and a column for each name: the sums of all projects of an account."""
        known, rings = self._account_projects, self.accounts.rings
        # The ring of an account with several projects begins with its next sample.
        project_id = known.only(account_id) if rings.is_full else known.first(account_id)
        if account_id in rings or project_id is None:
            return self._of_owner(rings, account_id, names, begin, end)
        return self._of_owner(self.projects.rings, project_id, names, begin, end)

    def _of_owner(
        self, rings: Rings, owner: int, names: Sequence[str], begin: float, end: float
    ) -> list[list[float]]:
        places = self._span(begin, end)
        times = [self._times[place] for place in places]
        return [times, *(rings.column(owner, PROJECT_NAMES.index(n), places) for n in names)]


class Series:
    """The samples of all steps; `sample` is called once a second."""

    def __init__(
        self,
        table: Callable[[], Table | None],
        account_of: Callable[[int], int | None] = lambda _project_id: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make series without samples.

        Args:
            account_of: returns the account that owns a project, if it is known.
        """
        self._table, self._account_projects = table, AccountProjects(account_of)
        self._clock, self._monotonic = clock, monotonic
        self._steps = {
            step_s: Step(step_s, rows, self._account_projects) for step_s, rows in STEPS.items()
        }
        self._processes = Processes()
        self._before: Reading | None = None

    def sample(self) -> None:
        """Read the table once, and add the reading to all steps."""
        table = self._table()
        if table is None:
            return
        now, running = readings.read_table(table, self._clock())
        usage: Usage = self._processes.read(running, self._monotonic())
        readings.add_usage(now, usage)
        projects = readings.project_counts(self._before or now, now)
        accounts = self._sums(projects)
        self._before = now
        for step in self._steps.values():
            step.add(now, projects, accounts)

    def _sums(self, projects: Mapping[int, Rates]) -> dict[int, Rates]:
        sums: dict[int, Rates] = {}
        for project_id, counts in projects.items():
            account_id = self._account_projects.account_of(project_id)
            if account_id is not None:
                self._account_projects.record(account_id, project_id)
                sums[account_id] = added(sums.get(account_id, NOTHING), counts)
        return sums

    def rates(self) -> dict[int, Rates]:
        """Return the rates of the newest sample by project, for all projects with a row of the
        table."""
        known = self._before.projects.values() if self._before else ()
        return {project_id: NOTHING for project_id, *_ in known} | self._steps[1].projects.rates

    def fitting(self, begin: float, now: float) -> int:
        """Return the finest step whose samples reach back to a time in Unix seconds."""
        return next(
            (step_s for step_s, rows in STEPS.items() if now - begin <= step_s * rows),
            max(STEPS),
        )

    def step(self, step_s: int) -> Step:
        """Return the samples of a step."""
        return self._steps[step_s]
