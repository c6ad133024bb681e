"""A supervisor whose children are not processes: the test determines their answers and deaths.

Everything else is the supervisor itself; only the calls to Thespian and to the kernel are replaced.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from fieldbrook.actors import messages as m
from fieldbrook.actors.runtime import Address
from fieldbrook.actors.supervisor import balance, supervisor
from fieldbrook.actors.supervisor.child import UP, Child
from fieldbrook.core.cluster.membership import Membership
from fieldbrook.core.settings import Settings
from fieldbrook.observability import health, metrics, metrics_table, node_log
from fieldbrook.security.node_secrets import load_or_create_key
from fieldbrook.system.kernel.values import Stat

M = TypeVar("M")
BOOTER = cast(Address, "the node's process")


class Tree:
    """A node's supervisor and its simulated children.

    Attributes:
        now: monotonic seconds.
        stopped: the parts that were asked to exit, in order.
        killed: the parts that were killed, in order.
        exit_codes: the exit codes of the next deaths, by part; SIGKILL if none is given.
        cpu_s: CPU seconds by part.
        private: bytes of private memory by part.
        cluster: the hosts of its cluster; None if it belongs to none.
    """

    cluster: Membership | None = None

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.now = 1_000.0
        self.stopped: list[str] = []
        self.killed: list[str] = []
        self.exit_codes: dict[str, int] = {}
        self._exited: set[Address] = set()
        self.cpu_s: dict[str, float] = {}
        self.private: dict[str, int] = {}
        self._sent: list[tuple[Address, object]] = []
        self._timers: list[tuple[float, Any]] = []
        self._addresses, self._pids = itertools.count(1), itertools.count(1 << 30)
        clock = SimpleNamespace(monotonic=lambda: self.now)
        for module in ("supervisor", "child", "workers", "watchdog"):
            monkeypatch.setattr(f"fieldbrook.actors.supervisor.{module}.time", clock)
        monkeypatch.setattr(supervisor, "name_process", lambda _name: None)
        monkeypatch.setattr(node_log, "name", lambda _name: None)
        monkeypatch.setattr(balance, "read_stat", self._stat)
        monkeypatch.setattr(balance, "private_bytes", self._private_bytes)
        monkeypatch.setattr(health.log, "disabled", True)  # tests check the conditions themselves
        monkeypatch.setattr(metrics_table.shared, "table", None)
        monkeypatch.setattr(type(metrics.here), "row", metrics.private_row())
        self.supervisor = supervisor.Supervisor()
        for name, function in {
            "send": lambda to, message: self._sent.append((to, message)),
            "createActor": lambda _class: f"address {next(self._addresses)}",
            "wake_after": lambda after_s, what: self._timers.append((self.now + after_s, what)),
            "stop_child": lambda address: self.stopped.append(self._child_at(address).part),
            "kill_child": lambda address: self.killed.append(self._child_at(address).part),
            "has_exited": lambda address: address in self._exited,
            "exit_code": lambda address: self.exit_codes.pop(self._child_at(address).part, -9),
        }.items():
            monkeypatch.setattr(self.supervisor, name, function)
        (tmp_path / "projects").mkdir()
        load_or_create_key(tmp_path / "secrets", "token.key")
        loaded = Settings(data=tmp_path, http_gateways=1, **settings)
        self.receive(m.Boot(loaded, tmp_path / "run", self.cluster), BOOTER)

    # ---------------------------------------------------------------- what the test does

    def receive(self, message: object, sender: Address = BOOTER) -> None:
        """Deliver a message to the supervisor."""
        self.supervisor.receive(message, sender)

    def boot(self) -> None:
        """Let every part report that it is ready."""
        self.ready("registry")
        for child in list(self.children.values()):
            if child.state != UP and not child.is_project:
                self.ready(child.part)

    def ready(self, part: str) -> None:
        """Let a child report that it is ready."""
        child = self.children[part]
        pid = 0 if child.is_project else next(self._pids)
        path = f"{part}.{child.generation}" if child.kind == "worker" else None
        self.receive(m.Ready(part, child.generation, pid, path))

    def die(self, part: str, *, noticed: bool = True) -> None:
        """Let the process of a child end; Thespian may give no notice of that."""
        address = self.children[part].address
        assert address is not None, f"{part} has no process"
        self._exited.add(address)
        if noticed:
            self.supervisor.child_exited(address)

    def activate(self, project_id: int) -> None:
        """Let the HTTP gateway request a project."""
        sender = self.children["http:0"].address
        assert sender is not None
        self.receive(m.Activate(project_id), sender)

    def run(self, project_id: int) -> str:
        """Let a project run, and return the part of its worker."""
        self.activate(project_id)
        self.ready(f"project:{project_id}")
        return self.children[f"project:{project_id}"].worker

    def end_project(self, project_id: int, *, failed: bool = False) -> None:
        """Let a worker report that a project has ended."""
        child = self.children[f"project:{project_id}"]
        self.receive(m.ProjectEnded(child.part, child.generation, failed))

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and wake the supervisor for every timer that is due."""
        end = self.now + seconds
        while self._timers and min(self._timers, key=lambda timer: timer[0])[0] <= end:
            timer = min(self._timers, key=lambda timer: timer[0])
            self._timers.remove(timer)
            self.now = max(self.now, timer[0])
            if timer[1] == "ping":
                self._answer_pings()
            self.supervisor.woken(timer[1])
        self.now = end

    def set_number(self, project_id: int, column: int, number: float) -> None:
        """Set a number in the metrics row of a project."""
        child = self.children[f"project:{project_id}"]
        self.supervisor.child_metrics.table.row(child.slot)[column] = number

    # ---------------------------------------------------------------- what the test looks at

    @property
    def children(self) -> dict[str, Child]:
        """Return all children by part."""
        return self.supervisor.children

    def worker_of(self, project_id: int) -> str:
        """Return the part of the worker in which a project has to run."""
        return self.children[f"project:{project_id}"].worker

    def taken(self, part: str, kind: type[M]) -> list[M]:
        """Return the messages of one kind that were sent to a part's process; each is returned
        once."""
        address = self.children[part].address
        found = [msg for to, msg in self._sent if to == address and isinstance(msg, kind)]
        self._sent = [
            one for one in self._sent if one[0] != address or not isinstance(one[1], kind)
        ]
        return found

    def told_booter(self, kind: type[M]) -> list[M]:
        """Return the messages of one kind that were sent to the node's process."""
        return [msg for to, msg in self._sent if to == BOOTER and isinstance(msg, kind)]

    def conditions(self, part: str) -> set[str]:
        """Return the health conditions of a part, including ended ones."""
        board = self.supervisor.board
        return {one.state for one in (*board.active, *board.recent) if one.part == part}

    # ---------------------------------------------------------------- the kernel

    def _child_at(self, address: Address) -> Child:
        return next(child for child in self.children.values() if child.address == address)

    def _answer_pings(self) -> None:
        for child in self.children.values():
            if child.state == UP:
                child.heard = self.now

    def _part(self, pid: int) -> str:
        return next(c.part for c in self.children.values() if c.pid == pid and not c.is_project)

    def _stat(self, pid: int) -> Stat:
        return Stat(0.0, self.cpu_s.get(self._part(pid), 0.0), 0)

    def _private_bytes(self, pid: int) -> int:
        return self.private.get(self._part(pid), 0)
