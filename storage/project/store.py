"""The store of one project: key-value pairs, logs, metrics, history, dead letters, outbox.

The project's actor is the only writer; gateways read the LMDB environment at the same time. A batch
of events is committed when its record is synced in the journal. Then it waits in memory, where the
actor's reads find it, until a checkpoint writes all waiting batches in one synced transaction.
Without a journal each batch is such a transaction.

Log rows are written with the next batch, or soon after in one of their own. The guarantees do
not cover the last log rows before a power cut, because a sync for each row would slow down every
event. When a batch also writes to the project's SQL database, both stores commit atomically in
three steps: see `ProjectStore.commit`. In a cluster, its record has the writes to both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from fieldbrook.core.errors import (
    BatchTooLargeError,
    DatabaseUnreachableError,
    JournalDamagedError,
    JournalFullError,
    StorageFullError,
)
from fieldbrook.observability import fault_points
from fieldbrook.storage.journal.unapplied import apply_unapplied
from fieldbrook.storage.lmdb.codec import decode_record, encode_record
from fieldbrook.storage.project.commit.batch import Batch
from fieldbrook.storage.project.commit.effects import Effects
from fieldbrook.storage.project.commit.pending import PendingWrites
from fieldbrook.storage.project.dead_letters import DeadLetter
from fieldbrook.storage.project.deduplication import Outcome
from fieldbrook.storage.project.history.records import EventRecord
from fieldbrook.storage.project.history.tables import HistoryLimits
from fieldbrook.storage.project.outbox import NONE, InTransaction
from fieldbrook.storage.project.stored import Stored
from fieldbrook.storage.replication.appends import ENTRY_BYTES
from fieldbrook.storage.sql.database import ProjectDatabase
from fieldbrook.storage.sql.sqlite import files as sql
from fieldbrook.storage.sql.sqlite.repetition import Repetition

if TYPE_CHECKING:
    from fieldbrook.storage.journal.protocol import JournalWriter
    from fieldbrook.storage.sql.writes import SqlWrites

WAITING_LIMIT = 8 << 20
"""The most bytes that may wait while checkpoints fail; above this, batches are refused."""

_LIMITS = HistoryLimits()
_ABSENT = object()


def store_path(projects_dir: Path, project_id: int) -> Path:
    """The folder of a project's store."""
    return projects_dir / str(project_id)


