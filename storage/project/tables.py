"""The tables of a project's store, and how a batch is written to them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import lmdb

from fieldbrook.core import clock
from fieldbrook.storage.lmdb.environment import store_errors
from fieldbrook.storage.lmdb.rows import RowTable
from fieldbrook.storage.lmdb.schema import open_meta
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.batch import STAGE, Batch
from fieldbrook.storage.project.dead_letters import NO_CHANGE, DeadLetterChange, DeadLetters
from fieldbrook.storage.project.deduplication import Deduplication
from fieldbrook.storage.project.history.tables import HistoryLimits, HistoryTables
from fieldbrook.storage.project.outbox import Added, Outbox
from fieldbrook.storage.project.rows import (
    LOG_ROWS_LIMIT,
    LOGS,
    METRIC_ROWS_LIMIT,
    METRICS,
    LogRow,
    MetricRow,
)

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]

SCHEMA = 1
UNMARKED = 1  # the schema of stores from before the schema was recorded
WHAT = "a project's store"
# The limit for logs, metrics, payloads and dead letters, for each of them: 64 MiB, or a
# smaller share of the store's size limit, which leaves room for the handlers' own pairs.
_KEPT_BYTES = 64 << 20
_KEPT_SHARE = 8


class Written(NamedTuple):
    """What a transaction has written, to be passed to `ProjectTables.committed`."""

    outbox: Added
    dead_letters: DeadLetterChange
    digests: int


class ProjectTables:
    """The tables of one open project store; its owner is the only writer."""

    def __init__(
        self, environment: lmdb.Environment, folder: Path, map_size: int, limits: HistoryLimits
    ) -> None:
        """Open the tables; see `ProjectStore` for the arguments."""
        kept = min(_KEPT_BYTES, map_size // _KEPT_SHARE)
        limits = HistoryLimits(
            min(limits.history_bytes, map_size // _KEPT_SHARE),
            min(limits.replayable_bytes, kept),
            min(limits.traces_bytes, kept),
        )
        self.keeps_payloads = limits.replayable_bytes > 0
        with store_errors():
            open_meta(environment, WHAT, SCHEMA, create=True, unmarked=UNMARKED)
            self.kv = environment.open_db(kv.DATABASE)
            self.stage = environment.open_db(STAGE)
            self.logs = RowTable(
                *(environment, LOGS, LogRow, LOG_ROWS_LIMIT), create=True, limit_bytes=kept
            )
            self.metrics = RowTable(
                *(environment, METRICS, MetricRow, METRIC_ROWS_LIMIT),
                create=True,
                limit_bytes=kept,
            )
            self.dead_letters = DeadLetters(environment, kept)
            self.history = HistoryTables(environment, create=True, limits=limits)
            self.deduplication = Deduplication(environment, map_size // _KEPT_SHARE)
            self.outbox = Outbox(environment, folder)

    def put(self, txn: Transaction, batch: Batch) -> Written:
        """Write a batch inside a transaction; call `committed` once that is on disk."""
        for key, value in batch.pairs:
            if value is not None:
                txn.put(key, value, db=self.kv)
            else:
                txn.delete(key, db=self.kv)
        added = self.outbox.add(txn, batch.sent) if batch.sent else {}
        if batch.metrics:
            self.metrics.append(txn, batch.metrics)
        dead_letters = NO_CHANGE
        if batch.dead_letters or batch.resolved:
            dead_letters = self.dead_letters.add(txn, batch.dead_letters, batch.resolved)
        for chunk in batch.chunks:  # at most one
            self.history.append(txn, chunk, batch.payloads, batch.traces)
        if batch.rows:
            self.logs.append(txn, batch.rows)
        digests = self.deduplication.put(txn, batch.outcomes, batch.deliveries, clock.now_ms())
        if batch.number:
            txn.delete(STAGE, db=self.stage)
        return Written(added, dead_letters, digests)

    def committed(self, batch: Batch, written: Written) -> None:
        """Note that the transaction with this batch is on disk."""
        self.dead_letters.committed(written.dead_letters)
        self.deduplication.committed(written.digests, batch.deliveries)
        if batch.chunks:
            self.history.committed(len(batch.traces))
        self.logs.committed(len(batch.rows))
        self.metrics.committed(len(batch.metrics))
        self.outbox.committed(written.outbox)
