"""The journal of a worker on a host of a cluster, with a real server."""

from __future__ import annotations

import os
import queue
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from fieldbrook.actors import replicated_journal as journals
from fieldbrook.actors.replicated_journal import ReplicatedJournal
from fieldbrook.actors.shared_journal import ProjectRecords
from fieldbrook.core.errors import EngineUnreachableError, NodeError, OwnerChangedError
from fieldbrook.storage.journal.unapplied import apply_records
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.replication import snapshots, takeover
from fieldbrook.storage.replication.appends import ENTRY_BYTES
from fieldbrook.storage.replication.connection import Endpoint
from fieldbrook.storage.replication.marks import FILE, Mark
from fieldbrook.storage.replication.records import Entry, decode_entry
from fieldbrook.storage.replication.streams import project_subject
from fieldbrook.storage.replication.takeover import last

LIMIT_S = 15.0
_PROJECTS = iter(range(100_000, 200_000))


class Worker:
    """The journal of a worker, and the outcomes of its commits."""

    def __init__(self, endpoint: Callable[[], Endpoint], host: str) -> None:
        self.ends: queue.Queue[tuple[ProjectRecords, NodeError | None]] = queue.Queue()
        self.journal = ReplicatedJournal(
            endpoint, host, f"worker of {host}", lambda *end: self.ends.put(end)
        )

    def records(self, project_id: int, folder: Path) -> ProjectRecords:
        """Take over a project whose store does not exist."""
        records = ProjectRecords(project_id, self.journal)
        self.missing = records.take_over(folder / "none")
        return records

    def commit(self, *batches: tuple[ProjectRecords, int, bytes]) -> list[NodeError | None]:
        """Commit one batch for each of these projects."""
        for records, number, batch in batches:
            records.add(records.project_id, number, batch)
        assert self.journal.commit([records for records, _, _ in batches]) == set()
        assert all(records.in_flight for records, _, _ in batches)
        ends = dict(self.ends.get(timeout=LIMIT_S) for _ in batches)
        return [ends[records] for records, _, _ in batches]

    def close(self) -> None:
        self.journal.close()


@pytest.fixture
def make(endpoint: Endpoint) -> Iterator[Callable[[str], Worker]]:
    """Makes workers."""
    with ExitStack() as stack:

        def make(host: str) -> Worker:
            worker = Worker(lambda: endpoint, host)
            stack.callback(worker.close)
            return worker

        yield make


Make = Callable[[str], Worker]


def test_the_next_host_has_what_was_settled(make: Make, tmp_path: Path) -> None:
    one, two = make("h1"), make("h2")
    projects = [one.records(next(_PROJECTS), tmp_path) for _ in range(20)]
    for number in (1, 2, 3):
        ends = one.commit(*[(records, number, b"%d" % number) for records in projects])
        assert set(ends) == {None}
    for records in projects:
        records.in_flight = False
        two.records(records.project_id, tmp_path)
        assert [(one.number, one.batch) for one in two.missing] == [(1, b"1"), (2, b"2"), (3, b"3")]


