"""Counting the events of the last minutes, on a real LMDB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fieldbrook.storage.project.history import flow
from fieldbrook.storage.project.history.flow import Flow, Sender
from fieldbrook.storage.project.history.records import DUPLICATE, RecordTuple, event_record
from fieldbrook.storage.project.history.search import EventFilter
from fieldbrook.storage.project.outbox import DeliveryCounts, OutboxEntry, encoded_entries
from tests.unit.storage.project.history.conftest import History

NOW = 1_000_000
DONE, TRAPPED = ((9, 7, ""),), ((9, 0, ""), (10, -1, "trap"))
HTTP, MQTT = 0, 16


def record(
    event_type: str = "T",
    result: Sequence[Any] = DONE,
    *,
    at: int = NOW - 1_000,
    publisher: int = 7,
    flags: int = HTTP,
) -> RecordTuple:
    """An event that was handled at a time, by the strategies 100, 101 and so on."""
    targets = [(100 + index, 1, 1) for index in range(len(result))]
    event = (event_type, publisher, "e", b"abc", at - 5, 0, "")
    return event_record(event, at, result, flags, targets)


def counted(history: History, begin: int = NOW - 300_000) -> Flow:
    return history.reader.flow(begin, NOW)


def test_events_are_counted_by_type_sender_and_failed_handler(history: History) -> None:
    history.write(record(), record("U", publisher=8, flags=MQTT), record(result=TRAPPED))
    history.write(record(at=NOW - 60_000), record(at=NOW - 300_001))
    found = counted(history)
    assert {name: (t.events, t.failed, t.late) for name, t in found.types.items()} == {
        "T": (3, 1, 2),
        "U": (1, 0, 1),
    }
    assert {sender: t.events for sender, t in found.senders.items()} == {
        Sender("http", 7, "T"): 3,
        Sender("mqtt", 8, "U"): 1,
    }
    assert found.senders[Sender("http", 7, "T")].last_ms == NOW - 1_000
    assert found.failures == {101: 1}, "the handler before it did not fail"


def test_a_negative_code_is_a_failure_of_its_handler(history: History) -> None:
    history.write(
        record(result=((9, 0, ""), (10, -2, ""))), record(), record(flags=HTTP | DUPLICATE)
    )
    found = counted(history)
    assert found.types["T"].failed == 1
    assert found.failures == {101: 1}
    (event,) = history.page(EventFilter(outcome="failed")).rows
    assert [part.code for part in event.record.results] == [0, -2]
    assert len(history.page(EventFilter(outcome="ok")).rows) == 1


def test_of_a_busy_project_only_the_newest_events_and_failures_are_decoded(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "DECODED_EVENTS", 10)
    monkeypatch.setattr(flow, "DECODED_FAILURES", 2)
    history.write(*[record(result=TRAPPED, at=NOW - 9_000) for _ in range(5)])
    history.write(*[record("OLD", at=NOW - 8_000) for _ in range(20)])
    history.write(*[record("NEW", at=NOW - 4_000) for _ in range(10)])
    found = counted(history)
    assert {name: t.events for name, t in found.types.items()} == {"NEW": 10, "OLD": 20, "T": 5}
    assert [sender.event_type for sender, t in found.senders.items() if t.events] == ["NEW"]
    assert found.failures == {101: 2}
    assert found.rate_s == 4.0, "the rate is that of the events that were decoded"


def test_a_project_without_events_has_an_empty_flow(history: History) -> None:
    assert not counted(history).types
    assert history.reader.deliveries(0) == {}


def test_what_was_sent_is_counted_by_kind(history: History) -> None:
    store = history.store
    entries = [OutboxEntry(kind, "to", b"x", "e", "a", 9, NOW) for kind in ("mqtt", "chain:4690")]
    with store._stored.environment.begin(write=True) as txn:
        waiting = encoded_entries([*entries, *entries, entries[1]], 1)
        added = store.outbox.add(txn, [*waiting], store.number)
    store.outbox.committed(added)
    first, second, third, *_ = sorted(added)
    store.outbox.remove([first], {second: "too large"})
    assert history.reader.deliveries(0) == {
        "chain": DeliveryCounts(0, 1, 2),
        "mqtt": DeliveryCounts(1, 0, 1),
    }
    assert third in added
    later = 1 << 50
    assert history.reader.deliveries(later)["mqtt"] == DeliveryCounts(0, 0, 1)
