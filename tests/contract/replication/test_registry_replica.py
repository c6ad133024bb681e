"""The registry on several hosts, over the stream of a real server."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldbrook.core.errors import OwnerChangedError, StoreError, UnavailableError
from fieldbrook.core.model import ADMIN
from fieldbrook.storage.registry import replica as replicas
from fieldbrook.storage.registry.lease import LEASE_S, Lease
from fieldbrook.storage.registry.replica import RecordingTransaction, RegistryReplica, is_seeded
from fieldbrook.storage.registry.service import RegistryWriter
from fieldbrook.storage.replication import leases
from fieldbrook.storage.replication.connection import Connection
from fieldbrook.storage.replication.streams import REGISTRY
from tests.support.nodes import until

Connect = Callable[[], Connection]


class Host:
    """A host's registry and its replica."""

    def __init__(self, folder: Path, connection: Connection, name: str) -> None:
        self.writer = RegistryWriter(folder / name, 16 << 20, lambda: 1_800_000_000_000, b"k" * 32)
        self.replica: RegistryReplica = self.writer.replicate(connection, name)

    def content(self) -> dict[str, dict[bytes, bytes]]:
        """Return all rows of all tables."""
        return content(self.writer._environment, self.writer.tables.databases())


def content(environment: lmdb.Environment, databases: dict[str, Any]) -> dict[str, Any]:
    with environment.begin() as txn:
        return {name: dict(txn.cursor(database)) for name, database in databases.items()}


@pytest.fixture
def hosts(connect: Connect, tmp_path: Path) -> Iterator[Callable[[str], Host]]:
    """Makes hosts; the stream is empty at first."""
    connection = connect()
    connection.request(f"$JS.API.STREAM.PURGE.{REGISTRY.name}", None, 5.0)
    made: list[Host] = []

    def host(name: str) -> Host:
        made.append(Host(tmp_path, connect(), name))
        return made[-1]

    yield host
    for each in made:
        each.writer.close()


def test_a_change_of_the_owner_is_repeated_and_the_next_owner_goes_on(
    hosts: Callable[[str], Host],
) -> None:
    one, two = hosts("h1"), hosts("h2")
    one.replica.take_over()
    account = one.writer.create_account("ada", "h", ADMIN)
    project = one.writer.create_project(account.account_id, "p1")
    two.replica.catch_up()
    assert two.content() == one.content()
    two.replica.take_over()
    assert two.replica.is_owner
    with pytest.raises(OwnerChangedError, match="h2"):
        one.writer.create_project(account.account_id, "refused")
    assert not one.replica.is_owner
    two.writer.remove_project(project.project_id)
    one.replica.catch_up()
    assert one.content() == two.content()
    assert one.replica.repeated.removed == {project.project_id}
    assert one.writer.reader().projects() == []


def test_a_host_that_changes_nothing_cannot_change_the_registry(
    hosts: Callable[[str], Host],
) -> None:
    one = hosts("h1")
    with pytest.raises(OwnerChangedError):
        one.writer.create_account("ada", "h", ADMIN)
    assert one.writer.reader().account_named("ada") is None


def test_a_host_that_follows_another_takes_the_registry_over_again(
    hosts: Callable[[str], Host],
) -> None:
    one, two = hosts("h1"), hosts("h2")
    one.replica.take_over()
    one.writer.create_account("ada", "h", ADMIN)
    two.replica.take_over()
    two.writer.create_account("bob", "h", ADMIN)
    one.replica.catch_up()
    assert not one.replica.is_owner
    one.replica.take_over()
    one.writer.create_account("cid", "h", ADMIN)
    two.replica.catch_up()
    assert two.content() == one.content()
    assert not two.replica.is_owner


def test_a_lease_is_renewed_with_all_changes_before_it(
    hosts: Callable[[str], Host], tmp_path: Path
) -> None:
    one, two = hosts("h1"), hosts("h2")
    lease = Lease(tmp_path)
    assert lease.left_s < 0
    with pytest.raises(UnavailableError):
        lease.require()
    one.replica.take_over()
    one.writer.create_account("ada", "h", ADMIN)
    two.replica.renew(lease)
    assert two.content() == one.content()
    assert 0 < Lease(tmp_path).left_s <= LEASE_S
    one.replica.renew(lease)
    one.writer.create_account("bob", "h", ADMIN)  # it is still the owner
    two.replica.take_over()
    two.writer.create_account("cid", "h", ADMIN)
    one.replica.renew(lease)
    assert one.content() == two.content()
    assert not one.replica.is_owner


def test_records_of_leases_are_found_after_a_change_and_take_no_room(
    hosts: Callable[[str], Host], connection: Connection, tmp_path: Path
) -> None:
    one, two, lease = hosts("h1"), hosts("two.example"), Lease(tmp_path)
    one.replica.take_over()
    for _ in range(3):
        two.replica.renew(lease)
        one.replica.renew(lease)
    one.writer.create_account("ada", "h", ADMIN)
    until(lambda: leases.positions(connection, one.replica.position), "the change can be read")
    found = leases.positions(connection, one.replica.position)
    assert found is not None
    assert set(found) == {"h1", "two.example"}
    assert max(found.values()) < one.replica.position
    assert leases.positions(connection, one.replica.position + 1) is None
    state = connection.request(f"$JS.API.STREAM.INFO.{REGISTRY.name}", None, 5.0)["state"]
    assert state["messages"] == 4  # the takeover, the change, and one of each host


