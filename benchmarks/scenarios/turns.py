"""What a worker's thread does for an event, without gateways: one project, and many."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks.applets import APPLET
from benchmarks.context import Context, Emit
from benchmarks.measure import BenchmarkError, quantile
from benchmarks.node import HANDLERS
from benchmarks.report import Table
from benchmarks.scenarios.http_load import KINDS
from benchmarks.servers import PAYLOAD
from fieldbrook.actors.wire import WireEvent, frame, pack, unpack
from fieldbrook.actors.worker.core import WorkerCore
from tests.support.workers import Worker

EVENTS = 64  # of a round, as with 64 connections
PROJECTS = 64
MICROSECONDS = "CPU us/event"
_STRATEGIES = [(name.upper(), name) for name in HANDLERS]
_SLICE_S = 0.02
_TURN_S = 0.005


class _Gateway:
    """Takes a worker's answers as a connection does, up to the socket."""

    closed = False

    def __init__(self) -> None:
        self.answers = 0

    def answer(self, value: Any) -> None:
        for _, results in unpack(frame(pack(value))[4:]):
            self.answers += len(results)
            if any(code or error for ((_, code, error),) in results):
                raise BenchmarkError(f"a handler failed: {results}")


class _Worker(Worker):
    """A worker without threads and sockets: `round` does what a runner does."""

    def serve(self) -> None:
        self.gateway = _Gateway()
        self.round(b"\x90")

    def round(self, data: bytes) -> None:
        """Handle one frame."""
        core: WorkerCore = self.core
        core.arrive([(self.gateway, data)])  # type: ignore[list-item]  # all that it has to be
        core.care(time.monotonic())
        while core.ready:
            turns = [core.ready.popleft() for _ in range(len(core.ready))]
            for project in turns:
                core.run(project, _TURN_S)
            core.commit(turns)
            for project in turns:
                core.done(project)

    def close(self) -> None:
        self.core.close()
        self.look_ahead_threads.close()
        self.journal.close()
        self._writer.close()


def turns(context: Context, emit: Emit) -> None:
    """CPU time of a worker for an event: rounds of 64 events of one project, and of 64 projects.

    The projects have one module together, or one each. The figure is that of the best tenth of
    many short measurements, because other programs disturb the rest.
    """
    modules = [APPLET.replace(b'"count"', b'"count%d"' % n) for n in range(PROJECTS)]
    cases: dict[str, tuple[int, Sequence[bytes]]] = {
        "1 project": (1, modules[:1]),
        f"{PROJECTS} projects, 1 module": (PROJECTS, modules[:1]),
        f"{PROJECTS} projects, {PROJECTS} modules": (PROJECTS, modules),
    }
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(_running(context, projects, some))
            for name, (projects, some) in cases.items()
        }
        for handler in ("sum", "kv"):
            what = f"{KINDS[handler]}: a worker's thread, {EVENTS} events in a round"
            table = Table(context.title(what), MICROSECONDS, ("1 project",), plots=(MICROSECONDS,))
            for _ in range(context.rounds):
                for name, worker in workers.items():
                    seconds = _measure(worker, handler, context.seconds)
                    table.add(name, {MICROSECONDS: seconds * 1e6})
            emit(table)


@contextmanager
def _running(context: Context, projects: int, modules: Sequence[bytes]) -> Iterator[_Worker]:
    with context.folder() as folder:
        worker = _Worker(folder, projects, modules, _STRATEGIES)
        try:
            yield worker
        finally:
            worker.close()


def _measure(worker: _Worker, handler: str, seconds: float) -> float:
    """CPU seconds of an event."""
    frames = [_frame(worker.projects, handler, number) for number in range(EVENTS)]
    for data in frames:
        worker.round(data)
    found = []
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        slice_ends, began, before = (
            time.monotonic() + _SLICE_S,
            time.thread_time(),
            _answers(worker),
        )
        while time.monotonic() < slice_ends:
            for data in frames[:4]:
                worker.round(data)
        found.append((time.thread_time() - began) / (_answers(worker) - before))
    return quantile(found, 0.1)


def _answers(worker: _Worker) -> int:
    return worker.gateway.answers


def _frame(projects: Sequence[int], handler: str, number: int) -> bytes:
    bodies: dict[int, list[WireEvent]] = {}
    for index in range(EVENTS):
        name = f"{number:018x}{index:018x}"
        event = (handler.upper(), index % 50 + 1, name, PAYLOAD, 1, 0, "")
        bodies.setdefault(projects[index % len(projects)], []).append(event)
    return pack(list(bodies.items()))
