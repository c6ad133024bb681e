"""Readers of a project's store, for processes other than the one that writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.backup.copies import copy_open_project
from fieldbrook.storage.lmdb.environment import open_environment, store_errors
from fieldbrook.storage.lmdb.rows import Numbered, RowTable
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.dead_letters import (
    ANY_LETTER,
    DeadLetter,
    LetterFilter,
    LetterGroup,
    LetterRange,
    NumberedDeadLetter,
    group_letters,
    newest_letter,
    read_letter,
    read_letters,
    select_letters,
)
from fieldbrook.storage.project.dead_letters import DATABASE as DEAD_LETTERS
from fieldbrook.storage.project.history.chunks import StoredChunk
from fieldbrook.storage.project.history.flow import Flow, read_flow
from fieldbrook.storage.project.history.records import EventRecord
from fieldbrook.storage.project.history.replays import Replayable, ReplayFilter, find_replayable
from fieldbrook.storage.project.history.search import EventFilter, EventPage, Span, find_events
from fieldbrook.storage.project.history.tables import HistoryTables
from fieldbrook.storage.project.history.traces import EventTrace
from fieldbrook.storage.project.log_search import (
    LogFilter,
    LogPage,
    logs_of,
    search_backwards,
    search_forwards,
)
from fieldbrook.storage.project.outbox import DeliveryCounts, EffectOf, count_deliveries, effects_of
from fieldbrook.storage.project.rows import (
    LOG_ROWS_LIMIT,
    LOGS,
    METRIC_ROWS_LIMIT,
    METRICS,
    LogRow,
    MetricRow,
)

METRICS_BYTES = 4 << 20
"""The most bytes of metrics that are read at once; a single metric may have 64 KiB."""

if TYPE_CHECKING:
    Database = lmdb._Database
    Transaction = lmdb.Transaction[bytes]


class ProjectStoreReader:
    """A reader of a project's store, for gateways; each call reads a snapshot of its own."""

    def __init__(self, path: Path) -> None:
        self._environment = open_environment(path, map_size=0, readonly=True)
        with store_errors():
            self._kv = self._environment.open_db(kv.DATABASE, create=False)
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
            return None  # the project's actor is creating the store right now

    def logs(self, after: int, limit: int) -> list[Numbered[LogRow]]:
        """See `RowTable.after`."""
        with store_errors(), self._environment.begin() as txn:
            return self._logs.after(txn, after, limit)

    def metrics(self, after: int, limit: int) -> list[Numbered[MetricRow]]:
        """See `RowTable.after`: rows of at most `METRICS_BYTES`, or one.

        An old store without the metrics table has no rows.
        """
        with store_errors():
            try:
                table = RowTable(
                    self._environment, METRICS, MetricRow, METRIC_ROWS_LIMIT, create=False
                )
            except lmdb.NotFoundError:
                return []
            with self._environment.begin() as txn:
                return table.after(txn, after, limit, METRICS_BYTES)

    def find_logs_after(self, wanted: LogFilter, after: int, limit: int) -> LogPage:
        """Return matching log rows, oldest first; see `log_search.search_forwards`."""
        with store_errors(), self._environment.begin() as txn:
            return search_forwards(txn, self._logs, wanted, after, limit)

    def find_logs_before(self, wanted: LogFilter, before: int, limit: int) -> LogPage:
        """Return matching log rows, newest first; see `log_search.search_backwards`."""
        with store_errors(), self._environment.begin() as txn:
            return search_backwards(txn, self._logs, wanted, before, limit)

    def dead_letters(
        self, before: int | None, limit: int, wanted: LetterFilter = ANY_LETTER
    ) -> tuple[Sequence[NumberedDeadLetter], int]:
        """Return a page of dead letters, and the count of all; see `dead_letters.read_letters`."""
        with self._letters() as (txn, database):
            return read_letters(txn, database, before, limit, wanted) if database else ([], 0)

    def newest_dead_letter(self) -> tuple[int, int]:
        """Return the number of the newest dead letter, and the count of all, without decoding
        any."""
        with self._letters() as (txn, database):
            return newest_letter(txn, database) if database else (0, 0)

    def dead_letter(self, number: int) -> DeadLetter | None:
        """Return the dead letter with this number, or None."""
        with self._letters() as (txn, database):
            return read_letter(txn, database, number) if database else None

    def dead_letter_groups(self, wanted: LetterFilter) -> list[LetterGroup]:
        """Count dead letters by reason, applet and handler; see `dead_letters.group_letters`."""
        with self._letters() as (txn, database):
            return group_letters(txn, database, wanted) if database else []

    def select_dead_letters(
        self, wanted: LetterFilter, selected: LetterRange, limit: int
    ) -> tuple[list[int], int]:
        """Return the numbers of dead letters; see `dead_letters.select_letters`."""
        with self._letters() as (txn, database):
            return select_letters(txn, database, wanted, selected, limit) if database else ([], 0)

    @contextmanager
    def _letters(self) -> Iterator[tuple[Transaction, Database | None]]:
        """Read the table of dead letters; None while the project has none."""
        with store_errors():
            try:
                database = self._environment.open_db(DEAD_LETTERS, create=False)
            except lmdb.NotFoundError:
                database = None
            with self._environment.begin() as txn:
                yield txn, database

    def find_events(self, wanted: EventFilter, before: int, limit: int) -> EventPage:
        """Return a page of matching events, newest first; see `history.search.find_events`."""
        with self._history() as (txn, tables):
            return find_events(txn, tables, wanted, before, limit) if tables else EventPage([])

    def event_at(self, place: int) -> tuple[EventRecord, bytes | None] | None:
        """Return an event and its payload by its place; see `HistoryTables.at`."""
        with self._history() as (txn, tables):
            return tables.at(txn, place) if tables else None

    def flow(self, begin_ms: int, now_ms: int) -> Flow:
        """Count recent events; see `history.flow.read_flow`."""
        with self._history() as (txn, tables):
            return read_flow(txn, tables, begin_ms, now_ms) if tables else Flow(begin_ms, now_ms)

    def deliveries(self, begin_ms: int) -> dict[str, DeliveryCounts]:
        """Count what handlers have sent, by kind; see `outbox.count_deliveries`."""
        with store_errors():
            return count_deliveries(self._environment, begin_ms)

    def trace_at(self, place: int) -> EventTrace | None:
        """Return the trace of an event by its place; see `Traces.at`."""
        with self._history() as (txn, tables):
            return tables.traces.at(txn, place) if tables and tables.traces else None

    def trace_count(self) -> int:
        """Return how many traces are kept."""
        with self._history() as (txn, tables):
            return tables.traces.count(txn) if tables and tables.traces else 0

    def events_after(self, after: int, limit: int) -> Sequence[StoredChunk]:
        """Return chunks of events with numbers above `after`, oldest first; -n gives the last n.

        The number of the last one is the next `after`. `StoredChunk.head` has the counts of a
        chunk; `StoredChunk.record` decodes one event of it.
        """
        with self._history() as (txn, tables):
            return tables.after(txn, after, limit) if tables else []

    def replayable(
        self, wanted: ReplayFilter, after: int, limit: int
    ) -> tuple[Sequence[Replayable], int]:
        """Return the events of the history to replay; see `history.replays.find_replayable`."""
        with self._history() as (txn, tables):
            return find_replayable(txn, tables, wanted, after, limit) if tables else ([], 0)

    def logs_of(self, event_id: str, limit: int, spans: Sequence[Span]) -> list[LogRow]:
        """Return the newest log rows of an event, oldest first; see `log_search.logs_of`."""
        with store_errors(), self._environment.begin() as txn:
            return logs_of(txn, self._logs, event_id, limit, spans)

    def effects_of(self, event_id: str, limit: int, spans: Sequence[Span]) -> list[EffectOf]:
        """Return the effects that an event has sent; see `outbox.effects_of`."""
        with store_errors():
            return effects_of(self._environment, event_id, limit, spans)

    @contextmanager
    def _history(self) -> Iterator[tuple[Transaction, HistoryTables | None]]:
        """Read the tables of the history; None while the project has none."""
        with store_errors():
            try:
                tables = HistoryTables(self._environment, create=False)
            except lmdb.NotFoundError:
                tables = None
            with self._environment.begin() as txn:
                yield txn, tables

    def kv_get(self, applet_id: int, key: bytes) -> bytes | None:
        """Return the committed value of an applet's key, or None."""
        with store_errors(), self._environment.begin(db=self._kv) as txn:
            return txn.get(kv.stored_key(kv.scope(applet_id), key))

    def kv_keys(
        self, applet_id: int, prefix: bytes, limit: int, after: bytes | None = None
    ) -> list[bytes]:
        """Return keys of an applet that start with `prefix`, in byte order, the empty key first.

        Args:
            applet_id: the owner of the keys (`kv.owner`).
            prefix: the first bytes of each key.
            limit: how many keys at most.
            after: only later keys in this order are returned; None returns all.

        Keys that are too long for the store are left out, because the store has only their
        hash (`kv.stored_key`).
        """
        with store_errors(), self._environment.begin(db=self._kv) as txn:
            found = _own_keys(txn, kv.scope(applet_id), prefix, after)
            return [key for key, _ in islice(found, limit)]

    def kv_pairs(
        self, applet_id: int, prefix: bytes, limit: int, after: bytes | None, limit_bytes: int
    ) -> list[tuple[bytes, bytes]]:
        """Return pairs of an applet; see `kv_keys`.

        There are fewer pairs than `limit` when their keys and values would have more than
        `limit_bytes` bytes. The first pair is returned whatever its size.
        """
        pairs: list[tuple[bytes, bytes]] = []
        with store_errors(), self._environment.begin(db=self._kv) as txn:
            for key, read in islice(_own_keys(txn, kv.scope(applet_id), prefix, after), limit):
                value = read()
                limit_bytes -= len(key) + len(value)
                if limit_bytes < 0 and pairs:
                    break
                pairs.append((key, value))
        return pairs

    def copy(self, target: Path) -> None:
        """Copy the store and its SQL database as of one moment; see `backup.copy_project`."""
        copy_open_project(self._environment, Path(self._environment.path()), target)

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()


def _own_keys(
    txn: Transaction, scope: bytes, prefix: bytes, after: bytes | None
) -> Iterator[tuple[bytes, Callable[[], bytes]]]:
    """Iterate over the keys of `kv_keys`; yield each with a function that reads its value."""
    if not prefix and after is None:
        empty = txn.get(kv.empty_key(scope))
        if empty is not None:
            yield b"", partial(bytes, empty)
    start = kv.plain_prefix(scope, prefix)
    begin = kv.plain_prefix(scope, after or b"")
    cursor = txn.cursor()
    more = cursor.set_range(max(start, begin))
    if more and after and cursor.key() == begin:
        more = cursor.next()
    while more and cursor.key().startswith(start):
        yield kv.own_key(cursor.key()), cursor.value
        more = cursor.next()


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
            self._kv = self._environment.open_db(kv.DATABASE, create=False)

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
