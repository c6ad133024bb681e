"""The supervisor: the root actor, which starts all other processes and restarts those that die.

It opens no listening socket, no store and no thread of its own, because every child is a
fork of it and would inherit them.
"""

from __future__ import annotations

import collections
import logging
import os
import time
from pathlib import Path

import msgspec

from fieldbrook.actors import messages as m
from fieldbrook.actors.registry import PART as REGISTRY
from fieldbrook.actors.runtime import Address, NodeActor, describe_exit
from fieldbrook.actors.shared_journal import DISK_FAILED
from fieldbrook.actors.supervisor.child import BACKOFF, CLASSES, DOWN, RETIRING, STARTING, UP, Child
from fieldbrook.actors.supervisor.child_metrics import ChildMetrics
from fieldbrook.actors.supervisor.cluster_health import ClusterHealth
from fieldbrook.actors.supervisor.node_checks import NodeChecks
from fieldbrook.actors.supervisor.projects import CLUSTER, MQTT_PART, RETIRE_LIMIT_S, Projects
from fieldbrook.actors.supervisor.watchdog import Watchdog
from fieldbrook.actors.supervisor.workers import Workers
from fieldbrook.core import clock
from fieldbrook.core.settings import Settings
from fieldbrook.observability import health, node_log
from fieldbrook.storage.project.outbox import is_parked
from fieldbrook.system.kernel import name_process

log = logging.getLogger(__name__)

# Long, because starts are slow on a busy machine and restarts would make them slower.
START_LIMIT_S = 30.0
# A chain imports 60 MB of libraries first, many times the work of other starts: killing a slow
# start on a busy machine would only repeat that work. After CHAIN_LATE_S the node serves
# without the chain.
CHAIN_START_LIMIT_S, CHAIN_LATE_S = 90.0, 10.0
_HEALTH_S = 0.1  # health changes within this time are sent together


class _Timer(msgspec.Struct, frozen=True):
    what: str
    part: str
    generation: int


