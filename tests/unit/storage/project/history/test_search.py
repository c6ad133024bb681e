"""The history of events: searches, heads, and limits, on a real LMDB."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.storage.project.history import search
from fieldbrook.storage.project.history.chunks import TYPES_LIMIT, StoredChunk, head_of
from fieldbrook.storage.project.history.records import DUPLICATE, RecordTuple, event_record
from fieldbrook.storage.project.history.search import EventFilter, spans_of
from fieldbrook.storage.project.history.tables import DATABASE, HistoryLimits
from fieldbrook.storage.project.rows import LogRow
from tests.unit.storage.project.history.conftest import History

DONE, TRAPPED = ((9, 7, ""),), ((9, 0, ""), (10, -1, "trap"))


def record(
    event_id: str,
    event_type: str = "T",
    result: Sequence[Any] = DONE,
    *,
    at: int = 1_000,
    publisher: int = 7,
    flags: int = 0,
) -> RecordTuple:
    event = (event_type, publisher, event_id, b"abc", at, 0, "")
    return event_record(event, at + 5, result, flags)


def test_a_page_tells_the_newest_event_whether_it_matches_or_not(history: History) -> None:
    assert history.page(EventFilter()).newest == 0
    history.write(record("first", "A"), record("second", "B"))
    (newest,) = history.page(EventFilter(), limit=1).rows
    for wanted in (EventFilter(), EventFilter(event_type="A"), EventFilter(event_type="C")):
        assert history.page(wanted).newest == newest.place
    assert history.page(EventFilter(), newest.place).newest == newest.place


def test_each_filter_selects_its_events_newest_first(history: History) -> None:
    history.write(
        record("ok-1"), record("bad-1", result=TRAPPED, at=2_000), record("none-1", result=())
    )
    history.write(
        record("twice", result=TRAPPED, flags=DUPLICATE),
        record("node", result=("StoreError", {"reason": "full"})),
        record("mqtt", "OTHER", publisher=8, flags=16),
    )
    assert history.find(EventFilter()) == ["mqtt", "node", "twice", "none-1", "bad-1", "ok-1"]
    assert history.find(EventFilter(outcome="failed")) == ["node", "bad-1"]
    assert history.find(EventFilter(outcome="unhandled")) == ["none-1"]
    assert history.find(EventFilter(outcome="duplicate")) == ["twice"]
    assert history.find(EventFilter(outcome="ok")) == ["mqtt", "ok-1"]
    assert history.find(EventFilter(event_type="OTHER")) == ["mqtt"]
    assert history.find(EventFilter(publisher_id=8)) == ["mqtt"]
    assert history.find(EventFilter(source="mqtt")) == ["mqtt"]
    assert history.find(EventFilter(event_id="bad-1")) == ["bad-1"]
    assert history.find(EventFilter(begin=2_000)) == ["bad-1"]
    assert len(history.find(EventFilter(end=2_000))) == 5
    assert history.find(EventFilter(event_type="NONE")) == []


@pytest.mark.parametrize("limit", [1, 3, 7])
def test_pages_add_up_to_the_whole_although_each_search_is_bounded(
    history: History, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SCAN_EVENTS", 4)
    monkeypatch.setattr(search, "SCAN_CHUNKS", 3)
    ids = [f"{chunk}-{n}" for chunk in range(12) for n in range(3)]
    for chunk in range(12):
        history.write(*(record(f"{chunk}-{n}", "AB"[chunk % 2]) for n in range(3)))
    assert history.find(EventFilter(), limit) == ids[::-1]
    assert history.find(EventFilter(event_id="0-1"), limit) == ["0-1"]
    first = history.page(EventFilter(event_id="0-1"))
    assert (first.rows, first.following > 0) == ([], True)


def test_the_oldest_events_go_and_failed_ones_stay_longer(tmp_path: Path) -> None:
    history = History(tmp_path / "p", HistoryLimits(200_000, 0))
    for chunk in range(60):
        at = 1_000 + chunk
        records = [record(f"{chunk}-{n}", at=at) for n in range(1_000)]
        records[500] = record(f"{chunk}-bad", result=TRAPPED, at=at)
        history.write(*records)
    assert history.find(EventFilter(event_id="0-0")) == []
    assert history.find(EventFilter(event_id="59-499")) == ["59-499"]
    assert history.find(EventFilter(outcome="failed")) == [f"{n}-bad" for n in range(59, -1, -1)]
    page = history.page(EventFilter(event_id="0-bad"))
    ((place, found),) = page.rows
    assert (found.outcome, place) == ("failed", (1 << 16) + 500)
    assert history.reader.event_at(place) == (found, None)
    assert history.reader.event_at(place + 1) is None
    everything = history.find(EventFilter(), 1_000)
    assert len(everything) == len(set(everything)) > 1_000
    oldest = int(next(e for e in reversed(everything) if not e.endswith("bad")).partition("-")[0])
    assert page.kept_since == 1_000 + oldest + 5
    history.store.close()


def test_an_event_is_found_by_its_place_with_its_payload(history: History) -> None:
    history.write(record("a"), record("b"))
    place = history.page(EventFilter(event_id="b")).rows[0].place
    found, payload = history.reader.event_at(place) or (None, None)
    assert found is not None
    assert (found.event_id, payload) == ("b", b"abc")
    for gone in (0, 1, place + 1, 1 << 62):
        assert history.reader.event_at(gone) is None


def test_a_head_counts_what_its_chunk_has() -> None:
    records = [record(f"e{n}", f"T{n % 3}", TRAPPED if n == 4 else DONE, at=n) for n in range(9)]
    records.append((*record("old#r1", "T0", at=-99_000_000)[:5], 20, *record("old")[6:]))
    head = head_of(records)
    assert (head.count, head.failed) == (10, [4])
    assert head.types == {"T0": (4, 0), "T1": (3, 1), "T2": (3, 0)}
    assert head.slowest_ms == 5  # a replay counts from the first receipt of its event
    assert (head.received, head.handled) == ((-99_000_000, 8), (5, 20))


@given(
    st.lists(st.integers(0, 2 * TYPES_LIMIT), min_size=1, max_size=300),
    st.integers(0, 2 * TYPES_LIMIT),
)
def test_no_event_is_missed_by_its_type_however_many_types_there_are(
    types: list[int], wanted: int
) -> None:
    records = [record(f"e{n}", f"T{kind}") for n, kind in enumerate(types)]
    chunk = StoredChunk(1, msgspec.msgpack.encode([records, head_of(records)]))
    assert len(chunk.head.types) <= TYPES_LIMIT
    candidates = {*EventFilter(event_type=f"T{wanted}").candidates(chunk)}
    assert {n for n, kind in enumerate(types) if kind == wanted} <= candidates


def test_a_chunk_of_an_earlier_version_has_no_head_and_is_read_all_the_same(
    history: History,
) -> None:
    with history.store._stored.environment.begin(write=True) as txn:
        database = history.store._stored.environment.open_db(DATABASE, txn)
        old = msgspec.msgpack.encode([[record("old"), record("old-bad", result=TRAPPED)]])
        txn.put((1).to_bytes(8, "big"), old, db=database)
    (chunk,) = history.reader.events_after(0, 10)
    assert (chunk.head.count, chunk.head.failed, chunk.head.types) == (2, [1], {"T": (2, 1)})
    assert history.find(EventFilter(outcome="failed")) == ["old-bad"]


def test_chunks_are_read_on_from_where_one_stopped(history: History) -> None:
    assert history.reader.events_after(0, 10) == []
    for name in "abcd":
        history.write(record(name), record(name + name))
    first = history.reader.events_after(0, 2)
    rest = history.reader.events_after(first[-1].number, 10)
    found = [chunk.record(i) for chunk in (*first, *rest) for i in chunk.indexes]
    assert [one.event_id for one in found if one] == ["a", "aa", "b", "bb", "c", "cc", "d", "dd"]
    assert [chunk.number for chunk in history.reader.events_after(-1, 10)] == [rest[-1].number]
    assert history.reader.events_after(rest[-1].number, 10) == []


def test_log_rows_are_found_by_the_time_their_event_ran(history: History) -> None:
    for minute in range(100):
        for event_id in ("e", "other"):
            row = LogRow(minute * 60_000, 4, "wasmCode", 3, "a", event_id, str(minute))
            history.store.log(row)
    history.write(record("e", at=10 * 60_000), record("e", at=40 * 60_000), record("e#r1", at=0))
    events = [event.record for event in history.page(EventFilter(event_id="e")).rows]

    def texts(spans: Sequence[search.Span], limit: int = 10) -> list[str]:
        return [row.text for row in history.reader.logs_of("e", limit, spans)]

    assert texts(spans_of(events)) == ["10", "40"]
    assert texts(spans_of(events), limit=1) == ["40"]
    assert texts(spans_of(events[:1])) == ["40"]
    assert texts([search.Span(1 << 50, 1 << 51)]) == []
    assert texts([search.Span(-9, -1)]) == []
    assert len(texts((), 200)) == 100  # the event is gone from the history: the newest rows


def test_the_span_of_a_replay_does_not_begin_with_the_first_receipt() -> None:
    old = StoredChunk(1, msgspec.msgpack.encode([[(*record("e#r1", at=0)[:5], 10**9, DONE)]]))
    replayed = old.record(0)
    assert replayed is not None
    assert spans_of([replayed]) == [(10**9 - 61_000, 10**9 + 1_000)]
