"""The thread that commits for the MQTT listener."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import lmdb
import pytest

from fieldbrook.core.errors import StoreError, TooManyRequestsError
from fieldbrook.storage.lmdb.environment import store_errors
from fieldbrook.storage.mqtt import (
    DeleteRetained,
    DeleteSession,
    Dequeue,
    Enqueue,
    MqttStore,
    Operation,
    PutRetained,
    PutSession,
    StoredMessage,
    StoredSession,
    StoreWriter,
)
from fieldbrook.storage.mqtt import writer as store_writer
from fieldbrook.storage.mqtt.operations import size_of

SMALL = StoredMessage("t", b"x", 1, False, b"", 0)
LARGE = StoredMessage("t", bytes(100_000), 1, False, b"", 0)


class Store:
    """A store that records commits. It is full for large messages; a gate delays each commit."""

    def __init__(self) -> None:
        self.commits: list[list[Operation]] = []
        self.probed: list[int] = []
        self.has_removed = False
        self.is_full = False
        self.broken = False
        self.gate = threading.Semaphore(0)
        self.is_committing = threading.Event()

    def commit(self, operations: Sequence[Operation]) -> None:
        self.is_committing.set()
        self.gate.acquire()
        if self.broken:
            raise TypeError("a programmer's mistake")
        if self.is_full and any(isinstance(each, Enqueue) for each in operations):
            self.refuse()
        if any(isinstance(each, PutSession) for each in operations):
            raise StoreError(reason="the session is too large")
        self.commits.append(list(operations))

    def sweep(self) -> None:
        self.has_removed = False

    def probe(self, size: int) -> None:
        self.probed.append(size)
        if self.is_full:
            self.refuse()

    def refuse(self) -> None:
        with store_errors():
            raise lmdb.MapFullError("full")


class Case:
    """A writer on a store, and its reports."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.done: list[tuple[str, str]] = []
        self.states: list[str] = []
        self._changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        self.writer = StoreWriter(store, loop, self._failed)

    def _failed(self, error: StoreError | None) -> None:
        self.states.append("works" if error is None else "fails")
        self._changed.set()

    def write(self, name: str, *operations: Operation) -> None:
        def done(error: StoreError | None) -> None:
            self.done.append((name, "" if error is None else str(error)))
            self._changed.set()

        self.writer.write(operations, done)

    async def until(self, state: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not state():
                self._changed.clear()
                await self._changed.wait()

    def open_gate(self) -> None:
        self.store.gate.release(10_000)

    async def hold(self) -> None:
        """Let a first commit begin; it waits in the store."""
        self.write("first", Dequeue(1, 0))
        await asyncio.to_thread(self.store.is_committing.wait)


async def test_what_is_handed_over_before_a_commit_begins_is_one_commit_in_order() -> None:
    case = Case(Store())
    await case.hold()
    names = [str(number) for number in range(100)]
    for number, name in enumerate(names):
        case.write(name, Enqueue(1, number, SMALL), Dequeue(1, number - 1))
    assert case.done == []
    assert case.writer.waiting[0] == 201
    case.open_gate()
    await case.until(lambda: len(case.done) == 101)
    first, group = case.store.commits
    assert first == [Dequeue(1, 0)]
    added = [each.sequence for each in group if isinstance(each, Enqueue)]
    assert added == list(range(100))
    assert case.done == [(name, "") for name in ("first", *names)]
    assert case.writer.waiting == (0, 0)
    await case.writer.close()


async def test_in_a_full_store_each_write_fails_or_succeeds_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_writer, "_PROBE_INTERVAL_S", 0.01)
    store = Store()
    case = Case(store)
    await case.hold()
    store.is_full = True
    for number in range(50):
        case.write(f"put {number}", Enqueue(1, number, LARGE))
        case.write(f"remove {number}", Dequeue(1, number))
    case.open_gate()
    await case.until(lambda: len(case.done) == 101)
    assert [name for name, _ in case.done[1::2]] == [f"put {number}" for number in range(50)]
    assert all("size limit" in error for _, error in case.done[1::2])
    assert all(error == "" for _, error in case.done[2::2])
    removed = [each for commit in store.commits[1:] for each in commit]
    assert removed == [Dequeue(1, number) for number in range(50)]
    await case.until(lambda: case.states == ["fails"])
    store.is_full = False
    await case.until(lambda: case.states == ["fails", "works"])
    assert store.probed[0] == size_of(Enqueue(1, 1, LARGE))
    await case.writer.close()


