"""Order and outcome of events over any sequence of failures, moves and delays of workers."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from fieldbrook.actors.wire import BY_MQTT, WireEvent, frame, pack
from fieldbrook.core.errors import (
    EventOutcomeUnknownError,
    NodeError,
    StoreError,
    UnavailableError,
)
from fieldbrook.gateway.links import project_client, suspects, worker_link
from fieldbrook.gateway.links.pending_event import Outcome
from fieldbrook.gateway.links.project_clients import ProjectClients
from tests.support.simulated_workers import SimulatedConnection, SimulatedLoop, SimulatedWorker

PROJECTS = (1, 2, 3)
DEVICES, HTTP_CLIENTS = (1, 2), (3, 4)  # publishers whose events are sent again, and others
_SIZES = (1, 30, 90)

projects = st.sampled_from(PROJECTS)
places = st.integers(0, 5)


@dataclass
class Sent:
    """An event and its outcome."""

    number: int
    request: int
    resend: bool
    submitted: int
    runs: list[int] = field(default_factory=list)
    outcome: Outcome | None = None
    settled: int = 0


class Workers(RuleBasedStateMachine):
    """Some workers with some projects, and one gateway that sends events to them."""

    @initialize()
    def open(self) -> None:
        self.loop = SimulatedLoop()
        asyncio.set_event_loop(self.loop)
        self.clients = ProjectClients(self, self.loop)
        self.step = itertools.count(1)
        self.names = itertools.count()
        self.events: dict[int, Sent] = {}
        self.by_publisher: dict[tuple[int, int], list[Sent]] = {}
        self.start_worker()
        self.start_worker()

    def activate(self, project_id: int) -> None:
        """Record a request for a route; the test decides when the supervisor answers."""

    # ---------------------------------------------------------------- events

    @rule(
        project=projects,
        publisher=st.sampled_from(DEVICES + HTTP_CLIENTS),
        count=st.integers(1, 7),
        size=st.sampled_from(_SIZES),
    )
    def submit(self, project: int, publisher: int, count: int, size: int) -> None:
        request, blocked = next(self.step), set[int]()
        for _ in range(count):
            sent = Sent(len(self.events), request, publisher in DEVICES, next(self.step))
            self.events[sent.number] = sent
            self.by_publisher.setdefault((project, publisher), []).append(sent)
            source = BY_MQTT if sent.resend else 0
            event: WireEvent = ("T", publisher, str(sent.number), b"x" * size, 0, source, "")

            def settle(outcome: Outcome, sent: Sent = sent) -> None:
                assert sent.outcome is None, "an event is settled once"
                sent.outcome, sent.settled = outcome, next(self.step)
                if not isinstance(outcome, NodeError):
                    assert outcome[0][0] == sent.number, "an event has its own result"
                    assert sent.runs
                elif not isinstance(outcome, EventOutcomeUnknownError):
                    assert sent.resend or not sent.runs, "what was refused has not run"

            self.clients[project].submit(event, settle, resend=sent.resend, blocked=blocked)
        self.loop.run()

    def ran(self, project: int, event: WireEvent) -> None:
        sent = self.events[int(event[2])]
        of_publisher = self.by_publisher[project, event[1]]
        place = of_publisher.index(sent)
        if not sent.runs:
            later = [each.number for each in of_publisher[place + 1 :] if each.runs]
            assert later == [], "no event runs for the first time after a later one"
        else:
            assert sent.resend, "only what is sent again runs again"
        assert sent.outcome is None or isinstance(sent.outcome, EventOutcomeUnknownError)
        for earlier in of_publisher[:place]:
            if sent.outcome is None and earlier.settled > sent.submitted:
                self.check_waited_for(earlier, sent)
        sent.runs.append(next(self.step))

    @staticmethod
    def check_waited_for(earlier: Sent, sent: Sent) -> None:
        """Check that an event may run after one that was settled while it waited."""
        if sent.resend:
            assert not isinstance(earlier.outcome, StoreError | UnavailableError), (
                "nothing overtakes an event that its sender sends again"
            )
        elif earlier.request == sent.request:
            assert not isinstance(earlier.outcome, EventOutcomeUnknownError)

    # ---------------------------------------------------------------- workers

    @rule()
    def start_worker(self) -> None:
        if len(self.loop.workers) < 3:
            path = f"w{next(self.names)}"
            self.loop.workers[path] = SimulatedWorker(path, self.ran)

    @rule(place=places)
    def kill_worker(self, place: int) -> None:
        if len(self.loop.workers) > 1:
            path = self.path(place)
            self.loop.workers.pop(path).die()
            self.loop.run()

    @rule(project=projects, place=places)
    def host(self, project: int, place: int) -> None:
        if not any(project in worker.projects for worker in self.loop.workers.values()):
            self.worker(place).host(project)

    @rule(project=projects)
    def retire(self, project: int) -> None:
        for worker in self.loop.workers.values():
            worker.retire(project)

    @rule(project=projects, lost=st.integers(0, 2))
    def fail(self, project: int, lost: int) -> None:
        for worker in self.loop.workers.values():
            worker.fail(project, lost)

    @rule(project=projects, most=st.integers(1, 6), stored=st.integers(0, 3))
    def run(self, project: int, most: int, stored: int) -> None:
        for worker in self.loop.workers.values():
            worker.full = not stored
            worker.run(project, most)
            worker.full = False

    @rule(project=projects)
    def reply(self, project: int) -> None:
        for worker in self.loop.workers.values():
            worker.reply(project)

    @rule()
    def work(self) -> None:
        for worker in self.loop.workers.values():
            worker.work()
        self.loop.run()

    # ---------------------------------------------------------------- what is under way

    @rule(place=places)
    def deliver_frame(self, place: int) -> None:
        for worker in self.loop.workers.values():
            if worker.connections:
                worker.receive(worker.connections[place % len(worker.connections)])

    @rule(place=places)
    def deliver_answer(self, place: int) -> None:
        connections = self.connections()
        if connections:
            connections[place % len(connections)].deliver_answer()
            self.loop.run()

    @rule(
        place=places, data=st.sampled_from([frame(b"\xc1"), frame(pack([(9, "x")])), b"\xff" * 9])
    )
    def send_garbage(self, place: int, data: bytes) -> None:
        connections = self.connections()
        if connections:
            connections[place % len(connections)].to_gateway.append(data)

    # ---------------------------------------------------------------- the supervisor

    @rule(project=projects, place=places)
    def route(self, project: int, place: int) -> None:
        """Send a route to a worker, which may be the wrong one."""
        self.clients[project].route(self.path(place))
        self.loop.run()

    @rule(project=projects)
    def route_well(self, project: int) -> None:
        for worker in self.loop.workers.values():
            if project in worker.projects:
                self.clients[project].route(worker.path)
        self.loop.run()

    @rule(project=projects, gone=st.booleans())
    def route_to_nothing(self, project: int, gone: bool) -> None:
        self.clients[project].route("gone" if gone else None)
        self.loop.run()

    @rule(project=projects)
    def refuse_waiting(self, project: int) -> None:
        self.clients[project].refuse_waiting(UnavailableError(what="it keeps failing"))

    @rule(seconds=st.sampled_from([0.02, 0.7]))
    def wait(self, seconds: float) -> None:
        self.loop.run(seconds)
        self.clients.expire()

    # ---------------------------------------------------------------- helpers and checks

    def path(self, place: int) -> str:
        return [*self.loop.workers][place % len(self.loop.workers)]

    def worker(self, place: int) -> SimulatedWorker:
        return self.loop.workers[self.path(place)]

    def connections(self) -> list[SimulatedConnection]:
        return [c for worker in self.loop.workers.values() for c in worker.connections]

    @invariant()
    def no_exception_reached_the_loop(self) -> None:
        assert self.loop.failures == []

    def teardown(self) -> None:
        if not hasattr(self, "clients"):
            return
        try:
            self.finish()
        finally:
            self.clients.close()
            self.loop.run()
            self.loop.close()
            asyncio.set_event_loop(None)

    def finish(self) -> None:
        """End all faults; check that all events have their outcomes, and that new ones run."""
        self.settle_all()
        for project, publisher in itertools.product(PROJECTS, DEVICES + HTTP_CLIENTS):
            self.submit(project, publisher, 1, 1)
        self.settle_all()
        for of_publisher in self.by_publisher.values():
            assert not isinstance(of_publisher[-1].outcome, NodeError)
            last = [sent.runs[-1] for sent in of_publisher if sent.runs]
            assert last == sorted(last), "the last run of each event is in order too"
        for link in self.clients._links._links.values():
            assert link._unanswered_bytes == 0
        assert self.clients._budget.used == 0
        self.no_exception_reached_the_loop()

    def settle_all(self) -> None:
        for _ in range(400):
            for project in PROJECTS:
                self.host(project, 0)
                if not self.clients[project].routed:
                    self.route_well(project)
            self.work()
            if self.clients.idle:
                break
            self.loop.run(0.1)
        assert self.clients.idle
        assert [sent.number for sent in self.events.values() if sent.outcome is None] == []


def test_events_run_in_order_and_are_settled_once_whatever_workers_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(project_client, "FRAME_EVENTS", 4)
    monkeypatch.setattr(project_client, "FRAME_BYTES", 100)
    monkeypatch.setattr(project_client, "SMALL_BYTES", 40)
    monkeypatch.setattr(worker_link, "LINK_BYTES", 400)
    monkeypatch.setattr(worker_link, "IDLE_S", 0.5)
    monkeypatch.setattr(suspects, "_GROUP", 2)
    run_state_machine_as_test(
        Workers, settings=settings(max_examples=200, stateful_step_count=50, deadline=None)
    )
    others = [r for r in caplog.records if r.levelname != "INFO" and "malformed" not in r.message]
    assert [record.message for record in others if record.levelno > 20] == []
