"""What became of events: a compact record of the last of them; part of a project's store.

Records are gathered and written a thousand at a time or a few times a second, without a
sync of their own: losing the last of them in a power cut breaks no promise.

Beside them, in a table of its own and under the same numbers, lie the payloads of the newest
events, as far as there is room: those events can be run again.
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
AGAIN = 128
_SOURCE_BITS = 112
GATHERED_EVENTS = 1_000
DATABASE, PAYLOADS = b"history", b"payloads"
PAYLOAD_LIMIT = 8 << 10  # larger ones are not kept: a few would push out all others
REPLAYABLE_BYTES = 4 << 20  # of all payloads of a project
_PLACES = 1 << 16  # events of one chunk have numbers below this


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


class Payloads(msgspec.Struct, array_like=True, frozen=True):
    """The payloads of the events in a chunk, in their order; empty for one that is not kept."""

    payloads: list[bytes]


Remembered = tuple[
    str, str, int, int, int, int, Sequence[object], str, int, Sequence[tuple[int, int, int]]
]
"""An `EventRecord` as its writer holds it; both are encoded alike, and this costs less."""


def remembered(
    event: tuple[str, int, str, bytes, int, int, str],
    handled_at: int,
    result: Sequence[Any],
    flags: int = 0,
    ways: Sequence[tuple[int, int, int]] = (),
) -> Remembered:
    """The record of an event.

    Args:
        event: its type, publisher, id and payload, when it was received, and how it travelled.
        handled_at: Unix milliseconds.
        result: what it was answered with: one result per handler, or an error's name and
            details.
        flags: a source of `SOURCES`, and `AGAIN`.
        ways: for each result one, as `Way`.
    """
    event_type, publisher_id, event_id, payload, received_at, _, _ = event
    size = len(payload)
    refusal = ""
    if result and isinstance(result[0], str):
        refusal, result = result[0], ()
    return (
        *(event_id, event_type, publisher_id, size, received_at, handled_at),
        *(result, refusal, flags, ways),
    )


def chunk_of(events: list[Remembered]) -> Chunk:
    """What is written of them."""
    return Chunk(cast("list[EventRecord]", events))


def open_history(
    environment: lmdb.Environment, *, create: bool, limit_bytes: int = 1 << 40
) -> RowTable[Chunk]:
    """The table of an open store; it keeps `BYTES_LIMIT` at most."""
    limit = min(limit_bytes, BYTES_LIMIT)
    return RowTable(environment, DATABASE, Chunk, 1 << 30, limit_bytes=limit, create=create)


def open_payloads(
    environment: lmdb.Environment, *, create: bool, limit_bytes: int = 1 << 40
) -> RowTable[Payloads]:
    """The payloads beside the history of an open store."""
    return RowTable(
        environment, PAYLOADS, Payloads, 1 << 30, limit_bytes=limit_bytes, create=create
    )


class Wanted(NamedTuple):
    """Which events of the history are meant; times are Unix milliseconds.

    Received from `begin` on and before `end`, of this type and publisher, if one is named.
    Those that were replays themselves, or ran nothing since they had been handled before,
    are never meant.
    """

    begin: int
    end: int
    event_type: str | None = None
    publisher_id: int | None = None

    def has(self, record: EventRecord) -> bool:
        """Whether an event is meant."""
        return (
            self.begin <= record.received_at < self.end
            and (self.event_type is None or record.event_type == self.event_type)
            and (self.publisher_id is None or record.publisher_id == self.publisher_id)
            and replay_of(record.event_id)[1] == 0
            and not record.again
        )


class Replayable(NamedTuple):
    """An event of the history that is meant: its place, and which replay of it this would be.
    `kept`: its payload is known."""

    place: int
    attempt: int
    kept: bool


def replay_of(event_id: str) -> tuple[str, int]:
    """The id an event first had, and which replay of it this id names; 0 for none."""
    origin, mark, number = event_id.rpartition("#r")
    return (origin, int(number)) if mark and number.isdecimal() else (event_id, 0)


def find_replayable(
    txn: Transaction,
    history: RowTable[Chunk],
    payloads: RowTable[Payloads] | None,
    wanted: Wanted,
    after: int,
    limit: int,
) -> tuple[Sequence[Replayable], int]:
    """The oldest events that are meant, with places above `after`; and how many more there
    are."""
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
            if place <= after or not wanted.has(record):
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


def at_place(
    txn: Transaction, history: RowTable[Chunk], payloads: RowTable[Payloads], place: int
) -> tuple[EventRecord, bytes] | None:
    """An event of the history and its payload; None when one of them is gone."""
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
    """The newest records first: those with this id, or all."""
    return list(itertools.islice(_matching(txn, table, event_id), limit))


def _matching(
    txn: Transaction, table: RowTable[Chunk], event_id: str | None
) -> Iterator[EventRecord]:
    for chunk in table.backwards(txn):
        for record in reversed(chunk.events):
            if event_id is None or record.event_id == event_id:
                yield record
