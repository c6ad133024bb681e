"""Monitors of contract logs: all share the logs of recent blocks, and groups with the same cursor
those of older ones."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from fieldbrook.chain.blocks.follower import Follower
from fieldbrook.chain.blocks.log_fetcher import LogFetcher
from fieldbrook.chain.blocks.logs import Log
from fieldbrook.chain.blocks.omissions import LogFilter
from fieldbrook.chain.errors import UnknownBlockError
from fieldbrook.chain.monitors.delivery import Deliveries
from fieldbrook.chain.monitors.events import payload_of
from fieldbrook.chain.monitors.watch import CHAIN_FAILURES, Progress, Watch, describe
from fieldbrook.core.errors import StoreError
from fieldbrook.core.model import CONTRACT_LOG
from fieldbrook.storage.chain.store import AnnouncedEvent, ChainStore

log = logging.getLogger(__name__)

_TIP_BLOCKS = 16  # recent blocks that are read by hash at the same time

_Read = Callable[[Sequence[Watch], int, int], Awaitable[None]]


class LogMonitors:
    """Reads logs for monitors and starts the deliveries of their events.

    Args:
        fetcher: requests logs.
        follower: knows the newest blocks.
        store: keeps the events of blocks that may vanish.
        progress: the cursors of the monitors.
        deliveries: sends events to projects.
        wake: is called when blocks were read, or could not be.
    """

    def __init__(
        self,
        fetcher: LogFetcher,
        follower: Follower,
        store: ChainStore,
        progress: Progress,
        deliveries: Deliveries,
        wake: Callable[[], None],
    ) -> None:
        self._fetcher = fetcher
        self._follower = follower
        self._store = store
        self._progress = progress
        self._deliveries = deliveries
        self._wake = wake
        self._old_blocks: asyncio.Task[None] | None = None  # that reads a range of old blocks

    def start(self, watches: Sequence[Watch], confirmed: int) -> None:
        """Start reading the next blocks for monitors that are ready, at most up to `confirmed`.

        Every group of monitors at recent blocks is served; of the groups at older blocks only
        the one that is furthest behind.
        """
        groups = defaultdict(list)
        for watch in watches:
            groups[watch.cursor.block].append(watch)
        cursors = sorted(groups)
        for at, block in enumerate(cursors):
            following = cursors[at + 1] if at + 1 < len(cursors) else confirmed
            group = groups[block]
            end = min(confirmed, following, *(watch.last for watch in group))
            if block + 1 >= self._follower.oldest:
                self._start(self._read_recent, group, block + 1, min(end, block + _TIP_BLOCKS))
            elif at == 0 and (self._old_blocks is None or self._old_blocks.done()):
                end = min(end, self._follower.oldest - 1)
                self._old_blocks = self._start(self._read_old, group, block + 1, end)

    def _start(self, read: _Read, group: list[Watch], first: int, last: int) -> asyncio.Task[None]:
        task = asyncio.create_task(self._run(read, group, first, last))
        for watch in group:
            watch.task = task
        return task

    async def _run(self, read: _Read, group: list[Watch], first: int, last: int) -> None:
        """Read blocks for a group of monitors; they are not ready meanwhile."""
        task = asyncio.current_task()
        try:
            await read(group, first, last)
        except CHAIN_FAILURES as failure:
            # An old block that is not known was deleted by the endpoint, and will not come back.
            lags = isinstance(failure, UnknownBlockError) and first >= self._follower.oldest
            for watch in group:
                self._progress.pause(watch, describe(failure), lags=lags)
        except StoreError as error:
            log.error("monitors: %s", error)
            for watch in group:
                self._progress.pause(watch, str(error))
        finally:
            for watch in group:
                if watch.task is task:
                    watch.task = None
            self._wake()

    async def _read_old(self, group: Sequence[Watch], first: int, last: int) -> None:
        wanted = [watch.wanted for watch in group]
        logs, last = await self._fetcher.fetch_range(wanted, first, last)
        self._tell(group, logs, first, last)

    async def _read_recent(self, group: Sequence[Watch], first: int, last: int) -> None:
        numbers = range(first, last + 1)
        followed = [self._follower.blocks[number] for number in numbers]
        logs = await self._fetcher.fetch_recent(self._all_wanted(first), first, last)
        if followed != [self._follower.blocks.get(number) for number in numbers]:
            return  # a reorganisation came meanwhile
        self._tell(group, logs, first, last, recent=True)

    def _tell(
        self,
        group: Sequence[Watch],
        logs: Sequence[Log],
        first: int,
        last: int,
        *,
        recent: bool = False,
    ) -> None:
        """Send each monitor of a group its logs, unless a reorganisation has turned it back."""
        ready = [w for w in group if w.cursor.block == first - 1 and w.cursor.rewind < 0]
        rows = {watch.monitor.monitor_id: self._rows(watch, logs, first) for watch in ready}
        if recent:
            self._store.announce({monitor_id: r for monitor_id, r in rows.items() if r})
        for watch in ready:
            watch.consecutive_failures = 0
            if found_rows := rows[watch.monitor.monitor_id]:
                self._deliveries.send(watch, found_rows, last)
            else:
                self._deliveries.advance(watch, last)

    def _all_wanted(self, block: int) -> list[LogFilter]:
        """Return the filters of all monitors that a block may concern."""
        return [
            watch.wanted
            for watch in self._progress.watches.values()
            if watch.monitor.kind == CONTRACT_LOG
            and not watch.monitor.paused
            and watch.last >= block
        ]

    def _rows(self, watch: Watch, logs: Iterable[Log], first: int) -> list[AnnouncedEvent]:
        """Return the rows to announce to a monitor; logs announced before keep their row."""
        own = [found for found in logs if watch.wanted.matches(found)]
        if not own:
            return []
        known = {
            (row.block_hash, row.index): row
            for row in self._store.announced(watch.monitor.monitor_id, first)
        }
        rows = []
        for found in own:
            block_hash = bytes.fromhex(found.block_hash[2:])
            row = known.get((block_hash, found.index))
            if row is None:
                payload = payload_of(found, watch.decode)
                row = AnnouncedEvent(found.block, block_hash, found.index, payload)
            rows.append(msgspec.structs.replace(row, removed=False))
        return rows
