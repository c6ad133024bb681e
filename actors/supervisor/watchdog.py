"""The watchdog: pings all processes, ends those that hang, and notices those that have died."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from fieldbrook.actors import messages as m
from fieldbrook.actors.supervisor.child import UP, Child
from fieldbrook.observability import health

if TYPE_CHECKING:
    from fieldbrook.actors.supervisor.supervisor import Supervisor

log = logging.getLogger(__name__)

LONGEST_PING_S = 2.0
PINGS = 5  # pings within `watchdog_s`; a child that is silent for that time is killed
STUCK_FACTOR = 6  # a worker is killed if a step of a batch takes this many times `watchdog_s`
_OVERTIME_S = 3.0  # after its deadline; Wasmtime has not stopped the handler: kill the process


class Watchdog:
    """Watches the processes of a supervisor, which calls `check` every `ping_s` seconds."""

    def __init__(self, supervisor: Supervisor, watchdog_s: float) -> None:
        self.ping_s = min(LONGEST_PING_S, watchdog_s / PINGS)
        self._supervisor = supervisor
        self._limit_s = watchdog_s
        self._pings = 0
        self._looked = time.monotonic()

    def check(self, now: float) -> None:
        """Ping every process, and check how long it has been silent."""
        self._pings += 1
        # If the timer is late, this process itself was paused: then no child counts as silent.
        paused = now - self._looked > 3 * self.ping_s
        self._looked = now
        for child in list(self._supervisor.children.values()):
            if child.address is None:
                continue
            if self._supervisor.has_exited(child.address):  # see `runtime._remember_children`
                log.info("%s has died, and Thespian did not report it", child.part)
                self._supervisor.on_exit(child)
            elif child.state == UP:
                if paused:
                    child.heard = now
                self._ping(child, now - child.heard)

    def _ping(self, child: Child, silent_s: float) -> None:
        if silent_s > self._limit_s:
            self._raise(child, health.HUNG, f"silent for {silent_s:.0f} s: killed")
            self.kill(child)
        elif silent_s < 2 * self.ping_s:
            # Silent children get no further pings: with more than 20 queued messages to one child,
            # every send would block.
            self._supervisor.send_to(child, m.Ping(self._pings))
        elif silent_s > self._limit_s / 2:
            self._raise(child, health.HUNG, f"silent for {silent_s:.0f} s")

    def on_pong(self, pong: m.Ponged) -> None:
        """Note that a child answers; if it is a worker, check how long its current turn takes."""
        child = self._supervisor.children.get(pong.part)
        if child is not None:
            child.heard = time.monotonic()
            self._supervisor.board.clear(pong.part, health.HUNG)
            if child.kind == "worker":
                self._check_turn(child, pong)

    def _check_turn(self, worker: Child, pong: m.Ponged) -> None:
        """Check the duration of the running handler of a worker, or of the present step of a
        batch."""
        workers, for_s = self._supervisor.workers, pong.phase_s
        deadline_s = self._supervisor.settings.deadline_ms / 1000
        if pong.busy_s > deadline_s + _OVERTIME_S:
            reason = f"a handler ran for {pong.busy_s:.0f} s, beyond its deadline: worker killed"
            workers.raise_hung(worker, pong.project_id, health.HUNG_GUEST, reason)
            self.kill(worker)
        elif for_s > STUCK_FACTOR * self._limit_s:
            reason = f"{pong.phase} has taken {for_s:.0f} s: worker killed"
            workers.raise_hung(worker, pong.project_id, health.STUCK_BATCH, reason)
            self.kill(worker)
        elif for_s > self._limit_s / 2:
            reason = f"{pong.phase} has taken {for_s:.0f} s"
            workers.raise_hung(worker, pong.project_id, health.STUCK_BATCH, reason)
        else:
            workers.clear_hung(worker, health.STUCK_BATCH, health.HUNG_GUEST)

    def kill(self, child: Child) -> None:
        """Kill a child that does not answer; the next periodic check notices its end at the
        latest."""
        if child.address is not None:
            self._supervisor.kill_child(child.address)

    def _raise(self, child: Child, state: str, detail: str) -> None:
        self._supervisor.board.raise_(child.part, state, detail)
        self._supervisor.schedule_health()
