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
SOURCES = {0: "http", 16: "mqtt", 32: "cron", 48: "api", 64: "chain"}
AGAIN = 128
_SOURCE_BITS = 112
GATHERED_EVENTS = 1_000
DATABASE = b"history"


class Handled(msgspec.Struct, array_like=True, frozen=True):
    """One handler's part: its instance, its code or -1, and why it failed."""

    instance_id: int
    code: int
    reason: str


class Way(msgspec.Struct, array_like=True, frozen=True):
    """Which strategy a handler ran for, and at which version of its applet."""

    strategy_id: int
    applet_id: int
    version: int


class EventRecord(msgspec.Struct, array_like=True, frozen=True):
    """One event and what became of it. Times are Unix milliseconds.

    `results` is empty when no strategy matched; `refusal` is the error's name when the
    node could not do its part. `ways` has one entry for each result, `source` is a name of
    `SOURCES`, `again` says that the event had been handled before and ran nothing.
    """

    event_id: str
    event_type: str
    publisher_id: int
    size: int
    received_at: int
    handled_at: int
    results: list[Handled]
    refusal: str = ""
    flags: int = 0
    ways: list[Way] = []

    @property
    def source(self) -> str:
        """How the event came in."""
        return SOURCES.get(self.flags & _SOURCE_BITS, "")

    @property
    def again(self) -> bool:
        """Whether it was one that had been handled before."""
        return bool(self.flags & AGAIN)


class Chunk(msgspec.Struct, array_like=True, frozen=True):
    """Events that were written together, in the order in which they were handled."""

    events: list[EventRecord]


Remembered = tuple[
    str, str, int, int, int, int, Sequence[object], str, int, Sequence[tuple[int, int, int]]
]
"""An `EventRecord` as its writer holds it; both are encoded alike, and this costs less."""


def remembered(
    event_type: str,
    publisher_id: int,
    event_id: str,
    payload: bytes,
    received_at: int,
    handled_at: int,
    result: Sequence[Any],
    flags: int = 0,
    ways: Sequence[tuple[int, int, int]] = (),
) -> Remembered:
    """The record of an event; `result` is what the event was answered with: one result per
    handler, or an error's name and details. `flags` are a source of `SOURCES` and `AGAIN`,
    `ways` are as `Way`, for each result one."""
    refusal = ""
    if result and isinstance(result[0], str):
        refusal, result = result[0], ()
    size = len(payload)
    times = received_at, handled_at
    return event_id, event_type, publisher_id, size, *times, result, refusal, flags, ways


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
