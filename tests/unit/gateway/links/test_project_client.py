"""The client of one project against a real frame server in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.actors.frame_server import FrameServer, Request
from fieldbrook.actors.wire import (
    CREDIT,
    FRAME_EVENTS,
    NAMED,
    NODE_COMMAND,
    POISON,
    REPEATED,
    RESUME,
    WireEvent,
    unpack,
)
from fieldbrook.core.errors import (
    EventOutcomeUnknownError,
    NodeError,
    ProjectNotFoundError,
    StorageFullError,
    StoreError,
    TooManyRequestsError,
    UnavailableError,
    to_wire,
)
from fieldbrook.gateway.links import fair_queue, route
from fieldbrook.gateway.links import project_client as module
from fieldbrook.gateway.links.pending_event import Outcome, StoredResults
from fieldbrook.gateway.links.project_client import ProjectClient
from fieldbrook.gateway.links.worker_link import WorkerLinks
from tests.support.tools import LIMIT_S
from tests.support.waiting import until


class Project:
    """The socket of a worker with one project, which answers each event with its own number."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.frames: list[int] = []
        self.seen: list[int] = []
        self.kinds: list[int] = []
        self.deaf = False
        self.parts = 0
        self.repeated: set[int] = set()
        self.server = FrameServer(path, self._on_requests, tick_s=0.05)
        self.thread = threading.Thread(target=self.server.serve)
        self.thread.start()

    def _on_requests(self, requests: list[Request]) -> None:
        for connection, data in requests:
            for project_id, events in unpack(data):
                self.frames.append(len(events))
                self.seen += [int(event[2]) for event in events]
                self.kinds += [event[5] for event in events]
                if self.deaf:
                    continue
                results = [self._result(int(event[2])) for event in events]
                step = self.parts or len(results)
                for start in range(0, len(results), step):
                    connection.answer([(project_id, results[start : start + step])])

    def _result(self, number: int) -> Any:
        result = ((number, 0, ""),)
        return (REPEATED, result) if number in self.repeated else result

    def has_events(self) -> bool:
        return bool(self.seen)

    def stop(self) -> None:
        self.server.stop()
        self.thread.join(LIMIT_S)


class Board:
    """Replaces the gateway: counts the requests for a route."""

    def __init__(self) -> None:
        self.asked = 0

    def activate(self, project_id: int) -> None:
        self.asked += 1


def event(number: int, size: int = 1, publisher: int = 1) -> WireEvent:
    return "T", publisher, str(number), b"x" * size, 0, 0, ""


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[ProjectClient, Board]]:
    """Make a client without a route, and the board from which it requests one."""
    board = Board()
    loop = asyncio.get_running_loop()
    links = WorkerLinks(loop)
    client = ProjectClient(7, board, loop, links)
    yield client, board
    links.close()
    await asyncio.sleep(0)


def numbers(outcomes: list[Outcome]) -> list[int]:
    return [outcome[0][0] for outcome in outcomes if not isinstance(outcome, NodeError)]


async def test_events_before_a_route_ask_for_it_once_and_leave_in_order(tmp_path: Path) -> None:
    async with connected() as (client, board):
        outcomes: list[Outcome] = []
        for number in range(1000):
            client.submit(event(number), outcomes.append)
        assert board.asked == 1
        project = Project(tmp_path / "p")
        client.route(str(project.path))
        await until(lambda: len(outcomes) == 1000)
        assert numbers(outcomes) == project.seen == list(range(1000))
        assert max(project.frames) == FRAME_EVENTS
        assert client.idle
        await asyncio.to_thread(project.stop)


async def test_a_route_that_does_not_come_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected() as (client, board):
        client.submit(event(1), lambda outcome: None, resend=True)
        client.expire()
        assert board.asked == 1
        monkeypatch.setattr(route, "_RETRY_S", 0.0)
        await asyncio.sleep(0.001)
        client.expire()
        assert board.asked == 2


