"""The supervisor: the root actor, which starts all other processes and restarts those that die.

It opens no listening socket, no store and no thread of its own, because every child is a
fork of it and would inherit them.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import shutil
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from fieldbrook.actors import messages as m
from fieldbrook.actors.registry import PART as REGISTRY
from fieldbrook.actors.runtime import Address, NodeActor, is_gone
from fieldbrook.actors.supervisor.restarts import Restarts
from fieldbrook.core import clock
from fieldbrook.core.settings import Settings
from fieldbrook.observability import health, metrics
from fieldbrook.security import node_secrets
from fieldbrook.storage.project.outbox import is_parked, waiting_projects
from fieldbrook.system.process import name_process

log = logging.getLogger(__name__)

# Generous, because starts are slow on a busy machine and a restart would make them slower.
START_LIMIT_S = 30.0
# A chain imports 60 MB of libraries first, many times the work of other starts: killing a slow
# start on a busy machine would only repeat that work. After CHAIN_LATE_S the node serves
# without the chain.
CHAIN_START_LIMIT_S, CHAIN_LATE_S = 90.0, 10.0
RETIRE_LIMIT_S = 20.0
_SPARE_AGAIN_S = 1.0
LONGEST_PING_S = 2.0
PINGS = 5  # pings per `watchdog_s`, the time after which a silent child is killed
STUCK_FACTOR = 6  # a batch step of more than 6 times `watchdog_s` kills the project's process
_SECRETS_PINGS = 5  # the secrets are checked at every fifth ping
_HEALTH_S = 0.1  # health changes within this time are sent together
_DISK_AGAIN = 1.25  # the disk condition clears when this multiple of the reserve is free
_OVERTIME_S = 3.0  # a handler this far over its deadline was not stopped by the engine: kill it

_CLASSES = {
    "registry": "fieldbrook.actors.registry.RegistryActor",
    "project": "fieldbrook.actors.project.actor.ProjectActor",
    "http": "fieldbrook.gateway.http.server.HttpGateway",
    "mqtt": "fieldbrook.gateway.mqtt.gateway.MqttGateway",
    "scheduler": "fieldbrook.gateway.schedule.ticker.Scheduler",
    "chain": "fieldbrook.chain.process.ChainGateway",
}

TAKER = "mqtt:0"  # the part that delivers outbox entries, except chain transactions

DOWN, STARTING, UP, RETIRING, BACKOFF = "down", "starting", "up", "retiring", "backoff"


@dataclass(slots=True)
class Child:
    """One process of the tree and its state."""

    part: str
    state: str = DOWN
    address: Address | None = None
    pid: int | None = None
    path: str | None = None
    generation: int = 0
    restarts: Restarts = field(default_factory=Restarts)
    since: float = 0.0
    heard: float = 0.0
    wanted: bool = False  # it was requested while it was retiring
    # Takers that had outbox entries during this generation; they may have been delivered since.
    sent_to: set[str] = field(default_factory=set)
    removed: bool = False
    slot: int = metrics.NO_ROW  # its metrics row, while it has a process
    account_id: int = 0  # the project's owner; 0 until a gateway has named it
    late: bool = False  # a chain that has been starting for more than CHAIN_LATE_S

    @property
    def kind(self) -> str:
        """`registry`, `http`, `mqtt`, `scheduler`, `chain` or `project`."""
        return self.part.partition(":")[0]

    @property
    def is_gateway(self) -> bool:
        """Whether it must be told the routes to projects."""
        return self.kind in ("http", "mqtt", "scheduler", "chain")

    @property
    def is_settled(self) -> bool:
        """Whether the boot no longer waits for it: it is up, or it is a late or failed chain.

        The node can serve while chains are still starting, because no other part needs them.
        """
        return (
            self.state == UP or self.late or (self.kind == "chain" and self.restarts.failures > 0)
        )

    @property
    def project_id(self) -> int:
        """The project's id; only for projects."""
        return int(self.part.partition(":")[2])

    def enter(self, state: str) -> None:
        """Change the state and note the time."""
        self.state, self.since = state, time.monotonic()


@dataclass(frozen=True, slots=True)
class _Timer:
    what: str
    part: str
    generation: int


