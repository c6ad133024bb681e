"""A simulated node: the real supervisor, and the actors that it starts."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fieldbrook.actors import messages as m
from fieldbrook.actors.runtime import NodeActor
from fieldbrook.actors.supervisor.supervisor import Supervisor
from fieldbrook.actors.wire import WireEntry
from fieldbrook.actors.worker.actor import WorkerActor
from fieldbrook.actors.worker.core import WorkerCore
from fieldbrook.core import clock
from fieldbrook.core.model import ADMIN
from fieldbrook.core.settings import Settings
from fieldbrook.observability import metrics
from fieldbrook.storage.registry.service import RegistryWriter
from tests.simulation.world.disk import Disk
from tests.simulation.world.gateways import (
    Broker,
    SimulatedGateway,
    SimulatedMqttGateway,
    SimulatedScheduler,
)
from tests.simulation.world.guests import HANDLER, Guests
from tests.simulation.world.machine import Machine, Process
from tests.simulation.world.messages import Address, Post, Simulated
from tests.simulation.world.network import Network, Server
from tests.simulation.world.worker import SimulatedRunners

MAP_BYTES = 64 << 20
RESTART_S = 1.0  # until a node that ended is started again
_MODULE = "0" * 64


class SimulatedSupervisor(Simulated, Supervisor):
    """The real supervisor; actors that it creates are simulated ones."""

    def __init__(self, node: Node, address: Address) -> None:
        super().__init__()
        self.node = node
        self.post_office, self.address = node.post, address

    def createActor(self, actorClass: Any, *_: Any, **__: Any) -> Any:  # noqa: N802, N803
        return self.node.create(self.address, actorClass.rpartition(".")[2])

    def has_exited(self, address: Any) -> bool:
        return not address.process.alive

    def exit_code(self, address: Any) -> int | None:
        code: int | None = address.process.exit_code
        return code

    def kill_child(self, address: Any) -> None:
        address.process.kill("the supervisor kills it")


class SimulatedWorker(Simulated, WorkerActor):
    """The real actor of a worker, without threads."""

    def __init__(self, node: Node, address: Address) -> None:
        super().__init__()
        self.node = node
        self.post_office, self.address = node.post, address

    def _start(self, start: m.Start, sender: Any) -> None:
        self.address.process.name = start.part
        self.node.workers[start.part] = self
        super()._start(start, sender)

    @property
    def core(self) -> WorkerCore | None:
        """The worker's core, after the recovery of its journal."""
        return None if self._runners is None else self._core


class SimulatedRegistry(Simulated, NodeActor):
    """The registry's actor: it runs, but has nothing to write."""

    def __init__(self, node: Node, address: Address) -> None:
        super().__init__()
        self.node = node
        self.post_office, self.address = node.post, address

    def receive(self, message: object, sender: Any) -> None:
        match message:
            case m.Start():
                process = self.address.process
                process.name = self._part = message.part
                self._supervisor, self.node.registry_actor = sender, self
                self._remove_stores(message.settings.data / "projects")
                self.send(sender, m.DedicatedProjects(self.node.dedicated))
                self.send(sender, m.Ready(message.part, message.generation, process.pid))
            case m.Ping(number=number):
                self.send(sender, m.Ponged(self._part, number))

    def _remove_stores(self, folder: Path) -> None:
        """Remove data of removed projects that a crash has left, like the real actor."""
        for project_id in self.node.removed:
            shutil.rmtree(folder / str(project_id), ignore_errors=True)

    def remove(self, project_id: int) -> None:
        """Handle the removal of a project from the registry."""
        self.send(self._supervisor, m.ProjectRemoved(project_id))


