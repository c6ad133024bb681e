"""The only place in which interfaces of the node to the system are replaced by simulated ones."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

from fieldbrook.actors import frame_server, shared_journal
from fieldbrook.actors.project import pool
from fieldbrook.actors.supervisor import balance, supervisor
from fieldbrook.actors.supervisor import workers as supervisor_workers
from fieldbrook.actors.worker import actor as worker_actor
from fieldbrook.core.errors import StoreError
from fieldbrook.observability import fault_points
from fieldbrook.storage.journal import file as journal_file
from fieldbrook.storage.journal import recovery, segments
from fieldbrook.storage.lmdb import new_environment
from fieldbrook.storage.project import stored
from tests.simulation.world.guests import InjectedError
from tests.simulation.world.network import OUTPUT_BYTES
from tests.simulation.world.node import Complaints, Node


class _NoChecks:
    """Replaces `NodeChecks`, which check the real disk and clock."""

    def __init__(self, *_args: Any) -> None: ...

    def run(self, now: float, *, parked: bool) -> None: ...


@contextlib.contextmanager
def simulated_clock(machine: Any) -> Iterator[None]:
    """Make every `time.monotonic()` and `time.time_ns()` of this process return the machine's
    time."""
    with (
        mock.patch.object(time, "monotonic", machine.monotonic),
        mock.patch.object(time, "time_ns", machine.time_ns),
        mock.patch.object(time, "sleep", machine.spend),
    ):
        yield


@contextlib.contextmanager
def installed(node: Node) -> Iterator[None]:
    """Run the node's classes on the simulated machine."""
    machine, disk, system = node.machine, node.disk, node.system()

    def nothing(*_args: Any) -> None: ...

    replaced: list[tuple[Any, str, Any]] = [
        (stored, "open_environment", disk.open_store),
        (new_environment, "open_environment", disk.open_store),
        (pool, "load_host", node.guests.host),
        (fault_points, "hit", machine.pass_point),
        (recovery, "FileJournal", disk.open_journal),
        (frame_server, "OUTPUT_BYTES", OUTPUT_BYTES),
        (worker_actor, "FrameServer", node.listen),
        (worker_actor, "Runners", node.runners),
        (worker_actor, "RegistryReader", lambda _path: node.reader),
        (worker_actor, "make_engine", nothing),
        (worker_actor, "start_ticker", nothing),
        (worker_actor, "name_process", nothing),
        (worker_actor, "node_log", SimpleNamespace(name=nothing)),
        (worker_actor, "os", system),
        (shared_journal, "os", system),
        (worker_actor, "threading", SimpleNamespace(Thread=node.thread)),
        (supervisor, "os", system),
        (supervisor_workers, "SUSPECTS", 1),
        (supervisor, "name_process", nothing),
        (supervisor, "node_log", SimpleNamespace(name=nothing)),
        (supervisor, "NodeChecks", _NoChecks),
        (balance, "read_stat", node.read_stat),
        (balance, "private_bytes", lambda _pid: 0),
        (journal_file, "create", disk.creating(segments.create)),
    ]
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    with contextlib.ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(mock.patch.object(owner, name, value))
        root.handlers[:] = [Complaints(machine, (StoreError, InjectedError, OSError))]
        root.setLevel(logging.INFO)
        try:
            yield
        finally:
            root.handlers[:] = before
            root.setLevel(level)