class Supervisor(NodeActor):
    """Starts the registry, then the gateways, and projects on demand."""

    def __init__(self) -> None:
        super().__init__()
        self._children: dict[str, Child] = {}
        self._waiting_for_boot: Address | None = None
        self._waiting_for_drain: Address | None = None
        self._draining: set[str] = set()
        self._removed: set[int] = set()  # project ids are never reused
        self._spares: list[Address] = []
        self._exiting = False
        self._pings = 0
        self._parked = False
        self._pinged = time.monotonic()
        self._board = health.Board(time.monotonic, clock.now_ms)
        self._clock = health.ClockWatch(time.monotonic(), clock.now_ms())
        self._telling_health = False
        self._slots = metrics.Slots()
        self._letters: dict[int, float] = {}  # dead letters of projects that have no process

    # ---------------------------------------------------------------- messages

    def receive(self, message: object, sender: Address) -> None:
        """See `actors.messages`."""
        match message:
            case m.Boot():
                self._boot(message, sender)
            case m.Drain():
                self._drain(sender)
            case m.Inspect():
                self.send(sender, self._inspect())
            case m.Ready():
                self._ready(message)
            case m.Failed():
                self._failed(message)
            case m.Activate():
                self._activate(message, sender)
            case m.Idle(project_id=project_id, generation=generation):
                self._idle(project_id, generation)
            case m.OutboxFilled(project_id=project_id, generation=generation, taker=taker):
                self._sent(project_id, generation, taker)
            case m.ProjectRemoved(project_id=project_id):
                self._remove(project_id)
            case m.Ponged():
                self._ponged(message)
            case m.HealthReported():
                self._reported(message)
            case m.Drained():
                self._drained(sender)
            case _:
                self.unexpected(message, sender)

    def woken(self, payload: object) -> None:
        """Handle a timer; a timer of an earlier generation of a child is ignored."""
        match payload:
            case "ping":
                self._ping()
            case "spares":
                self._make_spares()
            case "health":
                self._tell_health()
            case _Timer(what=what, part=part, generation=generation):
                child = self._children.get(part)
                if child is not None and child.generation == generation:
                    self._timeout(what, child)

    def child_exited(self, address: Address) -> None:
        """Restart the child that died.

        A second notice of one death, or the notice of an earlier generation, matches no child.
        """
        for child in self._children.values():
            if child.address is not None and child.address == address:
                self._exited(child)
                return
        if address in self._spares:
            self._spares.remove(address)
            self.wake_after(_SPARE_AGAIN_S, "spares")

    def stopping(self) -> None:
        """Stop restarting children, because they exit with this process."""
        self._exiting = True

    # ---------------------------------------------------------------- boot and drain

    def _boot(self, boot: m.Boot, sender: Address) -> None:
        name_process("fb-root")
        self._settings: Settings = boot.settings
        self._count(boot.settings)
        self._run_dir: Path = boot.run_dir
        self._ping_s = min(LONGEST_PING_S, boot.settings.watchdog_s / PINGS)
        self._board.hold_s = min(health.HOLD_S, boot.settings.watchdog_s / 2)
        self._waiting_for_boot = sender
        self._parked = is_parked(boot.settings.data)
        if self._parked:
            log.warning(
                "this data was restored: what handlers send is parked until "
                "`fieldbrook outbox release`"
            )
        http = [f"http:{n}" for n in range(boot.settings.http_processes)]
        chains = [f"chain:{chain.id}" for chain in boot.settings.chains]
        parts = [REGISTRY, *http, TAKER, "scheduler", *chains]
        for part in parts:
            self._children[part] = Child(part)
        self._start(self._children[REGISTRY])
        self.wake_after(self._ping_s, "ping")

    def _booted(self) -> None:
        fixed = [child for child in self._children.values() if child.kind != "project"]
        if self._waiting_for_boot is not None and all(child.is_settled for child in fixed):
            pids = {child.part: child.pid for child in fixed if child.pid is not None}
            self.send(self._waiting_for_boot, m.Booted({"supervisor": os.getpid(), **pids}))
            self._waiting_for_boot = None
            for project_id in waiting_projects(self._settings.data / "projects"):
                part = f"project:{project_id}"
                child = self._children.setdefault(part, Child(part))
                if child.state == DOWN:
                    self._start(child)
            self._make_spares()

    def _drain(self, sender: Address) -> None:
        self._exiting = True
        self._waiting_for_drain = sender
        gateways = [c for c in self._children.values() if c.is_gateway and c.state == UP]
        self._draining = {child.part for child in gateways}
        for child in gateways:
            self._tell(child, m.Drain())
        self._drained(None)

    def _drained(self, sender: Address | None) -> None:
        for child in self._children.values():
            if sender is not None and child.address is not None and child.address == sender:
                self._draining.discard(child.part)
                log.debug("drained: %s; still draining: %s", child.part, self._draining)
        if not self._draining and self._waiting_for_drain is not None:
            self.send(self._waiting_for_drain, m.Drained())
            self._waiting_for_drain = None

    def _inspect(self) -> m.Inspected:
        now = time.monotonic()
        return m.Inspected(
            {
                child.part: m.ChildState(
                    child.state,
                    child.pid,
                    child.generation,
                    child.restarts.failures,
                    now - child.since,
                )
                for child in self._children.values()
            }
        )

    # ---------------------------------------------------------------- metrics

    def _count(self, settings: Settings) -> None:
        """Create the metrics table; every child is a fork and shares it."""
        self._table = metrics.shared.table = metrics.Table()
        self._slots = metrics.Slots(named=settings.metrics_projects)
        slot, name = self._slots.take("supervisor")
        self._table.name(slot, name)
        self._table.attach(slot)
        metrics.put(metrics.UP, 1)

    def _take_row(self, child: Child) -> None:
        child.slot, name = self._slots.take(child.part)
        if child.slot == metrics.NO_ROW:
            return
        self._table.name(child.slot, name)
        self._table.row(child.slot)[metrics.STARTS] += 1
        if child.kind == "project":
            self._letters.pop(child.project_id, None)

    def _leave_row(self, child: Child) -> None:
        if child.slot == metrics.NO_ROW:
            return
        row = self._table.row(child.slot)
        if child.kind == "project" and row[metrics.LETTERS]:
            self._letters[child.project_id] = row[metrics.LETTERS]
        self._table.detach(child.slot)
        self._slots.give_back(child.part, child.slot)
        child.slot = metrics.NO_ROW

    def _count_projects(self) -> None:
        states = collections.Counter(
            c.state for c in self._children.values() if c.kind == "project"
        )
        for state, column in metrics.PROJECT_STATES.items():
            metrics.put(column, states[state])
        metrics.put(metrics.LETTERS_AT_REST, sum(self._letters.values()))

    # ---------------------------------------------------------------- a child's life

    def _start(self, child: Child) -> None:
        if self._exiting:
            return
        self._take_row(child)
        child.generation += 1
        child.wanted = child.late = False
        child.sent_to = set()
        child.enter(STARTING)
        child.heard = child.since
        child.address = self._new_process(child.kind)
        start = m.Start(child.part, child.generation, self._settings, self._run_dir, child.slot)
        self._tell(child, start)
        self._later(CHAIN_LATE_S if child.kind == "chain" else START_LIMIT_S, "started?", child)

    def _new_process(self, kind: str) -> Address:
        if kind == "project" and self._spares:
            return self._spares.pop()
        return self.createActor(_CLASSES[kind])

    def _make_spares(self) -> None:
        """Start spare project processes.

        Half of the time that a project's first event waits is work common to all projects.
        """
        while len(self._spares) < self._settings.spare_projects and not self._exiting:
            spare = self.createActor(_CLASSES["project"])
            self.send(spare, m.Prepare(self._settings))
            self._spares.append(spare)

    def _ready(self, ready: m.Ready) -> None:
        child = self._children.get(ready.part)
        if child is None or child.generation != ready.generation:
            return
        child.pid, child.path = ready.pid, ready.path
        child.enter(UP)
        if child.slot != metrics.NO_ROW:
            self._table.row(child.slot)[metrics.UP] = 1
        child.heard = child.since
        self._board.clear(child.part, health.DOWN, health.CANNOT_START, health.HUNG)
        self._board.clear(child.part, health.STUCK_BATCH, health.HUNG_GUEST)
        self._board.report(child.part, {})
        self._health_changes()
        if child.part == REGISTRY:
            for other in self._children.values():
                if other.is_gateway and other.state == DOWN:
                    self._start(other)
        elif child.is_gateway:
            for other in self._children.values():
                if other.kind == "project" and other.state == UP:
                    self._tell(child, m.RouteTo(other.project_id, other.path))
                    self._tell_takers(other, child.part)
        elif child.removed:
            self._retire(child)
        else:
            self._tell_gateways(m.RouteTo(child.project_id, child.path))
        self._booted()
        if child.kind == "project":
            self._make_spares()

    def _failed(self, failed: m.Failed) -> None:
        if self._waiting_for_boot is not None:
            self.send(self._waiting_for_boot, m.BootFailed(failed.part, failed.reason))
            self._waiting_for_boot = None
            self._exiting = True
            return
        child = self._children.get(failed.part)
        if child is not None and child.address is not None:
            self._raise_condition(child, health.CANNOT_START, failed.reason)
            self.stop_child(child.address)

    def _exited(self, child: Child) -> None:
        lived_s = time.monotonic() - child.since if child.state == UP else 0.0
        retired = child.state == RETIRING
        if child.slot != metrics.NO_ROW and not (retired or self._exiting or child.removed):
            self._table.row(child.slot)[metrics.DEATHS] += 1
        self._leave_row(child)
        how = "" if child.address is None else self.how_it_ended(child.address)
        child.address = child.pid = None
        if child.kind == "project":
            self._close_route(child)
        self._draining.discard(child.part)
        self._drained(None)
        if self._exiting:
            return
        if child.removed:
            self._forget(child)
        elif retired:
            self._board.remove(child.part)
            child.enter(DOWN)
            if child.wanted:
                self._start(child)
        else:
            self._restart(child, lived_s, how)

    def _restart(self, child: Child, lived_s: float, how: str) -> None:
        child.restarts = child.restarts.after_exit(lived_s)
        delay_s = child.restarts.delay_s
        died = (
            f"{how or 'it died'} after {lived_s:.1f} s ({child.restarts.failures} in a row); "
            f"starting again in {delay_s:.1f} s"
        )
        log.info("%s: %s", child.part, died)
        self._raise_condition(child, health.DOWN, died)
        if child.kind == "project" and child.restarts.unreachable:
            self._tell_gateways(m.Unreachable(child.project_id))
        if delay_s == 0:
            self._start(child)
        else:
            child.enter(BACKOFF)
            self._later(delay_s, "restart", child)
        self._booted()

    def _timeout(self, what: str, child: Child) -> None:
        match what:
            case "restart" if child.state == BACKOFF:
                self._start(child)
            case "started?" if child.state == STARTING and child.kind == "chain" and not child.late:
                child.late = True
                self._later(CHAIN_START_LIMIT_S - CHAIN_LATE_S, "started?", child)
                self._booted()
            case "started?" if child.state == STARTING:
                limit_s = CHAIN_START_LIMIT_S if child.late else START_LIMIT_S
                reason = f"it did not start within {limit_s:.0f} s"
                self._raise_condition(child, health.CANNOT_START, reason)
                self._end(child)
            case "retired?" if child.state == RETIRING:
                log.error("%s did not retire within %.0f s", child.part, RETIRE_LIMIT_S)
                self._end(child)

    def _end(self, child: Child) -> None:
        """Kill a child that does not answer.

        The pid of a child that has not reported Ready is not known: it is asked to exit.
        """
        if child.pid is not None:
            if is_gone(child.pid):
                self._exited(child)
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)
        elif child.address is not None:
            self.stop_child(child.address)

    def _later(self, delay_s: float, what: str, child: Child) -> None:
        self.wake_after(delay_s, _Timer(what, child.part, child.generation))

    # ---------------------------------------------------------------- projects

    def _activate(self, asked: m.Activate, sender: Address) -> None:
        project_id = asked.project_id
        if project_id in self._removed and f"project:{project_id}" not in self._children:
            self.send(sender, m.Gone(project_id))
            return
        part = f"project:{project_id}"
        child = self._children.setdefault(part, Child(part))
        child.account_id = asked.account_id
        match child.state:
            case "up":
                self.send(sender, m.RouteTo(project_id, child.path))
            case "down" if asked.processes is not None and not self._has_place(asked):
                self.send(sender, m.QuotaReached(project_id, asked.processes))
            case "down":
                self._start(child)
            case "retiring":
                child.wanted = True
            case "backoff" if child.restarts.unreachable:
                self.send(sender, m.Unreachable(project_id))

    def _has_place(self, asked: m.Activate) -> bool:
        """Whether the account may run one more project; if not, its projects get YieldProcess."""
        running = [
            child
            for child in self._children.values()
            if child.account_id == asked.account_id
            and child.kind == "project"
            and child.state != DOWN
        ]
        if asked.processes is None or len(running) < asked.processes:
            return True
        for child in running:
            if child.state == UP:
                self._tell(child, m.YieldProcess())
        return False

    def _idle(self, project_id: int, generation: int) -> None:
        child = self._children.get(f"project:{project_id}")
        if child is not None and child.state == UP and child.generation == generation:
            self._retire(child)

    def _sent(self, project_id: int, generation: int, taker: str) -> None:
        child = self._children.get(f"project:{project_id}")
        if child is not None and child.generation == generation:
            child.sent_to.add(taker)
            self._tell_takers(child, taker or TAKER)

    def _tell_takers(self, project: Child, part: str) -> None:
        """Send DeliverOutbox to one part if the project has outbox entries for it."""
        taker = self._children.get(part)
        if taker is None or self._parked:  # a chain that the settings no longer have
            return
        wanted = "" if part == TAKER else part
        if wanted in project.sent_to and project.path is not None and taker.state == UP:
            self._tell(taker, m.DeliverOutbox(project.project_id, project.path))

    def _remove(self, project_id: int) -> None:
        part = f"project:{project_id}"
        child = self._children.setdefault(part, Child(part))
        child.removed = True
        self._removed.add(project_id)
        if child.state == UP:
            self._retire(child)
        elif child.state in (DOWN, BACKOFF):
            self._forget(child)

    def _retire(self, child: Child) -> None:
        child.enter(RETIRING)
        self._close_route(child)
        self._tell(child, m.Retire())
        self._later(RETIRE_LIMIT_S, "retired?", child)

    def _close_route(self, child: Child) -> None:
        child.path = None
        self._tell_gateways(m.RouteTo(child.project_id, None))

    def _forget(self, child: Child) -> None:
        del self._children[child.part]
        self._letters.pop(child.project_id, None)
        self._board.remove(child.part)
        self._health_changes()
        store = self._settings.data / "projects" / str(child.project_id)
        shutil.rmtree(store, ignore_errors=True)  # the registry removes the rest at its next start
        self._tell_gateways(m.Gone(child.project_id))

    def _tell(self, child: Child, message: object) -> None:
        if child.address is not None:
            self.send(child.address, message)

    def _tell_gateways(self, message: m.RouteTo | m.Unreachable | m.Gone) -> None:
        for child in self._children.values():
            if child.is_gateway and child.state == UP:
                self._tell(child, message)

    # ---------------------------------------------------------------- watching

    def _ping(self) -> None:
        self._pings += 1
        if self._parked:
            self._look_whether_released()
        now = time.monotonic()
        # A late timer means that this process itself was paused, so no child counts as silent.
        paused = now - self._pinged > 3 * self._ping_s
        self._pinged = now
        limit_s = self._settings.watchdog_s
        for child in list(self._children.values()):
            if child.state != UP:
                continue
            if paused:
                child.heard = now
            silent_s = now - child.heard
            if silent_s >= 2 * self._ping_s and child.pid is not None and is_gone(child.pid):
                # When two children die at once, Thespian may report only one of them.
                log.info("%s has died, and nobody said so", child.part)
                self._exited(child)
            elif silent_s > limit_s:
                self._raise_condition(child, health.HUNG, f"silent for {silent_s:.0f} s: killed")
                self._end(child)
            elif silent_s < 2 * self._ping_s:
                # Silent children get no more pings: more than 20 queued messages to one target
                # would stall every send.
                self._tell(child, m.Ping(self._pings))
            elif silent_s > limit_s / 2:
                self._raise_condition(child, health.HUNG, f"silent for {silent_s:.0f} s")
        self._look_around(now)
        self._count_projects()
        if not self._exiting:
            self.wake_after(self._ping_s, "ping")

    def _look_whether_released(self) -> None:
        self._parked = is_parked(self._settings.data)
        if not self._parked:
            log.info("released: what handlers have sent is delivered")
            for child in self._children.values():
                if child.kind == "project":
                    for taker in child.sent_to:
                        self._tell_takers(child, taker or TAKER)

    def _ponged(self, pong: m.Ponged) -> None:
        child = self._children.get(pong.part)
        if child is None:
            return
        child.heard = time.monotonic()
        self._board.clear(pong.part, health.HUNG)
        if pong.busy_s > self._settings.deadline_ms / 1000 + _OVERTIME_S:
            reason = f"a handler runs for {pong.busy_s:.0f} s, far over its deadline: killed"
            self._raise_condition(child, health.HUNG_GUEST, reason)
            self._end(child)
        self._look_at_batch(child, pong.phase, pong.phase_s)

    def _look_at_batch(self, child: Child, phase: str, for_s: float) -> None:
        """Check how long a batch's current step takes: commit, answer, load a module."""
        limit_s = self._settings.watchdog_s
        if for_s > STUCK_FACTOR * limit_s:
            self._raise_condition(child, health.STUCK_BATCH, f"{phase} takes {for_s:.0f} s: killed")
            self._end(child)
        elif for_s > limit_s / 2:
            self._raise_condition(child, health.STUCK_BATCH, f"{phase} takes {for_s:.0f} s")
        else:
            self._board.clear(child.part, health.STUCK_BATCH)

    # ---------------------------------------------------------------- health

    def _raise_condition(self, child: Child, state: str, detail: str) -> None:
        self._board.raise_(child.part, state, detail)
        self._health_changes()

    def _reported(self, report: m.HealthReported) -> None:
        child = self._children.get(report.part)
        if child is not None and child.generation == report.generation:
            self._board.report(report.part, report.conditions)
            self._health_changes()

    def _look_around(self, now: float) -> None:
        """Check the conditions that no child reports: disk, parked outbox, clock, secrets."""
        data, board = self._settings.data, self._board
        reserve = self._settings.disk_reserve_bytes
        with contextlib.suppress(OSError):
            free = shutil.disk_usage(data).free
            if free < reserve:
                reason = f"{free >> 20} MiB are free, less than disk_reserve_bytes"
                board.raise_(health.DISK, health.DISK_LOW, reason)
            elif free >= reserve * _DISK_AGAIN:
                board.clear(health.DISK, health.DISK_LOW)
        self._look_at_parked()
        if self._clock.look(now, clock.now_ms()):
            reason = f"by {self._clock.by_ms / 1000:.0f} s"
            board.raise_(health.CLOCK, health.CLOCK_BACK, reason)
        else:
            board.clear(health.CLOCK, health.CLOCK_BACK)
        if self._pings % _SECRETS_PINGS == 1:
            wrong = node_secrets.unreadable(data / "secrets")
            if wrong:
                board.raise_(health.SECRETS, health.UNREADABLE, "; ".join(wrong))
            else:
                board.clear(health.SECRETS, health.UNREADABLE)
        board.end_cleared()
        if board.changed:
            self._health_changes()

    def _look_at_parked(self) -> None:
        """Count the outbox entries that a restored node holds back.

        The metrics have them all, because projects with outbox entries are kept running.
        """
        if not self._parked:
            metrics.put(metrics.OUTBOX_PARKED, 0)
            self._board.clear(health.OUTBOX, health.PARKED)
            return
        waiting = [row.numbers[metrics.OUTBOX_ENTRIES] for row in self._table.read()]
        count = int(sum(waiting))
        metrics.put(metrics.OUTBOX_PARKED, count)
        detail = f"{count} parked, of {sum(map(bool, waiting))} projects; this data was restored"
        self._board.update(health.OUTBOX, health.PARKED, detail)

    def _health_changes(self) -> None:
        """Schedule one message to the HTTP gateways for all changes of the next 0.1 s."""
        if not self._telling_health:
            self._telling_health = True
            self.wake_after(_HEALTH_S, "health")

    def _tell_health(self) -> None:
        self._telling_health = self._board.changed = False
        children = self._children.values()
        shown = tuple(health.worst(self._board.active))
        news = m.HealthChanged(
            shown,
            len(self._board.active) - len(shown),
            self._board.recent,
            {child.part: child.state for child in children if child.kind != "project"},
            collections.Counter(child.state for child in children if child.kind == "project"),
        )
        for child in children:
            if child.kind == "http" and child.state == UP:
                self._tell(child, news)