async def test_answers_in_parts_settle_the_events_in_order(tmp_path: Path) -> None:
    async with connected() as (client, _):
        project = Project(tmp_path / "p")
        project.parts = 7
        outcomes: list[Outcome] = []
        for number in range(600):
            client.submit(event(number), outcomes.append)
        client.route(str(project.path))
        await until(lambda: len(outcomes) == 600)
        assert numbers(outcomes) == list(range(600))
        await asyncio.to_thread(project.stop)


async def test_big_payloads_make_small_frames(tmp_path: Path) -> None:
    async with connected() as (client, _):
        project = Project(tmp_path / "p")
        outcomes: list[Outcome] = []
        for number in range(6):
            client.submit(event(number, 400_000), outcomes.append)
        client.route(str(project.path))
        await until(lambda: len(outcomes) == 6)
        assert project.frames == [2, 2, 2]
        await asyncio.to_thread(project.stop)


async def test_what_a_dying_project_had_is_of_unknown_outcome(tmp_path: Path) -> None:
    async with connected() as (client, _):
        project = Project(tmp_path / "p")
        project.deaf = True
        outcomes: list[Outcome] = []
        client.submit(event(1), outcomes.append)
        client.route(str(project.path))
        await until(lambda: project.seen)
        await asyncio.to_thread(project.stop)
        await until(lambda: outcomes)
        assert isinstance(outcomes[0], EventOutcomeUnknownError)


async def test_events_to_be_resent_reach_the_next_incarnation_alone_and_in_order(
    tmp_path: Path,
) -> None:
    async with connected() as (client, board):
        first = Project(tmp_path / "p1")
        first.deaf = True
        outcomes: list[Outcome] = []
        for number in range(5):
            client.submit(event(number), outcomes.append, resend=True)
        client.route(str(first.path))
        await until(lambda: len(first.seen) == 5)
        await asyncio.to_thread(first.stop)
        await until(lambda: board.asked >= 1)
        second = Project(tmp_path / "p2")
        client.route(str(second.path))
        await until(lambda: len(outcomes) == 5)
        assert numbers(outcomes) == second.seen == list(range(5))
        assert second.frames == [1] * 5
        await asyncio.to_thread(second.stop)


async def die_with_what_is_sent(client: ProjectClient, path: Path) -> list[int]:
    """Let a project read a frame and die; return the events that it had."""
    deaf = Project(path)
    deaf.deaf = True
    client.route(str(path), alone=True)
    await until(deaf.has_events)
    await asyncio.to_thread(deaf.stop)
    return deaf.seen


async def test_of_many_events_to_be_resent_a_few_go_together_at_first(tmp_path: Path) -> None:
    async with connected() as (client, _):
        outcomes: list[Outcome] = []
        for number in range(100):
            client.submit(event(number), outcomes.append, resend=True)
        under_way = len(await die_with_what_is_sent(client, tmp_path / "p1"))
        few = await die_with_what_is_sent(client, tmp_path / "p2")
        assert few == list(range(len(few)))
        assert 1 < len(few) < under_way
        good = Project(tmp_path / "p3")
        client.route(str(good.path))
        await until(lambda: len(outcomes) == 100)
        assert numbers(outcomes) == good.seen == list(range(100))
        assert good.frames[: len(few) + 1] == [1] * len(few) + [under_way - len(few)]
        await asyncio.to_thread(good.stop)


async def test_an_event_that_a_project_dies_on_twice_is_to_be_buried_and_the_others_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected() as (client, _):
        outcomes: list[Outcome] = []
        for number in range(3):
            named = (*event(number)[:5], NAMED, "")
            client.submit(named, outcomes.append, resend=True)
        assert await die_with_what_is_sent(client, tmp_path / "p0") == [0, 1, 2]
        for name in ("p1", "p2"):  # a death with several events in flight does not count
            assert await die_with_what_is_sent(client, tmp_path / name) == [0]
        assert not outcomes
        good = Project(tmp_path / "p3")
        client.route(str(good.path))
        await until(lambda: len(outcomes) == 3)
        assert good.seen == [0, 1, 2]
        assert good.kinds == [NAMED | POISON, NAMED, NAMED]
        await asyncio.to_thread(good.stop)
    assert "event 0 becomes a dead letter" in caplog.text


