"""Look-ahead of one project: which events run ahead, and which resources are held meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fieldbrook.actors.project.look_ahead import look_ahead as module
from fieldbrook.actors.project.look_ahead.look_ahead import LookAhead
from fieldbrook.actors.project.look_ahead.policy import SpeculationPolicy
from fieldbrook.actors.project.look_ahead.threads import LookAheadThreads
from fieldbrook.actors.project.pool import InstancePool
from fieldbrook.actors.project.routing import Target
from fieldbrook.actors.project.topics import HandlerTopics
from fieldbrook.actors.wire import WireEvent
from fieldbrook.core import clock
from fieldbrook.core.model import Applet
from fieldbrook.observability import metrics
from fieldbrook.storage.registry.service import RegistryWriter
from fieldbrook.wasm.run import Host, Run
from tests.support.nodes import until
from tests.support.python_host import PythonHost
from tests.support.tools import LIMIT_S

TARGET = Target(3, 7, 1, "a", "h", started=True)
APPLET = Applet(
    applet_id=7,
    project_id=1,
    resource_id=1,
    name="a",
    wasm_name="a.wasm",
    instance_id=1,
    sha256="",
    created_at=0,
    updated_at=0,
)
EVENTS: list[WireEvent] = [("DEFAULT", n, "", b"", 1, 0, "") for n in range(6)]


class Pool(InstancePool):
    """A pool with the host of one applet."""

    def __init__(self, host: Host | None) -> None:
        self.loaded_host = host

    def loaded(self, applet: Applet) -> Host | None:
        return self.loaded_host


class Nothing:
    def read_committed(self, stored_key: bytes) -> bytes | None:
        return None


class Copies(PythonHost):
    """A host that records its copies; a handler writes how many events of the project run ahead."""

    def __init__(self) -> None:
        super().__init__({"h": self._handler})
        self.made: list[PythonHost] = []
        self.row = metrics.private_row()
        self.ran = threading.Event()

    def _handler(self, run: Run) -> int:
        self.ran.set()
        run.writes[b"running"] = b"%d" % self.row[metrics.RUNNING_AHEAD]
        return 0

    def copy(self) -> PythonHost:
        self.made.append(super().copy())
        return self.made[-1]


Make = Callable[..., LookAhead]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    registry = RegistryWriter(tmp_path, 1 << 20, clock.now_ms, b"k" * 32)
    threads = LookAheadThreads(1)

    def _make(host: Host | None, row: memoryview[float] | None = None) -> LookAhead:
        policy = SpeculationPolicy(heavy_s=0, pause_s=0)
        topics = HandlerTopics(registry.reader(), APPLET.project_id)
        made = LookAhead(*(threads, Pool(host), Nothing(), topics), policy=policy, row=row)
        made.configure({}, [APPLET])
        return made

    yield _make
    threads.close()
    registry.close()


def take_all(look_ahead: LookAhead, host: Copies) -> list[bytes]:
    """Handle the events of a round; return the writes of the events that ran ahead."""
    host.ran.clear()
    speculation = look_ahead.speculate(EVENTS, lambda _event: [TARGET])
    assert speculation is not None
    assert host.ran.wait(LIMIT_S)
    written: list[bytes] = []
    for event in EVENTS:
        run = Run(b"")
        if speculation.result(event, TARGET, run) is not None:
            written += run.writes.values()
    look_ahead.end_round(0.0, len(EVENTS))
    return written


def test_a_host_is_copied_once_for_each_thread_and_released_after_a_while(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Copies()
    look_ahead = make(host)
    assert take_all(look_ahead, host)
    assert take_all(look_ahead, host)
    assert len(host.made) == 1
    look_ahead.release_idle()
    assert not host.made[0].closed
    monkeypatch.setattr(module, "IDLE_S", 0.0)

    def released() -> bool:
        look_ahead.release_idle()
        return host.made[0].closed

    until(released, "the copy is released")
    assert not host.closed


def test_a_module_that_takes_over_gets_copies_of_its_own(make: Make) -> None:
    first, second = Copies(), Copies()
    look_ahead = make(first)
    assert take_all(look_ahead, first)
    look_ahead._pool.loaded_host = second  # type: ignore[attr-defined]
    look_ahead.configure({}, [APPLET])
    assert take_all(look_ahead, second)
    until(lambda: first.made[0].closed, "its copy is released")
    assert not second.made[0].closed
    look_ahead.configure({}, [])
    until(lambda: second.made[0].closed, "that of the other is released")


def test_nothing_runs_ahead_before_the_module_is_loaded_or_for_a_single_publisher(
    make: Make,
) -> None:
    speculation = make(None).speculate(EVENTS, lambda _event: [TARGET])
    assert speculation is not None
    assert [speculation.result(event, TARGET, Run(b"")) for event in EVENTS] == [None] * 6
    one_publisher = [EVENTS[0], EVENTS[0]]
    assert make(Copies()).speculate(one_publisher, lambda _event: [TARGET]) is None


def test_the_supervisor_can_see_that_events_run_ahead(make: Make) -> None:
    host = Copies()
    assert set(take_all(make(host, row=host.row), host)) == {b"1"}
    until(lambda: host.row[metrics.RUNNING_AHEAD] == 0, "none runs any more")
