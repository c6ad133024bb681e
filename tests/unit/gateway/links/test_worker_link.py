"""The link to a worker, with a scripted worker at the other end of a Unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.actors.wire import LOST, NOT_HERE, POISON, RESUME, WireEvent, frame, pack
from fieldbrook.core.errors import EventOutcomeUnknownError, NodeError, UnavailableError
from fieldbrook.gateway.links import project_client, worker_link
from fieldbrook.gateway.links.pending_event import Outcome
from fieldbrook.gateway.links.project_clients import ProjectClients
from tests.support.scripted_worker import ScriptedWorker, results
from tests.support.waiting import until

PROJECTS = range(1, 65)


class Gateway:
    """The clients of a gateway; stores the outcomes, and the requests to the supervisor."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.outcomes: dict[str, Outcome] = {}
        self.order: list[str] = []
        self.clients = ProjectClients(self, asyncio.get_running_loop())

    def activate(self, project_id: int) -> None:
        self.asked.append(project_id)

    def submit(
        self, project_id: int, *ids: str, publisher: int = 1, size: int = 1, resend: bool = False
    ) -> None:
        for each in ids:
            event: WireEvent = ("T", publisher, each, b"x" * size, 0, 0, "")

            def settle(outcome: Outcome, each: str = each) -> None:
                assert each not in self.outcomes, "an event is settled once"
                self.outcomes[each] = outcome
                self.order.append(each)

            self.clients[project_id].submit(event, settle, resend=resend)

    def route(self, worker: ScriptedWorker | None, *project_ids: int, alone: bool = False) -> None:
        for project_id in project_ids:
            self.clients[project_id].route(None if worker is None else worker.path, alone)

    def code(self, each: str) -> int:
        """Return the handler's code for an event."""
        outcome = self.outcomes[each]
        assert not isinstance(outcome, NodeError)
        return outcome[0][0]

    def unknown(self) -> list[str]:
        """Return the events with an unknown outcome."""
        return [
            each
            for each, outcome in self.outcomes.items()
            if isinstance(outcome, EventOutcomeUnknownError)
        ]


@asynccontextmanager
async def world(folder: Path, workers: int = 1) -> AsyncIterator[tuple[Any, ...]]:
    """Start a gateway and a number of workers."""
    gateway = Gateway()
    running = [await ScriptedWorker(folder / f"w{n}").start() for n in range(workers)]
    yield gateway, *running
    gateway.clients.close()
    for worker in running:
        worker.die()
    await asyncio.sleep(0)


async def test_the_events_of_all_projects_of_a_turn_travel_in_one_frame(tmp_path: Path) -> None:
    async with world(tmp_path) as (gateway, worker):
        gateway.route(worker, *PROJECTS)
        for project in PROJECTS:
            gateway.submit(project, f"{project}a", f"{project}b")
        await until(lambda: worker.frames)
        assert worker.frames == [[(p, [f"{p}a", f"{p}b"]) for p in PROJECTS]]
        assert len(worker.connections) == 1
        worker.send(*((project, results(project, project)) for project in PROJECTS))
        await until(lambda: len(gateway.outcomes) == 2 * len(PROJECTS))
        assert all(gateway.code(f"{project}b") == project for project in PROJECTS)
        assert gateway.clients.idle


async def test_projects_are_answered_in_any_order_and_each_in_parts(tmp_path: Path) -> None:
    async with world(tmp_path) as (gateway, worker):
        gateway.route(worker, 1, 2)
        gateway.submit(1, "a", "b", "c")
        gateway.submit(2, "x", "y")
        await until(lambda: worker.frames)
        gateway.submit(1, "d")
        await until(lambda: worker.ids(1) == ["a", "b", "c", "d"])
        worker.send((2, results(10)), (1, results(1, 2)))
        worker.send((2, results(11)))
        worker.send((1, results()), (1, results(3)))
        worker.send((1, results(4)))
        await until(lambda: gateway.clients.idle)
        assert gateway.order == ["x", "a", "b", "y", "c", "d"]
        assert [gateway.code(each) for each in "abcdxy"] == [1, 2, 3, 4, 10, 11]


