"""The writer thread: commits the listener's operations in groups, with one sync per group."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from fieldbrook.core.errors import StoreError, TooManyRequestsError
from fieldbrook.storage.mqtt.operations import Operation, only_removes, size_of

log = logging.getLogger(__name__)

WAITING_LIMIT = 20_000  # operations
WAITING_LIMIT_BYTES = 32 << 20
_REMOVALS_FACTOR = 2  # removals make room, so the limits for them are this much higher
_PROBE_INTERVAL_S = 1.0
_PROBE_LEAST_BYTES, _PROBE_MOST_BYTES = 16 << 10, 4 << 20

Done = Callable[[StoreError | None], None]


class Committing(Protocol):
    """The part of `MqttStore` that the writer needs."""

    @property
    def has_removed(self) -> bool: ...

    def commit(self, operations: Sequence[Operation]) -> None: ...
    def sweep(self) -> None: ...
    def probe(self, size: int) -> None: ...


class _Write(NamedTuple):
    operations: tuple[Operation, ...]
    size: int
    done: Done | None


_Result = tuple[_Write, StoreError | None]


class StoreWriter:
    """Writes to a store in a thread. All methods are called in the event loop and none blocks.

    All writes that are handed over before a commit begins are part of this commit, in the same
    order. If a group fails, for example because the store is full, it is divided until each write
    succeeds or fails by itself.
    """

    def __init__(
        self,
        store: Committing,
        loop: asyncio.AbstractEventLoop,
        failed: Callable[[StoreError | None], None] = lambda _: None,
    ) -> None:
        """Start the thread. Until `close` returns, only the thread may use the store, except for
        reads.

        Args:
            store: the store; the caller closes it after the writer.
            loop: the event loop in which callbacks are called.
            failed: called with the error when the store begins to fail, and with None when it
                works again. A failing store is probed every second.
        """
        self._store, self._loop, self._failed = store, loop, failed
        self._handed: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._count = self._bytes = 0
        self._is_closing = False
        self._ended: asyncio.Future[None] = loop.create_future()
        self._is_failing = False  # only the thread uses this attribute and the following ones
        self._probe_bytes = _PROBE_LEAST_BYTES
        self._next_probe = 0.0
        self._thread = threading.Thread(target=self._run, name="mqtt-store", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> tuple[int, int]:
        """The number and the bytes of the operations that are not committed yet."""
        return self._count, self._bytes

    def write(self, operations: Sequence[Operation], done: Done | None = None) -> None:
        """Hand over operations that are committed together, or not at all.

        Args:
            operations: the operations, in the order in which they are carried out.
            done: called after the sync, or with the error if nothing was changed.

        Raises:
            TooManyRequestsError: too many operations wait already; nothing was handed over.
            StoreError: the writer is closed.
        """
        if self._is_closing:
            raise StoreError(reason="the MQTT listener's store is closed")
        size = sum(map(size_of, operations))
        factor = _REMOVALS_FACTOR if only_removes(operations) else 1
        count, total = self._count + len(operations), self._bytes + size
        over = count > factor * WAITING_LIMIT or total > factor * WAITING_LIMIT_BYTES
        if over and self._count:
            raise TooManyRequestsError(what="too many MQTT messages wait to be stored")
        self._count, self._bytes = count, total
        self._handed.put(_Write(tuple(operations), size, done))

    async def close(self) -> None:
        """Wait until all operations that were handed over are committed, and end the thread."""
        if not self._is_closing:
            self._is_closing = True
            self._handed.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    # ---------------------------------------------------------------- in the thread

    def _run(self) -> None:
        while True:
            group, is_closing = self._next_group()
            if group:
                self._loop.call_soon_threadsafe(self._settle, self._commit(group))
            elif self._store.has_removed:
                self._sweep()
            if self._is_failing and time.monotonic() >= self._next_probe:
                self._probe()
            if is_closing:
                self._loop.call_soon_threadsafe(self._ended.set_result, None)
                return

    def _next_group(self) -> tuple[list[_Write], bool]:
        """Wait for writes; return all waiting writes, and whether they are the last ones."""
        group: list[_Write] = []
        wait_s: float | None = None
        if self._is_failing:
            wait_s = _PROBE_INTERVAL_S
        elif self._store.has_removed:
            wait_s = 0.0
        try:
            write = self._handed.get(timeout=wait_s)
            while write is not None:
                group.append(write)
                write = self._handed.get_nowait()
        except queue.Empty:
            return group, False
        return group, True

    def _commit(self, group: list[_Write]) -> list[_Result]:
        try:
            self._store.commit([each for write in group for each in write.operations])
        except StoreError as error:
            if len(group) > 1:
                half = len(group) // 2
                return self._commit(group[:half]) + self._commit(group[half:])
            if error.__cause__ is not None:  # without a cause, the data is invalid
                self._begin_failing(error, group[0].size)
            return [(group[0], error)]
        except Exception as error:
            log.exception("the MQTT listener's store could not commit %d writes", len(group))
            failure = StoreError(reason=f"{type(error).__name__}: {error}")
            return [(write, failure) for write in group]
        return [(write, None) for write in group]

    def _begin_failing(self, error: StoreError, size: int) -> None:
        self._probe_bytes = min(max(self._probe_bytes, size), _PROBE_MOST_BYTES)
        self._next_probe = time.monotonic() + _PROBE_INTERVAL_S
        if not self._is_failing:
            self._is_failing = True
            self._loop.call_soon_threadsafe(self._failed, error)

    def _probe(self) -> None:
        self._next_probe = time.monotonic() + _PROBE_INTERVAL_S
        try:
            self._store.probe(self._probe_bytes)
        except StoreError:
            # Smaller messages may fit, although a huge message did not.
            self._probe_bytes = max(self._probe_bytes // 2, _PROBE_LEAST_BYTES)
            return
        self._probe_bytes = _PROBE_LEAST_BYTES
        self._is_failing = False
        self._loop.call_soon_threadsafe(self._failed, None)

    def _sweep(self) -> None:
        try:
            self._store.sweep()
        except StoreError as error:
            self._begin_failing(error, 0)

    # ---------------------------------------------------------------- in the loop

    def _settle(self, results: list[_Result]) -> None:
        for write, error in results:
            self._count -= len(write.operations)
            self._bytes -= write.size
            if write.done is not None:
                # One callback that raises must not keep the others from being called.
                self._loop.call_soon(write.done, error)
