"""A worker serves its projects fairly, commits their batches together, and refuses others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.actors.wire import LOST, NODE_COMMAND, NOT_HERE, RESUME, WRITE_LOG, WireEvent, pack
from fieldbrook.storage.project.reader import ProjectStoreReader
from tests.support.nodes import until
from tests.support.projects import COUNTER, SPIN
from tests.support.workers import Worker, running_worker

RESUMED: WireEvent = (RESUME, NODE_COMMAND, "resume", pack(()), 0, 0, "")


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    with running_worker(tmp_path) as worker:
        yield worker


def event(payload: bytes, name: str = "e", publisher: int = 9) -> WireEvent:
    return ("DEFAULT", publisher, name, payload, 1, 0, "")


def count(results: Any) -> int:
    """The count that a handler returned for one event."""
    (((_, code, error),),) = results
    assert error == ""
    return int(code)


def stored(worker: Worker, project: int) -> bytes:
    """What the project's store has under the key k. LMDB opens a store once in a process."""
    copied = worker.folder / f"copy-{project}"
    shutil.copytree(worker.store(project), copied)
    with closing(ProjectStoreReader(copied)) as reader:
        return reader.kv_get(worker.applets[project], b"k") or b""


def test_the_batches_of_several_projects_are_committed_with_one_sync(worker: Worker) -> None:
    one, two = worker.projects

    def syncs_of_a_frame() -> int:
        before = worker.journal.syncs
        worker.send((one, [event(COUNTER + b"k")]), (two, [event(COUNTER + b"k")]))
        answers = dict(worker.receive(2))
        assert count(answers[one]) == count(answers[two])
        return worker.journal.syncs - before

    # On a busy machine the first turn may take so long that it is committed before the second.
    until(lambda: syncs_of_a_frame() == 1, "one sync for two projects")


def test_a_handler_that_never_ends_holds_up_no_other_project(worker: Worker) -> None:
    slow, light = worker.projects
    worker.send((slow, [event(SPIN + b"k")]))
    for number in range(1, 51):
        worker.send((light, [event(COUNTER + b"k")]))
        ((project, results),) = worker.receive(1)
        assert (project, count(results)) == (light, number)
    ((project, ((result,),)),) = worker.receive(1)
    assert project == slow
    assert "deadline" in result[2]
    worker.send((slow, [event(COUNTER + b"k")]))
    ((project, results),) = worker.receive(1)
    assert (project, count(results)) == (slow, 1)


def test_a_project_that_is_elsewhere_runs_nothing_until_the_gateway_resumes(
    worker: Worker,
) -> None:
    worker.send((4711, [event(COUNTER)]), (4711, [event(COUNTER)]))
    assert worker.receive(2) == [(4711, NOT_HERE), (4711, NOT_HERE)]
    worker.send((4711, {WRITE_LOG: True}))
    assert worker.receive(1) == [(4711, NOT_HERE)]


def test_a_retired_project_is_not_here_and_its_store_has_everything(worker: Worker) -> None:
    project, _ = worker.projects
    worker.send((project, [event(COUNTER + b"k")]))
    worker.receive(1)
    worker.call(lambda: worker.core.retire(project))
    assert not worker.ended(project).failed
    worker.send((project, [event(COUNTER + b"k")]))
    assert worker.receive(1) == [(project, NOT_HERE)]
    assert stored(worker, project) == (1).to_bytes(8, "little")


def test_a_checkpoint_makes_a_write_visible_in_the_store(worker: Worker) -> None:
    project, _ = worker.projects
    worker.send((project, [event(COUNTER + b"k")]), (project, {WRITE_LOG: True}))
    worker.receive(2)
    assert stored(worker, project) == (1).to_bytes(8, "little")


def test_an_exception_in_a_project_ends_only_its_actor(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    broken, other = worker.projects
    worker.send((broken, [event(COUNTER + b"k")]))
    worker.receive(1)
    worker.send((broken, [("DEFAULT",)]), (other, [event(COUNTER + b"k")]))  # type: ignore[list-item]
    answers = dict(worker.receive(2))
    assert answers[broken] == LOST
    assert count(answers[other]) == 1
    assert worker.ended(broken).failed
    assert "failed and starts again" in caplog.text
    worker.send((broken, [event(COUNTER + b"k")]))
    assert worker.receive(1) == [(broken, NOT_HERE)]
    worker.send((broken, [RESUMED]))
    assert worker.receive(1) == [(broken, NOT_HERE)], "there is no new actor yet"
    assert stored(worker, broken) == (1).to_bytes(8, "little")
