"""The runners of a simulated worker: they give turns like the threads of a real worker.

A slow turn is committed later and alone, while another runner serves the other projects.
"""

from __future__ import annotations

from collections.abc import Callable

from fieldbrook.actors.project.actor import ProjectActor
from fieldbrook.actors.worker.core import CARE_S, WorkerCore
from fieldbrook.actors.worker.runners import ALONE_S, SLICE_S, SLOW_S
from fieldbrook.core.errors import StoreError
from fieldbrook.observability import metrics
from tests.simulation.world.guests import Guests
from tests.simulation.world.machine import Process
from tests.simulation.world.network import Server

ROUND_S = 0.005


class SimulatedRunners:
    """Replaces `runners.Runners`."""

    def __init__(self, core: WorkerCore, server: Server, guests: Guests) -> None:
        self.core = core
        self._server = server
        self._guests = guests
        self._machine = guests.machine
        self._process: Process = server.process
        self._prepared: list[ProjectActor] = []
        self._slow: list[ProjectActor] = []
        self._scheduled_at = 0.0  # the time of the next step; 0.0 if there is none
        self._ended = False
        self.saved = False

    def start(self) -> None:
        self._server.on_arrival = self._wake
        self._wake()

    def current(self) -> tuple[float, str, float, int]:
        return 0.0, "", 0.0, 0

    def _wake(self) -> None:
        self._schedule(self._machine.delay() if self._machine.random.random() < 0.1 else 0.0)

    def _schedule(self, delay_s: float) -> None:
        at = self._machine.now + delay_s
        if self._ended or 0.0 < self._scheduled_at <= at:
            return
        self._scheduled_at = at
        self._machine.at(delay_s, self._process, lambda: self._safely(lambda: self._serve(at)))

    def _safely(self, step: Callable[[], None]) -> None:
        """End the process after a failure of a runner, as in `Runners._run`."""
        try:
            step()
        except StoreError as error:
            self._process.kill(f"a runner failed: {error}")

    def _serve(self, at: float) -> None:
        """One turn of the loop in `Runners._serve`."""
        if at != self._scheduled_at or self._ended:
            return  # an earlier step replaces this one
        self._scheduled_at = 0.0
        machine, core, ready = self._machine, self.core, self.core.ready
        requests = self._server.poll()
        if requests:
            core.arrive(requests)
        core.care(machine.now)
        ends_at = machine.now + ROUND_S
        for _ in range(len(ready)):
            project = ready.popleft()
            self._guests.slept = 0.0
            machine.pass_point("turn")
            core.run(project, SLICE_S if ready else ALONE_S)
            if self._guests.slept > SLOW_S:
                self._finish_later(project, self._guests.slept)
                break
            self._prepared.append(project)
            if machine.now >= ends_at:
                break
        if not self._slow or machine.random.random() < 0.5:
            self._commit()
        self._schedule(0.0 if ready or self._prepared else CARE_S)

    def _commit(self) -> None:
        if self._prepared:
            prepared, self._prepared = self._prepared, []
            self.core.commit(prepared)
            for project in prepared:
                self.core.done(project)

    def _finish_later(self, project: ProjectActor, seconds: float) -> None:
        self._machine.trace("%s: %s runs for %.3f s", self._process.name, project.part, seconds)
        self._slow.append(project)
        project.row[metrics.IN_TURN] = 1.0
        finish = lambda: self._finish_alone(project)  # noqa: E731
        self._machine.at(seconds, self._process, lambda: self._safely(finish))

    def _finish_alone(self, project: ProjectActor) -> None:
        if project in self._slow:
            self._slow.remove(project)
            project.row[metrics.IN_TURN] = 0.0
            self.core.commit([project])
            if self.core.done(project):
                self._wake()

    def stop(self, _limit_s: float) -> None:
        """Finish the turns, close the projects."""
        self._server.stop()
        self._commit()
        for project in list(self._slow):
            self._finish_alone(project)
        self._ended = True
        self.saved = self.core.close()
        self._server.close()
