"""The MQTT listener's store on a disk that is full, and after power cuts."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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
from tests.faults.disk import Disk, Record, any_cut, read
from tests.faults.powercut import build_recorder
from tests.support.disks import MIB, fill, small_disk
from tests.support.tools import LIMIT_S
from tests.unit.storage.mqtt import writing

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


# ---------------------------------------------------------------- power cuts

_WRITES, _CUTS, _SEED = 120, 24, 5


class Recording(NamedTuple):
    """The writes of a process below `folder`. `told` has pairs of a record's number and a write
    that was acknowledged before it."""

    folder: Path
    records: list[Record]
    told: list[tuple[int, int]]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Run a process that creates a store and writes to it, until it is killed."""
    made = tmp_path_factory.mktemp("recording").resolve()
    out, data = made / "writes", made / "data"
    out.mkdir()
    (out / "clock").write_bytes(bytes(8))
    recorder = {"LD_PRELOAD": str(build_recorder(made)), "WRITELOG_ROOT": str(data)}
    environment = {**os.environ, **recorder, "WRITELOG_OUT": str(out)}
    command = [sys.executable, "-P", writing.__file__, str(data / writing.FOLDER), "1"]
    told = []
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for _ in range(_WRITES):
            number = int(child.stdout.readline())
            told.append((int.from_bytes((out / "clock").read_bytes(), "little"), number))
        child.kill()
    return Recording(data, read(out), told)


def failures(recording: Recording, folder: Path, *, ignore_syncs: bool = False) -> list[str]:
    """Cut the power at random places; return the defects of the resulting stores."""
    chance = random.Random(_SEED)
    found = []
    told_first, _ = recording.told[0]
    for number in range(_CUTS):
        # A third of the cuts happens while the store is created.
        last = told_first if number % 3 == 0 else recording.records[-1].number
        at = chance.randint(1, last)
        disk = Disk(recording.folder, recording.records, ignore_syncs=ignore_syncs)
        disk.advance(at)
        left = folder / str(number)
        disk.write_to(left, chance, any_cut(chance))
        told = max((each for when, each in recording.told if when <= at), default=0)
        # A file that is too short ends the process that maps it.
        command = [sys.executable, "-P", writing.__file__, str(left / writing.FOLDER)]
        done = subprocess.run(
            [*command, "check", str(told)],
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode:
            found.append(f"cut at {at}, {told} told: {done.returncode} {done.stderr[-400:]}")
    return found


@pytest.mark.timeout(240)
@pytest.mark.thorough
def test_after_a_power_cut_at_any_moment_a_store_opens_and_has_what_was_acknowledged(
    recording: Recording, tmp_path: Path
) -> None:
    assert failures(recording, tmp_path) == []


@pytest.mark.timeout(240)
@pytest.mark.thorough
def test_on_a_disk_that_ignores_syncs_the_same_cuts_are_seen_to_lose_messages(
    recording: Recording, tmp_path: Path
) -> None:
    assert len(failures(recording, tmp_path, ignore_syncs=True)) > _CUTS // 4
