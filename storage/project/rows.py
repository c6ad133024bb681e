"""Rows that handlers write beside their effects: applet log lines and submitted metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from fieldbrook.storage.lmdb.rows import Numbered, RowTable
from fieldbrook.storage.project.history.search import Span

if TYPE_CHECKING:
    import lmdb

    Transaction = lmdb.Transaction[bytes]

LOGS, METRICS = b"applet_log", b"metrics"
LOG_ROWS_LIMIT = 100_000
METRIC_ROWS_LIMIT = 100_000
_UNDATED_ROWS = 20_000  # searched for an event that the history no longer has


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


def logs_of(
    txn: Transaction, table: RowTable[LogRow], event_id: str, limit: int, spans: Sequence[Span]
) -> list[LogRow]:
    """Return the newest log rows of an event, oldest first.

    Args:
        limit: the largest number of rows.
        spans: when the event ran, newest first (`history.search.spans_of`). Without spans only
            the newest 20,000 rows of the log are searched.
    """
    rows: Iterator[LogRow]
    if spans:
        rows = (row for span in spans for row in _rows_within(txn, table, span))
    else:
        rows = islice(table.backwards(txn), _UNDATED_ROWS)
    return [*islice((row for row in rows if row.event_id == event_id), limit)][::-1]


def _rows_within(txn: Transaction, table: RowTable[LogRow], span: Span) -> Iterator[LogRow]:
    """Iterate over the rows of a time span, newest first; the times of rows ascend."""
    for row in table.backwards(txn, table.upper_bound(txn, _time_of, span.end) - 1):
        if row.time_ms < span.begin:
            return
        yield row


def _time_of(row: LogRow) -> int:
    return row.time_ms
