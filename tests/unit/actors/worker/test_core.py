"""Turns whose commits are acknowledged later by the hosts of a cluster."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.actors.project.actor import ProjectActor
from fieldbrook.actors.shared_journal import ProjectRecords
from fieldbrook.actors.wire import LOST, NOT_HERE, WireEvent, pack, unpack
from fieldbrook.actors.worker.core import WorkerCore
from fieldbrook.core.errors import OwnerChangedError
from fieldbrook.storage.journal.protocol import Record
from tests.support.nodes import until
from tests.support.projects import COUNTER
from tests.support.workers import Worker, count

CHANGED = OwnerChangedError(reason="host h2 took it over in term 2")


class LaterJournal:
    """A journal whose commits a test settles.

    Attributes:
        flying: the records in flight, by project.
        hurries: whether each commit is settled before `commit` returns.
    """

    is_complete = True

    def __init__(self) -> None:
        self.flying: dict[int, ProjectRecords] = {}
        self.commits: list[list[int]] = []
        self.hurries = False
        self.awaited = threading.Event()
        self.settle_when_awaited = False
        self.core: WorkerCore | None = None
        self.wake: Any = None

    def take_over(self, project_id: int, folder: Path) -> list[Record]:
        return []

    def give_up(self, project_id: int, number: int) -> None:
        pass

    def commit(self, records: Iterable[ProjectRecords]) -> set[int]:
        begun = list(records)
        self.commits.append([project.project_id for project in begun])
        for project in begun:
            assert not project.in_flight, "a commit is in flight already"
            project.waiting = []
            project.in_flight = True
            self.flying[project.project_id] = project
            if self.hurries:
                self.settle(project.project_id)
        return set()

    def commit_now(self, project: ProjectRecords) -> None:
        project.waiting = []

    def settle(self, project_id: int, error: OwnerChangedError | None = None) -> None:
        """End a commit like a thread of the journal."""
        assert self.core is not None
        self.core.settled(self.flying.pop(project_id), error)
        self.wake()

    def await_answers(self, limit_s: float) -> None:
        self.awaited.set()
        if self.settle_when_awaited:
            for project_id in list(self.flying):
                self.settle(project_id)

    def wants_snapshot(self, project_id: int, used_bytes: int) -> bool:
        return False

    def snapshot(self, project_id: int, number: int, path: Path) -> None:
        raise AssertionError("no snapshot is due")

    def release(self, project_id: int, number: int) -> None:
        pass

    def must_release(self) -> Mapping[int, int]:
        return {}

    def close(self) -> None:
        pass


class LaterWorker(Worker):
    """A worker with such a journal."""

    def open(self) -> None:
        super().open()
        self.journal.close()
        self.later = LaterJournal()
        context = next(iter(self.actors.values()))._context
        self.core = self.later.core = WorkerCore(self.later, self.posted.append)
        self.actors = {
            project_id: ProjectActor(
                project_id, 1, -1, context, ProjectRecords(project_id, self.later)
            )
            for project_id in self.projects
        }
        for actor in self.actors.values():
            self.core.host(actor)

    def serve(self) -> None:
        super().serve()
        self.later.wake = self.server.wake

    def close(self) -> None:
        self.later.settle_when_awaited = True
        super().close()

    def flies(self, project_id: int) -> None:
        """Wait until a commit of the project is in flight."""
        until(lambda: project_id in self.later.flying, "a commit is in flight")

    def answered(self) -> list[tuple[int, Any]]:
        """Let the worker finish its work; return the answers that have arrived."""
        self.call(lambda: None)
        self.call(lambda: None)
        self._socket.setblocking(False)
        try:
            for answers in self._reader.feed(self._socket.recv(1 << 16)):
                self._answers.extend(unpack(answers))
        except BlockingIOError:
            pass
        found, self._answers = self._answers, []
        return found


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[LaterWorker]:
    worker = LaterWorker(tmp_path)
    try:
        yield worker
    finally:
        worker.close()


def event(name: str = "e") -> WireEvent:
    return ("DEFAULT", 9, name, COUNTER + b"k", 1, 0, "")


def test_answers_leave_when_the_commit_is_settled(worker: LaterWorker) -> None:
    one, _ = worker.projects
    worker.send((one, [event()]))
    worker.flies(one)
    assert worker.answered() == []
    worker.later.settle(one)
    ((project, results),) = worker.receive(1)
    assert (project, count(results)) == (one, 1)


def test_a_project_gets_no_turn_while_its_commit_is_in_flight_and_others_go_on(
    worker: LaterWorker,
) -> None:
    one, two = worker.projects
    worker.send((one, [event()]))
    worker.flies(one)
    worker.send((one, [event()]), (one, [event()]))
    for number in range(1, 4):
        worker.send((two, [event()]))
        worker.flies(two)
        worker.later.settle(two)
        ((project, results),) = worker.receive(1)
        assert (project, count(results)) == (two, number)
    assert [projects for projects in worker.later.commits if one in projects] == [[one]]
    worker.later.settle(one)
    ((_, results),) = worker.receive(1)
    assert count(results) == 1
    worker.flies(one)  # both other events in one batch
    worker.later.settle(one)
    assert [count(results) for _, results in worker.receive(2)] == [2, 3]


def test_a_refused_commit_ends_the_project_and_its_gateway_learns_what_had_begun(
    worker: LaterWorker, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = worker.projects
    worker.send((one, [event()]))
    worker.flies(one)
    worker.send((one, [event()]))
    worker.send((two, [event()]))
    worker.flies(two)
    worker.later.settle(one, CHANGED)
    assert worker.receive(2) == [(one, LOST), (one, NOT_HERE)]
    assert not worker.ended(one).failed
    assert "host h2 took it over" in caplog.text
    worker.send((one, [event()]))
    assert worker.receive(1) == [(one, NOT_HERE)]
    worker.later.settle(two)
    ((project, results),) = worker.receive(1)
    assert (project, count(results)) == (two, 1)


def test_a_project_that_retires_waits_for_its_commit(worker: LaterWorker) -> None:
    one, _ = worker.projects
    worker.send((one, [event()]))
    worker.flies(one)
    worker.call(lambda: worker.core.retire(one))
    assert worker.answered() == []
    worker.later.settle(one)
    ((_, results),) = worker.receive(1)
    assert count(results) == 1
    assert not worker.ended(one).failed


def test_a_commit_that_is_settled_before_its_turn_is_over_ends_once(tmp_path: Path) -> None:
    worker = LaterWorker(tmp_path, projects=1)
    try:
        worker.later.hurries = True
        (one,) = worker.projects
        for number in range(1, 50):
            worker.send((one, [event()]))
            ((_, results),) = worker.receive(1)
            assert count(results) == number
    finally:
        worker.close()


class Turns:
    """A core with a project whose turns the test runs, without threads of a worker."""

    def __init__(self, worker: LaterWorker) -> None:
        self.core, self.journal = worker.core, worker.later
        self.journal.wake = lambda: None
        (self.actor,) = worker.actors.values()
        self.answers: list[Any] = []

    closed = False

    def answer(self, body: Any) -> None:
        """Receive an answer like a connection."""
        self.answers.extend(body)

    def turn(self) -> None:
        """Run the turn of the next project, without its commit."""
        assert self.core.ready.popleft() is self.actor
        self.core.run(self.actor, 0.02)

    def begin(self) -> None:
        """Open the project, and run a turn with one event."""
        self.turn()
        self.core.commit([self.actor])
        self.core.done(self.actor)
        self.core.arrive([(self, pack([(self.actor.project_id, [event()])]))])  # type: ignore[list-item]
        self.turn()
        assert self.answers == []


class AloneWorker(LaterWorker):
    """A worker whose core the test drives."""

    def serve(self) -> None:
        pass

    def close(self) -> None:
        self.core.close()
        self.look_ahead_threads.close()
        self._writer.close()


@pytest.fixture
def turns(tmp_path: Path) -> Iterator[Turns]:
    worker = AloneWorker(tmp_path, projects=1)
    yield Turns(worker)
    worker.close()


@pytest.mark.parametrize("error", [None, CHANGED])
@pytest.mark.parametrize("order", ["settled first", "over first"])
def test_the_end_of_a_turn_and_of_its_commit_come_in_any_order(
    turns: Turns, order: str, error: OwnerChangedError | None, caplog: pytest.LogCaptureFixture
) -> None:
    core, project_id = turns.core, turns.actor.project_id
    turns.begin()
    core.commit([turns.actor])  # by a thread without the execution lock
    assert turns.answers == []
    if order == "settled first":
        turns.journal.settle(project_id, error)
        core.care(0.0)  # by the thread with the execution lock
        assert turns.answers == []
        core.done(turns.actor)
    else:
        assert not core.done(turns.actor)
        turns.journal.settle(project_id, error)
        core.care(0.0)
    ((project, answer),) = turns.answers
    assert project == project_id
    assert answer == LOST if error else count(answer) == 1
    assert turns.actor.gone == (error is not None)
    assert list(core.ready) == []
    assert not turns.actor.records.in_flight


def test_closing_waits_for_commits_in_flight_and_sends_their_answers(turns: Turns) -> None:
    turns.begin()
    turns.core.commit([turns.actor])
    turns.core.done(turns.actor)
    turns.journal.settle_when_awaited = True
    assert turns.core.close()
    assert turns.journal.awaited.is_set()
    ((_, answer),) = turns.answers
    assert count(answer) == 1


def test_a_commit_that_is_never_settled_does_not_keep_a_worker_from_closing(turns: Turns) -> None:
    turns.begin()
    turns.core.commit([turns.actor])
    turns.core.done(turns.actor)
    turns.core.close()
    assert turns.answers == []
