"""Event history: a compact record of each recent event; part of a project's store.

Records are collected and written a thousand at a time or a few times a second. The guarantees
do not cover the last records before a power cut.

A second table has the payloads of the newest events, under the same numbers and as far as there
is room. Only events whose payload is kept, or empty, can be replayed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import lmdb
import msgspec

from fieldbrook.storage.lmdb.rows import RowTable

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]

# About 100,000 events. Written pages stay mapped and count as memory of the process.
BYTES_LIMIT = 8 << 20
SOURCES = {0: "http", 16: "mqtt", 32: "cron", 48: "api", 64: "chain"}
DUPLICATE = 128
_SOURCE_BITS = 112
GATHERED_EVENTS = 1_000
DATABASE, PAYLOADS = b"history", b"payloads"
PAYLOAD_LIMIT = 8 << 10  # larger payloads are not kept: a few would displace all others
REPLAYABLE_BYTES = 4 << 20  # for all payloads of a project
_PLACES = 1 << 16  # place = number of the chunk * this + index in the chunk


class Handled(msgspec.Struct, array_like=True, frozen=True):
    """The result of one handler: its instance, its return code or -1, and why it failed."""

    instance_id: int
    code: int
    reason: str


class RecordedTarget(msgspec.Struct, array_like=True, frozen=True):
    """The route of one result: the strategy, and the applet with its version."""

    strategy_id: int
    applet_id: int
    version: int


class EventRecord(msgspec.Struct, array_like=True, frozen=True):
    """The history record of one event. Times are Unix milliseconds.

    `results` is empty when no strategy matched. `refusal` is the name of the error when the
    node itself failed to handle the event. `targets` has one entry for each result. `source` is a
    name of `SOURCES`. `again` marks a duplicate, which did not run.
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
    targets: list[RecordedTarget] = []

    @property
    def source(self) -> str:
        """The name of the interface by which the event arrived, or ""."""
        return SOURCES.get(self.flags & _SOURCE_BITS, "")

    @property
    def is_duplicate(self) -> bool:
        """Whether the event was a duplicate of a handled one."""
        return bool(self.flags & DUPLICATE)


class Chunk(msgspec.Struct, array_like=True, frozen=True):
    """Events that were written together, in the order in which they were handled."""

    events: list[EventRecord]


class Payloads(msgspec.Struct, array_like=True, frozen=True):
    """The payloads of a chunk's events, in the same order; empty where none is kept."""

    payloads: list[bytes]


RecordTuple = tuple[
    str, str, int, int, int, int, Sequence[object], str, int, Sequence[tuple[int, int, int]]
]
"""An `EventRecord` as a plain tuple: encoded in the same way, but cheaper for the writer."""


def event_record(
    event: tuple[str, int, str, bytes, int, int, str],
    handled_at: int,
    result: Sequence[Any],
    flags: int = 0,
    targets: Sequence[tuple[int, int, int]] = (),
) -> RecordTuple:
    """Make the history record of an event.

    Args:
        event: type, publisher, id, payload, time of receipt, flags of its delivery and its
            name (`actors.wire.WireEvent`); the last two are not recorded.
        handled_at: Unix milliseconds.
        result: the answer to the event: one result per handler, or an error's name and
            details.
        flags: a key of `SOURCES`, plus `DUPLICATE` for a duplicate.
        targets: one for each result, with the fields of `RecordedTarget`.
    """
    event_type, publisher_id, event_id, payload, received_at, _, _ = event
    size = len(payload)
    refusal = ""
    if result and isinstance(result[0], str):
        refusal, result = result[0], ()
    return (
        *(event_id, event_type, publisher_id, size, received_at, handled_at),
        *(result, refusal, flags, targets),
    )


def chunk_of(events: list[RecordTuple]) -> Chunk:
    """Combine records into the chunk that is written."""
    return Chunk(cast("list[EventRecord]", events))


def open_history(
    environment: lmdb.Environment, *, create: bool, limit_bytes: int = 1 << 40
) -> RowTable[Chunk]:
    """Open the history table of a store; it keeps at most `BYTES_LIMIT`."""
    limit = min(limit_bytes, BYTES_LIMIT)
    return RowTable(environment, DATABASE, Chunk, 1 << 30, limit_bytes=limit, create=create)


