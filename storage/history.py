"""What became of events: a compact record of the last of them; part of a project's store.

Records are gathered and written a thousand at a time or a few times a second, without a
sync of their own: losing the last of them in a power cut breaks no promise.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import lmdb
import msgspec

from fieldbrook.storage.rows import RowTable

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]

# About 100,000 events. Written pages stay mapped and count as memory of the process.
BYTES_LIMIT = 8 << 20
GATHERED_EVENTS = 1_000
DATABASE = b"history"


class Handled(msgspec.Struct, array_like=True, frozen=True):
    """One handler's part: its instance, its code or -1, and why it failed."""

    instance_id: int
    code: int
    reason: str


class EventRecord(msgspec.Struct, array_like=True, frozen=True):
    """One event and what became of it. Times are Unix milliseconds.

    `results` is empty when no strategy matched; `refusal` is the error's name when the
    node could not do its part.
    """

    event_id: str
    event_type: str
    publisher_id: int
    size: int
    received_at: int
    handled_at: int
    results: list[Handled]
    refusal: str = ""


class Chunk(msgspec.Struct, array_like=True, frozen=True):
    """Events that were written together, in the order in which they were handled."""

    events: list[EventRecord]


Remembered = tuple[str, str, int, int, int, int, Sequence[object], str]
"""An `EventRecord` as its writer holds it; both are encoded alike, and this costs less."""


def remembered(
    event_type: str,
    publisher_id: int,
    event_id: str,
    payload: bytes,
    received_at: int,
    handled_at: int,
    result: Sequence[Any],
) -> Remembered:
    """The record of an event; `result` is what the event was answered with: one result per
    handler, or an error's name and details."""
    refusal = ""
    if result and isinstance(result[0], str):
        refusal, result = result[0], ()
    size = len(payload)
    return event_id, event_type, publisher_id, size, received_at, handled_at, result, refusal


def chunk_of(events: list[Remembered]) -> Chunk:
    """What is written of them."""
    return Chunk(cast("list[EventRecord]", events))


def open_history(
    environment: lmdb.Environment, *, create: bool, limit_bytes: int = 1 << 40
) -> RowTable[Chunk]:
    """The table of an open store; it keeps `BYTES_LIMIT` at most."""
    limit = min(limit_bytes, BYTES_LIMIT)
    return RowTable(environment, DATABASE, Chunk, 1 << 30, limit_bytes=limit, create=create)


def find_events(
    txn: Transaction, table: RowTable[Chunk], event_id: str | None, limit: int
) -> Sequence[EventRecord]:
    """The newest records first: those with this id, or all."""
    return list(itertools.islice(_matching(txn, table, event_id), limit))


def _matching(
    txn: Transaction, table: RowTable[Chunk], event_id: str | None
) -> Iterator[EventRecord]:
    for chunk in table.backwards(txn):
        for record in reversed(chunk.events):
            if event_id is None or record.event_id == event_id:
                yield record
