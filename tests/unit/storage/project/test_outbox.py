"""The outbox of a store whose batches wait for a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldbrook.storage.journal.memory import MemoryJournal
from fieldbrook.storage.project.outbox import MQTT, OutboxEntry
from fieldbrook.storage.project.store import ProjectStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProjectStore]:
    journal = MemoryJournal()
    journal.begin()
    opened = ProjectStore(tmp_path / "p", 1 << 20, journal=journal)
    yield opened
    opened.close()


def send(store: ProjectStore, *bodies: bytes) -> None:
    for body in bodies:
        store.sent.append(OutboxEntry(MQTT, "t", body, "e", "a", 1, 0))
    store.commit()


def transactions(store: ProjectStore) -> int:
    return int(store._stored.environment.info()["last_txnid"])


def bodies(store: ProjectStore) -> list[bytes]:
    return [entry.body for _, entry in store.outbox.first(99)]


def test_waiting_entries_count_and_a_removal_writes_them_in_its_own_transaction(
    store: ProjectStore,
) -> None:
    send(store, b"one", b"two")
    first, second = store.outbox.first(99)
    send(store, b"three")
    size = store.outbox.bytes
    assert len(store.outbox) == 3
    before = transactions(store)
    store.outbox.remove([first.sequence])
    assert bodies(store) == [b"two", b"three"]
    assert transactions(store) == before + 1
    assert (len(store.outbox), store.waiting_bytes) == (2, 0)
    store.outbox.remove([second.sequence])
    assert 0 < store.outbox.bytes < size
    last, *_ = store.outbox.first(99)
    store.outbox.remove([last.sequence])
    assert (len(store.outbox), store.outbox.bytes, store.outbox.consumers) == (0, 0, set())