async def test_a_project_that_is_answered_gets_more_while_another_takes_its_time(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as (gateway, worker):
        gateway.route(worker, 1, 2)
        gateway.submit(1, "slow")
        gateway.submit(2, "0")
        for number in range(20):
            await until(lambda: worker.ids(2)[-1:] == [str(number)])  # noqa: B023
            gateway.submit(2, str(number + 1))
            worker.send((2, results(0)))
            await until(lambda: str(number) in gateway.outcomes)  # noqa: B023
        assert "slow" not in gateway.outcomes


async def test_events_of_a_project_that_is_elsewhere_come_back_in_their_order(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, 2) as (gateway, first, second):
        gateway.route(first, 1, 2)
        gateway.submit(2, "other")
        gateway.submit(1, "a", "b")
        await until(lambda: first.ids(1))
        gateway.submit(1, "c")
        await until(lambda: first.ids(1) == ["a", "b", "c"])
        gateway.submit(1, "d")
        first.send((1, NOT_HERE))
        gateway.submit(1, "e")
        first.send((1, NOT_HERE))
        await until(lambda: gateway.asked == [1])
        gateway.submit(1, "f")
        gateway.route(second, 1)
        await until(lambda: second.ids(1)[-1:] == ["f"])
        assert second.ids(1) == [RESUME, *"abcdef"]
        assert first.ids(1) == [*"abc"]
        assert gateway.outcomes == {}
        second.send((1, [()]), (1, results(*range(6))))
        first.send((2, results(7)))
        await until(lambda: gateway.clients.idle)
        assert gateway.order == [*"abcdef", "other"]
        assert len(first.connections) == 1


async def test_a_supervisor_that_names_a_wrong_worker_is_asked_after_growing_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    async with world(tmp_path) as (gateway, worker):
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def note(delay: float, callback: Callable[..., object], *args: Any) -> Any:
            if callback == gateway.clients[1]._route._due:
                pauses.append(delay)
                delay = 0.0
            return call_later(delay, callback, *args)

        monkeypatch.setattr(loop, "call_later", note)
        gateway.submit(1, "a")
        for asked in range(1, 12):
            await until(lambda: len(gateway.asked) == asked)  # noqa: B023
            gateway.route(worker, 1)
            await until(lambda: worker.ids(1).count("a") == asked)  # noqa: B023
            bodies = 1 if asked == 1 else 2  # after the first time with RESUME
            worker.send(*[(1, NOT_HERE)] * bodies)
        await until(lambda: len(gateway.asked) == 12)
        assert pauses[:3] == [0.01, 0.02, 0.04]
        assert pauses == sorted(pauses)
        assert pauses[-1] == 0.5


async def test_the_failure_of_a_project_costs_its_neighbours_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as (gateway, worker):
        gateway.route(worker, 1, 2)
        gateway.submit(1, "sent again", resend=True)
        gateway.submit(1, "http", publisher=2)
        gateway.submit(2, "neighbour")
        await until(lambda: worker.frames)
        gateway.submit(1, "second body", resend=True)
        await until(lambda: "second body" in worker.ids(1))
        gateway.submit(1, "later", resend=True)
        worker.send((1, LOST), (1, LOST))
        await until(lambda: gateway.asked == [1])
        assert gateway.unknown() == ["http"]
        gateway.route(worker, 1)
        await until(lambda: worker.bodies[-1] == (1, [RESUME]))
        worker.send((1, [()]))
        for each in ("sent again", "second body"):
            await until(lambda: worker.bodies[-1] == (1, [each]))  # noqa: B023
            worker.send((1, results(0)))
        await until(lambda: worker.bodies[-1] == (1, ["later"]))
        worker.send((1, results(0)), (2, results(0)))
        await until(lambda: gateway.clients.idle)
        assert gateway.unknown() == ["http"]
        assert gateway.order == ["http", "sent again", "second body", "later", "neighbour"]
        assert len(worker.connections) == 1


async def test_the_end_of_a_link_asks_for_a_route_for_each_project_and_blames_nobody(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, 2) as (gateway, first, second):
        gateway.route(first, *PROJECTS)
        for project in PROJECTS:
            gateway.submit(project, f"{project}a", resend=project % 2 == 0)
        await until(lambda: first.frames)
        first.die()
        await until(lambda: not gateway.clients.routed)
        for project in PROJECTS:
            gateway.submit(project, f"{project}b", resend=project % 2 == 0)
        await until(lambda: sorted(gateway.asked) == [*PROJECTS])
        gateway.route(second, *PROJECTS)
        answered = 0
        while not gateway.clients.idle:
            await until(lambda: len(second.bodies) > answered or gateway.clients.idle)  # noqa: B023
            for project, ids in second.bodies[answered:]:
                answered += 1
                second.send((project, results(*[0] * len(ids))))
            await asyncio.sleep(0)
        lost = [f"{project}a" for project in PROJECTS if project % 2 == 1]
        assert gateway.unknown() == lost
        for project in PROJECTS:
            again = [] if project % 2 else [f"{project}a"]
            assert second.ids(project) == [*again, f"{project}b"]


@pytest.mark.parametrize("alone", [True, False])
async def test_only_the_worker_of_a_single_project_makes_dead_letters(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, alone: bool
) -> None:
    async with world(tmp_path, 3) as (gateway, *workers):
        gateway.submit(1, "a", resend=True)
        for worker in workers[:2]:
            gateway.route(worker, 1, alone=alone)
            await until(lambda: worker.ids(1) == ["a"])  # noqa: B023
            worker.die()
            await until(lambda: not gateway.clients[1].routed)
        client = gateway.clients[1]
        [[pending]] = client._suspects.groups
        assert bool(pending.event[5] & POISON) is alone
    assert ("event a becomes a dead letter" in caplog.text) is alone


async def test_a_worker_that_takes_one_more_connection_while_it_dies_has_died_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(tmp_path, 2) as (gateway, dying, next_one):
        gateway.submit(1, "a", resend=True)
        for arrived in (1, 2):
            gateway.route(dying, 1, alone=True)
            await until(lambda: dying.ids(1) == ["a"] * arrived)  # noqa: B023
            dying.connections[-1].transport.abort()
            await until(lambda: not gateway.clients[1].routed)
        gateway.route(next_one, 1, alone=True)
        await until(lambda: next_one.ids(1) == ["a"])
        next_one.send((1, results(7)))
        await until(lambda: gateway.clients.idle)
        assert gateway.code("a") == 7
    assert "becomes a dead letter" not in caplog.text


async def test_a_new_route_is_used_when_nothing_is_unanswered_on_the_old_one(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, 2) as (gateway, first, second):
        gateway.route(first, 1)
        gateway.submit(1, "a")
        await until(lambda: first.ids(1))
        gateway.route(None, 1)
        gateway.submit(1, "b")
        gateway.route(second, 1)
        gateway.submit(1, "c")
        gateway.submit(2, "other")
        gateway.route(second, 2)
        await until(lambda: second.ids(2))
        assert second.ids(1) == []
        first.send((1, results(1)))
        await until(lambda: second.ids(1) == ["b", "c"])
        second.send((1, results(2, 3)), (2, results(4)))
        await until(lambda: gateway.clients.idle)
        assert first.ids(1) == ["a"]
        assert gateway.asked == [2]


async def test_events_after_the_end_of_a_route_ask_for_another_one(tmp_path: Path) -> None:
    async with world(tmp_path) as (gateway, worker):
        gateway.route(worker, 1)
        gateway.submit(1, "a")
        await until(lambda: worker.ids(1))
        worker.send((1, results(0)))
        await until(lambda: gateway.clients.idle)
        gateway.route(None, 1)
        assert gateway.asked == []
        assert gateway.clients[1].disconnected
        gateway.submit(1, "b")
        assert gateway.asked == [1]


async def test_large_events_of_slow_projects_leave_room_for_small_ones_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_link, "LINK_BYTES", 1 << 20)
    async with world(tmp_path) as (gateway, worker):
        gateway.route(worker, *PROJECTS)
        for project in PROJECTS[:8]:
            gateway.submit(project, f"{project}a", f"{project}b", size=300 << 10)
        await until(lambda: worker.frames)
        sent = sum(len(ids) for _, ids in worker.bodies) * (300 << 10)
        assert sent <= (1 << 20) + (1 << 20), "the credit, and one body more"
        waiting = [p for p in PROJECTS[:8] if not worker.ids(p)]
        assert waiting == [*PROJECTS[:8]][-len(waiting) :]
        gateway.submit(9, "small")
        await until(lambda: worker.ids(9) == ["small"])
        worker.send((9, results(9)))
        await until(lambda: "small" in gateway.outcomes)
        assert [p for p in PROJECTS[:8] if not worker.ids(p)] == waiting


