"""The MQTT listener's store on a disk that is full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldbrook.core.errors import StoreError
from fieldbrook.observability.health import DISK_FULL
from fieldbrook.storage.lmdb.condition import store_condition
from fieldbrook.storage.mqtt import (
    DeleteSession,
    Dequeue,
    Enqueue,
    MqttStore,
    PutSession,
    Release,
    StoredMessage,
    StoredSession,
)
from tests.support.disks import MIB, fill, small_disk

LIMIT = 1 << 30
MESSAGE = StoredMessage("t", bytes(3_000), 1, False, b"", 0)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 24 * MIB) as mounted:
        yield mounted


def add_until_full(store: MqttStore, uid: int, first: int = 0) -> int:
    """Add messages until the disk is full; return the number of the first that is refused."""
    sequence = first
    try:
        while True:
            store.commit([Enqueue(uid, sequence, MESSAGE)])
            sequence += 1
    except StoreError as error:
        assert store_condition(error) == DISK_FULL, error
        return sequence


def test_on_a_full_disk_everything_can_be_removed_and_its_room_is_used_again(disk: Path) -> None:
    store = MqttStore(disk / "mqtt", LIMIT)
    store.commit([PutSession(StoredSession(f"s{uid}", uid, b"")) for uid in (1, 2, 3)])
    store.commit([Enqueue(uid, number, MESSAGE) for uid in (2, 3) for number in range(1_000)])
    store.commit([Enqueue(1, number, MESSAGE) for number in range(500)])
    filler = fill(disk)
    count = add_until_full(store, 1, 500)
    with pytest.raises(StoreError) as caught:
        store.probe(1 << 14)
    assert store_condition(caught.value) == DISK_FULL
    for number in range(1_000):
        store.commit([Release(2, number), Dequeue(1, number)])
    store.commit([DeleteSession("s2", 2)])
    while store.has_removed:
        store.sweep()
    assert store.queue(2, -1, 10) == []
    assert [number for number, _ in store.queue(3, -1, 2_000)] == list(range(1_000))
    after = add_until_full(store, 1, count)
    assert after - count > 500, "the room of removed messages is used again"
    filler.unlink()
    store.probe(1 << 20)
    store.commit([Enqueue(1, after, MESSAGE)])
    store.close()


def test_a_store_that_was_closed_on_a_full_disk_opens_there_and_removals_succeed(
    disk: Path,
) -> None:
    store = MqttStore(disk / "mqtt", LIMIT)
    store.commit([PutSession(StoredSession("s", 1, b""))])
    fill(disk)
    count = add_until_full(store, 1)
    for number in range(5):
        store.commit([Dequeue(1, number)])
    store.close()
    store = MqttStore(disk / "mqtt", LIMIT)
    for number in range(5, count):
        store.commit([Dequeue(1, number)])
    store.commit([DeleteSession("s", 1)])
    assert (list(store.sessions()), store.queue_usage()) == ([], {})
    store.close()


def test_a_new_store_on_a_full_disk_is_refused_in_words(disk: Path) -> None:
    fill(disk)
    with pytest.raises(StoreError, match="the disk is full") as caught:
        MqttStore(disk / "mqtt", LIMIT)
    assert store_condition(caught.value) == DISK_FULL
