"""The stored part of a project's store: one LMDB environment, and the transactions on it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb
from msgspec.structs import replace

from fieldbrook.core.errors import BatchTooLargeError
from fieldbrook.observability import fault_points
from fieldbrook.storage.lmdb.codec import decode_record, encode_record
from fieldbrook.storage.lmdb.environment import (
    FEW_READERS,
    open_environment,
    reader_check,
    store_error,
    store_errors,
    used_bytes,
    write_probe,
)
from fieldbrook.storage.lmdb.ids import from_key
from fieldbrook.storage.lmdb.new_environment import is_absent, open_new, publish, remove_new
from fieldbrook.storage.lmdb.schema import META
from fieldbrook.storage.project.commit.batch import STAGE, Batch
from fieldbrook.storage.project.commit.pending import PendingWrites
from fieldbrook.storage.project.commit.space import SpaceEstimate
from fieldbrook.storage.project.deduplication import StoredOutcome
from fieldbrook.storage.project.history.tables import HistoryLimits
from fieldbrook.storage.project.outbox import Checkpoint, InTransaction
from fieldbrook.storage.project.tables import NUMBER_CELL, ProjectTables, make_tables

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]

_GROWTH_BYTES = 1 << 20
_EMPTY_BYTES = 48 << 10  # size of an empty store, with the pages that a write copies


def stored_number(folder: Path) -> int:
    """Return the number of the last batch in the store in a folder, 0 when there is no store.

    It may be called while another process writes to the store.

    Raises:
        StoreError: the store cannot be read.
    """
    if is_absent(folder):
        return 0
    environment = open_environment(folder, map_size=0, readonly=True)
    try:
        with store_errors(folder), environment.begin() as txn:
            return batch_number(environment, txn)
    finally:
        environment.close()


def batch_number(environment: lmdb.Environment, txn: Transaction) -> int:
    """Return the number of the last batch in a store; 0 if the store is still being created."""
    try:
        meta = environment.open_db(META, txn=txn, create=False)
    except lmdb.NotFoundError:
        return 0
    return from_key(txn.get(NUMBER_CELL, b"", db=meta))


class Stored:
    """The LMDB environment of one project's store; its owner is the only writer.

    A batch that also writes to SQL is staged here until the SQL database has decided about it.

    Attributes:
        tables: the tables.
        space: the estimate of the free space.
        staged: whether there may be a staged batch, which `settle` applies or drops.
    """

    def __init__(
        self,
        path: Path,
        map_size: int,
        committed: Callable[[], int],
        limits: HistoryLimits,
        write_waiting: Checkpoint,
        *,
        unsynced: bool,
    ) -> None:
        """Open the environment.

        Args:
            path: the folder.
            map_size: the size limit in bytes.
            committed: returns the number of the last batch that the SQL database has committed.
            limits: see `ProjectStore`.
            write_waiting: see `Outbox`.
            unsynced: whether to make a new environment without a sync; see
                `lmdb/new_environment.py`.

        Raises:
            StoreError: the environment cannot be opened.
        """
        self._path, self._committed = path, committed
        self._is_new = unsynced and is_absent(path)
        self.environment = self._open(map_size)
        reader_check(self.environment)  # frees the slots of a killed writer or gateway
        self._largest_batch = map_size - _EMPTY_BYTES
        self._map_lock = threading.Lock()  # no other thread may read while the map changes
        self._snapshot: Transaction | None = None  # begun by the first read of a batch
        self._number: int | None = None
        self.staged = True  # an earlier process may have left a staged batch
        try:
            self.tables = ProjectTables(self.environment, path, map_size, limits, write_waiting)
        except BaseException:
            self.environment.close()
            raise
        self.space = SpaceEstimate(self.environment, self.tables, map_size)

    def _open(self, map_size: int) -> lmdb.Environment:
        if not self._is_new:
            remove_new(self._path)  # left by a process that ended before its first checkpoint
            return open_environment(self._path, map_size=map_size, max_readers=FEW_READERS)
        return open_new(self._path, make_tables, map_size=map_size, max_readers=FEW_READERS)

    def _publish(self) -> None:
        """Make the environment durable, before its first real transaction."""
        if self._is_new:
            publish(self.environment, self._path)
            self._is_new = False

    @property
    def number(self) -> int:
        """The number of the last batch in the store."""
        if self._number is None:
            with self.begin() as txn:
                self._number = self.tables.number(txn)
        return self._number

    @property
    def used_bytes(self) -> int:
        """See `environment.used_bytes`."""
        return used_bytes(self.environment)

    # ---------------------------------------------------------------- reading

    def copy_to(self, folder: Path) -> None:
        """See `ProjectStore.copy_to`."""
        self._publish()
        with store_errors(folder):
            self.environment.copy(str(folder), compact=True)

    @contextmanager
    def begin(self) -> Iterator[Transaction]:
        """Begin a read transaction."""
        with store_errors(), self.environment.begin() as txn:
            yield txn

    def snapshot(self) -> Transaction:
        """Return the snapshot that all reads of a batch share. Errors of LMDB are not converted."""
        if self.staged:
            self.settle()
        if self._snapshot is None:
            self._snapshot = self.environment.begin(db=self.tables.kv)
        return self._snapshot

    def end_snapshot(self) -> None:
        """End that snapshot, because it keeps a writer from reusing pages."""
        if self._snapshot is not None:
            self._snapshot.abort()
            self._snapshot = None

    def value_of(self, stored_key: bytes) -> bytes | None:
        """Return the value of a stored key."""
        try:  # a context manager would take longer than the read
            return self.snapshot().get(stored_key)
        except (lmdb.Error, OSError) as error:
            raise store_error(None, error) from error

    def outcome_of(self, digest: bytes) -> StoredOutcome | None:
        """Return the stored outcome of an event; None without one."""
        try:
            return self.tables.deduplication.outcome(self.snapshot(), digest)
        except (lmdb.Error, OSError) as error:
            raise store_error(None, error) from error

    def value_for_thread(self, stored_key: bytes) -> bytes | None:
        """Return the value of a stored key; for threads other than the owner's."""
        with self._map_lock, store_errors(), self.environment.begin(db=self.tables.kv) as txn:
            return txn.get(stored_key)

    # ---------------------------------------------------------------- writing

    def write(self, batch: Batch, count: int) -> None:
        """Write one batch, completely or not at all.

        `count` is 0 for a batch without a number.

        Raises:
            BatchTooLargeError: the batch does not fit into an empty store.
            StoreError: the map or the disk is full, or the disk failed.
        """
        if batch.sent:
            self.tables.outbox.create_marker()
        effects = PendingWrites()
        effects.add(batch, 0, count)
        with store_errors(), self._size_errors(batch):
            self.apply(effects)
        self.tables.deduplication.delivered(batch.deliveries)

    def apply_at_any_size(self, effects: PendingWrites, also: InTransaction | None = None) -> None:
        """Write effects of committed batches; for them, the size limit is raised if necessary.

        `also` is called with the transaction, twice if the store was full.

        Raises:
            StoreError: the disk is full or failed.
        """
        with store_errors():
            try:
                self.apply(effects, also)
            except lmdb.MapFullError:
                limit = self.environment.info()["map_size"]
                with self._map_lock:
                    self.environment.set_mapsize(limit + 2 * effects.bytes + _GROWTH_BYTES)
                self.space.has_grown = True
                self.apply(effects, also)

    def apply(self, effects: PendingWrites, also: InTransaction | None = None) -> None:
        """Write effects in one synced transaction. Errors of LMDB are not converted."""
        self.end_snapshot()
        self._publish()
        number = self.number + effects.count
        self._number = None  # even a failed commit may have reached the disk
        with self.environment.begin(write=True) as txn:
            written = self.tables.put(txn, effects, number)
            if also is not None:
                also(txn)
            fault_points.hit("checkpoint.before_commit")
        fault_points.hit("checkpoint.committed")
        self._number = number
        self.tables.committed(effects, written)
        self.space.changed()

    @contextmanager
    def _size_errors(self, batch: Batch) -> Iterator[None]:
        """Raise `BatchTooLargeError` when the batch does not fit into an empty store."""
        try:
            yield
        except lmdb.MapFullError as error:
            # History and log rows are not counted, because the node adds them and not the handlers.
            size = len(encode_record(replace(batch, chunks=[], payloads=[], traces=[], rows=[])))
            if size <= self._largest_batch:
                raise
            raise BatchTooLargeError(size=size, limit_bytes=self._largest_batch) from error

    # ---------------------------------------------------------------- with SQL

    def put_stage(self, batch: Batch) -> None:
        """Stage a batch whose `number` SQL is about to commit.

        Raises:
            StoreError: as in `write`; `settle` has to be called nevertheless.
        """
        if batch.sent:
            self.tables.outbox.create_marker()
        self._publish()
        self.staged = True  # set first: even a failed commit may have reached the disk
        with store_errors(), self._size_errors(batch), self.environment.begin(write=True) as txn:
            txn.put(STAGE, encode_record(batch), db=self.tables.stage)

    def settle(self, committed: Callable[[], int] | None = None) -> None:
        """Apply a staged batch if the SQL database has committed its number, else drop it.

        `committed` returns that number; by default it is the function passed to `__init__`.
        """
        with self.begin() as txn:
            data = txn.get(STAGE, db=self.tables.stage)
        if data is not None:
            batch = decode_record(data, Batch)
            with store_errors():
                happened = (committed or self._committed)() >= batch.number
            if not happened:
                with store_errors(), self.environment.begin(write=True) as txn:
                    self._remove_stage(txn)
            else:
                effects = PendingWrites()
                effects.add(batch, len(data))
                self.apply_at_any_size(effects, self._remove_stage)
                self.tables.deduplication.delivered(batch.deliveries)
        self.staged = False

    def _remove_stage(self, txn: Transaction) -> None:
        txn.delete(STAGE, db=self.tables.stage)

    # ---------------------------------------------------------------- maintenance

    def probe(self, size: int) -> None:
        """Write `size` bytes and remove them, to test whether the store can be written."""
        self.end_snapshot()
        with store_errors():
            write_probe(self.environment, size)

    def clear_log(self, instance_id: int) -> None:
        """Delete all log rows of an instance."""
        with store_errors(), self.environment.begin(write=True) as txn:
            self.tables.logs.remove(txn, lambda row: row.instance_id == instance_id)

    def close(self) -> None:
        """Close the environment. An environment that was never written is removed."""
        self.end_snapshot()
        with self._map_lock:
            self.environment.close()
        if self._is_new:
            remove_new(self._path)