async def test_a_full_queue_accepts_no_more_events(tmp_path: Path) -> None:
    async with connected() as (client, _):
        outcomes: list[Outcome] = []
        for number in range(fair_queue.ALONE_EVENTS):
            client.submit(event(number), outcomes.append)
        with pytest.raises(TooManyRequestsError):
            client.submit(event(0), outcomes.append)
        assert outcomes == []


async def test_waiting_bytes_are_bounded_too(tmp_path: Path) -> None:
    async with connected() as (client, _):
        big = fair_queue.ALONE_BYTES // 4
        for number in range(4):
            client.submit(event(number, big), lambda outcome: None)
        with pytest.raises(TooManyRequestsError):
            client.submit(event(5), lambda outcome: None)


async def test_what_waits_too_long_is_told_apart_by_whether_it_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected() as (client, _):
        monkeypatch.setattr(module, "ANSWER_LIMIT_S", -1.0)
        unsent: list[Outcome] = []
        client.submit(event(1), unsent.append)
        client.expire()
        assert type(unsent[0]) is UnavailableError
        project = Project(tmp_path / "p")
        project.deaf = True
        sent: list[Outcome] = []
        client.submit(event(2), sent.append)
        client.route(str(project.path))
        await until(lambda: project.seen)
        client.expire()
        assert isinstance(sent[0], EventOutcomeUnknownError)
        await asyncio.to_thread(project.stop)
        assert len(sent) == 1


async def test_a_project_that_keeps_dying_refuses_what_waits_for_it(tmp_path: Path) -> None:
    async with connected() as (client, _):
        outcomes: list[Outcome] = []
        client.submit(event(1), outcomes.append)
        client.submit(event(2), outcomes.append, resend=True)
        client.refuse_waiting(UnavailableError(what="it keeps dying"))
        assert len(outcomes) == 1
        assert not client.idle


async def test_an_answer_that_cannot_be_given_keeps_no_other_from_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected() as (client, _):

        def fail(outcome: Outcome) -> None:
            raise RuntimeError("the client is gone")

        outcomes: list[Outcome] = []
        project = Project(tmp_path / "p")
        client.submit(event(0), fail)
        client.submit(event(1), outcomes.append)
        client.route(str(project.path))
        await until(lambda: outcomes)
        assert client.idle
        await asyncio.to_thread(project.stop)
    assert "event 0: the receiver of its outcome failed" in caplog.text


async def test_what_waits_for_a_removed_project_is_refused_even_if_it_would_be_sent_again(
    tmp_path: Path,
) -> None:
    async with connected() as (client, board):
        outcomes: list[Outcome] = []
        for number in range(3):
            client.submit(event(number), outcomes.append, resend=number > 0)
        client.refuse_all(ProjectNotFoundError(project=7))
        assert [type(outcome) for outcome in outcomes] == [ProjectNotFoundError] * 3
        assert client.idle
        assert client.disconnected
        assert board.asked == 1


async def test_nothing_of_a_request_runs_after_an_event_of_its_publisher_whose_outcome_is_unknown(
    tmp_path: Path,
) -> None:
    async with connected() as (client, _):
        blocked: set[int] = set()
        same: list[Outcome] = []
        other: list[Outcome] = []
        alone: list[Outcome] = []
        for number in range(100):
            client.submit(event(number), same.append, blocked=blocked)
        first = Project(tmp_path / "p1")
        first.deaf = True
        client.route(str(first.path))
        await until(lambda: len(first.frames) == CREDIT)
        for number in range(100, 110):
            client.submit(event(number, publisher=2), other.append, blocked=blocked)
        client.submit(event(200), alone.append)
        sent = len(first.seen)
        await asyncio.to_thread(first.stop)
        await until(lambda: len(same) == sent)
        second = Project(tmp_path / "p2")
        client.route(str(second.path))
        await until(lambda: client.idle and len(same) == 100)
        assert [type(outcome) for outcome in same[:sent]] == [EventOutcomeUnknownError] * sent
        assert [type(outcome) for outcome in same[sent:]] == [UnavailableError] * (100 - sent)
        assert sorted(second.seen) == [*range(100, 110), 200], "others' events run"
        assert numbers(other) == list(range(100, 110))
        assert numbers(alone) == [200], "an event of another request runs"
        await asyncio.to_thread(second.stop)


