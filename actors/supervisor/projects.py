"""The actors of projects: started on demand, retired when idle, ended with their project."""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING

import msgspec

from fieldbrook.actors import messages as m
from fieldbrook.actors.remote_path import remote_path
from fieldbrook.actors.runtime import Address
from fieldbrook.actors.supervisor.child import BACKOFF, DOWN, RETIRING, UP, Child
from fieldbrook.actors.supervisor.restarts import Restarts
from fieldbrook.core.cluster import placement
from fieldbrook.storage.project.outbox import is_parked, waiting_projects

if TYPE_CHECKING:
    from fieldbrook.actors.supervisor.supervisor import Supervisor

log = logging.getLogger(__name__)

RETIRE_LIMIT_S = 20.0
CLUSTER = "cluster"  # the child that connects this host with the others (`fb-cluster`)
_MOVING = 2  # projects that go to another host at the same time
MQTT_PART = "mqtt:0"  # the child that delivers outbox entries, except chain transactions


class Projects:
    """Starts, retires and removes the actors of projects, and has their outboxes delivered.

    `parked` is set while the outbox entries of a restored node are held back.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._removed: set[int] = set()  # project ids are never reused
        self.parked = False
        self._remote: dict[int, str] = {}  # hosts to which the gateways send events, by project
        self._run_on: dict[int, str] = {}  # hosts that have reported to run a project, by project
        self._asked: dict[int, m.ActivateOn] = {}  # requests that other hosts have not answered
        self._told: dict[int, bool] = {}  # what this host has reported; see `ProjectRuns`
        self._gives_up = False

    def child(self, project_id: int) -> Child:
        """Return the child of a project, which may be down."""
        part = f"project:{project_id}"
        return self._supervisor.children.setdefault(part, Child(part))

    def _running(self, project_id: int, generation: int) -> Child | None:
        """Return the child of a project if it still has this generation."""
        child = self._supervisor.children.get(f"project:{project_id}")
        return child if child is not None and child.generation == generation else None

    # ---------------------------------------------------------------- start and end

    def start_waiting(self) -> None:
        """Start the projects whose outbox has entries, so that the entries are delivered."""
        for project_id in waiting_projects(self._supervisor.settings.data / "projects"):
            child = self.child(project_id)
            if child.state == DOWN:
                self.start(child)

    def start(self, child: Child) -> None:
        """Start a project here, or on the host of the cluster to which it belongs."""
        if self.start_elsewhere(child):
            return
        if self._is_alone:
            child.enter(BACKOFF)  # until more hosts are up: until then it could commit nothing
            self.tell_running(child)
        else:
            self._supervisor.start(child)

    @property
    def _is_alone(self) -> bool:
        """Whether this host sees no majority of the hosts of its cluster."""
        hosts = self._supervisor.hosts
        return hosts is not None and hosts.alone

    def activate(self, asked: m.Activate, sender: Address) -> None:
        """Answer a gateway that has events for a project; start the project if necessary."""
        supervisor, project_id = self._supervisor, asked.project_id
        if project_id in self._removed and f"project:{project_id}" not in supervisor.children:
            supervisor.send(sender, m.DropProject(project_id))
            return
        child = self.child(project_id)
        child.account_id = asked.account_id
        place = self._place(project_id)
        if place is not None and child.state == DOWN:
            self._activate_elsewhere(place, asked, sender)
            return
        match child.state:
            case "up":
                supervisor.send(sender, self._route(child))
            case "down" | "backoff" if self._is_alone:
                supervisor.send(sender, m.Unreachable(project_id))
            case "down" if asked.processes is not None and not self._is_within_quota(asked):
                supervisor.send(sender, m.QuotaReached(project_id, asked.processes))
            case "down":
                supervisor.start(child)
            case "retiring":
                child.wanted = True
            case "starting" if not supervisor.workers.can_run(child):
                supervisor.send(sender, m.Unreachable(project_id))
            case "backoff" if child.restarts.unreachable:
                supervisor.send(sender, m.Unreachable(project_id))

    # ---------------------------------------------------------------- on other hosts

    def _home(self, project_id: int) -> str | None:
        """The host of the cluster to which a project belongs; None when that is this one."""
        hosts = self._supervisor.hosts
        if hosts is None:
            return None
        there = hosts.hosts
        if self._gives_up:
            there = tuple(host for host in there if host != hosts.me) or there
        found = placement.project_home(project_id, there, hosts.pins)
        return None if found == hosts.me else found

    def _place(self, project_id: int) -> str | None:
        """The other host that runs a project, or should run it; None if that is this host.

        A host that runs a project keeps the project until the host gives it up, even if the project
        now belongs to another host. So no two hosts run a project at the same time while it moves.
        """
        hosts = self._supervisor.hosts
        if hosts is None:
            return None
        return self._run_on.get(project_id) or self._home(project_id)

    def start_elsewhere(self, child: Child) -> bool:
        """Have another host start a project that is to run there; return whether it is."""
        supervisor = self._supervisor
        place = self._place(child.project_id)
        if place is None:
            return False
        supervisor.board.remove(child.part)
        child.enter(DOWN)
        self.tell_running(child)  # first, because the next host waits for this
        self.close_route(child)  # for gateways that asked while the start here was planned
        self._ask(m.ActivateOn(place, child.project_id, child.account_id))
        return True

    def _activate_elsewhere(self, home: str, asked: m.Activate, sender: Address) -> None:
        supervisor = self._supervisor
        if sender == supervisor.children[CLUSTER].address:
            supervisor.send(sender, m.NotHome(asked.project_id))
        else:
            self._ask(m.ActivateOn(home, asked.project_id, asked.account_id, asked.processes))

    def _ask(self, order: m.ActivateOn) -> None:
        """Have another host start a project; the answer goes to `on_remote_route`."""
        self._asked[order.project_id] = order
        self._supervisor.send_to(self._supervisor.children[CLUSTER], order)

    def _ask_mover(self, project_id: int) -> None:
        """Ask the host to which a project moves, instead of the host that has given it up.

        If hosts disagree about the owner, they do not ask each other in circles, because a host
        answers "not here" only after a while.
        """
        order = self._asked.get(project_id)
        if order is None:
            return
        place = self._place(project_id)
        if place is None:
            self._start_asked(order)
        elif place != order.host:
            self._ask(msgspec.structs.replace(order, host=place))

    def _start_asked(self, order: m.ActivateOn) -> None:
        """Start a project here. Another host was asked to start it, but it belongs to this host
        now."""
        child = self.child(order.project_id)
        del self._asked[order.project_id]
        if child.state == DOWN and not self._is_alone and self._is_within_quota(order):
            child.account_id = order.account_id
            self._supervisor.start(child)
        else:
            self._tell_own_gateways(m.RouteTo(order.project_id, None))  # then they ask this host

    def _is_outdated(self, route: m.RemoteRoute) -> bool:
        """Whether a "not here" answer is outdated, because another host was asked meanwhile."""
        order, used = self._asked.get(route.project_id), self._remote.get(route.project_id)
        expected = used if order is None else order.host
        return route.socket is None and expected not in (None, route.host)

    def on_remote_route(self, route: m.RemoteRoute) -> None:
        """Tell the gateways on which host a project runs, or that it runs there no more."""
        supervisor, project_id = self._supervisor, route.project_id
        if self._is_outdated(route):
            return
        self._asked.pop(project_id, None)
        if route.socket is not None and self.child(project_id).state == DOWN:
            self._run_on[project_id] = route.host
        if self._place(project_id) is None:  # it belongs to this host now
            if self.child(project_id).state == DOWN:
                self._tell_own_gateways(m.RouteTo(project_id, None))  # then they ask this one
            return
        path = None
        if route.socket is not None:
            path = remote_path(supervisor.run_dir, route.host, route.socket)
            self._remote[project_id] = route.host
        else:
            self._remote.pop(project_id, None)
        self._tell_own_gateways(m.RouteTo(project_id, path, route.alone))

    def _tell_own_gateways(
        self, message: m.RouteTo | m.Unreachable | m.QuotaReached | m.DropProject
    ) -> None:
        """Send a message about a project of another host to the gateways of this one."""
        for child in self._supervisor.children.values():
            if child.is_gateway and child.state == UP and child.part != CLUSTER:
                self._supervisor.send_to(child, message)

    def on_remote_refusal(self, answer: m.Unreachable | m.QuotaReached | m.DropProject) -> None:
        """Tell the gateways why another host does not run a project."""
        self._asked.pop(answer.project_id, None)
        self._tell_own_gateways(answer)

    def on_hosts(self) -> None:
        """Forget the routes to hosts that are gone, and the routes to projects that belong here
        now."""
        supervisor = self._supervisor
        hosts = supervisor.hosts
        assert hosts is not None
        there = {*hosts.hosts, *hosts.leaving}
        self._run_on = {number: host for number, host in self._run_on.items() if host in there}
        for project_id, host in list(self._remote.items()):
            if host not in there:
                self._forget_route(project_id)
        for project_id in hosts.undelivered:
            child = self.child(project_id)
            if child.state == DOWN and self._place(project_id) is None:
                self.start(child)
        self._try_again()
        self.settle_homes()

    def _try_again(self) -> None:
        """Start the projects that wait after failures: missing hosts may have been the cause.

        If a project belongs to another host now, that host starts it without a pause.
        """
        for child in list(self._supervisor.children.values()):
            if child.is_project and child.state == BACKOFF:
                child.restarts = Restarts()
                self.start(child)

    def _forget_route(self, project_id: int) -> None:
        del self._remote[project_id]
        self._tell_own_gateways(m.RouteTo(project_id, None))

    def on_runs_on(self, told: m.RunsOn) -> None:
        """Note which projects another host runs."""
        if told.replaces:
            kept = {number: host for number, host in self._run_on.items() if host != told.host}
            self._run_on = kept
        self._run_on.update(dict.fromkeys(told.started, told.host))
        for project_id in told.ended:
            if self._run_on.get(project_id) == told.host:
                del self._run_on[project_id]
            if self._remote.get(project_id) == told.host:
                self._forget_route(project_id)
        for project_id in (*told.started, *told.ended):
            self._ask_mover(project_id)

    def tell_running(self, child: Child) -> None:
        """Tell the other hosts, if there are any, whether this one runs a project."""
        cluster = self._supervisor.children.get(CLUSTER)
        if cluster is None:
            return
        project_id, runs, sends = child.project_id, child.state != DOWN, bool(child.consumers)
        if self._told.get(project_id) == (sends if runs else None):
            return
        if runs:
            self._told[project_id] = sends
        else:
            self._told.pop(project_id, None)
        self._supervisor.send_to(cluster, m.ProjectRuns(project_id, runs, sends))

    def tell_all_running(self) -> None:
        """Tell the other hosts all projects that this one runs."""
        self._told.clear()
        for child in self._supervisor.children.values():
            if child.is_project:
                self.tell_running(child)

    def give_up_all(self) -> None:
        """Give up all projects if the host leaves its cluster, so that other hosts can run them at
        once."""
        self._gives_up = self._supervisor.hosts is not None
        self.settle_homes()

    @property
    def are_given_up(self) -> bool:
        """Whether all projects that had to be given up have ended."""
        children = self._supervisor.children.values()
        return not (self._gives_up and any(c.is_project and c.state != DOWN for c in children))

    def settle_homes(self) -> None:
        """Retire projects that belong to another host now, at most `_MOVING` at a time."""
        if self._supervisor.hosts is None:
            return
        children = self._supervisor.children.values()
        moving = sum(child.is_project and child.state == RETIRING for child in children)
        for child in list(children):
            if moving >= _MOVING:
                return
            if not child.is_project or child.state != UP:
                continue
            if self._gives_up or self._home(child.project_id) is not None:
                child.wanted = bool(child.consumers)  # the next host has to deliver them
                child.consumers = set()
                self.retire(child)
                moving += 1

    def _is_within_quota(self, asked: m.Activate | m.ActivateOn) -> bool:
        """Whether the account may run one more project; if not, send `YieldProcess` to its
        projects."""
        running = [
            child
            for child in self._supervisor.children.values()
            if child.account_id == asked.account_id
            and child.kind == "project"
            and child.state != DOWN
        ]
        if asked.processes is None or len(running) < asked.processes:
            return True
        for child in running:
            if child.state == UP:
                self._supervisor.send_to_worker(child, m.YieldProcess(child.project_id))
        return False

    def on_ready(self, child: Child) -> None:
        """Send the gateways the route to a project that is up now."""
        if child.removed:
            self.retire(child)
            return
        self._supervisor.send_to_gateways(self._route(child))
        # If the project failed to retire, it may have got entries meanwhile.
        for consumer in child.consumers:
            self.request_delivery(child, consumer or MQTT_PART)

    def _route(self, child: Child) -> m.RouteTo:
        alone = self._supervisor.children[child.worker].is_dedicated
        return m.RouteTo(child.project_id, child.path, alone)

    def on_idle(self, project_id: int, generation: int) -> None:
        """Retire a project that has had no event for the idle time."""
        child = self._running(project_id, generation)
        if child is not None and child.state == UP:
            self.retire(child)

    def retire(self, child: Child) -> None:
        """Have its worker close a project. The worker sends events that still arrive back to the
        gateways."""
        child.enter(RETIRING)
        self._supervisor.send_to_worker(child, m.Retire(child.project_id))
        self.close_route(child)
        self._supervisor.set_timer(RETIRE_LIMIT_S, "retired?", child)

    def restart(self, child: Child) -> None:
        """End a running project and start it again, possibly in another worker."""
        child.wanted = True
        self.retire(child)

    def close_route(self, child: Child) -> None:
        """Have the gateways forget the route to a project."""
        child.path = None
        self._supervisor.send_to_gateways(m.RouteTo(child.project_id, None))

    def remove(self, project_id: int) -> None:
        """End the actor of a project that was removed from the registry, then remove its store."""
        child = self.child(project_id)
        child.removed = True
        self._removed.add(project_id)
        if child.state == UP:
            self.retire(child)
        elif child.state in (DOWN, BACKOFF):
            self.forget(child)

    def forget(self, child: Child) -> None:
        """Remove the store of a removed project whose actor has ended."""
        supervisor = self._supervisor
        child.enter(DOWN)
        self.tell_running(child)
        del supervisor.children[child.part]
        supervisor.child_metrics.forget_project(child.project_id)
        supervisor.board.remove(child.part)
        supervisor.schedule_health()
        store = supervisor.settings.data / "projects" / str(child.project_id)
        shutil.rmtree(store, ignore_errors=True)  # the registry removes the rest at its next start
        supervisor.send_to_gateways(m.DropProject(child.project_id))

    # ---------------------------------------------------------------- outboxes

    def on_outbox_filled(self, project_id: int, generation: int, consumer: str) -> None:
        """Have the outbox entries of a project delivered."""
        child = self._running(project_id, generation)
        if child is not None:
            child.consumers.add(consumer)
            self.tell_running(child)
            if child.state == RETIRING:
                child.wanted = True  # its last events have filled the outbox: it is started again
            self.request_delivery(child, consumer or MQTT_PART)

    def request_delivery(self, project: Child, part: str) -> None:
        """Send `DeliverOutbox` to one consumer if the project has outbox entries for it."""
        consumer = self._supervisor.children.get(part)
        if consumer is None or self.parked:  # a chain that the settings no longer have
            return
        wanted = "" if part == MQTT_PART else part
        if wanted in project.consumers and project.path is not None and consumer.state == UP:
            self._supervisor.send_to(consumer, m.DeliverOutbox(project.project_id, project.path))

    def on_gateway_ready(self, gateway: Child) -> None:
        """Send the routes to all projects to a gateway that has just started."""
        for child in self._supervisor.children.values():
            if child.kind == "project" and child.state == UP:
                self._supervisor.send_to(gateway, self._route(child))
                self.request_delivery(child, gateway.part)

    def check_parked(self) -> None:
        """Check whether an operator has released the outbox entries of a restored node."""
        if not self.parked:
            return
        self.parked = is_parked(self._supervisor.settings.data)
        if self.parked:
            return
        log.info("the outboxes were released: their entries are delivered from now on")
        for child in self._supervisor.children.values():
            if child.kind == "project":
                for consumer in child.consumers:
                    self.request_delivery(child, consumer or MQTT_PART)