class ProjectStore(Effects):
    """The writer of a project's store, owned by its actor. Open it after the fork, never before.

    The attributes of `Effects` collect the effects of a batch until its commit. Reads look first in
    these effects, then in the batches that wait for a checkpoint, then in the last checkpoint.

    Attributes:
        path: the folder.
        outbox: the entries that handlers have sent.
    """

    def __init__(
        self,
        path: Path,
        map_size: int,
        committed: Callable[[], int] | None = None,
        limits: HistoryLimits = _LIMITS,
        *,
        journal: JournalWriter | None = None,
        project_id: int = 0,
    ) -> None:
        """Open the store. A batch whose commit a crash interrupted is completed or dropped.

        Batches of a journal that a recovery left in the folder (`journal/unapplied.py`) are
        written into the store.

        Args:
            path: the folder.
            map_size: the size limit in bytes.
            committed: returns the number of the last batch that the SQL database has committed;
                by default it reads the SQLite file in the folder. As long as it raises
                DatabaseUnreachableError, the interrupted batch is neither completed nor dropped,
                and reads and writes that depend on the outcome raise the same error.
            limits: the size limits of the event history and of the payloads for replays; with 0, no
                payloads are kept.
            journal: the journal in which batches become durable; with None each batch is written
                into the store at once. With a journal, a new store appears in the folder with the
                first checkpoint. Records of this project in the journal must be passed to `apply`
                first.
            project_id: the project's id in the journal.

        Raises:
            JournalDamagedError: batches before those in the folder are missing.
            StoreError: the store or the SQL database cannot be opened.
        """
        committed = committed or (lambda: sql.committed_number(path / sql.FILE))
        self.path = path
        self._journal = journal
        self._project_id = project_id
        self._waiting = PendingWrites()
        self._prepared: tuple[Batch, int] | None = None
        self._uncommitted: ProjectDatabase | None = None  # has the SQL writes of that batch
        self._repetition = Repetition(path / sql.FILE)
        self._stored = Stored(
            *(path, map_size, committed, limits, self._write_waiting),
            unsynced=journal is not None,
        )
        self._tables = self._stored.tables
        self.outbox = self._tables.outbox
        super().__init__(keeps_payloads=self._tables.keeps_payloads)
        try:
            apply_unapplied(path, self)
            self._stored.settle()
        except DatabaseUnreachableError:
            return  # the next read or commit tries again
        except BaseException:
            self._stored.close()
            raise

    # ---------------------------------------------------------------- reading

    @property
    def number(self) -> int:
        """The number of the last committed batch. Numbers have no gaps."""
        return self._stored.number + self._waiting.count

    @property
    def waiting_bytes(self) -> int:
        """The size of the batches that wait for a checkpoint, without replaced values."""
        return self._waiting.bytes

    @property
    def waiting_rows(self) -> int:
        """The number of event records and log rows that wait for a checkpoint or for a batch."""
        waiting = len(self._waiting.records) + len(self._waiting.rows)
        return waiting + len(self._history_records) + len(self._rows)

    @property
    def waiting_since(self) -> float:
        """The commit time of the first waiting batch (`time.monotonic`); infinite without one."""
        return self._waiting.since

    def is_waiting(self, size: int, since: float) -> bool:
        """Return whether at least `size` bytes wait for a checkpoint, or any have waited since
        before `since`."""
        waiting = self._waiting
        return waiting.bytes >= size or waiting.since <= since

    @property
    def dead_letter_count(self) -> int:
        """The number of dead letters."""
        waiting = self._waiting
        return self._tables.dead_letters.count_after(len(waiting.dead_letters), waiting.resolved)

    @property
    def used_bytes(self) -> int:
        """The high-water mark of the store's size, to compare with its size limit."""
        return self._stored.used_bytes

    @property
    def copied_bytes(self) -> int:
        """About the size of what `copy_to` writes."""
        return self.used_bytes + sql.size_of(self.path / sql.FILE)

    def read(self, stored_key: bytes) -> bytes | None:
        """Return the value of a stored key (`kv.stored_key`) as the current batch sees it."""
        pairs = self.overlay
        value = pairs.get(stored_key)
        if value is not None or stored_key in pairs:
            return value
        pairs = self._waiting.pairs
        value = pairs.get(stored_key)
        if value is not None or stored_key in pairs:
            return value
        return self._stored.value_of(stored_key)

    def read_committed(self, stored_key: bytes) -> bytes | None:
        """Return the value of a stored key without the current batch, for other threads.

        Two calls may see the states before and after a commit that happens meanwhile.
        """
        pairs = self._waiting.pairs  # read before the snapshot, so that no checkpoint is missed
        value = pairs.get(stored_key, _ABSENT)
        if value is not _ABSENT:
            return cast("bytes | None", value)
        return self._stored.value_for_thread(stored_key)

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over all stored keys and values of the last commit, in the order of keys."""
        self._write_waiting()
        with self._stored.begin() as txn:
            yield from txn.cursor(db=self._tables.kv)

    def outcome_of(self, digest: bytes, now_ms: int) -> Outcome | None:
        """Return the stored result of the event with this digest (`deduplication.digest_of`).

        None when no such event was handled.
        """
        outcome = self.outcomes.get(digest)
        if outcome is not None:
            return outcome
        stored = self._waiting.outcomes.get(digest) or self._stored.outcome_of(digest)
        return None if stored is None else stored.at(now_ms)

    @property
    def has_old_digests(self) -> bool:
        """Whether the store still has digests in the old form (`deduplication.old_digest_of`)."""
        return self._tables.deduplication.has_old

    def was_delivered(self, name: str) -> bool:
        """Return whether the broker's delivery with this name was handled."""
        return name in self.deliveries or self._tables.deduplication.was_delivered(name)

    def leases(self, kind: str) -> list[bytes]:
        """Return the keys of chain transactions that are signed and wait in the outbox.

        `kind` is the kind of their entries: `outbox.TRANSACTIONS` and the chain's id.
        """
        if self._stored.staged:
            self._stored.settle()
        return [bytes.fromhex(target) for target in self.outbox.targets(kind)]

    def replayable(self, place: int) -> tuple[EventRecord, bytes] | None:
        """Return an event of the history and its payload, or None.

        An event has no place before the checkpoint that writes it.
        """
        with self._stored.begin() as txn:
            record, payload = self._tables.history.at(txn, place) or (None, None)
        return None if record is None or payload is None else (record, payload)

    def dead_letter(self, number: int) -> DeadLetter | None:
        """Return a dead letter as of the last commit, or None.

        A letter has no number before the checkpoint that writes it.
        """
        if number in self._waiting.resolved:
            return None
        with self._stored.begin() as txn:
            return self._tables.dead_letters.get(txn, number)

    # ---------------------------------------------------------------- committing

    def commit(self, database: ProjectDatabase | None = None) -> None:
        """Commit the effects of the batch and the waiting log rows, all or nothing.

        A batch without effects writes nothing: its log rows wait until there are enough of
        them or enough time has passed.

        When the batch wrote to SQL, the two stores commit together under SQL's next number n,
        without the journal, after a checkpoint:

        1. The batch is staged in this store under n and synced.
        2. The SQL database commits its writes together with n. From then on the batch is committed.
        3. The staged batch is applied and removed from the stage, in one transaction.

        After a crash or a failure between these steps, the staged batch is applied if the
        database's number has reached n, and dropped otherwise. No other read or write happens
        before that.

        In a cluster the batch is committed when its record is stored. Then the SQL database commits
        its writes. If that fails, the store has to be opened again; `apply` repeats the writes.

        Raises:
            BatchTooLargeError: the effects would not fit into an empty store; they are
                dropped.
            StoreError: the map or the disk is full, or the disk failed. The effects are
                dropped, and no part of the batch is stored. There is one exception: if the
                database's commit, or a later step, failed, the batch may have been committed. In
                this case, both stores either have it or lack it.
        """
        if self.prepare(database):
            assert self._journal is not None
            self._journal.sync()
            self.committed()

    def prepare(self, database: ProjectDatabase | None = None) -> bool:
        """Carry out the part of `commit` before the journal's sync.

        Until `committed` or `dropped` is called, only a checkpoint is allowed.

        Returns:
            Whether the batch is in the journal and waits for its sync. If not, the commit is
            complete: the batch was empty, or it was written into the store.

        Raises:
            StoreError: as in `commit`.
        """
        assert self._prepared is None
        self._stored.end_snapshot()
        try:
            if self._stored.staged:
                self._stored.settle(database.number if database is not None else None)
            if database is not None and database.wrote:
                if self._needs_record:
                    self._add(database.writes())
                    self._uncommitted = database
                    return True
                self._commit_both(database)
                return False
            return (self._has_effects() or self._rows_due()) and self._add()
        except BaseException:
            self._take_batch()
            raise
        finally:
            if database is not None and not database.is_fresh and self._uncommitted is None:
                database.rollback()

    def committed(self) -> None:
        """Note that the prepared batch is on disk: it is committed and waits for a checkpoint.

        Raises:
            StoreError: the SQL database could not commit its writes; only `apply` can repeat them.
        """
        if self._prepared is not None:
            batch, size = self._prepared
            if self._uncommitted is not None and batch.sql is not None:
                self._uncommitted.commit(batch.sql.number)
                self._uncommitted = None
            self._happened(batch, size)
            self._prepared = None

    def dropped(self) -> None:
        """Note that the prepared batch is not on disk and never will be: it is not committed."""
        self._prepared = None
        if self._uncommitted is not None:
            self._uncommitted.rollback()
            self._uncommitted = None

    def write_prepared(self) -> None:
        """Write the prepared batch into the store, because the journal has no room for it.

        Raises:
            StoreError: as in `commit`; the batch is not committed.
        """
        assert self._prepared is not None
        batch, size = self._prepared
        self.dropped()
        self._write_through(batch, size)

    def apply(self, number: int, batch: bytes) -> None:
        """Repeat a batch of the journal after a crash; one that the store contains is skipped.

        Raises:
            JournalDamagedError: a batch before this one is missing.
            StoreError: the batch cannot be decoded.
        """
        if number <= self.number:
            return
        if number != self.number + 1:
            raise JournalDamagedError(
                reason=f"{self.path}: the journal continues with batch {number}, "
                f"and the store ends with batch {self.number}"
            )
        decoded = decode_record(batch, Batch)
        if decoded.sent:
            self.outbox.create_marker()
        if decoded.sql is not None:
            self._repetition.repeat(decoded.sql)
        self._happened(decoded, len(batch))

    def checkpoint(self) -> None:
        """Write all pending writes into the store, including log rows and event records.

        The journal need not keep these batches any longer. They are written even if they exceed the
        size limit, because their events are answered. Call this between two batches; afterwards a
        reader in another process finds every event that was answered.

        Raises:
            StoreError: the disk is full or failed. The batches wait as before; log rows and event
                records that belong to no batch yet may be lost.
        """
        self._repetition.close()
        if not (self._rows or self._history_records or self._waiting):
            return
        if self._stored.staged:
            self._stored.settle()
        rows = self._take_batch(rows_only=True)
        has_rows = bool(rows.rows or rows.chunks)
        if has_rows and self._journal is not None:
            size = len(encode_record(rows))
            if self._stored.space.has(self._waiting, rows, size):
                self._waiting.add(rows, size, 0)
                has_rows = False
        self._write_waiting()
        if has_rows:
            self._stored.write(rows, 0)

    def commit_rows(self) -> None:
        """Commit the log rows and event records that belong to no batch yet.

        In a cluster, the next host of the project gets these rows only in this way.

        Raises:
            StoreError: as in `commit`; the rows are lost.
        """
        if self._rows or self._history_records:
            self._rows_since = -math.inf  # the rows are due now
            self.commit()

    def remove_sent(self, sequences: Sequence[int], refused: Mapping[int, str] = NONE) -> None:
        """Remove outbox entries that were delivered, and refused ones with their reasons.

        In a cluster, the next batch contains this for the next host of the project.

        Raises:
            StoreError: the store could not be written.
        """
        removals = self.outbox.remove(sequences, refused)
        if self._needs_record:
            self.removed += removals

    def _write_waiting(self, also: InTransaction | None = None) -> None:
        """Write the batches that wait into the store, in one synced transaction; see `Outbox`."""
        if not self._waiting:
            return
        self._stored.apply_at_any_size(self._waiting, also)
        self._waiting = PendingWrites()
        if self._journal is not None:
            self._journal.release(self._project_id, self.number)
            fault_points.hit("checkpoint.released")

    @property
    def _needs_record(self) -> bool:
        """Whether each batch has to be in the journal."""
        return self._journal is not None and self._journal.is_complete

    def _add(self, writes: SqlWrites | None = None) -> bool:
        """Add the batch to the journal, or write it into the store; return whether it waits."""
        batch = self._take_batch()
        if writes is not None:
            batch = replace(batch, sql=writes)
        if self._journal is not None:
            if self._waiting.bytes >= WAITING_LIMIT:
                self._write_waiting()
            data = encode_record(batch)
            has_room = self._stored.space.has(self._waiting, batch, len(data))
            if has_room and self._add_to(self._journal, batch, data):
                return True
        self._write_through(batch, 0)
        return False

    def _add_to(self, journal: JournalWriter, batch: Batch, data: bytes) -> bool:
        if batch.sent:
            self.outbox.create_marker()
        try:
            journal.add(self._project_id, self.number + 1, data)
        except JournalFullError:
            return False
        self._prepared = batch, len(data)
        return True

    def _write_through(self, batch: Batch, size: int) -> None:
        """Write a single batch into the store; `size` is its size in bytes if the journal refused
        it because of that."""
        if self._needs_record:
            if size:
                raise BatchTooLargeError(size=size, limit_bytes=ENTRY_BYTES)
            raise StorageFullError(reason=f"{self.path}: the store is full")
        self._write_waiting()
        self._stored.write(batch, 1)

    def _happened(self, batch: Batch, size: int) -> None:
        """Count a batch that is in the journal."""
        waiting = self._waiting
        known = len(waiting.sent)
        waiting.add(batch, size)
        if batch.sent:
            self.outbox.wait(waiting.sent[known:])
        if batch.deliveries:
            self._tables.deduplication.delivered(batch.deliveries)

    def _commit_both(self, database: ProjectDatabase) -> None:
        number = database.number() + 1
        self._write_waiting()
        if self._has_effects() or self._rows_due():
            self._stored.put_stage(self._take_batch(number))
        database.commit(number)
        if self._stored.staged:
            self._stored.settle(lambda: number)

    # ---------------------------------------------------------------- maintenance

    def probe(self, size: int) -> None:
        """Write all pending writes, then write `size` bytes and remove them, to test the store.

        Raises:
            StoreError: the store cannot be written.
        """
        self._write_waiting()
        self._stored.probe(size)

    def copy_to(self, folder: Path) -> None:
        """Write a compact copy of the store into an empty folder, as of the last checkpoint.

        A SQLite file is copied, too.

        Raises:
            StoreError: the disk is full or failed.
        """
        self._stored.copy_to(folder)
        sql.copy(self.path / sql.FILE, folder / sql.FILE)

    def clear_log(self, instance_id: int) -> None:
        """Delete all log rows of an instance, at once.

        Raises:
            StoreError: the store could not be written.
        """
        if self._stored.staged:
            self._stored.settle()
        self._write_waiting()
        self._rows = [row for row in self._rows if row.instance_id != instance_id]
        self._stored.clear_log(instance_id)

    def close(self) -> None:
        """Write all pending writes, including log rows and event records, and close.

        The effects of an unfinished batch are dropped.
        """
        self._clear_effects()
        try:
            self.checkpoint()
        finally:
            self._stored.close()
