"""Owner hosts and their records in the streams of a real server."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from fieldbrook.core.errors import (
    EngineUnreachableError,
    JournalDamagedError,
    OwnerChangedError,
    StreamStalledError,
)
from fieldbrook.storage.replication import leases, snapshots, streams
from fieldbrook.storage.replication.appends import Owner, Subject
from fieldbrook.storage.replication.connection import Connection, Endpoint
from fieldbrook.storage.replication.records import Entry, Kind
from fieldbrook.storage.replication.snapshots import PIECE_BYTES, Snapshot
from fieldbrook.storage.replication.streams import project_subject
from fieldbrook.storage.replication.takeover import carry_out, last, read, take_over

Connect = Callable[[], Connection]
_PROJECTS = itertools.count(1)


@pytest.fixture
def project() -> int:
    """Return a project that no other test uses."""
    return next(_PROJECTS)


def append(connection: Connection, owner: Owner, number: int, body: bytes = b"x") -> int:
    return carry_out(connection, owner.append(Kind.BATCH, number, body, time.monotonic()))


def numbers(records: Iterator[tuple[int, Entry]]) -> list[tuple[Kind, int, int]]:
    return [(entry.kind, entry.term, entry.number) for _, entry in records]


def test_what_an_owner_has_appended_the_next_one_reads(connect: Connect, project: int) -> None:
    one, two = connect(), connect()
    first = take_over(one, project_subject(project), "h1")
    assert (first.number, list(first.records)) == (0, [])
    bodies = [b"%d" % number * 1_000 for number in range(1, 601)]  # more than are read at a time
    for number, body in enumerate(bodies, 1):
        append(one, first.owner, number, body)
    second = take_over(two, project_subject(project), "h2")
    records = list(second.records)
    assert second.number == 600
    assert [entry.body for _, entry in records] == [b"", *bodies]
    assert [entry.kind for _, entry in records[:2]] == [Kind.TAKEOVER, Kind.BATCH]
    assert {entry.host for _, entry in records} == {"h1"}


def test_an_owner_that_was_replaced_stores_nothing_any_more(connect: Connect, project: int) -> None:
    one, two = connect(), connect()
    old = take_over(one, project_subject(project), "h1").owner
    append(one, old, 1)
    new = take_over(two, project_subject(project), "h2").owner
    for _ in range(2):
        with pytest.raises(OwnerChangedError, match="host h2 took it over in term 2"):
            append(one, old, 2, b"lost")
    append(two, new, 2, b"kept")
    found = take_over(one, project_subject(project), "h1")
    assert numbers(found.records) == [
        (Kind.TAKEOVER, 1, 0),
        (Kind.BATCH, 1, 1),
        (Kind.TAKEOVER, 2, 1),
        (Kind.BATCH, 2, 2),
    ]


def test_two_processes_of_a_host_that_take_over_alike_do_not_share_a_record(
    connect: Connect, project: int
) -> None:
    one, two = connect(), connect()
    taken = take_over(one, project_subject(project), "h1").owner
    # The other process has read the stream before that, so its record of the takeover is the same.
    other = Owner(project_subject(project), "h1")
    carry_out(two, other.append(Kind.TAKEOVER, 0, b"", time.monotonic()))
    append(one, taken, 1, b"of one")
    with pytest.raises(OwnerChangedError):
        append(two, other, 1, b"of two")


def test_records_after_a_position_are_read_and_a_wrong_position_is_damage(
    connection: Connection, project: int
) -> None:
    subject = project_subject(project)
    owner = take_over(connection, subject, "h1").owner
    positions = [append(connection, owner, number) for number in (1, 2)]
    beside = Subject(subject.stream, f"{subject.name}-beside")
    take_over(connection, beside, "h1")
    positions += [append(connection, owner, number) for number in (3, 4)]
    found = list(read(connection, subject, positions[1], positions[3]))
    assert [position for position, _ in found] == positions[2:]
    with pytest.raises(JournalDamagedError, match="follows record"):
        list(read(connection, subject, beside.last, positions[3]))


def test_an_unknown_subject_has_no_last_record(connection: Connection, project: int) -> None:
    assert last(connection, project_subject(project)) is None


def test_a_stream_that_is_missing_is_reported_in_time(connection: Connection) -> None:
    times = itertools.count(step=6.0)
    with pytest.raises(StreamStalledError):
        last(connection, Subject("NONE", "fb.none"), lambda: next(times))


def test_a_stream_that_exists_is_not_created_again(connection: Connection) -> None:
    for _ in range(2):
        streams.create(connection, [streams.MODULES, streams.HOSTS], 1, 5.0)


def test_a_stream_that_cannot_be_created_is_told_in_time(connection: Connection) -> None:
    overlapping = streams.Stream("SAME", streams.SNAPSHOTS.subjects)
    streams.create(connection, [streams.SNAPSHOTS], 1, 5.0)
    with pytest.raises(StreamStalledError, match=r"stream SAME cannot be created: .*overlap"):
        streams.create(connection, [streams.SNAPSHOTS, overlapping], 1, 0.0)


# -------------------------------------------------------------------- a connection that breaks


class Proxy:
    """A TCP proxy before the server; it can cut a connection when the server has the bytes.

    Attributes:
        cuts: how many more connections are cut before an answer with `"seq"` passes.
        damages: bytes of answers, and those of the same length that arrive instead.
    """

    def __init__(self, to: Endpoint) -> None:
        self.cuts = 0
        self.damages: list[tuple[bytes, bytes]] = []
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = to._replace(port=self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        served = []
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                break
            there = socket.create_connection((self._to.host, self._to.port))
            for one, other, answers in ((here, there, False), (there, here, True)):
                thread = threading.Thread(target=self._copy, args=(one, other, answers))
                thread.start()
                served.append(thread)
        for thread in served:
            thread.join()

    def _copy(self, one: socket.socket, other: socket.socket, answers: bool) -> None:
        while data := one.recv(1 << 16):
            if answers and self.cuts and b'"seq"' in data:  # the server has stored a record
                self.cuts -= 1
                break
            for intact, damaged in self.damages if answers else ():
                data = data.replace(intact, damaged)
            other.sendall(data)
        for side in (one, other):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                side.close()

    def close(self) -> None:
        """Stop the server; the connections of the test are closed already."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()


