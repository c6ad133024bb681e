"""The metrics rows of the node's processes and projects; the supervisor assigns them."""

from __future__ import annotations

import collections
from collections.abc import Iterable

from fieldbrook.actors.supervisor.child import Child
from fieldbrook.observability import metrics, metrics_table


class ChildMetrics:
    """Gives each child a row of the shared metrics table, and counts starts and deaths.

    The next process with the same `part` continues with the same row, so no count is lost when a
    process dies.
    """

    def __init__(self) -> None:
        self._slots = metrics_table.RowAllocator()
        self._dead_letters: dict[int, float] = {}  # of projects that do not run, by id

    def create(self, named_projects: int) -> None:
        """Create the metrics table; every child is a fork and shares it."""
        self.table = metrics_table.shared.table = metrics_table.Table()
        self._slots = metrics_table.RowAllocator(named=named_projects)
        slot, name = self._slots.assign("supervisor")
        self.table.name(slot, name)
        metrics.here.of_process(self.table.attach(slot))
        metrics.put(metrics.UP, 1)

    def assign(self, child: Child) -> None:
        """Give a child that starts a row; it gets none when all rows are in use."""
        child.slot, name = self._slots.assign(child.part)
        if child.slot == metrics_table.NO_ROW:
            return
        self.table.name(child.slot, name)
        row = self.table.row(child.slot)
        row[metrics.PROCESS_STARTS] += 1
        if name != child.part:  # other projects have used this row
            row[metrics.BUSY_BEFORE] = row[metrics.BUSY_SECONDS]
            row[metrics.RESTARTS_BEFORE] = row[metrics.PROCESS_RESTARTS]
        if child.kind == "project":
            self._dead_letters.pop(child.project_id, None)

    def add_ready(self, child: Child) -> None:
        """Record that a child is up."""
        if child.slot != metrics_table.NO_ROW:
            self.table.row(child.slot)[metrics.UP] = 1

    def release(self, child: Child, *, died: bool) -> None:
        """Free the row of a child whose process has ended; `died` counts it as a death."""
        if child.slot == metrics_table.NO_ROW:
            return
        row = self.table.row(child.slot)
        if died:
            row[metrics.PROCESS_RESTARTS] += 1
        if child.kind == "project" and row[metrics.DEAD_LETTERS]:
            self._dead_letters[child.project_id] = row[metrics.DEAD_LETTERS]
        self.table.detach(child.slot)
        self._slots.release(child.part, child.slot)
        child.slot = metrics_table.NO_ROW

    def forget_project(self, project_id: int) -> None:
        """Forget the dead letters of a project that was removed."""
        self._dead_letters.pop(project_id, None)

    def set_gauges(self, children: Iterable[Child]) -> None:
        """Set the gauges: projects by state, and dead letters of projects without a process."""
        states = collections.Counter(child.state for child in children if child.kind == "project")
        for state, column in metrics.PROJECT_STATES.items():
            metrics.put(column, states[state])
        metrics.put(metrics.DEAD_LETTERS_STOPPED, sum(self._dead_letters.values()))
