"""The store of one project: key-value pairs, logs, metrics, history, dead letters, outbox.

The project's actor is the only writer; gateways read at the same time. One batch of events is
one transaction, synced to disk before any of its events is answered. Log rows are written with
the next such transaction, or soon after in one of their own. The guarantees do not cover the
last log rows before a power cut, because a sync for each row would slow down every event. When
a batch also writes to the project's SQL database, both stores commit atomically in three
steps: see `ProjectStore.commit`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb
import msgspec
from msgspec.structs import replace

from fieldbrook.core import clock
from fieldbrook.core.errors import BatchTooLargeError, DatabaseUnreachableError, StoreError
from fieldbrook.storage.backup.backup import copy_open_project
from fieldbrook.storage.lmdb.codec import decode_record, encode_record
from fieldbrook.storage.lmdb.environment import (
    FEW_READERS,
    open_environment,
    reader_check,
    store_errors,
    try_writing,
    used_bytes,
)
from fieldbrook.storage.lmdb.rows import Numbered, RowTable
from fieldbrook.storage.lmdb.schema import open_meta
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.dead_letters import DATABASE as DEAD_LETTERS
from fieldbrook.storage.project.dead_letters import (
    NO_CHANGE,
    DeadLetter,
    DeadLetters,
    LettersChange,
    NumberedLetter,
    read_letter,
    read_letters,
)
from fieldbrook.storage.project.deduplication import Outcome, Seen
from fieldbrook.storage.project.history import (
    GATHERED_EVENTS,
    PAYLOAD_LIMIT,
    REPLAYABLE_BYTES,
    Chunk,
    EventRecord,
    Payloads,
    Remembered,
    Replayable,
    Wanted,
    at_place,
    chunk_of,
    find_events,
    find_replayable,
    open_history,
    open_payloads,
)
from fieldbrook.storage.project.outbox import Added, EffectOf, Outbox, OutboxEntry, effects_of
from fieldbrook.storage.sql.database import ProjectDatabase
from fieldbrook.storage.sql.sqlite import files as sql

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]

SCHEMA = 1
UNMARKED = 1  # the schema of stores from before the schema was recorded
WHAT = "a project's store"
LOG_ROWS_LIMIT = 100_000
METRIC_ROWS_LIMIT = 100_000
# The limit for logs, metrics, event history and dead letters, for each of them: 64 MiB, or a
# smaller share of the store's size limit, which leaves room for the handlers' own pairs.
_KEPT_BYTES = 64 << 20
_KEPT_SHARE = 8
_LOG_FLUSH_S = 0.2
_LOG_PENDING_LIMIT = 4_096

KV, LOGS, METRICS, STAGE = b"kv", b"applet_log", b"metrics", b"stage"
_STAGE_CELL = STAGE
_GROWTH_BYTES = 1 << 20
_EMPTY_BYTES = 48 << 10  # size of an empty store, with the pages that a write copies


class LogRow(msgspec.Struct, array_like=True, frozen=True):
    """One line of an applet log. `time_ms` is Unix milliseconds, `level` a number of the ABI."""

    time_ms: int
    level: int
    source: str
    instance_id: int
    applet_name: str
    event_id: str
    text: str


class MetricRow(msgspec.Struct, array_like=True, frozen=True):
    """JSON that an applet submitted. `time_ms` is Unix milliseconds."""

    time_ms: int
    instance_id: int
    applet_name: str
    event_id: str
    value: str


NumberedRow = Numbered[LogRow]


class Batch(msgspec.Struct, array_like=True, frozen=True):
    """Everything that one batch writes to this store.

    A batch with a `number` above 0 is staged: it waits until the SQL database has committed
    its own part under that number.
    """

    number: int
    pairs: list[tuple[bytes, bytes]]
    sent: list[OutboxEntry]
    measured: list[MetricRow]
    failed: list[DeadLetter]
    resolved: list[int]
    chunks: list[Chunk]
    rows: list[LogRow]
    finished: list[tuple[bytes, Outcome]] = []
    delivered: list[str] = []
    payloads: list[Payloads] = []


def store_path(projects_dir: Path, project_id: int) -> Path:
    """The folder of a project's store."""
    return projects_dir / str(project_id)