def test_a_host_that_was_replaced_is_told_and_others_of_its_projects_go_on(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = make("h1"), make("h2")
    lost, kept = (one.records(next(_PROJECTS), tmp_path) for _ in range(2))
    two.records(lost.project_id, tmp_path)
    ends = one.commit((lost, 1, b"x"), (kept, 1, b"y"))
    assert isinstance(ends[0], OwnerChangedError)
    assert ends[1] is None
    assert one.commit((kept, 2, b"z")) == [None]
    # It may own the project again.
    again = one.records(lost.project_id, tmp_path)
    assert one.missing == []
    assert one.commit((again, 1, b"x")) == [None]


def test_a_record_that_is_too_large_is_full_and_nothing_is_in_flight(
    make: Make, tmp_path: Path
) -> None:
    one = make("h1")
    records = one.records(next(_PROJECTS), tmp_path)
    records.add(records.project_id, 1, b"x" * ENTRY_BYTES)
    assert one.journal.commit([records]) == {records.project_id}
    assert not records.in_flight
    assert one.commit((records, 1, b"fits")) == [None]


def test_a_batch_that_is_committed_alone_is_stored(make: Make, tmp_path: Path) -> None:
    one, two = make("h1"), make("h2")
    records = one.records(next(_PROJECTS), tmp_path)
    records.add(records.project_id, 1, b"now")
    records.sync()
    two.records(records.project_id, tmp_path)
    assert [record.batch for record in two.missing] == [b"now"]
    records.add(records.project_id, 2, b"late")
    with pytest.raises(OwnerChangedError):
        records.sync()


def test_a_project_that_was_given_up_is_taken_over_with_a_snapshot(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "SNAPSHOT_BYTES", 1_000)
    one, two = make("h1"), make("h2")
    records = one.records(next(_PROJECTS), tmp_path)
    assert one.commit((records, 1, b"x" * 1_001)) == [None]
    records.in_flight = False
    assert records.wants_snapshot(0)
    assert not records.wants_snapshot(1 << 20)
    store = tmp_path / "copy"
    store.mkdir()
    (store / snapshots.FILE).write_bytes(b"the store")
    for _ in range(2):
        records.snapshot(1, store)
        assert not records.wants_snapshot(0)
    assert one.commit((records, 2, b"behind")) == [None]
    records.give_up(2)
    folder = tmp_path / "new"
    missing = two.journal.take_over(records.project_id, folder)
    assert (folder / snapshots.FILE).read_bytes() == b"the store"
    assert [record.batch for record in missing] == [b"behind"]
    connection, subject = two.journal._connection, project_subject(records.project_id)
    assert len(snapshots.names(connection, subject)) == 1
    snapshots.remove_project(connection, subject)
    assert snapshots.names(connection, subject) == set()
    assert last(connection, subject) is None, "a project that was removed takes no space"


def test_commits_wait_for_an_engine_that_starts_again(endpoint: Endpoint, tmp_path: Path) -> None:
    gone = [False]

    def find() -> Endpoint:
        if gone[0]:
            gone[0] = False
            raise EngineUnreachableError(reason="the engine does not run")
        return endpoint

    worker = Worker(find, "h1")
    try:
        records = worker.records(next(_PROJECTS), tmp_path)
        assert worker.commit((records, 1, b"x")) == [None]
        # Its connection ends, and the engine is not there for the next try.
        gone[0] = True
        connected = worker.journal._sender._connection._socket
        assert connected is not None
        connected.shutdown(socket.SHUT_RDWR)
        assert worker.commit((records, 2, b"y")) == [None]
    finally:
        worker.close()


def test_a_worker_with_many_open_files_commits(endpoint: Endpoint, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        worker = Worker(lambda: endpoint, "h1")
        records = worker.records(next(_PROJECTS), tmp_path)
        assert worker.commit((records, 1, b"x")) == [None]
        worker.close()
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_awaiting_answers_ends_when_all_commits_have(make: Make, tmp_path: Path) -> None:
    one = make("h1")
    projects = [one.records(next(_PROJECTS), tmp_path) for _ in range(10)]
    for records in projects:
        records.add(records.project_id, 1, b"x")
    one.journal.commit(projects)
    one.journal.await_answers(LIMIT_S)
    assert one.ends.qsize() == 10


class Place:
    """A project on one host, with its store."""

    def __init__(self, worker: Worker, project_id: int, folder: Path) -> None:
        self._worker, self.folder = worker, folder
        self.records = ProjectRecords(project_id, worker.journal)

    def begin(self) -> int:
        """Take the project over; return how many batches its store lacked."""
        missing = self.records.take_over(self.folder)
        self.store = ProjectStore(
            self.folder, 1 << 22, journal=self.records, project_id=self.records.project_id
        )
        apply_records(self.store, missing)
        return len(missing)

    def work(self, batches: int) -> None:
        """Commit batches."""
        for _ in range(batches):
            self.store.overlay[b"number"] = b"%d" % (self.store.number + 1)
            self.store.commit()

    def end(self) -> None:
        """End the ownership of the project."""
        self.store.checkpoint()
        number = self.store.number
        self.store.close()
        self.records.give_up(number)

    def lose(self) -> None:
        """Stop without ending the ownership, as when the process is killed."""
        self.store.close()


@pytest.fixture
def places(make: Make, tmp_path: Path) -> list[Place]:
    """One project on two hosts."""
    project_id = next(_PROJECTS)
    return [Place(make(host), project_id, tmp_path / host) for host in ("h1", "h2")]


@pytest.fixture
def read_positions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the positions of all records that takeovers read."""
    found: list[int] = []

    def decode(subject: str, position: int, data: bytes) -> Entry:
        found.append(position)
        return decode_entry(subject, position, data)

    monkeypatch.setattr(takeover, "decode_entry", decode)
    return found


def test_a_host_that_had_a_project_before_reads_what_was_stored_since(
    places: list[Place], read_positions: list[int]
) -> None:
    one, two = places
    for place, expected in ((one, 0), (two, 20), (one, 20), (two, 20)):
        read_positions.clear()
        assert place.begin() == expected
        read = len(read_positions)
        place.work(20)
        assert dict(place.store.pairs()) == {b"number": b"%d" % place.store.number}
        place.end()
    assert place.store.number == 80
    assert read < 30, "of 80 batches, two takeovers and two releases before it"


def test_a_host_that_was_killed_reads_what_was_stored_since_it_has_begun(
    places: list[Place], read_positions: list[int]
) -> None:
    one, two = places
    one.begin()
    one.work(40)
    one.end()
    one.begin()
    one.work(5)
    one.lose()
    assert two.begin() == 45
    two.end()
    read_positions.clear()
    assert one.begin() == 0
    assert len(read_positions) < 15
    one.end()


@pytest.mark.parametrize(
    "mark",
    [
        b"",
        b"no mark",
        msgspec.json.encode(Mark(position=1 << 40, term=1, number=3, size=0)),
        msgspec.json.encode(Mark(position=1, term=1, number=3, size=0)),
        msgspec.json.encode(Mark(position=1, term=1, number=1_000, size=0)),
    ],
)
def test_a_mark_that_does_not_fit_is_not_used(places: list[Place], mark: bytes) -> None:
    one, two = places
    one.begin()
    one.work(10)
    one.end()
    two.begin()
    two.work(10)
    two.end()
    (one.folder / FILE).write_bytes(mark)
    assert one.begin() == 10
    one.end()


def test_all_is_read_when_the_record_of_a_mark_was_removed(
    places: list[Place], tmp_path: Path
) -> None:
    one, two = places
    one.begin()
    one.work(10)
    one.end()
    two.begin()
    two.work(10)
    two.store.checkpoint()
    copy = tmp_path / "copy"
    copy.mkdir()
    two.store.copy_to(copy)
    two.records.snapshot(two.store.number, copy)
    two.work(5)
    two.end()
    assert one.begin() == 5
    assert dict(one.store.pairs()) == {b"number": b"25"}
    one.end()


def test_the_bytes_of_records_before_a_mark_count_for_the_next_snapshot(
    places: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "SNAPSHOT_BYTES", 1_000)
    one, _ = places
    for _ in range(5):
        one.begin()
        wants = one.records.wants_snapshot(0)
        one.work(20)
        one.end()
    assert wants
