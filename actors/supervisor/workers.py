"""The workers of the node: placement of projects, and the consequences of a worker's death."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from fieldbrook.actors import messages as m
from fieldbrook.actors.supervisor.balance import WINDOW_S, Balance
from fieldbrook.actors.supervisor.child import BACKOFF, DOWN, RETIRING, STARTING, UP, Child
from fieldbrook.observability import health, metrics
from fieldbrook.observability.metrics_table import DEDICATED, NO_ROW

if TYPE_CHECKING:
    from fieldbrook.actors.supervisor.supervisor import Supervisor

log = logging.getLogger(__name__)

SUSPECT_S = 600.0  # a project in whose turn a worker died has a worker of its own for this time
SUSPECTS = 8  # the most suspects with one; further ones wait until one has run for `PROVEN_S`
PROVEN_S = 60.0
_GIVEN_UP_AFTER = 2  # deaths in a row: another worker reads its journal and takes its projects
_ASKED_AGAIN_S = 30.0  # pause before another worker is asked again
_NEW_PROJECT = 0.05  # share of a core that a new project is expected to use


class Workers:
    """Places projects in workers, and decides which project has caused a worker's death.

    `dedicated` has the ids of the projects that need a worker of their own (`dedicated = true`).
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._shared: list[str] = []
        self._recovered = False  # whether all journals are read: all shared workers have been up
        self.dedicated: frozenset[int] = frozenset()
        self._balance = Balance(supervisor)
        # When another worker was asked to read the journal of a worker that cannot start.
        self._asked: dict[str, float] = {}

    def parts(self, number: int) -> list[str]:
        """Name the workers that projects share."""
        self._shared = [f"worker:{n}" for n in range(number)]
        return self._shared

    # ---------------------------------------------------------------- placement

    def run(self, project: Child) -> None:
        """Have a worker run a project that starts.

        If the last worker of the project has died, the project waits until this worker runs again,
        because only its journal may have the last batches. After the start of the node, no project
        runs before all journals are read.
        """
        supervisor = self._supervisor
        home = supervisor.children.get(project.worker)
        if not self._recovered or (project.in_journal and home is not None and home.state != UP):
            return
        # The worker may have got `RunProject` already; a second one changes nothing.
        ordered = project.in_journal and home is not None
        worker = home if ordered and home is not None else self._worker_for(project)
        if worker is None:
            self._let_wait(project)
            return
        project.in_journal, project.worker = False, worker.part
        if worker.state == UP:
            project.in_journal = True
            order = m.RunProject(project.project_id, project.generation, project.slot)
            supervisor.send_to(worker, order)
        elif worker.state == DOWN:
            supervisor.start(worker)
        elif worker.state == RETIRING:
            worker.wanted = True

    def _worker_for(self, project: Child) -> Child | None:
        """Choose a worker; None when the project needs its own, and too many suspects have one."""
        children = self._supervisor.children
        if self.is_alone(project):
            part = f"{DEDICATED}{project.project_id}"
            chosen = part in children or project.project_id in self.dedicated
            if not chosen and len(self._suspects()) >= SUSPECTS:
                return None
            return children.setdefault(part, Child(part))
        shared = [children[part] for part in self._shared]
        running = [worker for worker in shared if worker.state == UP]
        return min(running or shared, key=self._load)

    def _suspects(self) -> list[Child]:
        """The suspected projects for which there is a worker."""
        children = self._supervisor.children
        own = [child.part.removeprefix(DEDICATED) for child in children.values()]
        found = [children.get(f"project:{name}") for name in own if name.isdecimal()]
        return [one for one in found if one and one.project_id not in self.dedicated]

    def _waits(self, project: Child) -> bool:
        """Whether a suspected project waits for a worker of its own."""
        part = f"{DEDICATED}{project.project_id}"
        children = self._supervisor.children
        starts = project.state == STARTING and not project.in_journal
        return starts and self.is_alone(project) and part not in children

    def _let_wait(self, project: Child) -> None:
        """Let a project wait; move the suspect that has run longest back to the shared workers."""
        supervisor = self._supervisor
        others = f"{SUSPECTS} other projects have one, because workers died in their turns"
        detail = f"the project waits for a worker of its own: {others}"
        supervisor.board.raise_(project.part, health.CANNOT_START, detail)
        supervisor.schedule_health()
        supervisor.send_to_gateways(m.Unreachable(project.project_id))
        now = time.monotonic()
        here = [child for child in self._suspects() if child.state in (UP, RETIRING)]
        proven = [child for child in here if child.state == UP and now - child.since >= PROVEN_S]
        if proven and all(map(self.is_alone, here)):  # otherwise one moves back already
            min(proven, key=lambda child: child.since).suspect_until = 0.0
            self.settle()

    def is_alone(self, project: Child) -> bool:
        """Whether a project has a worker of its own, by choice or because it is suspected."""
        return project.project_id in self.dedicated or time.monotonic() < project.suspect_until

    def check(self, now: float) -> None:
        """Move and restart projects and workers as needed; call it every few seconds."""
        self._balance.check(now)
        self.settle()
        self._recover_elsewhere(now)
        for child in list(self._supervisor.children.values()):
            if child.is_project and self._waits(child):
                self.run(child)

    def settle(self) -> None:
        """Move projects that are in the wrong kind of worker, and end workers without a project."""
        supervisor = self._supervisor
        for child in list(supervisor.children.values()):
            if child.state != UP:
                continue
            if child.is_project:
                home = supervisor.children[child.worker]
                if self.is_alone(child) != home.is_dedicated:
                    supervisor.projects.restart(child)
            elif child.is_dedicated and not self._is_needed(child):
                supervisor.retire(child)

    def _is_needed(self, worker: Child) -> bool:
        """Whether a dedicated worker has a project, or will have it."""
        part = f"project:{worker.part.removeprefix(DEDICATED)}"
        project = self._supervisor.children.get(part)
        return project is not None and project.worker == worker.part and project.state != DOWN

    def can_run(self, project: Child) -> bool:
        """Whether a project that starts may expect its worker to come up soon."""
        home = self._supervisor.children.get(project.worker)
        if self._waits(project):
            return False
        return home is None or home.state == UP or not home.restarts.unreachable

    def _load(self, worker: Child) -> tuple[float, int]:
        """The load of a worker: its CPU share in tenths of a core, and the number of its projects.

        The measured rates do not include projects that started within the last window, so a share
        is added for each. Otherwise projects that start together would all go to one worker.
        """
        projects = self._projects_of(worker)
        now = time.monotonic()
        new = sum(now - project.since < WINDOW_S for project in projects)
        share = self._balance.rates.share(worker.part) + _NEW_PROJECT * new
        return round(share, 1), len(projects)

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
        """Run the projects that waited until this worker had read its journal."""
        children = self._supervisor.children
        self._asked.pop(worker.part, None)
        if not self._recovered:
            self._recovered = all(children[part].state == UP for part in self._shared)
        for child in list(children.values()):
            if not child.is_project:
                continue
            if child.worker == worker.part and child.state in (DOWN, BACKOFF, STARTING):
                child.in_journal = False
            if child.state == STARTING and not child.in_journal:
                self.run(child)

    def on_exit(self, worker: Child, *, blames: bool) -> None:
        """Close the projects of a worker that has died, and start the needed ones again.

        Only a project in whose turn the worker died may have caused the death. `blames` says
        whether this kind of exit can have been caused by a project. A suspected project gets a
        worker of its own; the others return to this one.
        """
        supervisor = self._supervisor
        lost = self._projects_of(worker)
        guilty = [child for child in lost if self._had_turn(child)]
        if worker.is_dedicated:
            guilty = lost
        if worker.state == RETIRING or not blames:
            guilty = []
        for child in lost:
            if child in guilty and child.state in (UP, STARTING):
                self.suspect(child)
                supervisor.on_project_exit(
                    child, failed=True, how=f"{worker.part} died in its turn"
                )
            else:
                supervisor.on_project_exit(child, failed=False)

    def suspect(self, project: Child) -> None:
        """Give a project a worker of its own for some time, because it may have caused a death."""
        project.suspect_until = time.monotonic() + SUSPECT_S

    def _had_turn(self, project: Child) -> bool:
        table = self._supervisor.child_metrics.table
        if project.slot == NO_ROW:
            return False
        row = table.row(project.slot)
        return row[metrics.IN_TURN] > 0 or row[metrics.RUNNING_AHEAD] > 0

    def _recover_elsewhere(self, now: float) -> None:
        """Have other workers read the journals of workers that cannot start, for their projects."""
        supervisor = self._supervisor
        for part in self._shared:
            worker = supervisor.children[part]
            lately = now - self._asked.get(part, -_ASKED_AGAIN_S) < _ASKED_AGAIN_S
            if worker.state == UP or worker.restarts.failures < _GIVEN_UP_AFTER or lately:
                continue
            if any(child.in_journal for child in self._all_of(worker)) and self._ask(worker):
                self._asked[part] = now

    def on_retired(self, worker: Child) -> None:
        """Have the journal of a dedicated worker removed; this worker will not start again."""
        self._ask(worker)

    def _ask(self, worker: Child) -> bool:
        """Ask the least busy worker to read and remove the journal of another one."""
        supervisor = self._supervisor
        shared = [supervisor.children[part] for part in self._shared]
        running = [other for other in shared if other.state == UP and other is not worker]
        if running:
            order = m.RecoverJournal(worker.part.removeprefix("worker:"))
            supervisor.send_to(min(running, key=self._load), order)
        return bool(running)

    def on_journal_recovered(self, recovered: m.JournalRecovered) -> None:
        """Let others run the projects of a worker that cannot start; its journal has been read.

        If the worker has started meanwhile, it runs them itself.
        """
        part = f"worker:{recovered.name}"
        if part not in self._asked:
            return
        if recovered.reason:
            log.warning("the journal of %s cannot be read: %s", part, recovered.reason)
            return
        del self._asked[part]
        for project in self._all_of(self._supervisor.children[part]):
            project.in_journal = False
            if project.state == STARTING:
                self.run(project)

    def _all_of(self, worker: Child) -> list[Child]:
        """All projects that ran in a worker last."""
        children = self._supervisor.children.values()
        return [child for child in children if child.is_project and child.worker == worker.part]

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
