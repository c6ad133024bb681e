"""Find events of the history that can be replayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from fieldbrook.storage.project.history.chunks import PLACES
from fieldbrook.storage.project.history.records import EventRecord, replay_of
from fieldbrook.storage.project.history.tables import HistoryTables, payload_of

if TYPE_CHECKING:
    import lmdb

    Transaction = lmdb.Transaction[bytes]


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
    """A selected event: its place in the history, and the number of its next replay.

    `kept` tells whether its payload is stored; without its payload the event cannot be replayed.
    """

    place: int
    attempt: int
    kept: bool


def find_replayable(
    txn: Transaction, tables: HistoryTables, wanted: ReplayFilter, after: int, limit: int
) -> tuple[Sequence[Replayable], int]:
    """Find the oldest selected events with places above `after`.

    Returns:
        At most `limit` events, and the number of further ones.
    """
    found: list[tuple[int, str, bool]] = []
    newest: dict[str, int] = {}
    more = 0
    for number, chunk in tables.chunks.forwards(txn):
        kept = tables.payloads.get(txn, number)
        for index, record in enumerate(chunk.events):
            origin, attempt = replay_of(record.event_id)
            if attempt:
                newest[origin] = max(attempt, newest.get(origin, 0))
            place = number * PLACES + index
            if place <= after or not wanted.matches(record):
                continue
            if len(found) < limit:
                has_payload = payload_of(kept, record, index) is not None
                found.append((place, record.event_id, has_payload))
            else:
                more += 1
    chosen = []
    for place, event_id, is_kept in found:
        newest[event_id] = newest.get(event_id, 0) + 1
        chosen.append(Replayable(place, newest[event_id], is_kept))
    return chosen, more
