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
from msgspec.structs import replace

from fieldbrook.core.errors import BatchTooLargeError, DatabaseUnreachableError
from fieldbrook.storage.lmdb.codec import decode_record, encode_record
from fieldbrook.storage.lmdb.environment import (
    FEW_READERS,
    open_environment,
    reader_check,
    store_errors,
    used_bytes,
    write_probe,
)
from fieldbrook.storage.project.batch import STAGE, Batch
from fieldbrook.storage.project.dead_letters import (
    DeadLetter,
)
from fieldbrook.storage.project.deduplication import Outcome
from fieldbrook.storage.project.history.chunks import GATHERED_EVENTS, Payloads, chunk_of
from fieldbrook.storage.project.history.records import EventRecord, RecordTuple
from fieldbrook.storage.project.history.tables import PAYLOAD_LIMIT, HistoryLimits
from fieldbrook.storage.project.history.traces import EventTrace
from fieldbrook.storage.project.outbox import OutboxEntry
from fieldbrook.storage.project.rows import (
    LogRow,
    MetricRow,
)
from fieldbrook.storage.project.tables import ProjectTables
from fieldbrook.storage.sql.database import ProjectDatabase
from fieldbrook.storage.sql.sqlite import files as sql

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]

_LOG_FLUSH_S = 0.2
_LOG_PENDING_LIMIT = 4_096

_LIMITS = HistoryLimits()
_GROWTH_BYTES = 1 << 20
_EMPTY_BYTES = 48 << 10  # size of an empty store, with the pages that a write copies


def store_path(projects_dir: Path, project_id: int) -> Path:
    """The folder of a project's store."""
    return projects_dir / str(project_id)


