"""Monitors: convert logs, transactions and block heights of a chain to events of projects.

Each monitor has a cursor: the last block whose events are answered. Monitors with the same
cursor share their requests. Recent blocks, which a reorganisation may still remove, are read
one by one by their hashes. Older blocks are read in ranges as large as the endpoint allows.
Events of recent blocks are stored before they are sent. So they can be retracted after a
reorganisation, even if the process crashed in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from fieldbrook.chain.blocks.follower import DEPTH, Follower, hashes_to_text
from fieldbrook.chain.blocks.log_fetcher import LogFetcher
from fieldbrook.chain.monitors.delivery import Deliveries
from fieldbrook.chain.monitors.head import HeadTracker
from fieldbrook.chain.monitors.host import Host
from fieldbrook.chain.monitors.logs import LogMonitors
from fieldbrook.chain.monitors.transactions import TransactionMonitors
from fieldbrook.chain.monitors.watch import Progress, Watch
from fieldbrook.core.errors import StoreError
from fieldbrook.core.model import CHAIN_HEIGHT, CHAIN_TX, CONTRACT_LOG
from fieldbrook.gateway.base import essential

log = logging.getLogger(__name__)

_TURN_S = 0.5  # interval of checks for changes of the registry


class MonitorService:
    """Runs the monitors of one chain."""

    def __init__(self, host: Host, *, depth: int = DEPTH) -> None:
        self._host = host
        self._chain = host.chain
        self._store = host.store
        self._depth = depth
        self._progress = Progress(host.store)
        self._version = -1
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    # ---------------------------------------------------------------- life

    async def start(self) -> None:
        """Resume from the stored blocks and cursors."""
        host, store = self._host, self._store
        self._follower = follower = Follower(hashes_to_text(store.blocks()), depth=self._depth)
        progress = self._progress
        self._head = HeadTracker(host, follower, progress)
        self._deliveries = deliveries = Deliveries(host, follower, progress, self._wake.set)
        fetcher = LogFetcher(self._chain, host.client, follower)
        self._logs = LogMonitors(
            *(fetcher, follower, store, progress, deliveries, self._wake.set),
            next_poll=lambda: self._head.due,
            poll_within=self._head.poll_within,
        )
        self._transactions = TransactionMonitors(host.client, follower, store, progress, deliveries)
        self._tasks = [essential(asyncio.create_task(self._run()))]

    async def stop(self) -> None:
        """Stop, and store the cursors of the monitors."""
        watches = self._progress.watches.values()
        tasks = [*self._tasks, *(watch.task for watch in watches if watch.task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(StoreError):  # without the stored cursors, work is repeated
            self._progress.flush(now=True)

    def project_removed(self, project_id: int) -> None:
        """See `chain.Service`."""
        for watch in list(self._progress.watches.values()):
            if watch.monitor.project_id == project_id:
                self._progress.remove(watch)

    def _follow(self) -> None:
        """Start to follow the chain. All monitors must be loaded before, because a reorganisation
        may move their cursors back."""
        work = [self._head.run(self._before_poll, self._wake.set)]
        if self._head.subscription is not None:
            work.append(self._head.subscription.run())
        self._tasks += [essential(asyncio.create_task(task)) for task in work]

    def _before_poll(self) -> None:
        if self._logs.retry():
            self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            moved = False
            try:
                self._refresh()
                if len(self._tasks) == 1:
                    self._follow()
                if self._follower.blocks:
                    moved = await self._advance()
                self._progress.flush()
            except StoreError as error:
                log.error("chain %s: %s", self._chain.name, error)
                await asyncio.sleep(_TURN_S)
            if moved:
                await asyncio.sleep(0)
            else:
                await self._pause()

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TURN_S):
                await self._wake.wait()

    # ---------------------------------------------------------------- the monitors

    def _refresh(self) -> None:
        """Update the watched monitors if the registry has changed."""
        version = self._host.reader.version()
        if version == self._version:
            return
        found = self._host.reader.monitors_of_chain(self._chain.id)
        monitors = {monitor.monitor_id: monitor for monitor in found}
        watches = self._progress.watches
        removed = self._version < 0
        for watch in list(watches.values()):
            now = monitors.get(watch.monitor.monitor_id)
            if now is None or now.finished:
                self._progress.remove(watch)
                removed = True
            elif now != watch.monitor:
                watch.monitor = now
                if now.paused and watch.task is not None:
                    watch.task.cancel()
        for monitor in monitors.values():
            if not monitor.finished and monitor.monitor_id not in watches:
                self._progress.add(monitor)
                self._head.poll_within(self._head.poll_s)
        if removed:
            self._store.delete_other_monitors(monitors)
        self._version = version

    async def _advance(self) -> bool:
        """Start the next work of every monitor that is ready; return whether any was started."""
        now = time.monotonic()
        ready = [watch for watch in self._progress.watches.values() if watch.is_ready(now)]
        moved = False
        logs, transactions = [], []
        confirmed = self._head.confirmed
        for watch in ready:
            if watch.monitor.kind == CHAIN_HEIGHT:
                if confirmed >= watch.monitor.height:
                    self._deliveries.send_height(watch)
                    moved = True
            elif watch.cursor.rewind >= 0:
                self._deliveries.retract(watch)
            elif self._is_complete(watch):
                self._deliveries.finish(watch)
            elif watch.monitor.kind == CHAIN_TX and not watch.cursor.stands:
                transactions.append(watch)
            elif watch.monitor.kind == CONTRACT_LOG and watch.cursor.block < min(
                watch.last, confirmed
            ):
                logs.append(watch)
        new, self._head.transactions = self._head.transactions, set()
        self._logs.start(logs, confirmed)
        return await self._transactions.advance(transactions, new, confirmed, now) or moved

    def _is_complete(self, watch: Watch) -> bool:
        """Return whether a monitor is complete, and no reorganisation can change this any more."""
        if watch.monitor.kind == CHAIN_TX:
            return watch.cursor.stands and watch.cursor.block < self._follower.oldest
        return watch.cursor.block >= watch.last < self._follower.oldest