async def test_projects_take_turns_while_the_worker_has_no_credit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_link, "LINK_BYTES", 1)
    monkeypatch.setattr(project_client, "FRAME_BYTES", 1)  # a body has one event
    async with world(tmp_path) as (gateway, worker):
        gateway.route(worker, 1, 2, 3)
        for project in (1, 2, 3):
            gateway.submit(project, *(f"{project}{n}" for n in range(5)), size=20 << 10)
        for done in range(15):
            await until(lambda: len(worker.bodies) > done)  # noqa: B023
            assert len(worker.bodies) == done + 1, "one body is more than the credit"
            worker.send((worker.bodies[-1][0], results(0)))
        await until(lambda: gateway.clients.idle)
        assert [project for project, _ in worker.bodies] == [1, 2, 3] * 5


GARBAGE = {
    "not msgpack": frame(b"\xc1"),
    "half of a value": frame(b"\x93\x01"),
    "a number": frame(pack(7)),
    "no pairs": frame(pack([1, 2])),
    "a map": frame(pack({1: results(1)})),
    "an unknown project": frame(pack([(2, results(1))])),
    "a project that is no number": frame(pack([([1], results(1))])),
    "too many results": frame(pack([(1, results(1, 2))])),
    "a result that is a number": frame(pack([(1, [7])])),
    "an error without details": frame(pack([(1, [("StoreError", 7)])])),
    "an answer that is a number": frame(pack([(1, 7)])),
    "an unknown word": frame(pack([(1, "elsewhere")])),
    "an answer after the last": frame(pack([(1, results(1)), (1, results(1))])),
    "a frame without end": b"\xff\xff\xff\xff",
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
async def test_a_malformed_answer_ends_the_link_and_the_next_one_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with world(tmp_path) as (gateway, worker):
        gateway.route(worker, 1)
        gateway.submit(1, "a")
        await until(lambda: worker.ids(1))
        worker.send_bytes(data)
        await until(lambda: worker.connections[0].closed)
        assert len(gateway.outcomes) == 1
        gateway.submit(1, "b")
        await until(lambda: gateway.asked)
        gateway.route(worker, 1)
        await until(lambda: worker.ids(1) == ["a", "b"])
        worker.send((1, results(2)))
        await until(lambda: gateway.clients.idle)
        assert gateway.code("b") == 2
    assert caplog.text.count("malformed answer") == 1
    assert failures == []


async def test_a_worker_that_cannot_be_reached_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_link, "_CONNECT_TRIES", 2)
    async with world(tmp_path) as (gateway, worker):
        gone = ScriptedWorker(tmp_path / "gone")
        gateway.submit(1, "a")
        gateway.route(gone, 1)
        await until(lambda: gateway.asked == [1, 1])
        gateway.route(worker, 1)
        await until(lambda: worker.ids(1) == ["a"])