def open_payloads(
    environment: lmdb.Environment, *, create: bool, limit_bytes: int = 1 << 40
) -> RowTable[Payloads]:
    """Open the table of payloads that belongs to the history of a store."""
    return RowTable(
        environment, PAYLOADS, Payloads, 1 << 30, limit_bytes=limit_bytes, create=create
    )


class ReplayFilter(NamedTuple):
    """A filter for the events to replay; times are Unix milliseconds.

    It selects events that were received at or after `begin` and before `end`, and that have
    the given type and publisher, if any. It never selects replays or duplicates.
    """

    begin: int
    end: int
    event_type: str | None = None
    publisher_id: int | None = None

    def matches(self, record: EventRecord) -> bool:
        """Return whether the filter selects an event."""
        return (
            self.begin <= record.received_at < self.end
            and (self.event_type is None or record.event_type == self.event_type)
            and (self.publisher_id is None or record.publisher_id == self.publisher_id)
            and replay_of(record.event_id)[1] == 0
            and not record.is_duplicate
        )


class Replayable(NamedTuple):
    """A selected event: its place in the history, and the number that its next replay would have.

    `kept` tells whether its payload is stored; without it the event cannot be replayed.
    """

    place: int
    attempt: int
    kept: bool


def replay_of(event_id: str) -> tuple[str, int]:
    """Split an event id into the original id and the number of the replay; 0 for the original."""
    origin, mark, number = event_id.rpartition("#r")
    return (origin, int(number)) if mark and number.isdecimal() else (event_id, 0)


def find_replayable(
    txn: Transaction,
    history: RowTable[Chunk],
    payloads: RowTable[Payloads] | None,
    wanted: ReplayFilter,
    after: int,
    limit: int,
) -> tuple[Sequence[Replayable], int]:
    """Find the oldest selected events with places above `after`.

    Returns:
        At most `limit` events, and how many more there are.
    """
    found: list[tuple[int, str, bool]] = []
    newest: dict[str, int] = {}
    more = 0
    for number, chunk in history.forwards(txn):
        kept = None if payloads is None else payloads.get(txn, number)
        for index, record in enumerate(chunk.events):
            origin, attempt = replay_of(record.event_id)
            if attempt:
                newest[origin] = max(attempt, newest.get(origin, 0))
            place = number * _PLACES + index
            if place <= after or not wanted.matches(record):
                continue
            if len(found) < limit:
                found.append((place, record.event_id, _payload(kept, record, index) is not None))
            else:
                more += 1
    chosen = []
    for place, event_id, is_kept in found:
        newest[event_id] = newest.get(event_id, 0) + 1
        chosen.append(Replayable(place, newest[event_id], is_kept))
    return chosen, more


def find_at(
    txn: Transaction, history: RowTable[Chunk], payloads: RowTable[Payloads], place: int
) -> tuple[EventRecord, bytes] | None:
    """Return an event of the history and its payload; None when one of them is gone."""
    number, index = divmod(place, _PLACES)
    chunk = history.get(txn, number)
    if chunk is None or index >= len(chunk.events):
        return None
    payload = _payload(payloads.get(txn, number), chunk.events[index], index)
    return None if payload is None else (chunk.events[index], payload)


def _payload(kept: Payloads | None, record: EventRecord, index: int) -> bytes | None:
    if record.size == 0:
        return b""
    if kept is None or index >= len(kept.payloads) or not kept.payloads[index]:
        return None
    return kept.payloads[index]


def find_events(
    txn: Transaction, table: RowTable[Chunk], event_id: str | None, limit: int
) -> Sequence[EventRecord]:
    """Return the newest records first: those with this event id, or all."""
    return list(itertools.islice(_matching(txn, table, event_id), limit))


def _matching(
    txn: Transaction, table: RowTable[Chunk], event_id: str | None
) -> Iterator[EventRecord]:
    for chunk in table.backwards(txn):
        for record in reversed(chunk.events):
            if event_id is None or record.event_id == event_id:
                yield record
