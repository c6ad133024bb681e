"""Monitors of contract logs: all share the logs of recent blocks, and groups with the same cursor
those of older ones."""

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
_LEAST_PAUSE_S, _FIRST_PAUSE_S, _MOST_PAUSE_S = 0.25, 0.5, 1.0  # of an unknown block
_COMPANY_S = 0.5
_NOTED_S = 5.0  # from then on an unknown block is a failure that users see

_Read = Callable[[Sequence[Watch], int, int], Awaitable[None]]


@dataclass(slots=True)
class _Unknown:
    """A new block that an answer has shown, and that the endpoint does not know.

    Nodes of different heights share its address, so a later request may find one that has it.

    Attributes:
        number: the block's number.
        since: when its logs were asked for first, by `time.monotonic`.
        until: it is asked for again then.
        tries: how often it was asked for.
    """

    number: int
    since: float
    until: float
    tries: int = 1


class LogMonitors:
    """Reads logs for monitors and starts the deliveries of their events.

    Args:
        fetcher: requests logs.
        follower: knows the newest blocks.
        store: keeps the events of blocks that may vanish.
        progress: the cursors of the monitors.
        deliveries: sends events to projects.
        wake: is called when blocks were read, or could not be.
        next_look: returns when the chain is looked at next, by `time.monotonic`.
    """

    def __init__(
        self,
        fetcher: LogFetcher,
        follower: Follower,
        store: ChainStore,
        progress: Progress,
        deliveries: Deliveries,
        wake: Callable[[], None],
        next_look: Callable[[], float],
    ) -> None:
        self._fetcher = fetcher
        self._follower = follower
        self._store = store
        self._progress = progress
        self._deliveries = deliveries
        self._wake = wake
        self._next_look = next_look
        self._recent: dict[asyncio.Task[None], range] = {}  # the recent blocks that tasks read
        self._unknown: _Unknown | None = None
        self._waits_until: float | None = None  # for the deliveries of other monitors
        self._slow: set[int] = set()  # monitors whose deliveries are not waited for
        self._unknown_pause_s = _FIRST_PAUSE_S
        self._old_blocks: asyncio.Task[None] | None = None  # that reads a range of old blocks

    def start(self, watches: Sequence[Watch], confirmed: int) -> None:
        """Start reading the next blocks for monitors that are ready, at most up to `confirmed`.

        Every group of monitors at recent blocks is served; of the groups at older blocks only
        the one that is furthest behind.
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
                # What another group reads now need not be requested again.
                if end > block and not any(block + 1 in read for read in self._recent.values()):
                    task = self._start(self._read_recent, group, block + 1, end)
                    self._recent[task] = range(block + 1, end + 1)
            elif at == 0 and self._may_read_old(block):
                end = min(end, self._follower.oldest - 1)
                self._old_blocks = self._start(self._read_old, group, block + 1, end)

    def _may_read_old(self, block: int) -> bool:
        """Return whether the group at this block is to read on.

        It waits for monitors whose events of earlier blocks are being delivered: together they need
        one request, and apart two. A project that takes long is waited for once.
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
            self._waits_until = now + _COMPANY_S
            asyncio.get_running_loop().call_later(_COMPANY_S, self._wake)
        if now < self._waits_until:
            return False
        self._waits_until, self._slow = None, busy
        return True

    def retry(self) -> bool:
        """Ask for an unknown block again now; returns whether there is one.

        Together with the request for the head this is one batch.
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
        """Read blocks for a group of monitors; they are not ready meanwhile."""
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
        self._tell(group, logs, first, last)

    async def _read_recent(self, group: Sequence[Watch], first: int, last: int) -> None:
        numbers = range(first, last + 1)
        followed = [self._follower.blocks[number] for number in numbers]
        read = await self._fetcher.fetch_recent(self._all_wanted(first), first, last)
        if followed != [self._follower.blocks.get(number) for number in numbers]:
            return  # a reorganisation came meanwhile
        if read.end >= first:
            self._note_known(read.end)
            self._tell(group, read.logs, first, read.end, recent=True)
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
        """Have a block asked for again after a pause that is about as long as such a block takes,
        or at the next look if that comes about then."""
        now, before = time.monotonic(), self._unknown
        if before is None or before.number != number:
            self._unknown = unknown = _Unknown(number, now, now)
        else:
            unknown = before
            unknown.tries += 1
            self._unknown_pause_s = min(_MOST_PAUSE_S, 2 * self._unknown_pause_s)
        look = self._next_look()
        unknown.until = now + self._unknown_pause_s
        if look <= now + 2 * self._unknown_pause_s:
            unknown.until = max(look, now + _LEAST_PAUSE_S)
        asyncio.get_running_loop().call_later(unknown.until - now, self._wake)
        if now - unknown.since > _NOTED_S:
            for watch in group:
                self._progress.note(watch, describe(failure))

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