async def test_a_link_that_nobody_uses_is_closed_and_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_link, "IDLE_S", 0.0)
    async with world(tmp_path) as (gateway, worker):
        gateway.route(worker, 1)
        gateway.submit(1, "a")
        await until(lambda: worker.ids(1))
        gateway.clients.expire()
        assert len(gateway.clients._links) == 1, "it is in use"
        worker.send((1, results(1)))
        await until(lambda: gateway.clients.idle)
        gateway.clients.expire()
        assert len(gateway.clients._links) == 0
        await until(lambda: worker.connections[0].closed)
        gateway.submit(1, "b")
        await until(lambda: worker.ids(1) == ["a", "b"])
        assert gateway.asked == []


async def test_an_event_whose_sender_has_given_up_does_not_run_after_it_came_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_client, "ANSWER_LIMIT_S", -1.0)
    async with world(tmp_path, 2) as (gateway, first, second):
        gateway.route(first, 1)
        gateway.submit(1, "late")
        await until(lambda: first.ids(1))
        gateway.clients.expire()
        assert gateway.unknown() == ["late"]
        first.send((1, NOT_HERE))
        await until(lambda: gateway.clients.idle)
        monkeypatch.setattr(project_client, "ANSWER_LIMIT_S", 15.0)
        gateway.submit(1, "next")
        gateway.route(second, 1)
        await until(lambda: "next" in second.ids(1))
        assert second.ids(1) == [RESUME, "next"]


async def test_what_comes_back_behind_an_event_that_could_not_be_stored_does_not_overtake_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_client, "FRAME_BYTES", 1)  # a body has one event
    async with world(tmp_path) as (gateway, worker):
        gateway.route(worker, 1)
        gateway.submit(1, "a", "b", "c", resend=True)
        await until(lambda: worker.ids(1) == ["a", "b"])
        worker.send((1, [("StoreError", {"reason": "full"})]), (1, NOT_HERE))
        await until(lambda: len(gateway.outcomes) == 3)
        assert gateway.clients.idle
        assert isinstance(gateway.outcomes["b"], UnavailableError)
        assert isinstance(gateway.outcomes["c"], UnavailableError)
