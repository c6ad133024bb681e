"""Deliveries: tasks that send a monitor's events, retract events, or finish the monitor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from fieldbrook.actors.wire import WireEvent
from fieldbrook.chain.blocks.follower import Follower
from fieldbrook.chain.monitors.events import announced_event, deliver, height_event, removed_event
from fieldbrook.chain.monitors.host import Host
from fieldbrook.chain.monitors.watch import Progress, Watch
from fieldbrook.core import clock
from fieldbrook.core.errors import NodeError
from fieldbrook.storage.chain.store import AnnouncedEvent

log = logging.getLogger(__name__)


class Deliveries:
    """Sends the events of monitors, at most one task per monitor.

    Args:
        host: the process of the chain.
        follower: has the hashes of the newest blocks.
        progress: the cursors, which advance when events are answered.
        wake: called when a task has ended.
    """

    def __init__(
        self, host: Host, follower: Follower, progress: Progress, wake: Callable[[], None]
    ) -> None:
        self._host = host
        self._follower = follower
        self._progress = progress
        self._wake = wake

    def send(self, watch: Watch, rows: Sequence[AnnouncedEvent], last: int) -> None:
        """Send the events of `rows`, then advance the cursor to block `last`."""
        self._start(watch, lambda: self._send(watch, rows, last))

    def send_height(self, watch: Watch) -> None:
        """Send the event of a monitor's block height, then finish the monitor."""
        self._start(watch, lambda: self._send_height(watch))

    def retract(self, watch: Watch) -> None:
        """Retract the events of blocks that a reorganisation removed."""
        self._start(watch, lambda: self._retract(watch))

    def finish(self, watch: Watch) -> None:
        """Mark a complete monitor as finished in the registry."""
        self._start(watch, lambda: self._finish(watch))

    def advance(self, watch: Watch, block: int, events: int = 0) -> None:
        """Advance a monitor's cursor to `block`, after `events` more events were answered."""
        self._progress.advance(watch, block, self._hash(block), events)

    def _start(self, watch: Watch, work: Callable[[], Awaitable[None]]) -> None:
        watch.task = asyncio.create_task(self._run(watch, work))

    async def _run(self, watch: Watch, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
            watch.consecutive_failures = 0
        except NodeError as error:
            self._progress.pause(watch, str(error))
        except Exception:
            log.exception("monitor %d failed", watch.monitor.monitor_id)
            self._progress.pause(watch, "an internal error; the node's log has the cause")
        finally:
            watch.task = None
            self._wake()

    async def _send(self, watch: Watch, rows: Sequence[AnnouncedEvent], last: int) -> None:
        await self._deliver(watch, [announced_event(watch.monitor, row) for row in rows])
        self.advance(watch, last, len(rows))

    async def _send_height(self, watch: Watch) -> None:
        if not watch.cursor.events:
            await self._deliver(watch, [height_event(watch.monitor)])
            self.advance(watch, watch.monitor.height, 1)
        await self._finish(watch)

    async def _retract(self, watch: Watch) -> None:
        """Retract the events of removed blocks, the newest event first."""
        rewind = watch.cursor.rewind
        rows = self._progress.announced(watch, rewind + 1)
        # After a crash it is unknown whether events beyond the cursor were sent. Send them first,
        # so that every retraction follows its event.
        unsure = [announced_event(watch.monitor, r) for r in rows if r.block > watch.cursor.block]
        events = unsure + [removed_event(watch.monitor, row) for row in reversed(rows)]
        await self._deliver(watch, events)
        now = watch.cursor
        block = max(min(now.block, rewind), watch.monitor.block_start - 1)
        watch.cursor = msgspec.structs.replace(
            now,
            block=block,
            block_hash=self._hash(block),
            rewind=-1 if now.rewind == rewind else now.rewind,
            events=now.events + len(events),
            removed=now.removed + len(rows),
            error="",
            time_ms=clock.now_ms(),
        )
        self._host.store.retract(watch.monitor.monitor_id, rows, watch.cursor)
        watch.look_up_again()

    async def _finish(self, watch: Watch) -> None:
        self._progress.flush(now=True)
        await self._host.registry.call(
            "finish_monitor",
            monitor_id=watch.monitor.monitor_id,
            block_current=watch.cursor.block + 1,
        )

    async def _deliver(self, watch: Watch, events: Sequence[WireEvent]) -> None:
        def on_refusal(reason: str) -> None:
            failures = watch.cursor.failures + 1
            self._progress.update_cursor(watch, error=reason, failures=failures)

        await deliver(self._host.submit, watch.monitor.project_id, events, on_refusal)
        self._progress.update_state(events=self._progress.state.events + len(events))

    def _hash(self, block: int) -> bytes:
        return bytes.fromhex(self._follower.blocks.get(block, "0x")[2:])
