"""The flow of recent events: counts by type, by sender and by handler.

Counts by type come from the heads of the chunks. Only the newest events are decoded, and failed
ones, so that a busy project costs no more than a quiet one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from fieldbrook.storage.project.history.chunks import StoredChunk
from fieldbrook.storage.project.history.records import EventRecord
from fieldbrook.storage.project.history.tables import HistoryTables

if TYPE_CHECKING:
    import lmdb

    Transaction = lmdb.Transaction[bytes]

DECODED_EVENTS = 4_000  # about 10 ms of a thread
DECODED_FAILURES = 4_000
SCAN_CHUNKS = 5_000
RATE_MS = 10_000


class Sender(NamedTuple):
    """A sender of events of one type: `source` is a name in `records.SOURCES`."""

    source: str
    publisher_id: int
    event_type: str


class Traffic:
    """Counts of events. `late` are those of the last `RATE_MS`; `last_ms` is 0 without events."""

    __slots__ = ("events", "failed", "last_ms", "late")

    def __init__(self) -> None:
        self.events = self.failed = self.late = self.last_ms = 0


class Flow:
    """The events that were handled from `begin_ms` until `now_ms`, both in Unix milliseconds.

    Attributes:
        types: counts of all events, by event type.
        senders: counts of the newest `DECODED_EVENTS` events and of failures of older ones, by
            sender.
        failures: the number of failed runs of each strategy, by its id.
        rate_s: the duration in seconds that the `late` counts cover.
    """

    def __init__(self, begin_ms: int, now_ms: int) -> None:
        self.begin_ms, self.now_ms = begin_ms, now_ms
        self.types: defaultdict[str, Traffic] = defaultdict(Traffic)
        self.senders: defaultdict[Sender, Traffic] = defaultdict(Traffic)
        self.failures: Counter[int] = Counter()
        self.rate_s = RATE_MS / 1000

    def add(self, record: EventRecord) -> None:
        """Count an event."""
        sender = Sender(record.source, record.publisher_id, record.event_type)
        late = record.handled_at >= self.now_ms - RATE_MS
        for traffic in (self.types[record.event_type], self.senders[sender]):
            traffic.events += 1
            traffic.late += late
            traffic.last_ms = max(traffic.last_ms, record.handled_at)
        self.add_failures(record)

    def add_failures(self, record: EventRecord) -> None:
        """Count a failed event with the strategies that failed; others are ignored."""
        if record.outcome != "failed":
            return
        sender = Sender(record.source, record.publisher_id, record.event_type)
        self.types[record.event_type].failed += 1
        self.senders[sender].failed += 1
        for target, result in zip(record.targets, record.results, strict=False):
            if result.has_failed:
                self.failures[target.strategy_id] += 1


def read_flow(txn: Transaction, tables: HistoryTables, begin_ms: int, now_ms: int) -> Flow:
    """Count the events that were handled from `begin_ms` on, with a bounded effort."""
    flow = Flow(begin_ms, now_ms)
    decoded = failures = 0
    oldest = now_ms
    for chunk in _chunks(txn, tables, begin_ms):
        if decoded < DECODED_EVENTS:
            for index in reversed(chunk.indexes):
                record = chunk.record(index)
                if record is not None and record.handled_at >= begin_ms:
                    decoded += 1
                    oldest = min(oldest, record.handled_at)
                    flow.add(record)
            continue
        for name, (count, _) in chunk.head.types.items():
            flow.types[name].events += count
        for index in chunk.head.failed[: max(0, DECODED_FAILURES - failures)]:
            failed = chunk.record(index)
            if failed is not None:
                failures += 1
                flow.add_failures(failed)
    if decoded >= DECODED_EVENTS and oldest > now_ms - RATE_MS:
        flow.rate_s = max(0.001, (now_ms - oldest) / 1000)
    return flow


def _chunks(txn: Transaction, tables: HistoryTables, begin_ms: int) -> Iterator[StoredChunk]:
    """Iterate over the chunks with events from `begin_ms` on, newest first."""
    for scanned, chunk in enumerate(tables.backwards(txn)):
        if chunk.head.handled[1] < begin_ms or scanned >= SCAN_CHUNKS:
            return
        yield chunk
