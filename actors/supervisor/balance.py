"""Balance: moves projects between workers by CPU time; restarts projects and workers that use too
much memory."""

from __future__ import annotations

import collections
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from fieldbrook.actors.supervisor.child import UP, Child
from fieldbrook.observability import health, metrics
from fieldbrook.observability.metrics_table import NO_ROW
from fieldbrook.system.kernel import private_bytes, read_stat

if TYPE_CHECKING:
    from fieldbrook.actors.supervisor.supervisor import Supervisor

log = logging.getLogger(__name__)

WINDOW_S = 10.0
# Shares of a core:
BUSY = 0.9  # a worker that uses more is busy: its threads share one interpreter lock
_GAP = 0.4  # projects move only if the other worker uses at least this much less
_LEAST = 0.01  # a project that uses less is not moved
_LARGE = 0.1  # share of a worker's memory; a smaller project is not the cause of its size


class Rates:
    """Rates of counters of CPU seconds over the last `WINDOW_S`, as shares of a core."""

    def __init__(self) -> None:
        self._samples: dict[str, collections.deque[tuple[float, float]]] = {}

    def record(self, part: str, now: float, seconds: float) -> None:
        """Record the counter of a process or project."""
        samples = self._samples.setdefault(part, collections.deque())
        samples.append((now, seconds))
        while len(samples) > 2 and now - samples[1][0] >= WINDOW_S:
            samples.popleft()

    def keep_only(self, parts: Collection[str]) -> None:
        """Forget all other parts."""
        for part in self._samples.keys() - set(parts):
            del self._samples[part]

    def share(self, part: str) -> float:
        """The share of a core over the time that was recorded, up to one window."""
        samples = self._samples.get(part)
        if samples is None or len(samples) < 2:
            return 0.0
        (began, before), (now, after) = samples[0], samples[-1]
        return (after - before) / max(now - began, 1e-3)

    def whole_share(self, part: str) -> float:
        """The share of a core over the whole window; 0.0 for a part with a shorter record."""
        samples = self._samples.get(part)
        if samples is None or samples[-1][0] - samples[0][0] < WINDOW_S:
            return 0.0
        return self.share(part)


def to_move(used: Mapping[str, float], busy: float, room: float) -> set[str]:
    """Choose the projects that leave a busy worker: the heaviest ones except the first.

    Args:
        used: the seconds per second that the worker spent on each project. They include times in
            which threads wait for each other, so their sum may exceed the processor time.
        busy: the worker's share of a core.
        room: the share of a core that may move to the other worker without making it the busier
            one.
    """
    factor = min(1.0, busy / max(sum(used.values()), 1e-9))
    moving: set[str] = set()
    for part in sorted(used, key=lambda part: used[part], reverse=True)[1:]:
        share = used[part] * factor
        if _LEAST <= share <= room + _LEAST:
            moving.add(part)
            room -= share
    return moving


class Balance:
    """Moves projects away from busy workers, and bounds the memory of projects and workers."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self.rates = Rates()
        self._moved_at = float("-inf")

    def check(self, now: float) -> None:
        """Record the usage of all parts, move or restart projects; call it every few seconds."""
        children = self._supervisor.children.values()
        workers = [child for child in children if child.kind == "worker" and child.state == UP]
        projects: dict[str, list[Child]] = {worker.part: [] for worker in workers}
        for child in children:
            if child.is_project and child.state == UP and child.worker in projects:
                projects[child.worker].append(child)
        self._record(now, workers, [child for found in projects.values() for child in found])
        for worker in workers:
            self._check_memory(worker, projects[worker.part])
        shared = [worker for worker in workers if not worker.is_dedicated and worker.state == UP]
        busiest = max(shared, key=lambda one: self.rates.whole_share(one.part), default=None)
        # The measured shares show the effect of a move only after a whole window.
        if busiest is not None and now - self._moved_at > 2 * WINDOW_S:
            self._make_room(now, busiest, projects[busiest.part], shared)

    def _record(self, now: float, workers: Sequence[Child], projects: Sequence[Child]) -> None:
        for worker in workers:
            stat = None if worker.pid is None else read_stat(worker.pid)
            if stat is not None:
                self.rates.record(worker.part, now, stat.cpu_s)
        for project in projects:
            self.rates.record(project.part, now, self._number(project, metrics.BUSY_SECONDS))
        self.rates.keep_only({child.part for child in (*workers, *projects)})

    def _number(self, project: Child, column: int) -> float:
        if project.slot == NO_ROW:
            return 0.0
        return self._supervisor.child_metrics.table.row(project.slot)[column]

    # ---------------------------------------------------------------- processor time

    def _make_room(
        self, now: float, worker: Child, projects: Sequence[Child], shared: Sequence[Child]
    ) -> None:
        """Move projects of a busy worker to the least busy one; the heaviest project stays."""
        rates = self.rates
        busy = rates.whole_share(worker.part)
        least_busy = min(shared, key=lambda other: rates.share(other.part))
        gap = busy - rates.share(least_busy.part)
        if busy < BUSY or gap < _GAP:
            return
        used = {project.part: rates.whole_share(project.part) for project in projects}
        moving = to_move(used, busy, gap / 2)
        if moving:
            log.info("%d projects move from %s to %s", len(moving), worker.part, least_busy.part)
            self._moved_at = now
        for project in projects:
            if project.part in moving:
                self._supervisor.projects.restart(project)

    # ---------------------------------------------------------------- memory

    def _check_memory(self, worker: Child, projects: Sequence[Child]) -> None:
        """Restart projects and workers that use more memory than they may."""
        settings = self._supervisor.settings
        used = {project.part: self._number(project, metrics.PROJECT_MEMORY) for project in projects}
        limit = settings.project_memory_bytes
        large = [project for project in projects if used[project.part] > limit]
        for project in large:
            detail = f"{_mib(used[project.part])}, above project_memory_bytes"
            self._start_again(project, detail)
        total = 0 if worker.pid is None else private_bytes(worker.pid)
        if large or total <= settings.worker_memory_bytes:
            return
        largest = max(projects, key=lambda project: used[project.part], default=None)
        detail = f"{_mib(total)} of {worker.part}, above worker_memory_bytes"
        if largest is not None and used[largest.part] >= _LARGE * total:
            self._start_again(largest, f"{_mib(used[largest.part])} of the {detail}")
        else:
            self._start_again(worker, detail)

    def _start_again(self, child: Child, detail: str) -> None:
        supervisor = self._supervisor
        supervisor.board.raise_(child.part, health.MEMORY_HIGH, detail)
        supervisor.schedule_health()
        if child.is_project:
            supervisor.projects.restart(child)
        else:
            child.wanted = True
            supervisor.retire(child)


def _mib(size: float) -> str:
    return f"{size / (1 << 20):.0f} MiB"
