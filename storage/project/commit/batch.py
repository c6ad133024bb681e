"""Everything that one batch of events writes to a project's store, as one value."""

from __future__ import annotations

import msgspec

from fieldbrook.storage.project.dead_letters import DeadLetter
from fieldbrook.storage.project.deduplication import Outcome
from fieldbrook.storage.project.history.chunks import Payloads
from fieldbrook.storage.project.history.records import RecordTuple
from fieldbrook.storage.project.history.traces import EventTrace
from fieldbrook.storage.project.outbox import OutboxEntry, Removal
from fieldbrook.storage.project.rows import LogRow, MetricRow
from fieldbrook.storage.sql.writes import SqlWrites

STAGE = b"stage"
"""The name of the table with the staged batch, and the batch's key in it."""


class Recorded(msgspec.Struct, array_like=True, frozen=True):
    """The history records of a batch: a `Chunk` whose head is made when the chunk is written."""

    events: list[RecordTuple]


class Batch(msgspec.Struct, array_like=True, frozen=True):
    """Everything that one batch writes to this store.

    A batch with a `number` above 0 is staged: it waits until the SQL database has committed
    its own part under that number. A pair without a value deletes its key. There is at most one
    item in `chunks` and in `payloads`. `time_ms` is the time of the commit in Unix milliseconds,
    0 in batches of earlier versions. `removed` has outbox entries that have left the node, and
    `sql` what the batch writes to the SQL database; only batches of a cluster have them, for the
    next host that takes the project over.
    """

    number: int
    pairs: list[tuple[bytes, bytes | None]]
    sent: list[OutboxEntry]
    metrics: list[MetricRow]
    dead_letters: list[DeadLetter]
    resolved: list[int]
    chunks: list[Recorded]
    rows: list[LogRow]
    outcomes: list[tuple[bytes, Outcome]] = []
    deliveries: list[str] = []
    payloads: list[Payloads] = []
    traces: list[EventTrace] = []
    time_ms: int = 0
    removed: list[Removal] = []
    sql: SqlWrites | None = None
