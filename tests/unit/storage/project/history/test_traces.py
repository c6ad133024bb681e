"""Traces of events in the history, on a real LMDB: found by place, and limited in size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldbrook.core.host_calls import HostCall, Shown
from fieldbrook.storage.lmdb.environment import used_bytes
from fieldbrook.storage.project.history.chunks import PLACES
from fieldbrook.storage.project.history.records import TRACED, event_record
from fieldbrook.storage.project.history.search import EventFilter
from fieldbrook.storage.project.history.traces import EventTrace
from fieldbrook.storage.project.store import ProjectStore
from tests.support.stores import reader_of

RECORD = event_record(("T", 1, "e", b"", 1, 0, ""), 2, ((1, 0, ""),), TRACED)
MAP_BYTES = 8 << 20
ROOM_BYTES = MAP_BYTES // 8


def call(name: str, size: int = 1) -> HostCall:
    return HostCall(name, 1, Shown(b"x" * size, size), None, None, "", 0, 0)


class Stored:
    """A store and a reader of it."""

    def __init__(self, path: Path) -> None:
        self.store = ProjectStore(path, MAP_BYTES)
        self.reader = reader_of(self.store)

    def names(self, place: int) -> list[str] | None:
        trace = self.reader.trace_at(place)
        return None if trace is None else [each.function for each in trace.calls]

    def places(self) -> list[int]:
        """The places of all events, oldest first."""
        page = self.reader.find_events(EventFilter(), 0, 10_000)
        return [event.place for event in page.rows][::-1]


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Stored]:
    opened = Stored(tmp_path / "p")
    yield opened
    opened.store.close()


def test_a_trace_is_found_by_the_place_of_its_event_in_whichever_part_of_a_batch(
    stored: Stored,
) -> None:
    store = stored.store
    store.record([RECORD] * 3, traces=[EventTrace(1, [call("a")])])
    store.record([RECORD] * 2, traces=[EventTrace(0, [call("b"), call("c")], 4)])
    store.checkpoint()
    store.record([RECORD])
    store.checkpoint()
    store.record([RECORD], traces=[EventTrace(0, [])])
    store.checkpoint()
    places = stored.places()
    assert places == [*range(PLACES, PLACES + 5), 2 * PLACES, 3 * PLACES]
    found = [stored.names(place) for place in places]
    assert found == [None, ["a"], None, ["b", "c"], None, None, []]
    trace = stored.reader.trace_at(PLACES + 3)
    assert trace is not None
    assert (trace.place, trace.omitted) == (PLACES + 3, 4)
    assert [stored.names(place) for place in (0, 1, PLACES + 9, 9 * PLACES)] == [None] * 4
    assert stored.reader.trace_count() == 3


def test_the_newest_traces_stay_within_their_size_and_the_events_of_others_stay(
    stored: Stored,
) -> None:
    store = stored.store
    for number in range(400):
        store.record([RECORD], traces=[EventTrace(0, [call(f"f{number}", 20_000)])])
        store.checkpoint()
    places = stored.places()
    assert len(places) == 400
    kept = [at for at, place in enumerate(places) if stored.names(place)]
    assert kept == list(range(kept[0], 400))
    assert len(kept) == stored.reader.trace_count()
    assert ROOM_BYTES // 2 < len(kept) * 20_000 <= ROOM_BYTES
    assert stored.names(places[-1]) == ["f399"]
    assert used_bytes(store._stored.environment) < MAP_BYTES // 2


def test_a_batch_that_could_not_be_written_leaves_no_trace_for_the_next_one(
    stored: Stored,
) -> None:
    store = stored.store
    store.record([RECORD] * 2, traces=[EventTrace(1, [call("lost")])])
    store._take_batch()  # a failed commit drops the batch
    store.record([RECORD] * 2)
    store.checkpoint()
    assert [stored.names(place) for place in stored.places()] == [None, None]