class _Init(NodeActor):
    """The process that has started the node, and starts it again when it cannot boot."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self._node = node

    def receive(self, message: object, sender: Any) -> None:
        if isinstance(message, m.BootFailed):
            self._node.end_all(f"{message.part} cannot start: {message.reason}")


class Node:
    """The node, its data folder, and the hooks of the simulation."""

    def __init__(self, machine: Machine, settings: Settings, disk: Disk, projects: int) -> None:
        self.machine = machine
        self.settings = settings
        self.doomed = 0  # how many of the next workers die while they start
        self.network, self.disk = Network(machine), disk
        self.post, self.guests, self.broker = Post(machine), Guests(machine), Broker()
        self.gateways: dict[str, SimulatedGateway] = {}
        self.workers: dict[str, SimulatedWorker] = {}
        self.registry_actor: SimulatedRegistry
        self.removed: set[int] = set()
        self.delivered: Callable[[int, WireEntry], None] = lambda _project_id, _entry: None
        self.supervisor: SimulatedSupervisor
        self.boots = 0
        machine.at_crash = self._keep_turns
        self._init = Address(Process(machine, "init"))
        self._init.actor = _Init(self)
        self.registry = RegistryWriter(
            settings.data / "registry", MAP_BYTES, clock.now_ms, b"k" * 32
        )
        self.projects = self._register(projects)
        self.reader = self.registry.reader()
        self.dedicated: frozenset[int] = frozenset()

    def _register(self, count: int) -> list[int]:
        owner = self.registry.create_account("ada", "h", ADMIN).account_id
        ids = []
        for number in range(count):
            project = self.registry.create_project(owner, f"p{number}").project_id
            self.registry.create_applet(
                *(project, owner, "a", "a.wasm", "a.wasm", _MODULE, "0" * 32, 100, [HANDLER]),
                [("DEFAULT", HANDLER)],
            )
            ids.append(project)
        return ids

    # ---------------------------------------------------------------- processes

    def boot(self) -> None:
        """Start the node, unless it runs already."""
        if self.boots and self.is_running:
            return
        self.boots += 1
        run_dir = self.settings.data / "run"
        address = self.post.create(
            self._init, "supervisor", lambda address: SimulatedSupervisor(self, address)
        )
        self.supervisor = address.actor
        self.post.send(self._init, address, m.Boot(self.settings, run_dir))

    def create(self, parent: Address, kind: str) -> Address:
        """Start the simulated form of an actor."""
        made: dict[str, Callable[[Node, Address], NodeActor]] = {
            "RegistryActor": SimulatedRegistry,
            "WorkerActor": SimulatedWorker,
            "HttpGateway": SimulatedGateway,
            "MqttGateway": SimulatedMqttGateway,
            "Scheduler": SimulatedScheduler,
        }
        address = self.post.create(parent, kind, lambda address: made[kind](self, address))
        if kind == "WorkerActor" and self.doomed:
            self.doomed -= 1
            address.process.crash_after = self.machine.random.randrange(3)  # steps of its start
        return address

    def process_of(self, part: str) -> Process | None:
        """Return the running process of a part."""
        child = self.supervisor.children.get(part)
        address: Any = None if child is None else child.address
        return None if address is None or not address.process.alive else address.process

    def cut_power(self) -> None:
        """Kill all processes at once, lose some data without a sync, and start the node again."""
        self.machine.trace("the power is cut")
        self.disk.power_is_cut = True
        self.end_all("the power is cut")
        self.disk.power_is_cut = False

    def end_all(self, why: str) -> None:
        """Kill all processes of the node; it starts again after a while."""
        for process in self.machine.processes:
            if process.name != "init":
                process.kill(why)
        self.machine.at(RESTART_S, None, self.boot)

    def remove(self, project_id: int) -> None:
        """Remove a project, as an owner does."""
        self.registry.remove_project(project_id)
        self.removed.add(project_id)
        if self.registry_actor.address.process.alive:
            self.registry_actor.remove(project_id)

    def child_of(self, project_id: int) -> Any:
        return self.supervisor.children.get(f"project:{project_id}")

    def _keep_turns(self, process: Process) -> Callable[[], None]:
        """Save which projects of a worker have their turn; the result restores it."""
        table = self.supervisor.child_metrics.table
        rows = [
            table.row(child.slot)
            for child in self.supervisor.children.values()
            if child.is_project and child.worker == process.name and child.slot >= 0
        ]
        turns = [row[metrics.IN_TURN] for row in rows]

        def restore() -> None:
            for row, turn in zip(rows, turns, strict=True):
                row[metrics.IN_TURN] = turn

        return restore

    @property
    def is_running(self) -> bool:
        """Return whether there is a supervisor."""
        address: Address = self.supervisor.address
        return address.process.alive

    @property
    def is_up(self) -> bool:
        """Return whether all parts have started."""
        children = self.supervisor.children.values()
        return bool(children) and all(c.state == "up" for c in children if not c.is_project)

    def shut_down(self) -> None:
        """End all workers in order."""
        for worker in self.workers.values():
            if worker.address.process.alive:
                self.machine.current = worker.address.process
                worker.stopping()
        for process in self.machine.processes:
            process.kill("the run is over")

    @property
    def quiet(self) -> bool:
        """Return whether all parts are up and no project runs."""
        projects = [child for child in self.supervisor.children.values() if child.is_project]
        return self.is_running and self.is_up and all(child.state == "down" for child in projects)

    def start_projects(self) -> None:
        """Make every project run once more."""
        for project_id in self.projects:
            if project_id not in self.removed:
                self.gateways["http:0"].activate(project_id)

    # ---------------------------------------------------------------- for the patches

    def listen(self, path: Path) -> Server:
        """Replace `FrameServer`."""
        return self.network.listen(path)

    def runners(self, core: WorkerCore, server: Any) -> SimulatedRunners:
        """Replace `Runners`."""
        return SimulatedRunners(core, server, self.guests)

    def read_stat(self, pid: int) -> SimpleNamespace:
        """Replace `balance.read_stat`: each process has a load of its own."""
        return SimpleNamespace(cpu_s=self.machine.now * (pid % 7) / 5)

    def thread(
        self, target: Callable[..., None], args: tuple[Any, ...], daemon: bool
    ) -> SimpleNamespace:
        """Replace `threading.Thread`: its work is one step, a little later."""
        process = self.machine.current
        delay_s = self.machine.random.random() * 0.1
        start = lambda: self.machine.at(delay_s, process, lambda: target(*args))  # noqa: E731
        return SimpleNamespace(start=start)

    def system(self) -> SimpleNamespace:
        """Replace `os` in the modules that read the pid or end their process."""

        def getpid() -> int:
            current = self.machine.current
            return 0 if current is None else current.pid

        def exit_(status: int) -> None:
            assert self.machine.current is not None
            self.machine.current.exit_code = status
            self.machine.crash("its own wish")

        return SimpleNamespace(getpid=getpid, _exit=exit_)


class Complaints(logging.Handler):
    """Writes the log of the node into the trace; an unexpected traceback ends the run."""

    def __init__(self, machine: Machine, expected: tuple[type[BaseException], ...]) -> None:
        super().__init__(logging.INFO)
        self._machine = machine
        self._expected = expected

    def emit(self, record: logging.LogRecord) -> None:
        self._machine.trace("log: %s %s", record.levelname, record.getMessage())
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Exception) and not isinstance(error, self._expected):
            self._machine.fail(error)