@contextmanager
def proxied(endpoint: Endpoint) -> Iterator[tuple[Proxy, Connection]]:
    proxy = Proxy(endpoint)
    connection = Connection(lambda: proxy.endpoint, "proxied")
    try:
        yield proxy, connection
    finally:
        connection.close()
        proxy.close()


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_record_whose_answer_was_lost_with_the_connection_is_stored_once(
    endpoint: Endpoint, connection: Connection, project: int
) -> None:
    with proxied(endpoint) as (proxy, cut):
        proxy.cuts = 1
        owner = take_over(cut, project_subject(project), "h1").owner
        proxy.cuts = 1
        position = append(cut, owner, 1, b"once")
        assert proxy.cuts == 0
        assert append(cut, owner, 2, b"next") > position
    found = take_over(connection, project_subject(project), "h2")
    assert numbers(found.records) == [
        (Kind.TAKEOVER, 1, 0),
        (Kind.BATCH, 1, 1),
        (Kind.BATCH, 1, 2),
    ]


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize(
    "damage",
    [
        (b"Nats-Sequence: ", b"Nats-Sequence:x"),
        (b"Nats-Sequence:", b"Xats-Sequence:"),
        (b"Nats-Subject: f", b"Nats-Subject: \xff"),
    ],
)
def test_a_damaged_header_of_a_lease_is_no_answer(
    endpoint: Endpoint, damage: tuple[bytes, bytes]
) -> None:
    with proxied(endpoint) as (proxy, connection):
        leases.renew(connection, "h1")
        assert leases.positions(connection, 0) is not None
        proxy.damages.append(damage)
        assert leases.positions(connection, 0) is None
        with pytest.raises(StreamStalledError, match="no replica"):
            leases.renew(connection, "h1")
        proxy.damages.clear()
        assert leases.renew(connection, "h1").position > 0


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ((b'{"stream":', b'{"stream"x'), "damaged"),
        ((b'"seq":', b'"xeq":'), "no position"),
    ],
)
def test_a_damaged_answer_to_a_lease_means_that_it_is_not_stored(
    endpoint: Endpoint, damage: tuple[bytes, bytes], reason: str
) -> None:
    with proxied(endpoint) as (proxy, connection):
        proxy.damages.append(damage)
        with pytest.raises(StreamStalledError, match=reason):
            leases.renew(connection, "h1")


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_damaged_answer_to_a_request_is_no_answer(endpoint: Endpoint) -> None:
    with proxied(endpoint) as (proxy, connection):
        proxy.damages.append((b'{"type"', b'{"type\0'))
        with pytest.raises(EngineUnreachableError, match="damaged"):
            connection.request("$JS.API.INFO", None, 5.0)


def test_a_wrong_password_and_a_closed_port_are_reported(endpoint: Endpoint) -> None:
    for wrong in (endpoint._replace(password="no"), endpoint._replace(port=1)):
        connection = Connection(lambda wrong=wrong: wrong, "wrong")  # type: ignore[misc]
        with pytest.raises(EngineUnreachableError):
            connection.request("$JS.API.INFO", None, 2.0)
        assert not connection.is_open


# -------------------------------------------------------------------- snapshots


