"""The stored results of events that may be repeated, on a real LMDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldbrook.core import clock
from fieldbrook.storage.project import deduplication
from fieldbrook.storage.project.deduplication import digest_of
from fieldbrook.storage.project.store import ProjectStore

NOW = 1_700_000_000_000
OUTCOME = ((5, 7, ""), (6, -1, "trap"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(clock, "now_ms", lambda: NOW)
    return tmp_path / "p"


def handle(store: ProjectStore, *names: str) -> None:
    for name in names:
        store.outcomes[digest_of(1, "T", name, b"p")] = OUTCOME
    store.commit()


def known(store: ProjectStore, name: str, now_ms: int = NOW) -> bool:
    return store.outcome_of(digest_of(1, "T", name, b"p"), now_ms) is not None


def test_an_event_is_known_with_its_answer_also_after_a_restart(folder: Path) -> None:
    store = ProjectStore(folder, 1 << 22)
    assert not known(store, "a")
    handle(store, "a")
    store.close()
    store = ProjectStore(folder, 1 << 22)
    assert store.outcome_of(digest_of(1, "T", "a", b"p"), NOW) == OUTCOME
    for other in (
        digest_of(2, "T", "a", b"p"),
        digest_of(1, "T", "b", b"p"),
        digest_of(1, "T", "a", b"q"),
    ):
        assert store.outcome_of(other, NOW) is None
    store.close()


def test_an_event_of_a_batch_that_was_not_committed_is_not_known(folder: Path) -> None:
    store = ProjectStore(folder, 1 << 20)
    store.outcomes[digest_of(1, "T", "a", b"p")] = OUTCOME
    store.overlay[b"k" * 20] = b"x" * (2 << 20)
    with pytest.raises(Exception, match="the store has room for"):
        store.commit()
    assert not known(store, "a")
    store.close()


def test_an_event_is_forgotten_after_a_day_or_when_a_limit_of_others_came(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deduplication, "IDS_LIMIT", 10)
    store = ProjectStore(folder, 1 << 22)
    handle(store, "old")
    assert known(store, "old", NOW + deduplication.WINDOW_MS - 1)
    assert not known(store, "old", NOW + deduplication.WINDOW_MS)
    for number in range(12):
        handle(store, str(number))
    assert not known(store, "old")
    assert known(store, "11")
    assert known(store, "4")
    store.close()


def test_deliveries_are_known_by_name_until_many_others_came(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deduplication, "DELIVERIES_LIMIT", 50)
    store = ProjectStore(folder, 1 << 22)
    store.deliveries["m-0"] = None
    assert store.was_delivered("m-0")
    store.commit()
    assert store.was_delivered("m-0")
    store.close()
    store = ProjectStore(folder, 1 << 22)
    assert store.was_delivered("m-0")
    for number in range(1, 60):
        store.deliveries[f"m-{number}"] = None
        store.commit()
    assert not store.was_delivered("m-0")
    assert store.was_delivered("m-59")
    store.close()


def test_what_is_remembered_leaves_room_in_a_small_store(folder: Path) -> None:
    store = ProjectStore(folder, 4 << 20)
    for batch in range(200):
        for number in range(256):
            store.outcomes[digest_of(1, "T", f"{batch}-{number}", b"p")] = OUTCOME
            store.deliveries[f"mqtt-{batch}-{number}"] = None
        store.commit()
    assert known(store, "199-255")
    assert not known(store, "0-0")
    store.close()


def test_deliveries_on_disk_are_bounded_in_bytes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deduplication, "_DELIVERIES_BYTES", 1 << 16)
    store = ProjectStore(folder, 2 << 20)
    for batch in range(300):
        store.deliveries.update(dict.fromkeys(f"mqtt-{batch}-{n}" for n in range(256)))
        store.commit()
    assert store.was_delivered("mqtt-299-0")
    store.close()


def test_an_event_is_known_when_the_clock_has_gone_back(tmp_path: Path) -> None:
    store = ProjectStore(tmp_path, 16 << 20)
    digest = digest_of(1, "T", "e", b"x")
    store.outcomes[digest] = ((1, 0, ""),)
    store.commit()
    now = clock.now_ms()
    assert store.outcome_of(digest, now - 3_600_000) == ((1, 0, ""),)
    store.close()
