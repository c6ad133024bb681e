"""The state of each unfinished monitor, and the stored progress of all monitors of a chain."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any

import msgspec

from fieldbrook.chain.blocks.logs import normalize_hex
from fieldbrook.chain.blocks.omissions import LogFilter
from fieldbrook.chain.errors import MalformedAnswerError, RpcError
from fieldbrook.chain.monitors.events import Decode
from fieldbrook.core import clock
from fieldbrook.core.model import Monitor
from fieldbrook.storage.chain.store import AnnouncedEvent, ChainStore, Cursor

log = logging.getLogger(__name__)

_FLUSH_S = 0.2
_STATE_S = 1.0
_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # by the number of consecutive failures


@dataclass(slots=True)
class Watch:
    """One unfinished monitor and its progress.

    Attributes:
        monitor: the monitor's record in the registry.
        cursor: the last block whose events are answered, and counters.
        wanted: the filter of the monitor's logs.
        decode: decodes the monitor's logs; None without an event ABI.
        task: the read or delivery in progress, if any.
        paused_until: end of the pause after a failure, by `time.monotonic`.
        consecutive_failures: failures since the last success.
        looked_up_at: time of the last look-up of the monitor's transaction, by `time.monotonic`.
        mined: number of the block that includes the transaction, while it has too few
            confirmations; otherwise None.
    """

    monitor: Monitor
    cursor: Cursor
    wanted: LogFilter
    decode: Decode | None = None
    task: asyncio.Task[None] | None = None
    paused_until: float = 0.0
    consecutive_failures: int = 0
    looked_up_at: float = float("-inf")
    mined: int | None = None

    @property
    def last(self) -> int:
        """The last block that the monitor covers."""
        return self.monitor.block_end or (1 << 63)

    def is_ready(self, now: float) -> bool:
        """Return whether the monitor has no task and no user or failure has paused it."""
        return self.task is None and not self.monitor.paused and self.paused_until <= now

    def look_up_again(self) -> None:
        """Look up the transaction again soon, because another block may include it now."""
        self.looked_up_at, self.mined = float("-inf"), None


def make_watch(monitor: Monitor, cursor: Cursor | None) -> Watch:
    """Make the watch of a monitor. It starts at the monitor's cursor; without a cursor, at its
    first block."""
    if cursor is None:
        cursor = Cursor(max(0, monitor.block_start) - 1, time_ms=clock.now_ms())
    topics = tuple(normalize_hex(topic) for topic in monitor.topics)
    watch = Watch(monitor, cursor, LogFilter.for_contract(normalize_hex(monitor.address), topics))
    if monitor.event_abi:
        watch.decode = _decoder(monitor)
    return watch


class Progress:
    """The watched monitors and the state of the chain, stored at intervals.

    After a crash, work whose cursor was not stored yet is repeated.
    """

    def __init__(self, store: ChainStore) -> None:
        self._store = store
        self.watches: dict[int, Watch] = {}
        self.state = self._stored_state = store.state()
        self._dirty: set[int] = set()
        self._flushed_at = self._state_stored_at = 0.0

    def add(self, monitor: Monitor) -> None:
        """Start watching a monitor, from its stored cursor on."""
        self.watches[monitor.monitor_id] = make_watch(
            monitor, self._store.cursor(monitor.monitor_id)
        )
        self._dirty.add(monitor.monitor_id)

    def remove(self, watch: Watch) -> None:
        """Stop watching a monitor."""
        self.watches.pop(watch.monitor.monitor_id, None)
        self._dirty.discard(watch.monitor.monitor_id)
        if watch.task is not None:
            watch.task.cancel()

    def update_state(self, **fields: Any) -> None:
        """Change fields of the chain's state."""
        self.state = msgspec.structs.replace(self.state, **fields)

    def update_cursor(self, watch: Watch, **fields: Any) -> None:
        """Change fields of a monitor's cursor."""
        watch.cursor = msgspec.structs.replace(watch.cursor, time_ms=clock.now_ms(), **fields)
        if watch.monitor.monitor_id in self.watches:
            self._dirty.add(watch.monitor.monitor_id)

    def advance(self, watch: Watch, block: int, block_hash: bytes, events: int = 0) -> None:
        """Advance a monitor's cursor to `block`, after `events` more events were answered."""
        self.update_cursor(
            watch,
            block=max(block, watch.cursor.block),
            block_hash=block_hash,
            events=watch.cursor.events + events,
            error="",
        )

    def pause(self, watch: Watch, reason: str) -> None:
        """Record a failure and pause the monitor, longer after each consecutive failure."""
        pause_s = _PAUSES_S[min(watch.consecutive_failures, len(_PAUSES_S) - 1)]
        watch.consecutive_failures += 1
        watch.paused_until = time.monotonic() + pause_s
        self.update_cursor(watch, error=reason, failures=watch.cursor.failures + 1)

    def record_failure(self, watch: Watch, reason: str) -> None:
        """Record a failure without a pause."""
        self.update_cursor(watch, error=reason, failures=watch.cursor.failures + 1)

    def announced(self, watch: Watch, from_block: int = 0) -> list[AnnouncedEvent]:
        """Return a monitor's announced events from a block on, without retracted ones."""
        rows = self._store.announced(watch.monitor.monitor_id, from_block)
        return [row for row in rows if not row.removed]

    def flush(self, *, now: bool = False) -> None:
        """Store changed cursors and the changed state if their intervals are over, or if `now` is
        set."""
        time_s = time.monotonic()
        if self._dirty and (now or time_s - self._flushed_at > _FLUSH_S):
            self._store.put_cursors({n: self.watches[n].cursor for n in self._dirty})
            self._dirty.clear()
            self._flushed_at = time_s
        if self.state != self._stored_state and (now or time_s - self._state_stored_at > _STATE_S):
            self._store.put_state(self.state)
            self._stored_state, self._state_stored_at = self.state, time_s


def describe(failure: Exception) -> str:
    """Describe a failure of the endpoints for users."""
    match failure:
        case RpcError():
            return f"an endpoint refused the request: {failure.text}"
        case MalformedAnswerError():
            return f"an endpoint's answer is not usable: {failure}"
    return str(failure)


def _decoder(monitor: Monitor) -> Decode | None:
    """Make the decoder of a monitor's logs; None if its event ABI is unusable."""
    from fieldbrook.chain.blocks.decode import make_decoder

    try:
        return make_decoder(monitor.event_abi)
    except Exception:
        log.exception("monitor %d: its event ABI cannot be used", monitor.monitor_id)
        return None
