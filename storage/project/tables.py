"""The tables of a project's store, and how a batch is written to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import lmdb

from fieldbrook.core import clock
from fieldbrook.storage.lmdb.environment import store_errors
from fieldbrook.storage.lmdb.ids import from_key, to_key
from fieldbrook.storage.lmdb.rows import RowTable
from fieldbrook.storage.lmdb.schema import META, make_store, open_meta
from fieldbrook.storage.project import dead_letters, deduplication, kv, outbox
from fieldbrook.storage.project.commit.batch import STAGE
from fieldbrook.storage.project.commit.pending import PendingWrites
from fieldbrook.storage.project.dead_letters import NO_CHANGE, DeadLetterChange, DeadLetters
from fieldbrook.storage.project.deduplication import Deduplication
from fieldbrook.storage.project.history import tables as history
from fieldbrook.storage.project.history.chunks import Part
from fieldbrook.storage.project.history.tables import HistoryLimits, HistoryTables
from fieldbrook.storage.project.history.traces import TRACES
from fieldbrook.storage.project.outbox import Added, Checkpoint, Outbox
from fieldbrook.storage.project.rows import (
    LOG_ROWS_LIMIT,
    LOGS,
    METRIC_ROWS_LIMIT,
    METRICS,
    LogRow,
    MetricRow,
)

if TYPE_CHECKING:
    Database = lmdb._Database
    Transaction = lmdb.Transaction[bytes]

SCHEMA = 1
UNMARKED = 1  # the schema of stores from before the schema was recorded
WHAT = "a project's store"
NUMBER_CELL = b"number"  # in `meta`: the number of the last batch that the store contains
TABLES = (
    *(META, kv.DATABASE, STAGE, LOGS, METRICS, dead_letters.DATABASE, TRACES),
    *(history.DATABASE, history.PAYLOADS, history.FAILURES),
    *(deduplication.OUTCOMES, deduplication.ORDER, deduplication.DELIVERIES),
    *(outbox.DATABASE, outbox.DELIVERED),
)
# History, logs, metrics, payloads and dead letters may each use this fraction (1/8) of a store's
# size limit, which leaves room for the handlers' own pairs.
_KEPT_SHARE = 8


def make_tables(environment: lmdb.Environment) -> None:
    """Create the tables of a new store; see `schema.make_store`."""
    make_store(environment, TABLES, SCHEMA)


class Written(NamedTuple):
    """The writes of a transaction, to be passed to `ProjectTables.committed`."""

    outbox: Added
    dead_letters: DeadLetterChange
    digests: int
    history: Sequence[Part]
    deliveries: int


class ProjectTables:
    """The tables of one open project store; its owner is the only writer."""

    def __init__(
        self,
        environment: lmdb.Environment,
        folder: Path,
        map_size: int,
        limits: HistoryLimits,
        checkpoint: Checkpoint,
    ) -> None:
        """Open the tables; see `ProjectStore` and `Outbox` for the arguments."""
        limits = HistoryLimits(*(min(limit, map_size // _KEPT_SHARE) for limit in limits))
        self.keeps_payloads = limits.replayable_bytes > 0
        with store_errors():
            make_tables(environment)
            self._meta = open_meta(environment, WHAT, SCHEMA, create=True, unmarked=UNMARKED)
            self.kv = environment.open_db(kv.DATABASE)
            self.stage = environment.open_db(STAGE)
            self.logs = RowTable(
                *(environment, LOGS, LogRow, LOG_ROWS_LIMIT),
                create=True,
                limit_bytes=limits.logs_bytes,
            )
            self.metrics = RowTable(
                *(environment, METRICS, MetricRow, METRIC_ROWS_LIMIT),
                create=True,
                limit_bytes=limits.metrics_bytes,
            )
            self.dead_letters = DeadLetters(environment, limits.letters_bytes)
            self.history = HistoryTables(environment, create=True, limits=limits)
            self.deduplication = Deduplication(environment, map_size // _KEPT_SHARE)
            self.outbox = Outbox(environment, folder, checkpoint)
            self._all = [environment.open_db(name) for name in TABLES]

    def number(self, txn: Transaction) -> int:
        """Return the number of the last batch that the store contains."""
        return from_key(txn.get(NUMBER_CELL, b"", db=self._meta))

    def put(self, txn: Transaction, effects: PendingWrites, number: int) -> Written:
        """Write effects inside a transaction; call `committed` once that is on disk.

        `number` is that of the last batch among them.
        """
        self._put_pairs(txn, effects.pairs)
        added: Added = {}
        if effects.sent:
            added = self.outbox.add(txn, effects.sent, number - effects.count)
        deliveries = 0
        for time_ms, removals in effects.removed:
            deliveries += self.outbox.take(txn, removals, time_ms)
        if effects.metrics:
            self.metrics.append(txn, effects.metrics)
        letters = NO_CHANGE
        if effects.dead_letters or effects.resolved:
            letters = self.dead_letters.add(
                txn, effects.dead_letters, effects.resolved, number - effects.count
            )
        parts: Sequence[Part] = ()
        if effects.records:
            parts = self.history.append(txn, effects.records, effects.payloads, effects.traces)
        if effects.rows:
            self.logs.append(txn, effects.rows)
        names = effects.deliveries
        digests = self.deduplication.put(txn, effects.outcomes, names, clock.now_ms())
        txn.put(NUMBER_CELL, to_key(number), db=self._meta)
        return Written(added, letters, digests, parts, deliveries)

    def _put_pairs(self, txn: Transaction, pairs: Mapping[bytes, bytes | None]) -> None:
        # Sorted keys share pages with their neighbours; with many keys this takes a third of the
        # time.
        items = sorted((key, value) for key, value in pairs.items() if value is not None)
        if items:
            txn.cursor(db=self.kv).putmulti(items)
        if len(items) < len(pairs):
            for key, value in pairs.items():
                if value is None:
                    txn.delete(key, db=self.kv)

    def committed(self, effects: PendingWrites, written: Written) -> None:
        """Note that the transaction with these effects is on disk."""
        self.dead_letters.committed(written.dead_letters)
        self.deduplication.committed(written.digests, effects.deliveries)
        if written.history:
            self.history.committed(written.history)
        self.logs.committed(len(effects.rows))
        self.metrics.committed(len(effects.metrics))
        self.outbox.committed(written.outbox)
        if effects.removed:
            gone = [number for _, removals in effects.removed for number, _ in removals]
            self.outbox.forget(gone, written.deliveries)

    def pages(self, txn: Transaction) -> int:
        """Return the number of pages of all tables, without freed pages."""
        return sum(_pages_of(txn, table) for table in self._all)

    def pages_by_key(self, txn: Transaction) -> int:
        """Return the number of pages of the tables whose keys are written in random order."""
        return sum(_pages_of(txn, table) for table in (self.kv, self.deduplication.outcomes))


def _pages_of(txn: Transaction, table: Database) -> int:
    stat = txn.stat(table)
    return int(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"])
