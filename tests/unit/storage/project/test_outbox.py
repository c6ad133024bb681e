"""The outbox of a store whose batches wait for a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fieldbrook.storage.journal.memory import MemoryJournal
from fieldbrook.storage.journal.unapplied import apply_records
from fieldbrook.storage.project.outbox import MARKER, MQTT, OutboxEntry, effects_of
from fieldbrook.storage.project.store import ProjectStore
from tests.support.replicated_journal import ReplicatedJournal


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


def test_the_next_owner_knows_entries_by_the_same_numbers_and_which_of_them_were_delivered(
    tmp_path: Path,
) -> None:
    journal = ReplicatedJournal()
    with closing(ProjectStore(tmp_path / "owner", 1 << 20, journal=journal)) as owner:
        send(owner, b"one", b"two")
        send(owner, b"three", b"four")
        first, second, third, _ = owner.outbox.first(99)
        owner.remove_sent([first.sequence, third.sequence], {second.sequence: "too large"})
        owner.commit()
        send(owner, b"five")
        left = owner.outbox.first(99)
        delivered = effects(owner)
        with closing(ProjectStore(tmp_path / "next", 1 << 20)) as following:
            apply_records(following, journal.kept)
            assert following.outbox.first(99) == left
            assert len(following.outbox) == 2
            assert effects(following) == delivered


def test_an_entry_that_was_delivered_before_a_crash_is_not_delivered_by_the_next_owner(
    tmp_path: Path,
) -> None:
    """The store of the next owner has the entry from its own checkpoint."""
    journal = ReplicatedJournal()
    owner = ProjectStore(tmp_path / "owner", 1 << 20, journal=journal)
    send(owner, b"one")
    with closing(ProjectStore(tmp_path / "next", 1 << 20)) as following:
        apply_records(following, journal.kept)
        owner.remove_sent([entry.sequence for entry in owner.outbox.first(99)])
        owner.commit()
        apply_records(following, journal.kept)
        assert (len(following.outbox), following.outbox.bytes) == (0, 0)
        assert not (tmp_path / "next" / MARKER).exists()
    owner.close()


def effects(store: ProjectStore) -> list[tuple[str, int, str]]:
    found = effects_of(store._stored.environment, "e", 99)
    return [(effect.target, effect.size, effect.refused) for effect in found if effect.done_ms]