async def test_what_was_told_unknown_in_time_holds_up_the_rest_when_the_project_dies_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected() as (client, board):
        monkeypatch.setattr(module, "FRAME_S", 0.0)  # an event in a frame
        blocked: set[int] = set()
        outcomes: list[Outcome] = []
        project = Project(tmp_path / "p1")
        project.deaf = True
        monkeypatch.setattr(module, "ANSWER_LIMIT_S", -1.0)
        for number in range(CREDIT):
            client.submit(event(number), outcomes.append, blocked=blocked)
        monkeypatch.setattr(module, "ANSWER_LIMIT_S", 60.0)
        client.submit(event(CREDIT), outcomes.append, blocked=blocked)
        client.route(str(project.path))
        await until(lambda: len(project.seen) == CREDIT)
        client.expire()
        assert [type(outcome) for outcome in outcomes] == [EventOutcomeUnknownError] * CREDIT
        await asyncio.to_thread(project.stop)
        await until(lambda: board.asked == 2)
        second = Project(tmp_path / "p2")
        client.route(str(second.path))
        await until(lambda: len(outcomes) == CREDIT + 1)
        assert type(outcomes[-1]) is UnavailableError
        assert second.seen == []
        await asyncio.to_thread(second.stop)


async def test_the_result_of_an_event_that_was_handled_before_is_told_apart(tmp_path: Path) -> None:
    async with connected() as (client, _):
        project = Project(tmp_path / "p")
        project.repeated = {1}
        outcomes: list[Outcome] = []
        for number in range(3):
            client.submit(event(number), outcomes.append)
        client.route(str(project.path))
        await until(lambda: len(outcomes) == 3)
        assert numbers(outcomes) == [0, 1, 2]
        assert [type(outcome) is StoredResults for outcome in outcomes] == [False, True, False]
        await asyncio.to_thread(project.stop)


class Full(Project):
    """A project on a disk that is full until `has_space` is set. Like a real project, after an
    event that it could not store it accepts no more events of its gateway until the gateway allows
    it."""

    def __init__(self, path: Path) -> None:
        self.has_space = False
        self.behind = False
        self.resumed = 0
        super().__init__(path)

    def _on_requests(self, requests: list[Request]) -> None:
        for connection, data in requests:
            for project_id, events in unpack(data):
                connection.answer([(project_id, [self._answer(each) for each in events])])

    def _answer(self, sent: Any) -> Any:
        if sent[1] == NODE_COMMAND:
            assert sent[0] == RESUME
            self.behind = False
            self.resumed += 1
            return ()
        if self.behind or not self.has_space:
            self.behind = True
            return to_wire(StorageFullError(reason="full"))
        self.seen.append(int(sent[2]))
        return ((int(sent[2]), 0, ""),)


async def test_nothing_that_waits_behind_an_event_that_could_not_be_stored_overtakes_it(
    tmp_path: Path,
) -> None:
    async with connected() as (client, _):
        project = Full(tmp_path / "p")
        outcomes: list[Outcome] = []
        for number in range(600):
            client.submit(event(number), outcomes.append, resend=True)
        other = event(600, publisher=2)
        client.submit(other, outcomes.append)  # of a publisher whose events are not tried again
        client.route(str(project.path))
        await until(lambda: len(outcomes) == 601)
        assert numbers(outcomes) == project.seen == []
        assert all(isinstance(each, StoreError | UnavailableError) for each in outcomes)
        await until(lambda: project.resumed and client.idle)
        project.has_space = True
        again: list[Outcome] = []
        for number in range(600):
            client.submit(event(number), again.append, resend=True)
        await until(lambda: len(again) == 600)
        assert numbers(again) == project.seen == list(range(600))
        await asyncio.to_thread(project.stop)
