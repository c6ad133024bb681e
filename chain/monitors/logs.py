"""Monitors of contract logs: read logs and start deliveries.

All monitors share the requests for recent blocks. Monitors with the same cursor share the requests
for older blocks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from fieldbrook.chain.blocks.follower import Follower
from fieldbrook.chain.blocks.log_fetcher import LogFetcher
from fieldbrook.chain.blocks.logs import Log
from fieldbrook.chain.blocks.omissions import LogFilter
from fieldbrook.chain.errors import CHAIN_FAILURES, UnknownBlockError
from fieldbrook.chain.monitors.delivery import Deliveries
from fieldbrook.chain.monitors.events import payload_of
from fieldbrook.chain.monitors.watch import Progress, Watch, describe
from fieldbrook.core.errors import StoreError
from fieldbrook.core.model import CONTRACT_LOG
from fieldbrook.storage.chain.store import AnnouncedEvent, ChainStore

log = logging.getLogger(__name__)

_TIP_BLOCKS = 16  # recent blocks that are read by hash at the same time
_LEAST_PAUSE_S, _FIRST_PAUSE_S, _MOST_PAUSE_S = 0.25, 0.5, 1.0  # between requests for new blocks
# The request for an unknown block is sent together with a poll, which comes within this time. With
# a longer time, events would be 3 blocks late. With a shorter one, a block takes more than 3
# requests.
_POLL_WITHIN_S = 1.5
_JOIN_WAIT_S = 0.5  # how long a group waits for other monitors to reach its block
_REPORTED_S = 5.0  # a block that stays unknown for longer is reported as a failure

_Read = Callable[[Sequence[Watch], int, int], Awaitable[None]]


@dataclass(slots=True)
class _Unknown:
    """A new block whose logs an endpoint refuses, because the answering node lacks the block.

    Nodes of different heights share the endpoint's address, so a later request may reach a node
    that has the block. Times are those of `time.monotonic`.

    Attributes:
        number: the block's number.
        since: the time of the first request for its logs.
        until: the time of the next request.
        tries: the number of requests so far.
    """

    number: int
    since: float
    until: float
    tries: int = 1


class LogMonitors:
    """Reads logs for monitors and starts the deliveries of their events.

    Args:
        fetcher: requests logs.
        follower: has the newest blocks.
        store: keeps the events of blocks that a reorganisation may remove.
        progress: the cursors of the monitors.
        deliveries: sends events to projects.
        wake: called when a read has succeeded or failed.
        next_poll: returns the time of the next poll of the chain, by `time.monotonic`.
        poll_within: polls the chain within a number of seconds.
    """

    def __init__(
        self,
        fetcher: LogFetcher,
        follower: Follower,
        store: ChainStore,
        progress: Progress,
        deliveries: Deliveries,
        wake: Callable[[], None],
        next_poll: Callable[[], float],
        poll_within: Callable[[float], None],
    ) -> None:
        self._fetcher = fetcher
        self._follower = follower
        self._store = store
        self._progress = progress
        self._deliveries = deliveries
        self._wake = wake
        self._next_poll, self._poll_within = next_poll, poll_within
        self._recent: dict[asyncio.Task[None], range] = {}  # tasks, and the blocks they read
        self._unknown: _Unknown | None = None
        self._waits_until: float | None = None  # end of the wait for other monitors' deliveries
        self._slow: set[int] = set()  # ids of monitors for which no group waits any more
        self._unknown_pause_s = _FIRST_PAUSE_S
        self._old_blocks: asyncio.Task[None] | None = None  # reads a range of old blocks

    def start(self, watches: Sequence[Watch], confirmed: int) -> None:
        """Start reading the next blocks for monitors that are ready, at most up to `confirmed`.

        Monitors with the same cursor form a group. All groups at recent blocks are served. Of the
        groups at older blocks, only the one that is furthest behind is served.
        """
        unknown, groups = self._unknown, defaultdict(list)
        if unknown is not None and time.monotonic() < unknown.until:
            recent_end = unknown.number - 1
        else:
            recent_end = confirmed
        for watch in watches:
            groups[watch.cursor.block].append(watch)
        cursors = sorted(groups)
        for at, block in enumerate(cursors):
            following = cursors[at + 1] if at + 1 < len(cursors) else confirmed
            group = groups[block]
            end = min(confirmed, following, *(watch.last for watch in group))
            if block + 1 >= self._follower.oldest:
                end = min(end, block + _TIP_BLOCKS, recent_end)
                # Blocks that another group reads now need not be requested again.
                if end > block and not any(block + 1 in read for read in self._recent.values()):
                    task = self._start(self._read_recent, group, block + 1, end)
                    self._recent[task] = range(block + 1, end + 1)
            elif at == 0 and self._may_read_old(block):
                end = min(end, self._follower.oldest - 1)
                self._old_blocks = self._start(self._read_old, group, block + 1, end)

    def _may_read_old(self, block: int) -> bool:
        """Return whether the group at this block may read further old blocks.

        The group waits up to `_JOIN_WAIT_S` for monitors that still deliver events of earlier
        blocks, because monitors at the same block share their requests. It does not wait for the
        same monitor twice, so that a slow project holds it up only once.
        """
        if self._old_blocks is not None and not self._old_blocks.done():
            return False
        now = time.monotonic()
        busy = {
            monitor_id
            for monitor_id, watch in self._progress.watches.items()
            if watch.monitor.kind == CONTRACT_LOG
            and watch.task is not None
            and watch.cursor.block < block
        }
        self._slow &= busy
        if busy <= self._slow:
            self._waits_until = None
            return True
        if self._waits_until is None:
            self._waits_until = now + _JOIN_WAIT_S
            asyncio.get_running_loop().call_later(_JOIN_WAIT_S, self._wake)
        if now < self._waits_until:
            return False
        self._waits_until, self._slow = None, busy
        return True

    def retry(self) -> bool:
        """Request an unknown block again now; return whether there is one.

        Call it before a poll: then this request and that for the head form one batch.
        """
        if self._unknown is not None:
            self._unknown.until = 0.0
        return self._unknown is not None

    def _start(self, read: _Read, group: list[Watch], first: int, last: int) -> asyncio.Task[None]:
        task = asyncio.create_task(self._run(read, group, first, last))
        for watch in group:
            watch.task = task
        return task

    async def _run(self, read: _Read, group: list[Watch], first: int, last: int) -> None:
        """Read blocks for a group of monitors. Until the end, the monitors are not ready."""
        task = asyncio.current_task()
        try:
            await read(group, first, last)
        except CHAIN_FAILURES as failure:
            for watch in group:
                self._progress.pause(watch, describe(failure))
        except StoreError as error:
            log.error("monitors: %s", error)
            for watch in group:
                self._progress.pause(watch, str(error))
        finally:
            if task is not None:
                self._recent.pop(task, None)
            for watch in group:
                if watch.task is task:
                    watch.task = None
            self._wake()

    async def _read_old(self, group: Sequence[Watch], first: int, last: int) -> None:
        wanted = [watch.wanted for watch in group]
        logs, last = await self._fetcher.fetch_range(wanted, first, last)
        self._deliver(group, logs, first, last)

    async def _read_recent(self, group: Sequence[Watch], first: int, last: int) -> None:
        numbers = range(first, last + 1)
        followed = [self._follower.blocks[number] for number in numbers]
        read = await self._fetcher.fetch_recent(self._all_wanted(first), first, last)
        if followed != [self._follower.blocks.get(number) for number in numbers]:
            return  # a reorganisation happened during the request
        if read.end >= first:
            self._note_known(read.end)
            self._deliver(group, read.logs, first, read.end, recent=True)
        if isinstance(read.failure, UnknownBlockError):
            self._note_unknown(group, read.end + 1, read.failure)
        elif read.failure is not None:
            raise read.failure

    def _note_known(self, number: int) -> None:
        if self._unknown is not None and self._unknown.number <= number:
            if self._unknown.tries == 1:
                self._unknown_pause_s = max(_LEAST_PAUSE_S, 0.9 * self._unknown_pause_s)
            self._unknown = None

    def _note_unknown(
        self, group: Sequence[Watch], number: int, failure: UnknownBlockError
    ) -> None:
        """Schedule the next request for an unknown block.

        The pause adapts to how long the endpoint needed for earlier unknown blocks. If the next
        poll comes at about the same time, the request is sent together with it.
        """
        now, before = time.monotonic(), self._unknown
        if before is None or before.number != number:
            self._unknown = unknown = _Unknown(number, now, now)
        else:
            unknown = before
            unknown.tries += 1
            self._unknown_pause_s = min(_MOST_PAUSE_S, 2 * self._unknown_pause_s)
        unknown.until = now + self._unknown_pause_s
        if self._next_poll() <= now + 2 * self._unknown_pause_s:
            self._poll_within(_POLL_WITHIN_S)
            unknown.until = max(self._next_poll(), now + _LEAST_PAUSE_S)
        asyncio.get_running_loop().call_later(unknown.until - now, self._wake)
        if now - unknown.since > _REPORTED_S:
            for watch in group:
                self._progress.record_failure(watch, describe(failure))

    def _deliver(
        self,
        group: Sequence[Watch],
        logs: Sequence[Log],
        first: int,
        last: int,
        *,
        recent: bool = False,
    ) -> None:
        """Start the delivery of its logs for each monitor of a group.

        Monitors whose cursor was moved back by a reorganisation are skipped.
        """
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
        """Return the filters of all active monitors that cover this block or a later one."""
        return [
            watch.wanted
            for watch in self._progress.watches.values()
            if watch.monitor.kind == CONTRACT_LOG
            and not watch.monitor.paused
            and watch.last >= block
        ]

    def _rows(self, watch: Watch, logs: Iterable[Log], first: int) -> list[AnnouncedEvent]:
        """Return the events to announce for a monitor. A log announced before keeps its row."""
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