class ProjectStore:
    """The writer of a project's store, owned by its actor. Open it after the fork, never before.

    These attributes collect the effects of a batch until `commit`: `overlay` the key-value
    writes, `sent` the outbox entries, `measured` the metrics, `failed` new dead letters and
    `resolved` the numbers of dead letters to delete. For deduplication, `finished` maps the
    digest of each handled event to its results, and `delivered` has the names of the broker's
    deliveries. Reads look into the overlay first, then into the last commit.
    """

    def __init__(
        self,
        path: Path,
        map_size: int,
        committed: Callable[[], int] | None = None,
        replayable_bytes: int = REPLAYABLE_BYTES,
    ) -> None:
        """Open the store, and apply or drop a batch that a crash left staged.

        Args:
            path: the folder.
            map_size: the size limit in bytes.
            committed: returns the number of the last batch that the SQL database has committed;
                by default it reads the SQLite file in the folder. While it raises
                DatabaseUnreachableError a staged batch waits, and reads and writes that need
                it settled raise the same error.
            replayable_bytes: the limit for payloads that are kept to replay events; 0 keeps
                none.

        Raises:
            StoreError: the store or the SQL database cannot be opened.
        """
        self._committed = committed or (lambda: sql.committed_number(path / sql.FILE))
        self.path = path
        self._environment = open_environment(path, map_size=map_size, max_readers=FEW_READERS)
        reader_check(self._environment)  # frees the slots of a killed writer or gateway
        kept = min(_KEPT_BYTES, map_size // _KEPT_SHARE)
        self._replayable_bytes = min(replayable_bytes, kept)
        self._largest_batch = map_size - _EMPTY_BYTES
        try:
            self._open(kept, map_size)
        except BaseException:
            self._environment.close()
            raise
        self.outbox = Outbox(self._environment, path)
        self._reading: Transaction | None = None  # the batch's snapshot, begun by its first read
        self.overlay: dict[bytes, bytes] = {}
        self.sent: list[OutboxEntry] = []
        self.measured: list[MetricRow] = []
        self.failed: list[DeadLetter] = []
        self.resolved: list[int] = []
        self.finished: dict[bytes, Outcome] = {}
        self.delivered: dict[str, None] = {}
        self._handled: list[Remembered] = []
        self._handled_payloads: list[bytes] = []
        self._rows: list[LogRow] = []
        self._rows_since = 0.0
        self._staged = True  # an earlier process may have left a staged batch
        try:
            self._settle()
        except DatabaseUnreachableError:
            return  # the next read or commit tries again
        except BaseException:
            self._environment.close()
            raise

    @property
    def letters(self) -> int:
        """The number of dead letters in the store."""
        return len(self._dead)

    @property
    def used_bytes(self) -> int:
        """The high-water mark of the store's size, to compare with its size limit."""
        return used_bytes(self._environment)

    def _open(self, kept: int, map_size: int) -> None:
        with store_errors():
            open_meta(self._environment, WHAT, SCHEMA, create=True, unmarked=UNMARKED)
            self._kv = self._environment.open_db(KV)
            self._stage = self._environment.open_db(STAGE)
            self._logs = RowTable(
                *(self._environment, LOGS, LogRow, LOG_ROWS_LIMIT), create=True, limit_bytes=kept
            )
            self._metrics = RowTable(
                *(self._environment, METRICS, MetricRow, METRIC_ROWS_LIMIT),
                create=True,
                limit_bytes=kept,
            )
            self._dead = DeadLetters(self._environment, kept)
            self._history = open_history(self._environment, create=True, limit_bytes=kept)
            self._payloads = open_payloads(
                self._environment, create=True, limit_bytes=self._replayable_bytes
            )
            self._payloads.follow(self._history)
            self._seen = Seen(self._environment, map_size // _KEPT_SHARE)

    def read(self, stored_key: bytes) -> bytes | None:
        """Return the value of a stored key (`kv.stored_key`) as the current batch sees it."""
        value = self.overlay.get(stored_key)
        if value is not None:
            return value
        if self._staged:
            self._settle()
        with store_errors():
            if self._reading is None:
                self._reading = self._environment.begin(db=self._kv)
            return self._reading.get(stored_key)

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over all stored keys and values of the last commit, in the order of keys."""
        with store_errors(), self._environment.begin(db=self._kv) as txn:
            yield from txn.cursor()

    def log(self, row: LogRow) -> None:
        """Keep a log row for the next commit or flush."""
        if not self._rows and not self._handled:
            self._rows_since = time.monotonic()
        self._rows.append(row)

    def record(self, events: Sequence[Remembered], payloads: Iterable[bytes] = ()) -> None:
        """Keep history records for the next commit or flush.

        `payloads` belong to `events` in their order. Events whose payload is not kept, such as
        one above `PAYLOAD_LIMIT`, cannot be replayed.
        """
        if not self._rows and not self._handled:
            self._rows_since = time.monotonic()
        if self._replayable_bytes:
            # Earlier callers may have given no payloads: fill up to one per earlier record.
            missing = len(self._handled) - len(self._handled_payloads)
            self._handled_payloads.extend([b""] * missing)
            self._handled_payloads.extend(
                [payload if len(payload) <= PAYLOAD_LIMIT else b"" for payload in payloads]
            )
        self._handled.extend(events)

    def outcome_of(self, digest: bytes, now_ms: int) -> Outcome | None:
        """Return the stored result of the event with this digest (`deduplication.digest_of`).

        None when no such event was handled.
        """
        outcome = self.finished.get(digest)
        if outcome is not None:
            return outcome
        if self._staged:
            self._settle()
        with store_errors():
            if self._reading is None:
                self._reading = self._environment.begin(db=self._kv)
            return self._seen.outcome(self._reading, digest, now_ms)

    @property
    def has_old_digests(self) -> bool:
        """Whether the store still has digests in the old form (`deduplication.old_digest_of`)."""
        return self._seen.has_old

    def was_delivered(self, name: str) -> bool:
        """Return whether the broker's delivery with this name was handled."""
        return name in self.delivered or self._seen.was_delivered(name)

    def leases(self, chain: str) -> list[bytes]:
        """Return the keys of leased transactions that wait in the outbox.

        `chain` is the kind of their entries (`outbox.TRANSACTIONS` and the chain's id).
        """
        if self._staged:
            self._settle()
        return [bytes.fromhex(target) for target in self.outbox.targets(chain)]

    def replayable(self, place: int) -> tuple[EventRecord, bytes] | None:
        """Return an event of the history and its payload as of the last commit, or None."""
        with store_errors(), self._environment.begin() as txn:
            return at_place(txn, self._history, self._payloads, place)

    def dead_letter(self, number: int) -> DeadLetter | None:
        """Return a dead letter as of the last commit, or None."""
        with store_errors(), self._environment.begin() as txn:
            return self._dead.get(txn, number)

    def commit(self, database: ProjectDatabase | None = None) -> None:
        """Commit the effects of the batch and the waiting log rows, all or nothing.

        A batch without effects writes nothing: its log rows wait until there are enough of
        them or enough time has passed.

        When the batch wrote to SQL, the two stores commit together under SQL's next number n:

        1. The batch is staged in this store under n and synced.
        2. The SQL database commits its writes together with n. From then on the batch counts.
        3. The staged batch is applied and removed from the stage, in one transaction.

        After a crash or a failure between these steps, the staged batch is applied when the
        database's number has reached n, and dropped otherwise. Nothing else is read or written
        before that.

        Raises:
            BatchTooLargeError: the effects would not fit into an empty store; they are
                dropped.
            StoreError: the map or the disk is full, or the disk failed. The effects are
                dropped, and no part of the batch is stored. There is one exception: when the
                database's commit failed, or anything after it, the batch may have been committed.
                Both stores then agree on whether it was.
        """
        self._end_snapshot()
        try:
            if self._staged:
                self._settle(database.number if database is not None else None)
            if database is not None and database.wrote:
                self._commit_both(database)
            elif self._has_effects() or self._rows_due():
                self._write()
        except BaseException:
            self._take()
            raise
        finally:
            if database is not None:
                database.rollback()

    def _commit_both(self, database: ProjectDatabase) -> None:
        number = database.number() + 1
        if self._has_effects() or self._rows_due():
            self._put_stage(self._take(number))
        database.commit(number)
        if self._staged:
            self._settle(lambda: number)

    def _put_stage(self, batch: Batch) -> None:
        if batch.sent:
            self.outbox.announce()
        self._staged = True  # set first: even a failed commit may have reached the disk
        with store_errors(), self._explained(batch), self._environment.begin(write=True) as txn:
            txn.put(_STAGE_CELL, encode_record(batch), db=self._stage)

    @contextmanager
    def _explained(self, batch: Batch) -> Iterator[None]:
        """Raise `BatchTooLargeError` when the batch would not even fit into an empty store."""
        try:
            yield
        except lmdb.MapFullError as error:
            # Without history and log rows: the node adds those, the handlers do not.
            size = len(encode_record(replace(batch, chunks=[], payloads=[], rows=[])))
            if size <= self._largest_batch:
                raise
            raise BatchTooLargeError(size=size, limit_bytes=self._largest_batch) from error

    def _settle(self, committed: Callable[[], int] | None = None) -> None:
        """Apply a staged batch if the SQL database has committed its number, else drop it."""
        with store_errors(), self._environment.begin(db=self._stage) as txn:
            data = txn.get(_STAGE_CELL)
        if data is None:
            self._staged = False
            return
        batch = decode_record(data, Batch)
        with store_errors():
            if (committed or self._committed)() < batch.number:
                with self._environment.begin(write=True) as txn:
                    txn.delete(_STAGE_CELL, db=self._stage)
            else:
                self._apply_at_any_size(batch, len(data))
        self._staged = False

    def _apply_at_any_size(self, batch: Batch, size: int) -> None:
        """Apply a staged batch that is committed in SQL; a full store must not stop it half-way."""
        try:
            self._apply(batch)
        except lmdb.MapFullError:
            limit = self._environment.info()["map_size"]
            self._environment.set_mapsize(limit + 2 * size + _GROWTH_BYTES)
            self._apply(batch)

    def flush_logs(self) -> None:
        """Write waiting log rows and event records if they are due.

        When the store is full, only these rows are lost.
        """
        if self._rows_due():
            self._write_rows()

    def write_logs(self) -> None:
        """Write waiting log rows and event records now, so that a reader sees them.

        Call it between two batches only: it would also write the effects of an open batch.

        Raises:
            StoreError: the store could not be written; the rows are lost.
        """
        if self._rows or self._handled:
            self._write_rows()

    def _write_rows(self) -> None:
        if self._staged:
            self._settle()
        self._write()

    def probe(self, size: int) -> None:
        """Write `size` bytes and remove them, to test whether the store can be written.

        Raises:
            StoreError: the store cannot be written.
        """
        self._end_snapshot()
        with store_errors():
            try_writing(self._environment, size)

    def clear_log(self, instance_id: int) -> None:
        """Delete all log rows of an instance, at once.

        Raises:
            StoreError: the store could not be written.
        """
        if self._staged:
            self._settle()
        self._rows = [row for row in self._rows if row.instance_id != instance_id]
        with store_errors(), self._environment.begin(write=True) as txn:
            self._logs.remove(txn, lambda row: row.instance_id == instance_id)

    def _has_effects(self) -> bool:
        return bool(
            self.overlay
            or self.sent
            or self.measured
            or self.failed
            or self.resolved
            or self.finished
            or self.delivered
        )

    def _rows_due(self) -> bool:
        return bool(self._rows or self._handled) and (
            len(self._rows) >= _LOG_PENDING_LIMIT
            or len(self._handled) >= GATHERED_EVENTS
            or time.monotonic() - self._rows_since >= _LOG_FLUSH_S
        )

    def _take(self, number: int = 0) -> Batch:
        """Move all collected effects and rows into a batch, and start with empty ones."""
        chunks = [chunk_of(self._handled)] if self._handled else []
        payloads = [Payloads(self._handled_payloads)] if chunks and self._replayable_bytes else []
        batch = Batch(
            number,
            list(self.overlay.items()),
            self.sent,
            self.measured,
            self.failed,
            self.resolved,
            chunks,
            self._rows,
            list(self.finished.items()),
            list(self.delivered),
            payloads,
        )
        self.finished, self.delivered = {}, {}
        self.overlay, self.sent, self.measured = {}, [], []
        self.failed, self.resolved, self._handled, self._rows = [], [], [], []
        self._handled_payloads = []
        return batch

    def _write(self) -> None:
        batch = self._take()
        with store_errors(), self._explained(batch):
            self._apply(batch)

    def _apply(self, batch: Batch) -> None:
        if batch.sent:
            self.outbox.announce()
        with self._environment.begin(write=True) as txn:
            sizes, dead = self._put(txn, batch)
            seen = self._seen.put(txn, batch.finished, batch.delivered, clock.now_ms())
            if batch.number:
                txn.delete(_STAGE_CELL, db=self._stage)
        self._dead.settle(dead)
        self._seen.written(seen, batch.delivered)
        self._history.written(len(batch.chunks))
        self._payloads.follow(self._history)
        self._logs.written(len(batch.rows))
        self._metrics.written(len(batch.measured))
        self.outbox.added(sizes)

    def _put(self, txn: Transaction, batch: Batch) -> tuple[Added, LettersChange]:
        for key, value in batch.pairs:
            txn.put(key, value, db=self._kv)
        sizes = self.outbox.add(txn, batch.sent) if batch.sent else {}
        if batch.measured:
            self._metrics.append(txn, batch.measured)
        dead = NO_CHANGE
        if batch.failed or batch.resolved:
            dead = self._dead.put(txn, batch.failed, batch.resolved)
        if batch.chunks:
            self._history.append(txn, batch.chunks)
            self._payloads.append(txn, batch.payloads)
        if batch.rows:
            self._logs.append(txn, batch.rows)
        return sizes, dead

    def free_readers(self) -> None:
        """Free the reader slots of dead processes, so that their old pages can be reused."""
        reader_check(self._environment)

    def close(self) -> None:
        """Write waiting log rows and event records, and close.

        The effects of an unfinished batch are dropped.
        """
        self.overlay, self.sent, self.measured = {}, [], []
        self.failed, self.resolved = [], []
        self.finished, self.delivered = {}, {}
        self._rows_since = 0.0
        try:
            self.flush_logs()
        finally:
            self._end_snapshot()
            self._environment.close()

    def _end_snapshot(self) -> None:
        if self._reading is not None:
            self._reading.abort()
            self._reading = None


class ProjectStoreReader:
    """A reader of a project's store, for gateways; each call reads a snapshot of its own."""

    def __init__(self, path: Path) -> None:
        self._environment = open_environment(path, map_size=0, readonly=True)
        with store_errors():
            self._kv = self._environment.open_db(KV, create=False)
            self._logs = RowTable(self._environment, LOGS, LogRow, LOG_ROWS_LIMIT, create=False)

    @classmethod
    def open_if_exists(cls, path: Path) -> ProjectStoreReader | None:
        """Open a reader; None when the project has never run."""
        if not (path / "data.mdb").exists():
            return None
        try:
            return cls(path)
        except StoreError as error:
            made = not isinstance(error.__cause__, lmdb.NotFoundError)
            if made and (path / "data.mdb").stat().st_size > 0:
                raise
            return None  # its actor is creating it right now

    def logs(self, after: int, limit: int) -> list[Numbered[LogRow]]:
        """See `RowTable.after`."""
        with store_errors(), self._environment.begin() as txn:
            return self._logs.after(txn, after, limit)

    def metrics(self, after: int, limit: int) -> list[Numbered[MetricRow]]:
        """See `RowTable.after`; an old store without the metrics table has no rows."""
        with store_errors():
            try:
                table = RowTable(
                    self._environment, METRICS, MetricRow, METRIC_ROWS_LIMIT, create=False
                )
            except lmdb.NotFoundError:
                return []
            with self._environment.begin() as txn:
                return table.after(txn, after, limit)

    def dead_letters(self, before: int | None, limit: int) -> tuple[Sequence[NumberedLetter], int]:
        """Return dead letters with numbers below `before`, newest first, and the count of all."""
        with store_errors():
            try:
                database = self._environment.open_db(DEAD_LETTERS, create=False)
            except lmdb.NotFoundError:
                return [], 0
            with self._environment.begin() as txn:
                return read_letters(txn, database, before, limit)

    def dead_letter(self, number: int) -> DeadLetter | None:
        """Return the dead letter with this number, or None."""
        with store_errors():
            try:
                database = self._environment.open_db(DEAD_LETTERS, create=False)
            except lmdb.NotFoundError:
                return None
            with self._environment.begin() as txn:
                return read_letter(txn, database, number)

    def events(self, event_id: str | None, limit: int) -> Sequence[EventRecord]:
        """Return records of the event history, newest first: those of one event id, or all."""
        with store_errors():
            try:
                table = open_history(self._environment, create=False)
            except lmdb.NotFoundError:
                return []
            with self._environment.begin() as txn:
                return find_events(txn, table, event_id, limit)

    def replayable(
        self, wanted: Wanted, after: int, limit: int
    ) -> tuple[Sequence[Replayable], int]:
        """Return the events of the history to replay; see `history.find_replayable`."""
        with store_errors():
            try:
                history = open_history(self._environment, create=False)
                payloads = open_payloads(self._environment, create=False)
            except lmdb.NotFoundError:
                return [], 0
            with self._environment.begin() as txn:
                return find_replayable(txn, history, payloads, wanted, after, limit)

    def logs_of(self, event_id: str, limit: int) -> list[LogRow]:
        """Return the newest log rows of an event, in the order in which they were written."""
        with store_errors(), self._environment.begin() as txn:
            rows = (row for row in self._logs.backwards(txn) if row.event_id == event_id)
            return [row for row, _ in zip(rows, range(limit), strict=False)][::-1]

    def effects_of(self, event_id: str, limit: int) -> list[EffectOf]:
        """Return the effects that an event has sent, and whether each was delivered."""
        with store_errors():
            return effects_of(self._environment, event_id, limit)

    def kv_get(self, applet_id: int, key: bytes) -> bytes | None:
        """Return the committed value of an applet's key, or None."""
        with store_errors(), self._environment.begin(db=self._kv) as txn:
            return txn.get(kv.stored_key(kv.scope(applet_id), key))

    def kv_keys(self, applet_id: int, prefix: bytes, limit: int) -> list[bytes]:
        """Return keys of an applet that start with `prefix`, in byte order, the empty key first.

        Keys that are too long for the store are left out, because the store has only their
        hash (`kv.stored_key`).
        """
        scope = kv.scope(applet_id)
        start = kv.plain_prefix(scope, prefix)
        keys: list[bytes] = []
        with store_errors(), self._environment.begin(db=self._kv) as txn:
            if not prefix and txn.get(kv.empty_key(scope)) is not None:
                keys.append(b"")
            cursor = txn.cursor()
            more = cursor.set_range(start)
            while more and len(keys) < limit and cursor.key().startswith(start):
                keys.append(kv.own_key(cursor.key()))
                more = cursor.next()
        return keys

    def copy(self, target: Path) -> None:
        """Copy the store and its SQL database as of one moment; see `backup.copy_project`."""
        copy_open_project(self._environment, Path(self._environment.path()), target)

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()


class ProjectSnapshot:
    """A snapshot of the handlers' key-value pairs, for processes other than the writer's.

    The first `read` after a `renew` takes the snapshot; it lasts until the next `renew`.

    Raises:
        StoreError: the store cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._environment = open_environment(path, map_size=0, readonly=True)
        self._reading: Transaction | None = None
        with store_errors():
            self._kv = self._environment.open_db(KV, create=False)

    def read(self, stored_key: bytes) -> bytes | None:
        """Return the value of a stored key (`kv.stored_key`), or None."""
        with store_errors():
            if self._reading is None:
                self._reading = self._environment.begin(db=self._kv)
            return self._reading.get(stored_key)

    def renew(self) -> None:
        """Release the snapshot."""
        if self._reading is not None:
            self._reading.abort()
            self._reading = None

    def close(self) -> None:
        """Close the environment."""
        self.renew()
        self._environment.close()
