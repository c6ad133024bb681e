"""The workers of the node: which project runs where, and what follows from a worker's death."""

from __future__ import annotations

import contextlib
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fieldbrook.actors import messages as m
from fieldbrook.actors.supervisor.child import BACKOFF, DOWN, RETIRING, STARTING, UP, Child
from fieldbrook.observability import metrics
from fieldbrook.observability.metrics_table import NO_ROW

if TYPE_CHECKING:
    from fieldbrook.actors.supervisor.supervisor import Supervisor

log = logging.getLogger(__name__)

SUSPECT_S = 600.0  # a project in whose turn a worker died has a worker of its own for this time
_LOAD_S = 10.0  # over which the CPU time of workers is compared
DEDICATED = "worker:p"


class Workers:
    """Places projects in workers, and decides which project has caused a worker's death."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._shared: list[str] = []
        self._recovered = False  # whether each worker was up, so that all journals are read
        self._samples: dict[str, list[tuple[float, float]]] = {}  # time and CPU seconds, by part

    def parts(self, number: int) -> list[str]:
        """Name the workers that projects share."""
        self._shared = [f"worker:{n}" for n in range(number)]
        return self._shared

    # ---------------------------------------------------------------- placement

    def run(self, project: Child) -> None:
        """Have a worker run a project that starts.

        A project waits for its old worker when that has died: its last batches may be in that
        worker's journal only. After the start of the node all journals are read first.
        """
        supervisor = self._supervisor
        home = supervisor.children.get(project.worker)
        if not self._recovered or (project.in_journal and home is not None and home.state != UP):
            return
        project.in_journal = False
        worker = self._worker_for(project)
        project.worker = worker.part
        if worker.state == UP:
            project.in_journal = True
            order = m.RunProject(project.project_id, project.generation, project.slot)
            supervisor.send_to(worker, order)
        elif worker.state == DOWN:
            supervisor.start(worker)
        elif worker.state == RETIRING:
            worker.wanted = True

    def _worker_for(self, project: Child) -> Child:
        children = self._supervisor.children
        if self.is_alone(project):
            part = f"{DEDICATED}{project.project_id}"
            return children.setdefault(part, Child(part))
        shared = [children[part] for part in self._shared]
        running = [worker for worker in shared if worker.state == UP]
        return min(running or shared, key=self._load)

    def is_alone(self, project: Child) -> bool:
        """Whether a project has a worker of its own, by choice or because it is suspected."""
        return project.dedicated or time.monotonic() < project.suspect_until

    def _load(self, worker: Child) -> tuple[float, int]:
        """The share of a core that a worker uses, in tenths, and the number of its projects."""
        samples = self._samples.get(worker.part, ())
        share = 0.0
        if len(samples) > 1:
            (began, before), (now, after) = samples[0], samples[-1]
            share = (after - before) / max(now - began, 1e-3)
        return round(share, 1), len(self._projects_of(worker))

    def sample(self) -> None:
        """Note the CPU time of all workers; call it every few seconds."""
        now = time.monotonic()
        for part in self._shared:
            worker = self._supervisor.children[part]
            samples = self._samples.setdefault(part, [])
            if worker.pid is None:
                samples.clear()
                continue
            samples.append((now, _cpu_s(worker.pid)))
            while len(samples) > 2 and now - samples[1][0] >= _LOAD_S:
                del samples[0]

    def _projects_of(self, worker: Child) -> list[Child]:
        return [
            child
            for child in self._supervisor.children.values()
            if child.is_project
            and child.worker == worker.part
            and child.state in (STARTING, UP, RETIRING)
        ]

    # ---------------------------------------------------------------- a worker's life

    def on_ready(self, worker: Child) -> None:
        """Run the projects that have waited for this worker, whose journal is read now."""
        children = self._supervisor.children
        if not self._recovered:
            self._recovered = all(children[part].state == UP for part in self._shared)
        for child in list(children.values()):
            if not child.is_project:
                continue
            if child.worker == worker.part and child.state in (DOWN, BACKOFF, STARTING):
                child.in_journal = False
            if child.state == STARTING and not child.in_journal:
                self.run(child)

    def on_exit(self, worker: Child) -> None:
        """Close the projects of a worker that has died, and start those again that are needed.

        Only a project in whose turn the worker died may have caused that. It gets a worker of its
        own; the others come back to this one.
        """
        supervisor = self._supervisor
        lost = self._projects_of(worker)
        guilty = [child for child in lost if self._had_turn(child)]
        if len(lost) == 1 and worker.part.startswith(DEDICATED):
            guilty = lost
        for child in lost:
            supervisor.projects.close_route(child)
            if child in guilty and child.state in (UP, STARTING):
                self.suspect(child)
                supervisor.on_project_exit(
                    child, failed=True, how=f"{worker.part} died in its turn"
                )
            else:
                supervisor.on_project_exit(child, failed=False)

    def suspect(self, project: Child) -> None:
        """Keep a project away from others for a while."""
        project.suspect_until = time.monotonic() + SUSPECT_S

    def _had_turn(self, project: Child) -> bool:
        table = self._supervisor.child_metrics.table
        return project.slot != NO_ROW and table.row(project.slot)[metrics.IN_TURN] > 0

    def on_project_ended(self, project: Child) -> None:
        """End the worker of a project that had it alone."""
        project.in_journal = False
        worker = self._supervisor.children.get(project.worker)
        if worker is None or not worker.part.startswith(DEDICATED) or worker.address is None:
            return
        if worker.state == UP and not self._projects_of(worker):
            worker.enter(RETIRING)
            self._supervisor.stop_child(worker.address)

    def raise_hung(self, worker: Child, project_id: int, state: str, detail: str) -> None:
        """Raise a condition of the project that a worker is busy with, or of the worker."""
        part = f"project:{project_id}" if project_id else worker.part
        worker.subject = part
        self._supervisor.board.raise_(part, state, detail)
        self._supervisor.schedule_health()

    def clear_hung(self, worker: Child, *states: str) -> None:
        """Clear what `raise_hung` has raised."""
        if worker.subject:
            self._supervisor.board.clear(worker.subject, *states)
            worker.subject = ""


def _cpu_s(pid: int) -> float:
    """The CPU time of a process in ticks of 10 ms, as seconds; 0.0 when it has ended."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100
    return 0.0