class Supervisor(NodeActor):
    """Starts the registry, then the gateways, and projects on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.children: dict[str, Child] = {}
        self._boot_requester: Address | None = None
        self._drain_requester: Address | None = None
        self._draining: set[str] = set()
        self.exiting = False
        self.board = health.Board(time.monotonic, clock.now_ms)
        self._health_scheduled = False
        self._cluster_health = ClusterHealth(self.board)
        self.child_metrics = ChildMetrics()
        self.projects = Projects(self)
        self.workers = Workers(self)
        self.hosts: m.HostsUp | None = None  # only set on a host of a cluster
        self._host, self._is_founder = "", False

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
                self._on_ready(message)
            case m.Failed():
                self._on_failed(message)
            case m.Activate():
                self.projects.activate(message, sender)
            case m.Idle(project_id=project_id, generation=generation):
                self.projects.on_idle(project_id, generation)
            case m.ProjectEnded():
                self._on_project_ended(message)
            case m.OutboxFilled(project_id=project_id, generation=generation, consumer=consumer):
                self.projects.on_outbox_filled(project_id, generation, consumer)
            case m.ProjectRemoved(project_id=project_id):
                self.projects.remove(project_id)
            case m.DedicatedProjects(project_ids=project_ids):
                self.workers.dedicated = project_ids
                self.workers.settle()
            case m.JournalRecovered():
                self.workers.on_journal_recovered(message)
            case m.HostsUp():
                self._on_hosts(message)
            case m.RunsOn():
                self.projects.on_runs_on(message)
            case m.ClusterConditions(conditions=conditions):
                self._cluster_health.apply(conditions)
                self.schedule_health()
            case m.RemoteRoute():
                self.projects.on_remote_route(message)
            case m.RemoteRefusal(answer=answer):
                self.projects.on_remote_refusal(answer)
            case m.Ponged():
                self._watchdog.on_pong(message)
            case m.HealthReported():
                self._on_health_report(message)
            case m.Drained():
                self._on_drained(sender)
            case _:
                self.unexpected(message, sender)

    def woken(self, payload: object) -> None:
        """Handle a timer; a timer of an earlier generation of a child is ignored."""
        match payload:
            case "ping":
                self._look()
            case "health":
                self._send_health()
            case _Timer(what=what, part=part, generation=generation):
                child = self.children.get(part)
                if child is not None and child.generation == generation:
                    self._on_timer(what, child)

    def child_exited(self, address: Address) -> None:
        """Restart the child that died.

        If a death is reported twice, or concerns an earlier generation, there is no such child.
        """
        for child in self.children.values():
            if child.address is not None and child.address == address:
                self.on_exit(child)
                return

    def stopping(self) -> None:
        """Stop restarting children, because they exit with this process."""
        self.exiting = True

    # ---------------------------------------------------------------- boot and drain

    def _boot(self, boot: m.Boot, sender: Address) -> None:
        name_process("fb-root")
        node_log.name("supervisor")
        self.settings: Settings = boot.settings
        self.child_metrics.create(boot.settings.metrics_projects)
        self._checks = NodeChecks(boot.settings, self.board, self.child_metrics.table)
        self.run_dir: Path = boot.run_dir
        self._watchdog = Watchdog(self, boot.settings.watchdog_s)
        self.board.hold_s = min(health.HOLD_S, boot.settings.watchdog_s / 2)
        self._boot_requester = sender
        self.projects.parked = is_parked(boot.settings.data)
        if self.projects.parked:
            log.warning(
                "this data was restored from a backup: no outbox entry is delivered until you run "
                "`fieldbrook outbox release`"
            )
        http = [f"http:{n}" for n in range(boot.settings.http_processes)]
        chains = [f"chain:{chain.id}" for chain in boot.settings.chains]
        workers = self.workers.parts(boot.settings.worker_processes)
        parts = [REGISTRY, *workers, *http, MQTT_PART, "scheduler", *chains]
        for part in parts:
            self.children[part] = Child(part)
        # The first one is started now; each other one is started when the one before it is ready.
        self._first = [REGISTRY]
        if boot.cluster is not None:
            self._first.insert(0, CLUSTER)
        if boot.cluster is not None and boot.cluster.formed:
            self._first.insert(0, "engine")
            self._host, self._is_founder = boot.cluster.me, boot.cluster.is_founder
        for part in self._first:
            self.children.setdefault(part, Child(part))
        self.start(self.children[self._first[0]])
        self.wake_after(self._watchdog.ping_s, "ping")

    def _check_boot(self) -> None:
        children = self.children.values()
        if self._boot_requester is not None and all(child.is_settled for child in children):
            self._tell_booted()
            parts = [child for child in children if not child.is_project]
            pids = {child.part: child.pid for child in parts if child.pid is not None}
            self.send(self._boot_requester, m.Booted({"supervisor": os.getpid(), **pids}))
            self._boot_requester = None
            self.projects.start_waiting()

    def _tell_booted(self) -> None:
        """Let this host own projects: its start does not use processor time any more."""
        if CLUSTER in self.children:
            self.send_to(self.children[CLUSTER], m.Booted({}))

    def _drain(self, sender: Address) -> None:
        self.exiting = True
        self._drain_requester = sender
        self.projects.give_up_all()
        gateways = [c for c in self.children.values() if c.is_gateway and c.state == UP]
        self._draining = {child.part for child in gateways}
        for child in gateways:
            self.send_to(child, m.Drain())
        self._on_drained(None)

    def _on_drained(self, sender: Address | None) -> None:
        for child in self.children.values():
            if sender is not None and child.address is not None and child.address == sender:
                self._draining.discard(child.part)
                log.debug("drained: %s; still draining: %s", child.part, self._draining)
        self.check_drained()

    def check_drained(self) -> None:
        """Answer `Drain` when all events are answered and all projects are given up."""
        is_over = not self._draining and self.projects.are_given_up
        if is_over and self._drain_requester is not None:
            self.send(self._drain_requester, m.Drained())
            self._drain_requester = None

    def _inspect(self) -> m.Inspected:
        return m.Inspected(
            {
                child.part: m.ChildState(
                    child.state, child.pid, child.generation, child.restarts.failures
                )
                for child in self.children.values()
            }
        )

    # ---------------------------------------------------------------- a child's life

    def start(self, child: Child) -> None:
        """Start the process of a child, or the actor of a project, as its next generation."""
        if self.exiting:
            return
        self.child_metrics.assign(child)
        child.generation += 1
        child.wanted = child.late = False
        child.consumers = set()
        child.enter(STARTING)
        child.heard = child.since
        if child.is_project:
            self.projects.tell_running(child)
            self.workers.run(child)
        else:
            child.address = self.createActor(CLASSES[child.kind])
            start = m.Start(
                *(child.part, child.generation, self.settings, self.run_dir, child.slot),
                self._host,
                self._is_founder,
            )
            self.send_to(child, start)
        self.set_timer(CHAIN_LATE_S if child.kind == "chain" else START_LIMIT_S, "started?", child)

    def _on_ready(self, ready: m.Ready) -> None:
        child = self.children.get(ready.part)
        if child is None or child.generation != ready.generation:
            return
        pid: int | None = ready.pid
        path = ready.path
        if child.is_project:
            worker = self.children.get(child.worker)
            if worker is None or worker.state != UP or child.state not in (STARTING, RETIRING):
                return  # its worker has died meanwhile
            pid, path = worker.pid, worker.path
        elif child.address is None:
            return  # it has died meanwhile
        child.pid, child.path = pid, path
        child.enter(UP)
        self.child_metrics.add_ready(child)
        child.heard = child.since
        self.board.clear(child.part, health.DOWN, health.CANNOT_START, health.HUNG)
        self.board.clear(child.part, health.STUCK_BATCH, health.HUNG_GUEST, health.CHAIN_BROKEN)
        self.board.report(child.part, {})
        self.schedule_health()
        if child.part in self._first[:-1]:
            following = self.children[self._first[self._first.index(child.part) + 1]]
            if following.state == DOWN:
                self.start(following)
            elif self.hosts is not None and child.part == CLUSTER:
                self.projects.tell_all_running()
                self.send_to(following, self.hosts)
                if self._boot_requester is None:
                    self._tell_booted()
        elif child.part == REGISTRY:
            if self.hosts is not None:
                self.send_to(child, self.hosts)
            for other in self.children.values():
                if not other.is_project and other.state == DOWN:
                    self.start(other)
        elif child.kind == "worker":
            self.workers.on_ready(child)
        elif child.is_gateway:
            self.projects.on_gateway_ready(child)
        else:
            self.projects.on_ready(child)
        self._check_boot()

    def _on_failed(self, failed: m.Failed) -> None:
        child = self.children.get(failed.part)
        if child is None:
            return
        if self._boot_requester is not None and not (child.is_project or child.is_dedicated):
            self.send(self._boot_requester, m.BootFailed(failed.part, failed.reason))
            self._boot_requester = None
            self.exiting = True
            return
        self._raise_condition(child, failed.state, failed.reason)
        if child.is_project:
            self.on_project_exit(child, failed=True, how=failed.reason)
        elif child.address is not None:
            self.stop_child(child.address)

    def on_exit(self, child: Child) -> None:
        """Start a child again whose process has ended, if it is still needed."""
        lived_s = time.monotonic() - child.since if child.state == UP else 0.0
        retired = child.state == RETIRING
        self.child_metrics.release(child, died=not (retired or self.exiting))
        code = None if child.address is None else self.exit_code(child.address)
        child.address = child.pid = child.path = None
        self._draining.discard(child.part)
        self._on_drained(None)
        if child.kind == "worker" and not self.exiting:
            if not retired:
                child.enter(BACKOFF)  # until the worker has started again and read its journal
            self.workers.on_exit(child, blames=code != DISK_FAILED)
        if self.exiting:
            return
        if retired:
            self._end_retired(child)
        else:
            self._restart(child, lived_s, describe_exit(code))

    def retire(self, child: Child) -> None:
        """Have the process of a child end; it is started again only if it is `wanted`."""
        if child.address is not None:
            child.enter(RETIRING)
            self.stop_child(child.address)
            self.set_timer(RETIRE_LIMIT_S, "retired?", child)

    def _end_retired(self, child: Child) -> None:
        self.board.remove(child.part)
        self.schedule_health()
        child.enter(DOWN)
        if child.wanted:
            self.start(child)
        elif child.kind == "worker":  # a dedicated worker
            del self.children[child.part]
            for socket in self.run_dir.glob(f"w{child.part.removeprefix('worker:')}.*"):
                socket.unlink(missing_ok=True)  # otherwise readers of stores would wait for it
            self.workers.on_retired(child)

    def _on_project_ended(self, ended: m.ProjectEnded) -> None:
        child = self.children.get(ended.part)
        if child is not None and child.generation == ended.generation:
            child.in_journal = False
            if ended.failed:
                self.workers.suspect(child)
            self.on_project_exit(child, failed=ended.failed, how="its actor failed")

    def on_project_exit(self, child: Child, *, failed: bool, how: str = "") -> None:
        """Note that a project does not run any more, and start it again if it is needed.

        If the project has not `failed`, it has retired, or its worker died during the turn of
        another project.
        """
        lived_s = time.monotonic() - child.since if child.state == UP else 0.0
        needed = child.wanted or (child.state != RETIRING and bool(child.consumers))
        needed = needed or child.state == STARTING
        self.child_metrics.release(child, died=failed and not (self.exiting or child.removed))
        child.pid = None
        if child.state != RETIRING:  # gateways of a retiring project have no route any more
            self.projects.close_route(child)
        if self.exiting:
            if not (needed and self.projects.start_elsewhere(child)):
                child.enter(DOWN)
                self.projects.tell_running(child)
            self.projects.settle_homes()
            self.check_drained()
            return
        if child.removed:
            self.projects.forget(child)
        elif failed:
            self._restart(child, lived_s, how)
        else:
            self.board.remove(child.part)
            child.enter(DOWN)
            self.projects.tell_running(child)
            if needed:
                self.projects.start(child)
        self.projects.settle_homes()

    def _restart(self, child: Child, lived_s: float, how: str) -> None:
        child.restarts = child.restarts.after_exit(lived_s)
        delay_s = child.restarts.delay_s
        died = (
            f"{how or 'it died'} after {lived_s:.1f} s ({child.restarts.failures} in a row); "
            f"starting again in {delay_s:.1f} s"
        )
        log.info("%s: %s", child.part, died)
        self._raise_condition(child, health.DOWN, died)
        if child.is_project and child.restarts.unreachable:
            self.send_to_gateways(m.Unreachable(child.project_id))
        if child.is_project and self.projects.start_elsewhere(child):
            return
        if delay_s == 0 and child.is_project:
            self.projects.start(child)
        elif delay_s == 0:
            self.start(child)
        else:
            child.enter(BACKOFF)
            self.set_timer(delay_s, "restart", child)
        self._check_boot()

    def _on_timer(self, what: str, child: Child) -> None:
        match what:
            case "restart" if child.state == BACKOFF and child.is_project:
                self.projects.start(child)
            case "restart" if child.state == BACKOFF:
                self.start(child)
            case "started?" if child.state == STARTING and child.kind == "chain" and not child.late:
                child.late = True
                self.set_timer(CHAIN_START_LIMIT_S - CHAIN_LATE_S, "started?", child)
                self._check_boot()
            case "started?" if child.state == STARTING and child.is_project:
                # The watchdog checks the worker itself; a slow start of a project delays no other
                # one.
                reason = f"it has not started within {START_LIMIT_S:.0f} s"
                self._raise_condition(child, health.CANNOT_START, reason)
                self.set_timer(START_LIMIT_S, "started?", child)
                self.workers.run(child)  # `RunProject` may have been lost
            case "started?" if child.state == STARTING:
                limit_s = CHAIN_START_LIMIT_S if child.late else START_LIMIT_S
                reason = f"it did not start within {limit_s:.0f} s"
                self._raise_condition(child, health.CANNOT_START, reason)
                self._watchdog.kill(child)
            case "retired?" if child.state == RETIRING:
                log.error("%s did not stop within %.0f s", child.part, RETIRE_LIMIT_S)
                if child.is_project:
                    self.projects.retire(child)  # its worker is busy: ask again
                else:
                    self._watchdog.kill(child)

    def set_timer(self, delay_s: float, what: str, child: Child) -> None:
        """Set a timer that is ignored once the child was started again; see `_on_timer`."""
        self.wake_after(delay_s, _Timer(what, child.part, child.generation))

    def _on_hosts(self, hosts: m.HostsUp) -> None:
        """Note which hosts are up: the projects of all other hosts belong to one of these now."""
        if not self._host:
            return  # the cluster does not have enough hosts yet
        self.hosts = hosts
        self.send_to(self.children[REGISTRY], hosts)
        self.projects.on_hosts()

    # ---------------------------------------------------------------- sending

    def send_to(self, child: Child, message: object) -> None:
        """Send a message to a child, if it has a process."""
        if child.address is not None:
            self.send(child.address, message)

    def send_to_worker(self, project: Child, message: m.Retire | m.YieldProcess) -> None:
        """Send a message about a project to its worker."""
        worker = self.children.get(project.worker)
        if worker is not None:
            self.send_to(worker, message)

    def send_to_gateways(
        self, message: m.RouteTo | m.Unreachable | m.QuotaReached | m.DropProject
    ) -> None:
        """Send a message about a project to all gateways that are up."""
        for child in self.children.values():
            if child.is_gateway and child.state == UP:
                self.send_to(child, message)

    # ---------------------------------------------------------------- watching

    def _look(self) -> None:
        """Do all periodic checks, every few seconds."""
        now = time.monotonic()
        self.projects.check_parked()
        self.projects.settle_homes()
        self._watchdog.check(now)
        self.workers.check(now)
        self._checks.run(now, parked=self.projects.parked)
        self.board.end_cleared()
        if self.board.changed:
            self.schedule_health()
        self.child_metrics.set_gauges(self.children.values())
        if not self.exiting:
            self.wake_after(self._watchdog.ping_s, "ping")

    # ---------------------------------------------------------------- health

    def _raise_condition(self, child: Child, state: str, detail: str) -> None:
        self.board.raise_(child.part, state, detail)
        self.schedule_health()

    def _on_health_report(self, report: m.HealthReported) -> None:
        child = self.children.get(report.part)
        if child is not None and child.generation == report.generation:
            self.board.report(report.part, report.conditions)
            self.schedule_health()

    def schedule_health(self) -> None:
        """Schedule one message to the HTTP gateways for all changes of the next 0.1 s."""
        if not self._health_scheduled:
            self._health_scheduled = True
            self.wake_after(_HEALTH_S, "health")

    def _send_health(self) -> None:
        self._health_scheduled = self.board.changed = False
        children = self.children.values()
        shown = tuple(health.worst(self.board.active))
        news = m.HealthChanged(
            shown,
            len(self.board.active) - len(shown),
            self.board.recent,
            {child.part: child.state for child in children if child.kind != "project"},
            collections.Counter(child.state for child in children if child.is_project),
        )
        for child in children:
            if child.kind == "http" and child.state == UP:
                self.send_to(child, news)
