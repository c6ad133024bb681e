"""Checks of the rows in a project's store: one function for each table, which raises an error for a
damaged row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from fieldbrook.storage.lmdb.codec import decode_record
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.commit.batch import STAGE, Batch
from fieldbrook.storage.project.dead_letters import DATABASE as DEAD_LETTERS
from fieldbrook.storage.project.dead_letters import DeadLetter
from fieldbrook.storage.project.deduplication import (
    DELIVERIES,
    OUTCOMES,
    Deliveries,
    StoredOutcome,
)
from fieldbrook.storage.project.history.chunks import Chunk, Payloads
from fieldbrook.storage.project.history.tables import DATABASE as HISTORY
from fieldbrook.storage.project.history.tables import FAILURES, PAYLOADS
from fieldbrook.storage.project.history.traces import TRACES, EventTrace
from fieldbrook.storage.project.outbox import DATABASE as OUTBOX
from fieldbrook.storage.project.outbox import OutboxEntry
from fieldbrook.storage.project.rows import LOGS, METRICS, LogRow, MetricRow

_OWNER_BYTES = 8  # length of the owner in a stored key, before the marker


def _rows_of(kind: type[Any]) -> Callable[[bytes, bytes], object]:
    decode = msgspec.msgpack.Decoder(kind).decode

    def decode_row(key: bytes, value: bytes) -> object:
        return decode(value) if value else None  # an empty value stands for a deleted last row

    return decode_row


def _pair(key: bytes, _value: bytes) -> None:
    if len(key) <= _OWNER_BYTES or key[_OWNER_BYTES : _OWNER_BYTES + 1] not in (b"k", b"h"):
        raise ValueError("not a key of the key-value store")


TABLES: dict[bytes, Callable[[bytes, bytes], object]] = {
    kv.DATABASE: _pair,
    LOGS: _rows_of(LogRow),
    METRICS: _rows_of(MetricRow),
    DEAD_LETTERS: _rows_of(DeadLetter),
    HISTORY: _rows_of(Chunk),
    FAILURES: _rows_of(Chunk),
    PAYLOADS: _rows_of(Payloads),
    TRACES: _rows_of(EventTrace),
    OUTBOX: _rows_of(OutboxEntry),
    OUTCOMES: _rows_of(StoredOutcome),
    DELIVERIES: _rows_of(Deliveries),
    STAGE: lambda _key, value: decode_record(value, Batch),
}
