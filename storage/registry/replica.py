"""The replicated registry: one host changes it, and the other hosts repeat the changes.

A change is a list of keys and values. It is appended to the registry's stream before it is
committed, so a change is valid exactly if the stream has stored it. Each copy of the registry
contains the number of its last change.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import lmdb
import msgspec

from fieldbrook.core.errors import JournalDamagedError, NodeError, OwnerChangedError, StoreError
from fieldbrook.storage.lmdb.codec import decode_record
from fieldbrook.storage.lmdb.environment import store_errors
from fieldbrook.storage.lmdb.ids import from_key, to_key
from fieldbrook.storage.registry.lease import Lease, lease_clock
from fieldbrook.storage.registry.tables import PROJECTS, RESOURCES, RegistryTables
from fieldbrook.storage.replication import leases
from fieldbrook.storage.replication.appends import Owner
from fieldbrook.storage.replication.connection import Connection
from fieldbrook.storage.replication.records import Entry, Kind
from fieldbrook.storage.replication.streams import registry_subject
from fieldbrook.storage.replication.takeover import carry_out, last, read, take_over

if TYPE_CHECKING:
    Database = lmdb._Database
    Transaction = lmdb.Transaction[bytes]

NUMBER_CELL = b"change_number"
_SEED_CHANGES = 2_000  # changes in one record of the first copy
_NOT_RECORDED = ("put", "putmulti", "pop", "replace", "drop")  # writing methods; not recorded

Changes = list[tuple[str, bytes, bytes | None]]
"""Table, key and value, in the order of the writes; the value None deletes the key."""

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Changes)


class Repeated(NamedTuple):
    """Work that a host has to do after it has repeated changes; finished work is removed from here.

    Attributes:
        removed: ids of projects that were removed.
        modules: digests of modules that were added.
    """

    removed: set[int]
    modules: set[str]


class RecordingTransaction:
    """A transaction that records its writes; reads are forwarded unchanged.

    Attributes:
        changes: the recorded writes.
    """

    def __init__(self, txn: Transaction, names: dict[int, str]) -> None:
        self._txn, self._names = txn, names
        self.changes: Changes = []

    def __getattr__(self, name: str) -> Any:
        if name in _NOT_RECORDED:
            raise NotImplementedError(f"{name} is not recorded: use put and delete")
        return getattr(self._txn, name)

    def put(self, key: bytes, value: bytes, *, db: Database, **options: Any) -> bool:
        """Put a value; see `lmdb.Transaction.put`."""
        done = self._txn.put(key, value, db=db, **options)
        if done:
            self.changes.append((self._names[id(db)], key, value))
        return done

    def delete(self, key: bytes, *, db: Database) -> bool:
        """Delete a key."""
        self.changes.append((self._names[id(db)], key, None))
        return self._txn.delete(key, db=db)

    def cursor(self, db: Database) -> Any:
        """Return a cursor whose deletions are recorded."""
        return _RecordingCursor(self._txn.cursor(db), self._names[id(db)], self.changes)


class _RecordingCursor:
    def __init__(self, cursor: Any, table: str, changes: Changes) -> None:
        self._cursor, self._table, self._changes = cursor, table, changes

    def __getattr__(self, name: str) -> Any:
        if name in _NOT_RECORDED:
            raise NotImplementedError(f"{name} is not recorded: use put and delete")
        return getattr(self._cursor, name)

    def __enter__(self) -> _RecordingCursor:
        self._cursor.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._cursor.__exit__(*error)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)

    def delete(self) -> bool:
        """Delete the item under the cursor."""
        self._changes.append((self._table, bytes(self._cursor.key()), None))
        return bool(self._cursor.delete())


class RegistryReplica:
    """This host's copy of the registry, for the thread that writes it.

    Args:
        environment: the LMDB environment of the registry.
        tables: the tables of the registry.
        connection: the connection to the replication engine of this host.
        host: the name of this host.

    Attributes:
        repeated: the work that follows from repeated changes.
    """

    def __init__(
        self,
        environment: lmdb.Environment,
        tables: RegistryTables,
        connection: Connection,
        host: str,
    ) -> None:
        self._environment, self._connection, self._host = environment, connection, host
        self._meta = tables.meta
        self._databases = tables.databases()
        self._names = {id(database): name for name, database in self._databases.items()}
        self._owner: Owner | None = None
        self._position = 0  # of the last record that was applied; 0 before the stream was read
        self._stored = 0  # the number of the last change that this host has stored as the owner
        self.repeated = Repeated(set(), set())

    @property
    def is_owner(self) -> bool:
        """Whether this host changes the registry."""
        return self._owner is not None

    @property
    def position(self) -> int:
        """The position of the last record in this copy; 0 before the stream was read."""
        return self._position

    def number(self) -> int:
        """The number of the last change that the registry contains."""
        with store_errors(), self._environment.begin() as txn:
            return from_key(txn.get(NUMBER_CELL, b"", db=self._meta))

    def leave(self) -> None:
        """Remove the number of the last change, because the registry leaves the cluster.

        A host whose registry has such a number does not copy the registry into the streams of a new
        cluster.
        """
        with store_errors(), self._environment.begin(write=True) as txn:
            txn.delete(NUMBER_CELL, db=self._meta)

    # ---------------------------------------------------------------- the owner

    def take_over(self) -> None:
        """Make this host the owner of the registry, which changes it.

        Raises:
            OwnerChangedError: another host has become the owner at the same time.
            StoreError: the stream or the registry does not answer.
        """
        taken = take_over(self._connection, registry_subject(), self._host)
        self.repeat(taken.records)
        if self.number() != taken.number:
            raise JournalDamagedError(
                reason=f"the registry ends with change {self.number()}, and its stream "
                f"with change {taken.number}"
            )
        self._owner, self._stored = taken.owner, taken.number
        self._position = taken.owner.subject.last

    def record(self, txn: Transaction) -> Transaction:
        """Return the transaction of a command, which records the writes."""
        return cast("Transaction", RecordingTransaction(txn, self._names))

    def store(self, recording: Transaction) -> None:
        """Append the writes of a command to the stream; after that its transaction may be
        committed.

        Raises:
            OwnerChangedError: another host changes the registry now.
            StoreError: the change is not stored, or it is unknown whether it is stored.
        """
        recorded = cast(RecordingTransaction, recording)
        if not recorded.changes:
            return
        if self._owner is None:
            raise OwnerChangedError(reason="another host changes the registry")
        number = from_key(recorded.get(NUMBER_CELL, b"", db=self._meta)) + 1
        if number != self._stored + 1:
            # The previous change was stored, but its transaction failed: other hosts have the
            # change.
            self._owner, self._position = None, 0
            raise StoreError(reason=f"change {self._stored} of the registry has to be repeated")
        try:
            self._append(self._owner, number, recorded.changes)
        except NodeError:
            # The next read of the stream shows whether the change is stored.
            self._owner = None
            raise
        self._stored = number
        recorded.put(NUMBER_CELL, to_key(number), db=self._meta)

    def _append(self, owner: Owner, number: int, changes: Changes) -> None:
        append = owner.append(Kind.BATCH, number, _encode(changes), time.monotonic())
        self._position = carry_out(self._connection, append)

    def seed(self) -> None:
        """Append the whole content of the registry as the first change of a new cluster.

        The records of this copy have the number 0, and the record after them has the number 1. So
        an interrupted copy is not valid, and is made again.

        Raises:
            StoreError: the stream or the registry does not answer.
        """
        taken = take_over(self._connection, registry_subject(), self._host)
        if taken.number:
            return  # the stream has a registry already
        for changes in self._all():
            append = taken.owner.append(Kind.SNAPSHOT, 0, _encode(changes), time.monotonic())
            carry_out(self._connection, append)
        self._append(taken.owner, 1, [])
        with store_errors(), self._environment.begin(write=True) as txn:
            txn.put(NUMBER_CELL, to_key(1), db=self._meta)

    def _all(self) -> Iterator[Changes]:
        changes: Changes = []
        with store_errors(), self._environment.begin() as txn:
            for name, database in self._databases.items():
                for key, value in txn.cursor(database):
                    changes.append((name, key, value))
                    if len(changes) == _SEED_CHANGES:
                        yield changes
                        changes = []
        yield changes

    # ---------------------------------------------------------------- the others

    def catch_up(self) -> None:
        """Repeat the changes that this registry lacks; see `repeated`.

        Raises:
            StoreError: the stream or the registry does not answer.
        """
        found = last(self._connection, registry_subject())
        if found is not None:
            self._follow(found[0])

    def renew(self, lease: Lease) -> None:
        """Renew the lease of this copy, and repeat the changes that it lacks; see `repeated`.

        Raises:
            StoreError: the stream or the registry does not answer.
        """
        began = lease_clock()
        renewed = leases.renew(self._connection, self._host)
        self._follow(renewed.registry)
        lease.renew(began)

    def _follow(self, position: int) -> None:
        """Repeat the changes up to a position in the stream."""
        if position > self._position:
            self._owner = None  # another host has changed the registry
            self.repeat(read(self._connection, registry_subject(), self._position, position))

    def repeat(self, records: Iterable[tuple[int, Entry]]) -> None:
        """Repeat the changes in records of the stream that this registry lacks; see `repeated`.

        Raises:
            JournalDamagedError: a change is missing.
            StoreError: the registry cannot be written, or the source of the records fails.
        """
        number = self.number()
        for position, entry in records:
            if entry.kind is Kind.SNAPSHOT and not number:
                self._write(0, _decoder.decode(entry.body))
            elif entry.kind is Kind.BATCH and entry.number > number:
                if entry.number != number + 1:
                    raise JournalDamagedError(
                        reason=f"the stream of the registry goes on with change {entry.number}, "
                        f"and the registry ends with change {number}"
                    )
                number = entry.number
                self._write(number, _decoder.decode(entry.body))
            self._position = position

    def _write(self, number: int, changes: Changes) -> None:
        modules: set[str] = set()
        removed: set[int] = set()
        with store_errors(), self._environment.begin(write=True) as txn:
            for name, key, value in changes:
                database = self._databases[name]
                if value is not None:
                    txn.put(key, value, db=database)
                    if name == RESOURCES.name:
                        modules.add(decode_record(value, RESOURCES.kind).sha256)
                else:
                    txn.delete(key, db=database)
                    if name == PROJECTS.name:
                        removed.add(from_key(key))
            txn.put(NUMBER_CELL, to_key(number), db=self._meta)
        self.repeated.modules.update(modules)
        self.repeated.removed.update(removed)


def is_seeded(connection: Connection) -> bool:
    """Whether the registry's stream has a registry.

    Raises:
        StoreError: the stream does not answer.
    """
    found = last(connection, registry_subject())
    return found is not None and found[1].number > 0