async def test_a_write_that_is_wrong_in_itself_fails_alone_and_the_store_is_not_failing() -> None:
    case = Case(Store())
    await case.hold()
    case.write("good", Enqueue(1, 1, SMALL))
    case.write("bad", PutSession(StoredSession("k", 1, b"")))
    case.write("next", Enqueue(1, 2, SMALL))
    case.open_gate()
    await case.until(lambda: len(case.done) == 4)
    assert [error for _, error in case.done] == ["", "", "the session is too large", ""]
    assert case.states == []
    await case.writer.close()


async def test_a_mistake_in_the_store_is_logged_and_does_not_end_the_thread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    case = Case(store)
    store.broken = True
    case.open_gate()
    case.write("a", Dequeue(1, 1))
    await case.until(lambda: len(case.done) == 1)
    assert case.done == [("a", "TypeError: a programmer's mistake")]
    assert "could not commit 1 writes" in caplog.text
    store.broken = False
    case.write("b", Dequeue(1, 1))
    await case.until(lambda: len(case.done) == 2)
    assert case.done[1] == ("b", "")
    await case.writer.close()


async def test_too_much_that_waits_is_refused_and_removals_may_wait_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_writer, "WAITING_LIMIT", 10)
    monkeypatch.setattr(store_writer, "WAITING_LIMIT_BYTES", 150_000)
    case = Case(Store())
    await case.hold()
    case.write("1", Enqueue(1, 1, LARGE))
    with pytest.raises(TooManyRequestsError):
        case.write("2", Enqueue(1, 2, LARGE))
    for number in range(18):
        case.write("remove", Dequeue(1, number))
    with pytest.raises(TooManyRequestsError):
        case.write("small", Enqueue(1, 2, SMALL))
    with pytest.raises(TooManyRequestsError):
        case.write("remove", Dequeue(1, 1))
    case.open_gate()
    await case.until(lambda: len(case.done) == 20)
    case.write("2", Enqueue(1, 2, LARGE))
    await case.until(lambda: len(case.done) == 21)
    await case.writer.close()


async def test_closing_waits_for_all_that_was_handed_over_and_then_nothing_is_taken(
    tmp_path: Path,
) -> None:
    store = MqttStore(tmp_path / "mqtt", 16 << 20)
    writer = StoreWriter(store, asyncio.get_running_loop())
    writer.write([PutSession(StoredSession("k", 1, b""))])
    for number in range(500):
        writer.write([Enqueue(1, number, SMALL)])
    await writer.close()
    await writer.close()
    with pytest.raises(StoreError, match="closed"):
        writer.write([Dequeue(1, 1)])
    assert store.queue_usage() == {1: (500, 500 * SMALL.size, 499)}
    store.close()


async def test_a_removed_session_is_swept_up_while_nothing_else_is_written(tmp_path: Path) -> None:
    store = MqttStore(tmp_path / "mqtt", 64 << 20)
    rows = [Enqueue(1, number, SMALL) for number in range(12_000)]
    store.commit([PutSession(StoredSession("k", 1, b"")), *rows])
    before = store.size_bytes
    writer = StoreWriter(store, asyncio.get_running_loop())
    writer.write([DeleteSession("k", 1)])
    async with asyncio.timeout(20):
        while store.has_removed or store.size_bytes == before:
            await asyncio.sleep(0)
    await writer.close()
    assert store.size_bytes == 0
    store.close()


async def test_a_store_that_was_full_is_found_to_have_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_writer, "_PROBE_INTERVAL_S", 0.01)
    store = MqttStore(tmp_path / "mqtt", 1 << 20)
    states: list[bool] = []
    changed = asyncio.Event()

    def failed(error: StoreError | None) -> None:
        states.append(error is None)
        changed.set()

    writer = StoreWriter(store, asyncio.get_running_loop(), failed)
    for number in range(20):
        writer.write([PutRetained(str(number), LARGE)])
    await asyncio.wait_for(changed.wait(), 20)
    changed.clear()
    topics = [topic for topic, _ in store.retained()]
    assert 5 < len(topics) < 11
    writer.write([DeleteRetained(topic) for topic in topics])
    await asyncio.wait_for(changed.wait(), 20)
    assert states == [False, True]
    await writer.close()
    store.close()
