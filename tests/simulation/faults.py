"""The faults of a run."""

from __future__ import annotations

from collections.abc import Callable

from fieldbrook.actors import messages as m
from tests.simulation.world.machine import Process
from tests.simulation.world.node import Node


class Faults:
    """Injects faults into a node, and removes lasting ones."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._machine = node.machine
        self._ended = False

    def inject(self, kind: str) -> None:
        """Make one fault happen now."""
        self._machine.trace("fault: %s", kind)
        action: Callable[[], None] = getattr(self, f"_{kind}")
        action()

    def end(self) -> None:
        """Remove all faults."""
        self._ended = True
        disk = self._node.disk
        disk.syncs_fail = disk.checkpoints_fail = self._node.guests.failures_left = 0
        disk.full = False
        self._node.doomed = 0
        self._machine.worst_delay_s = self._node.post.worst_delay_s = 0.002
        for process in self._machine.processes:
            process.crash_after = None
            process.go_on()
            process.read_again()

    def _some(self, kind: str) -> Process | None:
        parts = [part for part in self._node.supervisor.children if part.startswith(f"{kind}:")]
        living = [found for part in parts if (found := self._node.process_of(part)) is not None]
        return self._machine.random.choice(living) if living else None

    def _kill_worker(self) -> None:
        process = self._some("worker")
        if process is not None:
            process.kill("fault")

    def _kill_worker_at_point(self) -> None:
        process = self._some("worker")
        if process is not None:
            process.crash_after = int(self._machine.random.random() ** 2 * 60)

    def _kill_starting_worker(self) -> None:
        """Kill a worker, and the next ones while they start."""
        self._node.doomed = self._machine.random.choice((1, 1, 2, 5))
        self._kill_worker()

    def _kill_gateway(self) -> None:
        process = self._some(self._machine.random.choice(("http", "mqtt")))
        if process is not None:
            process.kill("fault")

    def _cut_power(self) -> None:
        if not self._ended:
            self._node.cut_power()

    def _fail_syncs(self) -> None:
        """Make the disk fail some syncs; sometimes a power cut follows."""
        chance = self._machine.random
        self._node.disk.syncs_fail = chance.choice((1, 1, 2, 3, 5))
        if chance.random() < 0.5:
            self._machine.at(chance.random() * 3, None, self._cut_power)

    def _fail_checkpoints(self) -> None:
        self._node.disk.checkpoints_fail = self._machine.random.choice((1, 3, 20))

    def _fill_disk(self) -> None:
        disk = self._node.disk
        disk.full = True
        disk.checkpoints_fail = self._machine.random.choice((0, 1_000))
        self._machine.at(self._machine.random.random() * 2, None, self._free_disk)

    def _free_disk(self) -> None:
        self._node.disk.full = False
        self._node.disk.checkpoints_fail = 0

    def _fail_actor(self) -> None:
        self._node.guests.failures_left = 1

    def _retire(self) -> None:
        """Tell the supervisor that a project is idle, which may no longer be true."""
        project_id = self._machine.random.choice(self._node.projects)
        child = self._node.child_of(project_id)
        if child is not None and self._node.is_running:
            node = self._node
            supervisor = node.supervisor.address
            node.post.send(supervisor, supervisor, m.Idle(project_id, child.generation))

    def _move(self) -> None:
        """Make the supervisor start a project again, possibly in another worker."""
        child = self._node.child_of(self._machine.random.choice(self._node.projects))
        if child is not None and child.state == "up" and self._node.is_running:
            self._node.supervisor.projects.restart(child)

    def _remove(self) -> None:
        projects = [p for p in self._node.projects if p not in self._node.removed]
        if len(projects) > 1 and self._node.is_running:
            self._node.remove(self._machine.random.choice(projects))

    def _stop_worker(self) -> None:
        """Stop a worker in order, as at the end of the node, while others continue."""
        parts = [part for part in self._node.supervisor.children if part.startswith("worker:")]
        part = self._machine.random.choice(parts) if parts else ""
        address = self._node.supervisor.children[part].address if part else None
        if address is not None and self._node.is_running:
            self._node.supervisor.stop_child(address)

    def _freeze(self) -> None:
        """Stop a process for a while, sometimes for longer than the watchdog waits."""
        kind = self._machine.random.choice(("worker", "worker", "http", "mqtt"))
        process = self._some(kind)
        if process is not None:
            process.freeze(self._machine.random.choice((0.3, 3.0, 15.0)))

    def _stop_reading(self) -> None:
        """Make a gateway read no answers, sometimes for longer than workers wait."""
        process = self._some(self._machine.random.choice(("http", "mqtt")))
        if process is not None:
            process.stop_reading(self._machine.random.choice((0.5, 3.0, 12.0)))

    def _delay_messages(self) -> None:
        self._node.post.worst_delay_s = 2.0
        self._machine.at(1.0, None, self._deliver_promptly)

    def _deliver_promptly(self) -> None:
        self._node.post.worst_delay_s = 0.05
