"""Monitors of contract logs: groups with the same cursor share their requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from fieldbrook.chain.blocks.follower import Follower
from fieldbrook.chain.blocks.log_fetcher import LogFetcher
from fieldbrook.chain.blocks.logs import Log
from fieldbrook.chain.monitors.delivery import Deliveries
from fieldbrook.chain.monitors.events import payload_of
from fieldbrook.chain.monitors.watch import CHAIN_FAILURES, Progress, Watch, describe
from fieldbrook.storage.chain.store import AnnouncedEvent, ChainStore

_TIP_BLOCKS = 16  # recent blocks that are read by hash at the same time


class LogMonitors:
    """Reads logs for monitors and starts the deliveries of their events."""

    def __init__(
        self,
        fetcher: LogFetcher,
        follower: Follower,
        store: ChainStore,
        progress: Progress,
        deliveries: Deliveries,
    ) -> None:
        self._fetcher = fetcher
        self._follower = follower
        self._store = store
        self._progress = progress
        self._deliveries = deliveries

    async def advance(self, watches: Sequence[Watch], confirmed: int) -> bool:
        """Read the next blocks, at most up to `confirmed`; returns whether any were read.

        Every group of monitors at recent blocks is served; of the groups at older blocks only
        the one that is furthest behind.
        """
        groups = defaultdict(list)
        for watch in watches:
            groups[watch.cursor.block].append(watch)
        cursors = sorted(groups)
        moved = False
        for at, block in enumerate(cursors):
            following = cursors[at + 1] if at + 1 < len(cursors) else confirmed
            group = groups[block]
            end = min(confirmed, following, *(watch.last for watch in group))
            if block + 1 >= self._follower.oldest:
                moved |= await self._read(group, block + 1, min(end, block + _TIP_BLOCKS))
            elif at == 0:
                end = min(end, self._follower.oldest - 1, block + self._fetcher.range_size)
                moved |= await self._read(group, block + 1, end)
        return moved

    async def _read(self, group: Sequence[Watch], first: int, last: int) -> bool:
        """Read blocks for a group of monitors and send each its logs; False after a failure."""
        wanted = [watch.wanted for watch in group]
        recent = first >= self._follower.oldest
        try:
            if recent:
                logs = await self._fetcher.fetch_recent(wanted, first, last)
            else:
                found = await self._fetcher.fetch_range(wanted, first, last)
                if found is None:
                    return True
                logs = found
        except CHAIN_FAILURES as failure:
            for watch in group:
                self._progress.pause(watch, describe(failure))
            return False
        rows = {watch.monitor.monitor_id: self._rows(watch, logs, first) for watch in group}
        if recent:
            self._store.announce({monitor_id: r for monitor_id, r in rows.items() if r})
        for watch in group:
            if found_rows := rows[watch.monitor.monitor_id]:
                self._deliveries.send(watch, found_rows, last)
            else:
                self._deliveries.advance(watch, last)
        return True

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
