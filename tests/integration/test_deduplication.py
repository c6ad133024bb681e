"""Deduplication in a project: which events run again, and which get the stored result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.actors.project.chains import call_key
from fieldbrook.actors.wire import DELIVERY, KEYED, NAMED, REDELIVERY, REPEATED, WireEvent, keyed
from fieldbrook.core import clock
from fieldbrook.storage.project import deduplication
from fieldbrook.storage.project.deduplication import old_digest_of
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.wasm.run import Run
from tests.support.projects import MAP, Project

PUBLISHER = 1_000
COUNT = b"ck"
LONG = "0123456789abcdef"


def event(
    event_id: str, kind: int = 0, name: str = "", payload: bytes = COUNT, event_type: str = "T"
) -> WireEvent:
    return event_type, PUBLISHER, event_id, payload, 1, kind, name


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[], Project]]:
    made: list[Project] = []

    def _make() -> Project:
        (tmp_path / "modules").mkdir()
        made.append(Project(tmp_path, tmp_path / "modules", 0))
        return made[-1]

    yield _make
    for project in made:
        project.close()


def counted(project: Project, *events: WireEvent) -> list[int]:
    """Return the handler's count for each event of one round; a repeated event has its stored
    count."""
    return [handlers(result)[0][1] for result in project.round(events)]


def handlers(result: Any) -> Any:
    return result[1] if result[0] == REPEATED else result


def test_events_with_one_label_run_each_whether_they_come_together_or_not(
    make: Callable[[], Project],
) -> None:
    project = make()
    together = [event("ESP32", DELIVERY | REDELIVERY, f"mqtt-{n}") for n in range(3)]
    assert counted(project, *together) == [1, 2, 3]
    assert counted(project, event("ESP32", name="a")) == [4]
    assert counted(project, event("ESP32", name="b")) == [5]


def test_a_labelled_message_that_the_broker_delivers_again_does_not_run_again(
    make: Callable[[], Project],
) -> None:
    project = make()
    delivered = event("ESP32", DELIVERY | REDELIVERY, "mqtt-7")
    assert counted(project, delivered) == [1]
    ((marker, _),) = project.round([delivered])
    assert marker == REPEATED
    assert counted(project, event("ESP32", DELIVERY | REDELIVERY, "mqtt-8")) == [2]


def test_a_named_event_runs_again_with_another_type_or_payload_or_time(
    make: Callable[[], Project],
) -> None:
    project = make()
    first = event(LONG, NAMED, f"5 {LONG}")
    assert counted(project, first, first) == [1, 1]
    assert counted(project, first) == [1]
    others = [
        event(LONG, NAMED, f"6 {LONG}"),
        event(LONG, NAMED, f"5 {LONG}", event_type="DEFAULT"),
    ]
    assert counted(project, *others) == [2, 3]
    assert counted(project, event(LONG, NAMED, f"5 {LONG}", b"ck2")) == [4]


def test_an_idempotency_key_is_good_for_one_event(make: Callable[[], Project]) -> None:
    project = make()
    first = event("e", KEYED, keyed("key", ""))
    assert counted(project, first) == [1]
    (again,) = project.round([event("another id", KEYED, keyed("key", ""))])
    assert again == (REPEATED, handlers(again))
    assert handlers(again)[0][1] == 1
    refused = [
        event("e", KEYED, keyed("key", ""), b"cother"),
        event("e", KEYED, keyed("key", ""), event_type="DEFAULT"),
    ]
    for name, details in project.round(refused):
        assert (name, details) == ("IdempotencyKeyReusedError", {"key": "key"})
    assert counted(project, event("e", KEYED, keyed("another", ""))) == [2]


def test_an_event_with_a_key_is_still_known_by_its_id(make: Callable[[], Project]) -> None:
    project = make()
    assert counted(project, event(LONG, NAMED, f"5 {LONG}")) == [1]
    both = event(LONG, NAMED | KEYED, keyed("key", f"5 {LONG}"))
    assert counted(project, both) == [1]
    other = event(LONG, NAMED | KEYED, keyed("key", f"6 {LONG}"))
    assert counted(project, other) == [2]
    assert counted(project, event(LONG, NAMED, f"6 {LONG}")) == [2]


def test_an_event_that_the_version_before_handled_is_known_after_an_upgrade(
    tmp_path: Path, make: Callable[[], Project]
) -> None:
    store = ProjectStore(tmp_path / "store", MAP)
    store.outcomes[old_digest_of(PUBLISHER, LONG, COUNT)] = ((1, 41, ""),)
    store.outcomes[old_digest_of(PUBLISHER, "ESP32", COUNT)] = ((1, 42, ""),)
    store.commit()
    store.close()
    project = make()
    assert counted(project, event(LONG, NAMED, f"5 {LONG}")) == [41]
    assert counted(project, event("ESP32", name="x")) == [1], "a label names no event"
    assert counted(project, event(LONG + "!", NAMED, f"5 {LONG}!")) == [2]


def test_the_form_of_before_is_looked_for_only_while_there_is_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ProjectStore(tmp_path / "store", MAP)
    store.outcomes[old_digest_of(PUBLISHER, LONG, COUNT)] = ((1, 41, ""),)
    store.commit()
    store.close()
    store = ProjectStore(tmp_path / "store", MAP)
    looked_for = [store.has_old_digests]
    tomorrow = clock.now_ms() + deduplication.WINDOW_MS
    monkeypatch.setattr(clock, "now_ms", lambda: tomorrow)
    store.outcomes[deduplication.digest_of(PUBLISHER, "T", f"5 {LONG}", COUNT)] = ((1, 1, ""),)
    store.commit()
    looked_for.append(store.has_old_digests)
    store.close()
    store = ProjectStore(tmp_path / "store", MAP)
    looked_for.append(store.has_old_digests)
    store.close()
    assert looked_for == [True, False, False]


def test_two_events_with_one_label_have_a_transaction_each() -> None:
    def key(name: str, event_type: str = "T") -> bytes:
        return call_key(Run(COUNT, origin=(event("ESP32", 0, name, COUNT, event_type), 5)), 0)

    assert key("a") == key("a")
    assert len({key("a"), key("b"), key("a", "OTHER")}) == 3
