"""Search the history with a filter, newest events first, a bounded part at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from fieldbrook.storage.project.history.chunks import PLACES, StoredChunk
from fieldbrook.storage.project.history.records import FAILED, EventRecord
from fieldbrook.storage.project.history.tables import HistoryTables

if TYPE_CHECKING:
    import lmdb

    Transaction = lmdb.Transaction[bytes]

# The most chunks that one search examines, which takes about 50 ms of a thread. The next search
# examines the rest.
SCAN_CHUNKS = 10_000
SCAN_EVENTS = 20_000
SCAN_BYTES = 64 << 20
_FOREVER = 1 << 62
_RUN_MS = 60_000  # a batch never takes this long
_TOLERANCE_MS = 1_000

_encode = msgspec.msgpack.Encoder().encode


class EventFilter(NamedTuple):
    """A filter for events of the history; None accepts all.

    `outcome` is that of `EventRecord.outcome` and `source` a name of `SOURCES`. Events must have
    been received at or after `begin` and before `end`, in Unix milliseconds.
    """

    event_id: str | None = None
    event_type: str | None = None
    publisher_id: int | None = None
    outcome: str | None = None
    source: str | None = None
    begin: int = 0
    end: int = _FOREVER

    def matches(self, record: EventRecord) -> bool:
        """Return whether the filter selects an event."""
        return (
            (self.event_id is None or record.event_id == self.event_id)
            and (self.event_type is None or record.event_type == self.event_type)
            and (self.publisher_id is None or record.publisher_id == self.publisher_id)
            and (self.source is None or record.source == self.source)
            and self.begin <= record.received_at < self.end
            and (self.outcome is None or record.outcome == self.outcome)
        )

    def candidates(self, chunk: StoredChunk) -> Iterable[int]:
        """Return the indexes that may match, in ascending order, without decoding any event."""
        head = chunk.head
        if head.received[1] < self.begin or head.received[0] >= self.end:
            return ()
        if self.event_type is not None and self.event_type not in head.types:
            named = sum(count for count, _ in head.types.values())
            if named == head.count:
                return ()
        if self.event_id is not None and not chunk.has_bytes(self.event_id.encode()):
            return ()
        if self.publisher_id is not None and not chunk.has_bytes(_encode(self.publisher_id)):
            return ()
        return head.failed if self.outcome == FAILED else chunk.indexes


class PlacedEvent(NamedTuple):
    """An event of the history and its place there."""

    place: int
    record: EventRecord


class EventPage(NamedTuple):
    """A part of the history, newest first.

    `following` is the place below which the next page begins; 0 after the last page. `kept_since`
    is when the oldest event in the complete chunks was handled, in Unix milliseconds; older failed
    events may be kept, too. `newest` is the place of the newest event, whether it matches or not.
    Both are 0 without events.
    """

    rows: list[PlacedEvent]
    following: int = 0
    kept_since: int = 0
    newest: int = 0


def find_events(
    txn: Transaction, tables: HistoryTables, wanted: EventFilter, before: int, limit: int
) -> EventPage:
    """Find the newest matching events with places below `before`; 0 begins with the newest.

    A page may have fewer than `limit` rows, even none, and still be followed by others.
    """
    rows: list[PlacedEvent] = []
    kept_since, newest = _kept_since(txn, tables), _newest(txn, tables)
    chunks = events = size = 0
    before = before or _FOREVER
    for chunk in tables.backwards(txn, min((before - 1) // PLACES, _FOREVER)):
        for index in reversed([*wanted.candidates(chunk)]):
            place = chunk.place(index)
            if place >= before:
                continue
            events += 1
            record = chunk.record(index)
            if record is not None and wanted.matches(record):
                rows.append(PlacedEvent(place, record))
                if len(rows) == limit:
                    return EventPage(rows, place, kept_since, newest)
        chunks, size = chunks + 1, size + chunk.size
        if chunks >= SCAN_CHUNKS or events >= SCAN_EVENTS or size >= SCAN_BYTES:
            return EventPage(rows, chunk.place(0), kept_since, newest)
    return EventPage(rows, 0, kept_since, newest)


def _kept_since(txn: Transaction, tables: HistoryTables) -> int:
    oldest = next(iter(tables.after(txn, 0, 1)), None)
    return 0 if oldest is None else oldest.head.handled[0]


def _newest(txn: Transaction, tables: HistoryTables) -> int:
    chunk = next(iter(tables.after(txn, -1, 1)), None)
    return 0 if chunk is None else chunk.place(chunk.head.count - 1)


class Span(NamedTuple):
    """A time span in Unix milliseconds, both ends included."""

    begin: int
    end: int


def spans_of(records: Iterable[EventRecord]) -> list[Span]:
    """Return the time spans in which these events ran, with a second of tolerance, newest first and
    without overlaps.

    Log rows and effects of an event have times within its span. A replay has the time at which its
    event was first received, so a span covers at most the minute before the commit.
    """
    spans = sorted(
        Span(
            max(r.received_at, r.handled_at - _RUN_MS) - _TOLERANCE_MS, r.handled_at + _TOLERANCE_MS
        )
        for r in records
    )
    joined: list[Span] = []
    for begin, end in spans:
        if joined and begin <= joined[-1].end:
            last = joined.pop()
            joined.append(Span(last.begin, max(last.end, end)))
        else:
            joined.append(Span(begin, end))
    return joined[::-1]