def upload(connection: Connection, owner: Owner, number: int, folder: Path) -> Snapshot:
    made = snapshots.upload(connection, owner.subject, folder)
    record = owner.append(Kind.SNAPSHOT, number, snapshots.encode(made), time.monotonic())
    carry_out(connection, record)
    return made


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The folder of a store, whose file has more pieces than are sent at a time."""
    folder = tmp_path / "store"
    folder.mkdir()
    content = b"".join(bytes([n]) * PIECE_BYTES for n in range(5)) + b"end"
    (folder / snapshots.FILE).write_bytes(content)
    return folder


def test_a_host_without_a_store_gets_the_snapshot_and_the_batches_behind_it(
    connect: Connect, project: int, store: Path, tmp_path: Path
) -> None:
    connection = connect()
    owner = take_over(connection, project_subject(project), "h1").owner
    for number in (1, 2, 3):
        position = append(connection, owner, number)
    earlier = snapshots.names(connection, owner.subject)
    made = upload(connection, owner, 3, store)
    assert (made.pieces, made.size, earlier) == (6, 5 * PIECE_BYTES + 3, set())
    snapshots.remove_before(connection, owner.subject, position, earlier)
    append(connection, owner, 4, b"four")
    other = connect()
    taken = take_over(other, project_subject(project), "h2")
    records = list(taken.records)
    assert [entry.kind for _, entry in records] == [Kind.SNAPSHOT, Kind.BATCH]
    plan = snapshots.plan(project, records, 0, taken.number)
    assert plan.snapshot == made
    assert [(record.number, record.batch) for record in plan.batches] == [(4, b"four")]
    folder = tmp_path / "new/store"
    snapshots.download(other, taken.owner.subject, made, folder)
    assert (folder / snapshots.FILE).read_bytes() == (store / snapshots.FILE).read_bytes()
    assert [path.name for path in folder.iterdir()] == [snapshots.FILE]


def test_a_snapshot_has_the_files_beside_the_store_and_replaces_what_belonged_to_older_ones(
    connection: Connection, project: int, store: Path, tmp_path: Path
) -> None:
    subject, folder = project_subject(project), tmp_path / "there"
    (store / "sql.db").write_bytes(b"rows")
    made = snapshots.upload(connection, subject, store)
    assert list(made.others) == ["sql.db"]
    assert snapshots.names(connection, subject) == {made.name, made.others["sql.db"].name}
    folder.mkdir()
    for name in ("sql.db", "sql.db-wal", "sql.db-shm", "lock.mdb", "outbox"):
        (folder / name).write_bytes(b"before")
    snapshots.download(connection, subject, made, folder)
    assert (folder / "sql.db").read_bytes() == b"rows"
    there = sorted(path.name for path in folder.iterdir())
    assert there == [snapshots.FILE, "outbox", "sql.db"]


@pytest.mark.parametrize("name", ["../sql.db", "/sql.db", "a/sql.db", "..", "", snapshots.FILE])
def test_a_snapshot_writes_no_file_outside_the_folder(
    connection: Connection, project: int, store: Path, tmp_path: Path, name: str
) -> None:
    subject, folder = project_subject(project), tmp_path / "there"
    made = snapshots.upload(connection, subject, store)
    wrong = replace(made, others={name: made})
    with pytest.raises(JournalDamagedError, match="has a file"):
        snapshots.download(connection, subject, wrong, folder)
    assert list(folder.iterdir()) == []


def test_the_last_record_stays_when_all_before_it_are_removed(
    connection: Connection, project: int, store: Path
) -> None:
    owner = take_over(connection, project_subject(project), "h1").owner
    position = append(connection, owner, 1)
    upload(connection, owner, 1, store)
    snapshots.remove_before(connection, owner.subject, position, ())
    found = last(connection, project_subject(project))
    assert found is not None
    assert found[1].kind is Kind.SNAPSHOT
    append(connection, owner, 2)


def test_an_earlier_snapshot_is_removed_and_that_of_a_later_owner_is_not(
    connect: Connect, project: int, store: Path, tmp_path: Path
) -> None:
    connection, other = connect(), connect()
    owner = take_over(connection, project_subject(project), "h1").owner
    position = append(connection, owner, 1)
    old = upload(connection, owner, 1, store)
    earlier = snapshots.names(connection, owner.subject)
    made = upload(connection, owner, 1, store)
    # The first host is stopped here, and goes on when another one has made a snapshot, too.
    newer = upload(other, take_over(other, project_subject(project), "h2").owner, 1, store)
    snapshots.remove_before(connection, owner.subject, position, earlier)
    assert earlier == {old.name}
    assert snapshots.names(connection, owner.subject) == {made.name, newer.name}
    snapshots.download(other, project_subject(project), newer, tmp_path / "copy")


def test_a_damaged_snapshot_leaves_the_folder_as_it_was(
    connection: Connection, project: int, store: Path, tmp_path: Path
) -> None:
    subject = project_subject(project)
    made = snapshots.upload(connection, subject, store)
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / snapshots.FILE).write_bytes(b"before")
    for damaged in (
        Snapshot(made.name, made.pieces, made.size, b"\0" * 32),
        Snapshot(made.name, made.pieces - 1, made.size, made.sha256),
        Snapshot(made.name, made.pieces, made.size - 1, made.sha256),
    ):
        with pytest.raises(JournalDamagedError, match="is damaged"):
            snapshots.download(connection, subject, damaged, folder)
        assert (folder / snapshots.FILE).read_bytes() == b"before"
        assert [path.name for path in folder.iterdir()] == [snapshots.FILE]
