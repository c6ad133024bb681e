"""Search the applet log: rows that match a filter, and the rows of one event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from fieldbrook.storage.lmdb.rows import RowTable
from fieldbrook.storage.project.history.search import Span
from fieldbrook.storage.project.rows import LogRow, NumberedRow

if TYPE_CHECKING:
    import lmdb

    Transaction = lmdb.Transaction[bytes]

# The most rows that one search examines; the next search continues from there.
SCAN_ROWS = 20_000
SCAN_BYTES = 32 << 20
_UNDATED_ROWS = 20_000  # rows that are searched for an event that is not in the history any more
_FOREVER = 1 << 62

_decode = msgspec.msgpack.Decoder(LogRow).decode


class LogFilter(NamedTuple):
    """A filter for log rows; None accepts all.

    `level` accepts rows that are at least as severe: levels are numbers of the ABI, and 0 is the
    most severe. `contains` is a part of the text; case is ignored. Rows have times at or after
    `begin` and before `end`, in Unix milliseconds; the times of rows ascend.
    """

    level: int | None = None
    contains: str | None = None
    event_id: str | None = None
    instance_id: int | None = None
    begin: int = 0
    end: int = _FOREVER

    def matches(self, row: LogRow) -> bool:
        """Return whether the filter selects a row."""
        return (
            (self.level is None or 0 <= row.level <= self.level)
            and (self.event_id is None or row.event_id == self.event_id)
            and (self.instance_id is None or row.instance_id == self.instance_id)
            and self.begin <= row.time_ms < self.end
            and (self.contains is None or self.contains.casefold() in row.text.casefold())
        )


class LogPage(NamedTuple):
    """A part of the log.

    `following` is the number from which the next search continues: a forward search continues with
    higher numbers, a backward search with lower ones. After a backward search, 0 means that no rows
    are left, and `newest` is the number of the newest row, whether it matches or not; 0 without
    rows.
    """

    rows: list[NumberedRow]
    following: int
    newest: int = 0


def search_forwards(
    txn: Transaction, table: RowTable[LogRow], wanted: LogFilter, after: int, limit: int
) -> LogPage:
    """Find matching rows with numbers above `after`, oldest first."""
    rows: list[NumberedRow] = []
    if wanted.begin:
        after = max(after, table.upper_bound(txn, _time_of, wanted.begin - 1) - 1)
    seen = size = 0
    for number, data in table.items_forwards(txn, after):
        row = _decode(data)
        if row.time_ms >= wanted.end:
            break
        after, seen, size = number, seen + 1, size + len(data)
        if wanted.matches(row):
            rows.append(NumberedRow(number, row))
        if len(rows) >= limit or seen >= SCAN_ROWS or size >= SCAN_BYTES:
            break
    return LogPage(rows, after)


def search_backwards(
    txn: Transaction, table: RowTable[LogRow], wanted: LogFilter, before: int, limit: int
) -> LogPage:
    """Find matching rows with numbers below `before`, newest first; 0 begins with the newest."""
    rows: list[NumberedRow] = []
    last = before - 1 if before else _FOREVER
    newest = next((number for number, _ in table.items_backwards(txn, None)), 0)
    if wanted.end < _FOREVER:
        last = min(last, table.upper_bound(txn, _time_of, wanted.end - 1) - 1)
    seen = size = 0
    for number, data in table.items_backwards(txn, last):
        row = _decode(data)
        if row.time_ms < wanted.begin:
            break
        seen, size = seen + 1, size + len(data)
        if wanted.matches(row):
            rows.append(NumberedRow(number, row))
        if len(rows) >= limit or seen >= SCAN_ROWS or size >= SCAN_BYTES:
            return LogPage(rows, number, newest)
    return LogPage(rows, 0, newest)


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
