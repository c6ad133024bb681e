"""A worker serves its projects fairly, commits their batches together, and refuses others."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest

from fieldbrook.actors.shared_journal import ProjectRecords, SharedJournal
from fieldbrook.actors.wire import (
    FOLLOWED,
    LOST,
    NODE_COMMAND,
    NOT_HERE,
    RESUME,
    WRITE_LOG,
    WireEvent,
    pack,
)
from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.project.store import ProjectStore
from tests.support.disks import MIB, fill, small_disk
from tests.support.nodes import until
from tests.support.projects import COUNTER, SPIN
from tests.support.workers import Worker, count, running_worker

RESUMED: WireEvent = (RESUME, NODE_COMMAND, "resume", pack(()), 0, 0, "")


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    with running_worker(tmp_path) as worker:
        yield worker


def event(payload: bytes, name: str = "e", publisher: int = 9) -> WireEvent:
    return ("DEFAULT", publisher, name, payload, 1, 0, "")


def stored(worker: Worker, project: int) -> bytes:
    """Return the value under the key k in the project's store. LMDB can open a store only once in a
    process."""
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


def test_a_checkpoint_for_pages_writes_few_rows_at_once(worker: Worker) -> None:
    project, _ = worker.projects
    for _ in range(2):  # the second soon after the first
        worker.send((project, [event(COUNTER + b"k")]), (project, {WRITE_LOG: FOLLOWED}))
        worker.receive(2)
    assert stored(worker, project) == (2).to_bytes(8, "little")


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
    assert "failed and will be restarted" in caplog.text
    worker.send((broken, [event(COUNTER + b"k")]))
    assert worker.receive(1) == [(broken, NOT_HERE)]
    worker.send((broken, [RESUMED]))
    assert worker.receive(1) == [(broken, NOT_HERE)], "there is no new actor yet"
    assert stored(worker, broken) == (1).to_bytes(8, "little")


def test_a_project_for_which_the_journal_has_no_room_holds_up_no_other_while_its_store_is_written(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = worker.projects
    commit, write, may_write = SharedJournal.commit, ProjectStore.write_prepared, Event()

    def commit_others(self: SharedJournal, records: Iterable[ProjectRecords]) -> set[int]:
        without = [each for each in records if each.project_id == one]
        for each in without:
            each.waiting.clear()
        return commit(self, [each for each in records if each.project_id == other]) | {
            each.project_id for each in without
        }

    def write_later(self: ProjectStore) -> None:
        assert may_write.wait(20)
        write(self)

    for _ in range(3):  # from now on turns are fast, and keep the execution lock
        worker.send((one, [event(COUNTER + b"k")]), (other, [event(COUNTER + b"k")]))
        worker.receive(2)
    monkeypatch.setattr(SharedJournal, "commit", commit_others)
    monkeypatch.setattr(ProjectStore, "write_prepared", write_later)
    try:
        worker.send((one, [event(COUNTER + b"k")]))
        for number in range(4, 24):
            worker.send((other, [event(COUNTER + b"k")]))
            ((project, results),) = worker.receive(1)
            assert (project, count(results)) == (other, number)
    finally:
        may_write.set()
    ((project, results),) = worker.receive(1)
    assert (project, count(results)) == (one, 4)
    assert stored(worker, one) == (4).to_bytes(8, "little")
    worker.send((one, [event(COUNTER + b"k")]))
    ((project, results),) = worker.receive(1)
    assert (project, count(results)) == (one, 5)


def test_on_a_full_disk_events_are_refused_when_neither_journal_nor_store_has_room(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", 32 * MIB) as disk, running_worker(disk) as worker:
        project, _ = worker.projects
        happened = 0

        def is_taken() -> bool:
            nonlocal happened
            worker.send((project, [event(COUNTER + b"k" + bytes(8_000))]))
            ((_, results),) = worker.receive(1)
            if isinstance(results[0][0], str):
                return False
            happened += 1
            assert count(results) == happened
            return True

        assert is_taken()
        filler = fill(disk)
        until(lambda: not is_taken(), "an event is refused")
        filler.unlink()
        until(is_taken, "events are taken again")
        worker.send((project, {WRITE_LOG: True}))
        worker.receive(1)
        assert int.from_bytes(stored(worker, project), "little") == happened
