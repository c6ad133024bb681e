"""The MQTT listener's store: limits, damage, and crashes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
import pytest

from fieldbrook.core.errors import StoreError
from fieldbrook.observability.health import STORE_FULL, UNREADABLE
from fieldbrook.storage.lmdb.condition import store_condition
from fieldbrook.storage.mqtt import (
    DeleteRetained,
    DeleteSession,
    Dequeue,
    Enqueue,
    MqttStore,
    Operation,
    PutRetained,
    PutSession,
    Release,
    StoredMessage,
    StoredSession,
)
from fieldbrook.storage.mqtt import store as mqtt_store
from fieldbrook.storage.mqtt.operations import KEY_LIMIT_BYTES, RECORD_LIMIT_BYTES
from tests.support.tools import LIMIT_S
from tests.unit.storage.backup.data_folder import change
from tests.unit.storage.mqtt import writing

LIMIT = 1 << 20
LARGE = StoredMessage("t", bytes(20_000), 2, False, b"p", 0)


def session(number: int, record: bytes = b"") -> StoredSession:
    return StoredSession(f"user\0{number}", number, record)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MqttStore]:
    opened = MqttStore(tmp_path / "mqtt", LIMIT)
    yield opened
    opened.close()


def fill(store: MqttStore, uid: int, message: StoredMessage = LARGE) -> int:
    """Add messages until one is refused; return the number of accepted ones."""
    store.commit([PutSession(session(uid))])
    sequence = 0
    try:
        while True:
            store.commit([Enqueue(uid, sequence, message)])
            sequence += 1
    except StoreError as error:
        assert store_condition(error) == STORE_FULL
        return sequence


@contextmanager
def reader_of(folder: Path) -> Iterator[None]:
    """Run another process that reads the store, like a backup."""
    program = (
        "import sys; from pathlib import Path;"
        "from fieldbrook.storage.lmdb.environment import open_environment;"
        "e = open_environment(Path(sys.argv[1]), map_size=0, readonly=True);"
        "t = e.begin(); print('reading', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"reading\n"
        yield
        child.communicate(b"", timeout=LIMIT_S)


def sequences(store: MqttStore, uid: int) -> list[int]:
    return [number for number, _ in store.queue(uid, -1, 1 << 20)]


# ---------------------------------------------------------------- limits


def test_a_full_store_refuses_what_is_added_and_takes_whatever_is_removed(
    store: MqttStore,
) -> None:
    for number in range(5):
        store.commit([PutRetained(f"r{number}", LARGE)])
    count = fill(store, 1)
    assert count > LIMIT * 3 // 4 // len(LARGE.payload) - 5
    assert LIMIT - 30_000 < store.size_bytes <= LIMIT
    for addition in (Enqueue(1, count, LARGE), PutRetained("new", LARGE)):
        with pytest.raises(StoreError, match="size limit"):
            store.commit([addition])
    assert sequences(store, 1) == list(range(count))
    store.commit([PutSession(session(1)), PutRetained("r0", LARGE)])  # no larger than before
    store.commit([Release(1, 0), Dequeue(1, 1), DeleteRetained("r1")])
    store.commit([Enqueue(1, count, LARGE), PutRetained("new", LARGE)])
    store.commit([DeleteSession(session(1).key, 1)])
    assert fill(store, 2) >= count - 1


def test_removals_succeed_in_a_store_whose_file_has_no_free_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_store, "_SLACK_BYTES", 1 << 16)
    monkeypatch.setattr(mqtt_store, "_SLACK_SHARE", 1 << 30)
    store = MqttStore(tmp_path / "mqtt", 4 << 20)
    count = fill(store, 1)
    with reader_of(tmp_path / "mqtt"):  # pages that are freed meanwhile are not reused
        for sequence in range(count):
            store.commit([Dequeue(1, sequence)])
    assert sequences(store, 1) == []
    store.close()
    reopened = MqttStore(tmp_path / "mqtt", 4 << 20)
    assert fill(reopened, 2) > 0
    reopened.close()


def test_a_session_that_is_too_large_is_refused_and_the_store_is_not_failing(
    store: MqttStore,
) -> None:
    for bad in (
        StoredSession("k" * (KEY_LIMIT_BYTES + 1), 1, b""),
        StoredSession("k", 1, bytes(RECORD_LIMIT_BYTES + 1)),
    ):
        with pytest.raises(StoreError, match="the limit is") as caught:
            store.commit([PutRetained("t", LARGE), PutSession(bad)])
        assert caught.value.__cause__ is None
    assert list(store.retained()) == []
    largest = StoredSession("k" * KEY_LIMIT_BYTES, 1, bytes(RECORD_LIMIT_BYTES))
    store.commit([PutSession(largest)])
    assert list(store.sessions()) == [largest]


def test_a_queue_is_read_in_parts_of_so_many_rows_or_bytes(store: MqttStore) -> None:
    store.commit([PutSession(session(1)), *(Enqueue(1, n, LARGE) for n in range(9))])
    store.commit([Release(1, 4), Release(1, 100)])
    assert [n for n, _ in store.queue(1, 2, 3)] == [3, 4, 5]
    assert [m for _, m in store.queue(1, 2, 3)] == [LARGE, None, LARGE]
    assert [n for n, _ in store.queue(1, -1, 9, limit_bytes=1)] == [0]
    assert [n for n, _ in store.queue(1, -1, 9, limit_bytes=30_000)] == [0, 1]
    assert store.queue_usage() == {1: (9, 8 * LARGE.size, 8)}


def test_topics_and_keys_longer_than_a_key_of_the_store_are_told_apart(store: MqttStore) -> None:
    topics = ["x" * 60_000 + end for end in "ab"]
    keys = ["k" * 900 + end for end in "ab"]
    store.commit(
        [PutRetained(topic, StoredMessage(topic, b"", 0, True, b"", 0)) for topic in topics]
    )
    store.commit([PutSession(StoredSession(key, uid, b"")) for uid, key in enumerate(keys)])
    store.commit([DeleteRetained(topics[0]), DeleteSession(keys[0], 0)])
    assert [topic for topic, _ in store.retained()] == topics[1:]
    assert [found.key for found in store.sessions()] == keys[1:]


# ---------------------------------------------------------------- removed sessions


def test_a_large_queue_of_a_removed_session_is_removed_in_steps_and_never_seen_again(
    tmp_path: Path,
) -> None:
    store = MqttStore(tmp_path / "mqtt", 64 << 20)
    small = StoredMessage("t", b"x", 1, False, b"", 0)
    rows: list[Operation] = [Enqueue(1, number, small) for number in range(20_000)]
    store.commit([PutSession(session(1)), PutSession(session(2)), *rows, Enqueue(2, 0, small)])
    before = store.size_bytes
    store.commit([DeleteSession(session(1).key, 1)])
    assert before * 9 // 10 < store.size_bytes < before
    assert store.has_removed
    assert store.queue(1, -1, 10) == []
    assert store.queue_usage() == {2: (1, small.size, 0)}
    store.close()
    store = MqttStore(tmp_path / "mqtt", 64 << 20)  # like after a crash: only the files are left
    assert store.queue_usage() == {2: (1, small.size, 0)}
    steps = 0
    while store.has_removed:
        store.sweep()
        steps += 1
    assert steps > 2
    assert store.size_bytes < before // 10
    store.close()


def test_a_session_that_replaces_another_one_does_not_see_its_queue(store: MqttStore) -> None:
    store.commit([PutSession(session(1)), Enqueue(1, 5, LARGE)])
    new = StoredSession(session(1).key, 9, b"new")
    store.commit([PutSession(new), Enqueue(9, 1, LARGE)])
    store.commit([DeleteSession(new.key, 1)])  # a late removal of the old one
    assert list(store.sessions()) == [new]
    assert (sequences(store, 1), sequences(store, 9)) == ([], [1])
    assert not store.has_removed


# ---------------------------------------------------------------- damage and crashes


def test_a_record_that_cannot_be_read_is_an_error_in_words(tmp_path: Path) -> None:
    folder = tmp_path / "mqtt"
    store = MqttStore(folder, LIMIT)
    store.commit([PutSession(session(1)), Enqueue(1, 1, LARGE), PutRetained("t", LARGE)])
    store.close()
    for table in (b"queue", b"retained"):
        change(folder, table, lambda txn, t: txn.put(next(iter(txn.cursor(t)))[0], b"\1\xc1", db=t))
    store = MqttStore(folder, LIMIT)
    with pytest.raises(StoreError, match="MessageRecord record cannot be read"):
        list(store.retained())
    with pytest.raises(StoreError, match="MessageRecord record cannot be read"):
        store.queue(1, -1, 10)
    with pytest.raises(StoreError, match="a row of an MQTT queue cannot be read"):
        store.queue_usage()
    store.close()


def test_a_file_that_was_overwritten_is_refused_as_unreadable(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"not a store" * 4096)
    with pytest.raises(StoreError, match="foreign or overwritten") as caught:
        MqttStore(tmp_path, LIMIT)
    assert store_condition(caught.value) == UNREADABLE


def test_another_store_is_refused(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), max_dbs=4) as other:
        other.open_db(b"kv")
    with pytest.raises(StoreError, match="not the MQTT listener's store"):
        MqttStore(tmp_path, LIMIT)


def test_fifty_thousand_sessions_are_read_again_with_their_queues(tmp_path: Path) -> None:
    count = 50_000
    store = MqttStore(tmp_path / "mqtt", 256 << 20)
    message = StoredMessage("a/topic", bytes(100), 1, False, b"", 0)
    for first in range(1, count + 1, 5_000):
        numbers = range(first, first + 5_000)
        store.commit([PutSession(session(n, bytes(200))) for n in numbers])
        store.commit([Enqueue(n, 1, message) for n in numbers])
    store.close()
    store = MqttStore(tmp_path / "mqtt", 256 << 20)
    assert {found.uid for found in store.sessions()} == set(range(1, count + 1))
    assert store.queue_usage() == dict.fromkeys(range(1, count + 1), (1, message.size, 1))
    assert not store.has_removed
    store.close()


@pytest.mark.timeout(120)
def test_what_was_acknowledged_survives_the_kill_of_the_process_at_any_moment(
    tmp_path: Path,
) -> None:
    folder, told = tmp_path / "mqtt", 0
    for count in (1, 7, 40, 133, 201):
        first = told + 1
        command = [sys.executable, "-P", writing.__file__, str(folder), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            for _ in range(count):
                told = int(child.stdout.readline())
            child.send_signal(signal.SIGKILL)
            for line in child.stdout:
                told = int(line) if line.endswith(b"\n") else told
        told = writing.check(folder, told)
    assert (folder / "data.mdb").stat().st_size < writing.LIMIT