def test_a_stream_of_an_earlier_version_learns_to_take_leases(
    hosts: Callable[[str], Host], connection: Connection, tmp_path: Path
) -> None:
    info = connection.request(f"$JS.API.STREAM.INFO.{REGISTRY.name}", None, 5.0)
    before = {**info["config"], "subjects": [REGISTRY.subjects], "allow_rollup_hdrs": False}
    api = f"$JS.API.STREAM.UPDATE.{REGISTRY.name}"
    assert "error" not in connection.request(api, before, 5.0)
    lease = Lease(tmp_path)
    hosts("h1").replica.renew(lease)
    assert lease.left_s > 0


def test_the_registry_of_the_founder_is_copied_once(
    hosts: Callable[[str], Host], connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "_SEED_CHANGES", 2)
    one, two = hosts("h1"), hosts("h2")
    replica, one.writer.replica = one.writer.replica, None  # the node was alone
    account = one.writer.create_account("ada", "h", ADMIN)
    for number in range(3):
        one.writer.create_project(account.account_id, f"p{number}")
    one.writer.replica = replica
    assert not is_seeded(connection)
    for _ in range(2):
        one.replica.seed()
    assert is_seeded(connection)
    two.replica.catch_up()
    assert two.content() == one.content()
    two.replica.take_over()
    two.writer.create_project(account.account_id, "p3")
    one.replica.catch_up()
    assert two.content() == one.content()


def test_a_copy_that_was_interrupted_does_not_count_and_is_made_again(
    hosts: Callable[[str], Host], connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "_SEED_CHANGES", 2)
    one, two = hosts("h1"), hosts("h2")
    replica, one.writer.replica = one.writer.replica, None
    one.writer.create_account("ada", "h", ADMIN)
    one.writer.replica = replica
    parts = RegistryReplica._all

    def interrupted(self: RegistryReplica) -> Iterator[replicas.Changes]:
        yield next(parts(self))
        raise StoreError(reason="the engine has died")

    with monkeypatch.context() as patch, pytest.raises(StoreError, match="has died"):
        patch.setattr(RegistryReplica, "_all", interrupted)
        one.replica.seed()
    assert not is_seeded(connection)
    one.replica.seed()
    assert is_seeded(connection)
    two.replica.catch_up()
    assert two.content() == one.content()


def test_a_change_that_was_stored_but_not_committed_here_is_repeated_here(
    hosts: Callable[[str], Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = hosts("h1"), hosts("h2")
    one.replica.take_over()
    one.writer.create_account("ada", "h", ADMIN)
    store = one.replica.store

    def fails(txn: Any) -> None:
        store(txn)
        raise lmdb.DiskError("the disk is full")

    with monkeypatch.context() as patch, pytest.raises(StoreError, match="the disk is full"):
        patch.setattr(one.replica, "store", fails)
        one.writer.create_account("bob", "h", ADMIN)
    with pytest.raises(StoreError, match="has to be repeated"):
        one.writer.create_account("eve", "h", ADMIN)
    one.replica.take_over()
    one.writer.create_account("eve", "h", ADMIN)
    two.replica.catch_up()
    names = [account.username for account in two.writer.reader().accounts()]
    assert names == ["ada", "bob", "eve"]
    assert two.content() == one.content()


# -------------------------------------------------------------------- the record of a transaction

TABLES = ("a", "b")
KEYS = st.integers(0, 5).map(lambda n: b"k%d" % n)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "keep", "delete", "sweep"]),
        st.sampled_from(TABLES),
        KEYS,
        st.binary(max_size=3),
    ),
    max_size=30,
)


def carry(txn: Any, databases: dict[str, Any], step: tuple[str, str, bytes, bytes]) -> None:
    what, table, key, value = step
    database = databases[table]
    match what:
        case "put":
            txn.put(key, value, db=database)
        case "keep":
            txn.put(key, value, db=database, overwrite=False)
        case "delete":
            txn.delete(key, db=database)
        case _:  # all keys from this one on
            with txn.cursor(database) as cursor:
                found = cursor.set_range(key)
                while found:
                    found = cursor.delete() and bool(cursor.key())


@given(before=STEPS, steps=STEPS)
@settings(max_examples=60, deadline=None)
def test_the_record_of_a_transaction_repeats_exactly_what_it_has_written(
    before: list[tuple[str, str, bytes, bytes]], steps: list[tuple[str, str, bytes, bytes]]
) -> None:
    with ExitStack() as stack:
        environments = []
        for _ in range(2):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            environment = lmdb.open(folder, max_dbs=4, sync=False)
            stack.callback(environment.close)
            databases = {name: environment.open_db(name.encode()) for name in TABLES}
            with environment.begin(write=True) as txn:
                for step in before:
                    carry(txn, databases, step)
            environments.append((environment, databases))
        (one, here), (two, there) = environments
        with one.begin(write=True) as txn:
            names = {id(database): name for name, database in here.items()}
            recording = RecordingTransaction(txn, names)
            for step in steps:
                carry(recording, here, step)
        with two.begin(write=True) as txn:
            for table, key, value in recording.changes:
                if value is None:
                    txn.delete(key, db=there[table])
                else:
                    txn.put(key, value, db=there[table])
        assert content(one, here) == content(two, there)


def test_a_write_that_cannot_be_recorded_is_refused(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), max_dbs=1) as environment:
        database = environment.open_db(b"a")
        with environment.begin(write=True) as txn:
            recording = RecordingTransaction(txn, {id(database): "a"})
            for name in ("pop", "replace", "drop"):
                with pytest.raises(NotImplementedError):
                    getattr(recording, name)
            with pytest.raises(NotImplementedError):
                _ = recording.cursor(database).put
