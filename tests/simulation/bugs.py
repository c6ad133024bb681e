"""Bugs that tests inject into the node, to check that the simulation finds them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from unittest import mock

from fieldbrook.actors import messages as m
from fieldbrook.actors.frame_server import Connection
from fieldbrook.actors.project.actor import ProjectActor
from fieldbrook.actors.project.execution.commit import BatchCommitter
from fieldbrook.actors.shared_journal import ProjectRecords, SharedJournal
from fieldbrook.actors.supervisor.child import Child
from fieldbrook.actors.supervisor.workers import Workers
from fieldbrook.actors.wire import frame, pack
from fieldbrook.actors.worker.core import WorkerCore
from fieldbrook.gateway.links.fair_queue import FairQueue
from fieldbrook.storage.journal import recovery
from fieldbrook.storage.journal.protocol import Record
from fieldbrook.storage.journal.segments import Found, SegmentFile, Sync
from fieldbrook.storage.lmdb.codec import decode_record
from fieldbrook.storage.project.commit.batch import Batch
from fieldbrook.storage.project.store import ProjectStore

Bug = contextlib.AbstractContextManager[Any]


@contextlib.contextmanager
def answers_before_the_sync() -> Iterator[None]:
    """A round of the journal is written and synced with the next round, after its events were
    answered."""
    sync = SharedJournal.commit

    def commit(self: SharedJournal, records: Iterable[ProjectRecords]) -> set[int]:
        late: list[Any] = self.__dict__.setdefault("late", [])
        sync(self, late)
        late.clear()
        for project in records:
            held = ProjectRecords(project.project_id, self)
            held.waiting, project.waiting = project.waiting, []
            late.append(held)
        return set()

    with mock.patch.object(SharedJournal, "commit", commit):
        yield


@contextlib.contextmanager
def recovers_without_looking_at_numbers() -> Iterator[None]:
    """A recovery repeats every batch of the journal, including those that the store has."""

    def bring_up_to_date(stores: recovery.Stores, project_id: int, records: list[Record]) -> int:
        store: Any = stores.open(project_id)
        try:
            for record in records:
                store._happened(decode_record(record.batch, Batch), len(record.batch))
            store.checkpoint()
        finally:
            store.close()
        return len(records)

    with mock.patch.object(recovery, "_bring_up_to_date", bring_up_to_date):
        yield


@contextlib.contextmanager
def moves_without_a_checkpoint() -> Iterator[None]:
    """A project that retires leaves its waiting batches in the journal of its worker."""

    def close(self: ProjectActor) -> None:
        executor, store = self._executor, self._store
        assert executor is not None
        assert store is not None
        self.closed = True
        self._end(executor)
        store._stored.close()
        self._context.post(m.ProjectEnded(self.part, self.generation, failed=False))

    with mock.patch.object(ProjectActor, "_close", close):
        yield


def queues_returned_events_at_the_end() -> Bug:
    """Events that a worker has refused because their project has left are queued after later
    events."""
    return mock.patch.object(FairQueue, "put_back", FairQueue.append)


@contextlib.contextmanager
def never_syncs_slow_turns() -> Iterator[None]:
    """The batch of a turn that is committed alone is not written to the journal."""
    commit_all = WorkerCore.commit

    def commit(self: WorkerCore, actors: Sequence[ProjectActor]) -> None:
        if len(actors) == 1:
            actors[0].records.waiting.clear()
        commit_all(self, actors)

    with mock.patch.object(WorkerCore, "commit", commit):
        yield


@contextlib.contextmanager
def starts_projects_before_their_journal_is_read() -> Iterator[None]:
    """A project whose worker died starts in another one at once."""
    wait_for_journal = Workers.run

    def run(self: Workers, project: Child) -> None:
        project.in_journal = False
        wait_for_journal(self, project)

    with mock.patch.object(Workers, "run", run):
        yield


@contextlib.contextmanager
def releases_records_before_the_checkpoint() -> Iterator[None]:
    """The journal may use a segment again when its batches are in the memory of their projects."""
    committed = ProjectStore.committed

    def commit(self: ProjectStore) -> None:
        committed(self)
        assert self._journal is not None
        self._journal.release(self._project_id, self.number)

    with mock.patch.object(ProjectStore, "committed", commit):
        yield


@contextlib.contextmanager
def syncs_again_after_a_failure() -> Iterator[None]:
    """A sync of the journal that failed is repeated, and its success is believed."""
    make = SegmentFile.__init__

    def make_patient(self: SegmentFile, found: Found, worker: str, sync: Sync) -> None:
        def sync_until_it_succeeds(descriptor: int) -> None:
            for _ in range(10):
                with contextlib.suppress(OSError):
                    sync(descriptor)
                    break

        make(self, found, worker, sync_until_it_succeeds)

    with mock.patch.object(SegmentFile, "__init__", make_patient):
        yield


@contextlib.contextmanager
def drops_answers_that_a_gateway_does_not_read() -> Iterator[None]:
    """Data that a socket does not accept are dropped, and the connection stays open."""

    def answer(self: Connection, value: Any) -> None:
        with self._lock:
            if not self.closed and not self._output:
                self._send(frame(pack(value)))

    with mock.patch.object(Connection, "answer", answer):
        yield


@contextlib.contextmanager
def answers_although_the_journal_is_full() -> Iterator[None]:
    """A batch for which the journal has no room waits for the next checkpoint, in memory only."""
    finish = BatchCommitter.finish

    def finish_all(self: BatchCommitter, *, full: bool = False) -> None:
        finish(self)

    with mock.patch.object(BatchCommitter, "finish", finish_all):
        yield


BUGS: list[Callable[[], Bug]] = [
    answers_before_the_sync,
    recovers_without_looking_at_numbers,
    moves_without_a_checkpoint,
    queues_returned_events_at_the_end,
    never_syncs_slow_turns,
    starts_projects_before_their_journal_is_read,
    releases_records_before_the_checkpoint,
    syncs_again_after_a_failure,
    answers_although_the_journal_is_full,
    drops_answers_that_a_gateway_does_not_read,
]
