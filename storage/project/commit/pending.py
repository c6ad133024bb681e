"""Pending writes: the effects of committed batches, merged until one transaction writes them."""

from __future__ import annotations

import math
import time

from msgspec.structs import replace

from fieldbrook.core import clock
from fieldbrook.storage.project.commit.batch import Batch
from fieldbrook.storage.project.commit.numbers import first_offset
from fieldbrook.storage.project.dead_letters import NewLetter
from fieldbrook.storage.project.deduplication import StoredOutcome
from fieldbrook.storage.project.history.records import RecordTuple
from fieldbrook.storage.project.history.traces import EventTrace
from fieldbrook.storage.project.outbox import EncodedEntry, Removal, encoded_entries
from fieldbrook.storage.project.rows import LogRow, MetricRow


class PendingWrites:
    """The merged effects of committed batches that are not in the store yet.

    Of a key that several batches wrote, only the last value is kept. The places of `traces` are
    indexes of `records`.

    Attributes:
        count: the number of merged batches, without rows that belong to no batch.
        bytes: the size of the encoded batches, without values that later ones replaced.
        since: when the first batch was added (`time.monotonic`); infinite without a batch.
    """

    __slots__ = (
        "bytes",
        "count",
        "dead_letters",
        "deliveries",
        "metrics",
        "outcomes",
        "pairs",
        "payloads",
        "records",
        "removed",
        "resolved",
        "rows",
        "sent",
        "since",
        "traces",
    )

    def __init__(self) -> None:
        self.pairs: dict[bytes, bytes | None] = {}
        self.sent: list[EncodedEntry] = []
        self.removed: list[tuple[int, list[Removal]]] = []  # with the time of each batch
        self.metrics: list[MetricRow] = []
        self.dead_letters: list[NewLetter] = []
        self.resolved: set[int] = set()
        self.records: list[RecordTuple] = []
        self.payloads: list[bytes] = []
        self.traces: list[EventTrace] = []
        self.rows: list[LogRow] = []
        self.outcomes: dict[bytes, StoredOutcome] = {}
        self.deliveries: list[str] = []
        self.count = 0
        self.bytes = 0
        self.since = math.inf

    def __bool__(self) -> bool:
        return self.since < math.inf

    def add(self, batch: Batch, size: int = 0, count: int = 1) -> None:
        """Add the effects of a batch that is encoded in `size` bytes.

        `count` is 0 for rows that belong to no batch.
        """
        self.count += count
        if self.since == math.inf:
            self.since = time.monotonic()
        pairs = self.pairs
        if pairs:
            for key, _ in batch.pairs:
                replaced = pairs.get(key)
                if replaced is not None:
                    size -= len(key) + len(replaced)
        pairs.update(batch.pairs)
        self.bytes += size
        if batch.chunks:
            self._add_history(batch)
        self.rows += batch.rows
        if batch.outcomes:
            now_ms = batch.time_ms or clock.now_ms()
            for digest, outcome in batch.outcomes:
                self.outcomes[digest] = StoredOutcome(now_ms, outcome)
        self.deliveries += batch.deliveries
        self.metrics += batch.metrics
        if batch.sent:
            self.sent += encoded_entries(batch.sent, self.count)
        if batch.removed:
            self.removed.append((batch.time_ms, batch.removed))
        if batch.dead_letters:
            self.dead_letters += enumerate(batch.dead_letters, first_offset(self.count))
        self.resolved.update(batch.resolved)

    def _add_history(self, batch: Batch) -> None:
        first = len(self.records)
        for trace in batch.traces:
            self.traces.append(replace(trace, place=first + trace.place))
        if batch.payloads:
            # Earlier batches may have had fewer payloads than records.
            self.payloads += [b""] * (first - len(self.payloads))
            self.payloads += batch.payloads[0].payloads
        self.records += batch.chunks[0].events