class ProjectStore:
    """The writer of a project's store, owned by its actor. Open it after the fork, never before.

    These attributes collect the effects of a batch until `commit`: `overlay` the key-value
    writes (None deletes a key), `sent` the outbox entries, `metrics` the rows of metrics,
    `dead_letters` new dead letters and `resolved` the numbers of dead letters to delete. For
    deduplication, `outcomes` maps the digest of each handled event to its results, and
    `deliveries` has the names of the broker's deliveries. Reads look into the overlay first,
    then into the last commit.
    """

    def __init__(
        self,
        path: Path,
        map_size: int,
        committed: Callable[[], int] | None = None,
        limits: HistoryLimits = _LIMITS,
    ) -> None:
        """Open the store. A batch whose commit a crash interrupted is completed or dropped.

        Args:
            path: the folder.
            map_size: the size limit in bytes.
            committed: returns the number of the last batch that the SQL database has committed;
                by default it reads the SQLite file in the folder. As long as it
                raises DatabaseUnreachableError, the interrupted batch is neither completed nor
                dropped, and reads and writes that need to know raise the same error.
            limits: the limits of the event history, and of the payloads that are kept to replay
                events; 0 keeps none of those.

        Raises:
            StoreError: the store or the SQL database cannot be opened.
        """
        self._committed = committed or (lambda: sql.committed_number(path / sql.FILE))
        self.path = path
        self._environment = open_environment(path, map_size=map_size, max_readers=FEW_READERS)
        reader_check(self._environment)  # frees the slots of a killed writer or gateway
        self._largest_batch = map_size - _EMPTY_BYTES
        try:
            self._tables = ProjectTables(self._environment, path, map_size, limits)
        except BaseException:
            self._environment.close()
            raise
        self.outbox = self._tables.outbox
        self._kv = self._tables.kv
        self._keeps_payloads = self._tables.keeps_payloads
        self._deduplication = self._tables.deduplication
        self._reading: Transaction | None = None  # the batch's snapshot, begun by its first read
        self._clear_effects()
        self._history_records: list[RecordTuple] = []
        self._history_payloads: list[bytes] = []
        self._history_traces: list[EventTrace] = []
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
    def dead_letter_count(self) -> int:
        """The number of dead letters in the store."""
        return len(self._tables.dead_letters)

    @property
    def used_bytes(self) -> int:
        """The high-water mark of the store's size, to compare with its size limit."""
        return used_bytes(self._environment)

    def read(self, stored_key: bytes) -> bytes | None:
        """Return the value of a stored key (`kv.stored_key`) as the current batch sees it."""
        value = self.overlay.get(stored_key)
        if value is not None or stored_key in self.overlay:
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
        if not self._rows and not self._history_records:
            self._rows_since = time.monotonic()
        self._rows.append(row)

    def record(
        self,
        events: Sequence[RecordTuple],
        payloads: Iterable[bytes] = (),
        traces: Sequence[EventTrace] = (),
    ) -> None:
        """Keep history records for the next commit or flush.

        `payloads` belong to `events` in their order. Events whose payload is not kept, such as
        one above `PAYLOAD_LIMIT`, cannot be replayed. The places of `traces` are indexes of
        `events`.
        """
        for trace in traces:
            place = len(self._history_records) + trace.place
            self._history_traces.append(replace(trace, place=place))
        if not self._rows and not self._history_records:
            self._rows_since = time.monotonic()
        if self._keeps_payloads:
            # Earlier callers may have given no payloads: fill up to one per earlier record.
            missing = len(self._history_records) - len(self._history_payloads)
            self._history_payloads.extend([b""] * missing)
            self._history_payloads.extend(
                [payload if len(payload) <= PAYLOAD_LIMIT else b"" for payload in payloads]
            )
        self._history_records.extend(events)

    def outcome_of(self, digest: bytes, now_ms: int) -> Outcome | None:
        """Return the stored result of the event with this digest (`deduplication.digest_of`).

        None when no such event was handled.
        """
        outcome = self.outcomes.get(digest)
        if outcome is not None:
            return outcome
        if self._staged:
            self._settle()
        with store_errors():
            if self._reading is None:
                self._reading = self._environment.begin(db=self._kv)
            return self._deduplication.outcome(self._reading, digest, now_ms)

    @property
    def has_old_digests(self) -> bool:
        """Whether the store still has digests in the old form (`deduplication.old_digest_of`)."""
        return self._deduplication.has_old

    def was_delivered(self, name: str) -> bool:
        """Return whether the broker's delivery with this name was handled."""
        return name in self.deliveries or self._deduplication.was_delivered(name)

    def leases(self, kind: str) -> list[bytes]:
        """Return the keys of chain transactions that are signed and wait in the outbox.

        `kind` is the kind of their entries: `outbox.TRANSACTIONS` and the chain's id.
        """
        if self._staged:
            self._settle()
        return [bytes.fromhex(target) for target in self.outbox.targets(kind)]

    def replayable(self, place: int) -> tuple[EventRecord, bytes] | None:
        """Return an event of the history and its payload as of the last commit, or None."""
        with store_errors(), self._environment.begin() as txn:
            record, payload = self._tables.history.at(txn, place) or (None, None)
        return None if record is None or payload is None else (record, payload)

    def dead_letter(self, number: int) -> DeadLetter | None:
        """Return a dead letter as of the last commit, or None."""
        with store_errors(), self._environment.begin() as txn:
            return self._tables.dead_letters.get(txn, number)

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
            self._take_batch()
            raise
        finally:
            if database is not None:
                database.rollback()

    def _commit_both(self, database: ProjectDatabase) -> None:
        number = database.number() + 1
        if self._has_effects() or self._rows_due():
            self._put_stage(self._take_batch(number))
        database.commit(number)
        if self._staged:
            self._settle(lambda: number)

    def _put_stage(self, batch: Batch) -> None:
        if batch.sent:
            self.outbox.create_marker()
        self._staged = True  # set first: even a failed commit may have reached the disk
        with store_errors(), self._size_errors(batch), self._environment.begin(write=True) as txn:
            txn.put(STAGE, encode_record(batch), db=self._tables.stage)

    @contextmanager
    def _size_errors(self, batch: Batch) -> Iterator[None]:
        """Raise `BatchTooLargeError` when the batch would not even fit into an empty store."""
        try:
            yield
        except lmdb.MapFullError as error:
            # Without history and log rows: the node adds those, the handlers do not.
            size = len(encode_record(replace(batch, chunks=[], payloads=[], traces=[], rows=[])))
            if size <= self._largest_batch:
                raise
            raise BatchTooLargeError(size=size, limit_bytes=self._largest_batch) from error

    def _settle(self, committed: Callable[[], int] | None = None) -> None:
        """Apply a staged batch if the SQL database has committed its number, else drop it."""
        with store_errors(), self._environment.begin(db=self._tables.stage) as txn:
            data = txn.get(STAGE)
        if data is None:
            self._staged = False
            return
        batch = decode_record(data, Batch)
        with store_errors():
            if (committed or self._committed)() < batch.number:
                with self._environment.begin(write=True) as txn:
                    txn.delete(STAGE, db=self._tables.stage)
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
        if self._rows or self._history_records:
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
            write_probe(self._environment, size)

    def clear_log(self, instance_id: int) -> None:
        """Delete all log rows of an instance, at once.

        Raises:
            StoreError: the store could not be written.
        """
        if self._staged:
            self._settle()
        self._rows = [row for row in self._rows if row.instance_id != instance_id]
        with store_errors(), self._environment.begin(write=True) as txn:
            self._tables.logs.remove(txn, lambda row: row.instance_id == instance_id)

    def _clear_effects(self) -> None:
        self.overlay: dict[bytes, bytes | None] = {}
        self.sent: list[OutboxEntry] = []
        self.metrics: list[MetricRow] = []
        self.dead_letters: list[DeadLetter] = []
        self.resolved: list[int] = []
        self.outcomes: dict[bytes, Outcome] = {}
        self.deliveries: dict[str, None] = {}

    def _has_effects(self) -> bool:
        return bool(
            self.overlay
            or self.sent
            or self.metrics
            or self.dead_letters
            or self.resolved
            or self.outcomes
            or self.deliveries
        )

    def _rows_due(self) -> bool:
        return bool(self._rows or self._history_records) and (
            len(self._rows) >= _LOG_PENDING_LIMIT
            or len(self._history_records) >= GATHERED_EVENTS
            or time.monotonic() - self._rows_since >= _LOG_FLUSH_S
        )

    def _take_batch(self, number: int = 0) -> Batch:
        """Move all collected effects and rows into a batch, and start with empty ones."""
        chunks = [chunk_of(self._history_records)] if self._history_records else []
        payloads = [Payloads(self._history_payloads)] if chunks and self._keeps_payloads else []
        batch = Batch(
            number,
            list(self.overlay.items()),
            self.sent,
            self.metrics,
            self.dead_letters,
            self.resolved,
            chunks,
            self._rows,
            list(self.outcomes.items()),
            list(self.deliveries),
            payloads,
            self._history_traces,
        )
        self._clear_effects()
        self._history_records, self._history_payloads = [], []
        self._history_traces, self._rows = [], []
        return batch

    def _write(self) -> None:
        batch = self._take_batch()
        with store_errors(), self._size_errors(batch):
            self._apply(batch)

    def _apply(self, batch: Batch) -> None:
        if batch.sent:
            self.outbox.create_marker()
        with self._environment.begin(write=True) as txn:
            written = self._tables.put(txn, batch)
        self._tables.committed(batch, written)

    def free_readers(self) -> None:
        """Free the reader slots of dead processes, so that their old pages can be reused."""
        reader_check(self._environment)

    def close(self) -> None:
        """Write waiting log rows and event records, and close.

        The effects of an unfinished batch are dropped.
        """
        self._clear_effects()
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
