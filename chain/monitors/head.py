"""Head tracking: polls the newest block, and applies added and removed blocks to all monitors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

import msgspec

from fieldbrook.chain.blocks.follower import Follower, Step, hashes_to_bytes
from fieldbrook.chain.errors import CHAIN_FAILURES, IncompleteAnswerError, MalformedAnswerError
from fieldbrook.chain.monitors.host import Host
from fieldbrook.chain.monitors.subscription import HeadSubscription
from fieldbrook.chain.monitors.watch import Progress, describe
from fieldbrook.chain.rpc.answers import Header, read_tagged
from fieldbrook.core import clock
from fieldbrook.core.errors import StoreError
from fieldbrook.core.model import CONTRACT_LOG
from fieldbrook.core.settings.chain import FINALIZED, LATEST
from fieldbrook.observability.health import NO_CHAIN
from fieldbrook.storage.chain.store import OK, Cursor, EndpointState

log = logging.getLogger(__name__)

_CONTRADICTIONS = 3  # consecutive polls with contradictory answers before another endpoint is used
_LEAST_BETWEEN_POLLS_S = 0.02
_IDLE_POLL_S = 30.0  # shortest interval of polls while no monitor is active
_ANNOUNCED_POLLS = 2  # factor of the polling interval while a subscription announces all blocks
_ANNOUNCED_S = (0.1, 0.2, 0.4, 0.8)  # pauses between polls for an announced block
_LAGGING_POLLS = 10  # polls after a lag during which the endpoint is expected to lag again
_STORE_FAILED_S = 0.5  # shortest pause after an error of the store
_NO_CHAIN_S = 10.0  # duration of failed polls before the health condition is raised


class HeadTracker:
    """Polls the chain, and updates blocks, cursors and the chain's state.

    Attributes:
        subscription: announces new blocks; None without the setting `websocket`.
        transactions: hashes of the transactions in new blocks; its reader empties the set.
    """

    def __init__(self, host: Host, follower: Follower, progress: Progress) -> None:
        self._host = host
        self._chain = host.chain
        self._client = host.client
        self._store = host.store
        self._follower = follower
        self._progress = progress
        self.transactions: set[str] = set()
        self._due = 0.0  # time of the next poll, by `time.monotonic`
        self._hurried = asyncio.Event()
        self._polled_at = 0.0
        self._lone_head: Header | None = None  # result of the last poll without a monitor
        self._failing_since: float | None = None  # start of the consecutive failed polls
        self._contradictions = 0  # polls with contradictory answers since the last success
        self._tagged = -1  # number of the newest block that has the chain's `block_tag`
        self._polls_for_announced = 0  # consecutive polls that did not find the announced block
        self._lagging_polls = 0  # further polls during which a node of an endpoint may lag
        self.subscription: HeadSubscription | None = None
        if host.chain.websocket is not None:
            # Several announcements within a short time cause only one poll.
            self.subscription = HeadSubscription(
                host.chain,
                host.client.redacted,
                lambda: self.poll_within(
                    self._polled_at + _LEAST_BETWEEN_POLLS_S - time.monotonic()
                ),
            )

    @property
    def confirmed(self) -> int:
        """The newest block that has enough confirmations and the `block_tag`."""
        return self._confirmed_below(self._follower.newest)

    def _confirmed_below(self, newest: int) -> int:
        counted = newest - self._chain.confirmations
        return counted if self._chain.block_tag == LATEST else min(counted, self._tagged)

    @property
    def _newest(self) -> int:
        """The newest block that the last poll has found."""
        lone = None if self._progress.watches else self._lone_head
        return self._follower.newest if lone is None else lone.number

    @property
    def poll_s(self) -> float:
        """The interval of polls while a monitor is active."""
        return self._chain.poll_ms / 1_000

    @property
    def due(self) -> float:
        """The time of the next poll, by `time.monotonic`."""
        return self._due

    def poll_within(self, wait_s: float) -> None:
        """Poll again in `wait_s` seconds at the latest."""
        self._due = min(self._due, time.monotonic() + wait_s)
        self._hurried.set()

    async def run(self, before_poll: Callable[[], None], after_poll: Callable[[], None]) -> None:
        """Poll the chain whenever a poll is due, until cancelled.

        Args:
            before_poll: called before each poll.
            after_poll: called after each poll.
        """
        while True:
            self._hurried.clear()
            wait_s = self._due - time.monotonic()
            if wait_s > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._hurried.wait()
                continue
            before_poll()
            try:
                await self.poll()
            except StoreError as error:
                log.error("chain %s: %s", self._chain.name, error)
                self._due = time.monotonic() + max(self.poll_s, _STORE_FAILED_S)
            after_poll()

    async def poll(self) -> None:
        """Request the head, and process new blocks and reorganisations.

        Failures of endpoints are recorded in the chain's state.

        Raises:
            StoreError: the blocks cannot be stored.
        """
        active = any(not watch.monitor.paused for watch in self._progress.watches.values())
        self._polled_at = time.monotonic()
        self._due = self._polled_at + (self.poll_s if active else max(self.poll_s, _IDLE_POLL_S))
        error = ""
        try:
            if self._progress.watches:
                self._apply(await self._step())
            else:
                await self._poll_head()
            if self.subscription is not None:
                self._compare(self.subscription)
            if self._chain.block_tag != LATEST:
                await self._update_tagged()
        except CHAIN_FAILURES as failure:
            error = describe(failure)
            self._failed(failure, error)
        else:
            if self._failing_since is not None:  # the chain answers again: end all pauses
                for watch in self._progress.watches.values():
                    watch.paused_until = 0.0
            self._failing_since, self._contradictions = None, 0
            self._host.health.clear(NO_CHAIN)
        endpoints = [
            EndpointState(e.name, e.head, e.failures, e.reason) for e in self._client.status()
        ]
        websocket = "" if self.subscription is None else self.subscription.reason or OK
        confirmed = self._confirmed_below(self._newest)
        self._progress.update_state(
            error=error, endpoints=endpoints, confirmed=confirmed, websocket=websocket
        )

    async def _poll_head(self) -> None:
        """Request only the head, because without monitors the blocks below it are not needed.

        When the first monitor is added, the follower finds a gap below the head and fills it, as
        after a start.

        Raises:
            ChainUnavailableError, RpcError: see `ChainClient.head`.
        """
        before, shown = self._lone_head, self._progress.state.head
        self._lone_head = head = await self._client.head(
            lambda found: before is not None and before.hash in (found.hash, found.parent)
        )
        # A lower head comes from a lagging node; a much lower one from a chain that was restarted
        # from its first block.
        if head.number > shown or head.number < shown - self._follower.depth:
            self._progress.update_state(head=head.number, head_ms=clock.now_ms())

    async def _step(self) -> Step:
        """Request the head and the blocks below it.

        Several nodes may share an endpoint's address, and some may lag. If the answer comes from
        a lagging node, the next poll comes sooner, because another node may answer it.

        Raises:
            ChainUnavailableError, RpcError, MalformedAnswerError: see `Follower.poll`.
        """
        try:
            step = await self._follower.poll(self._client)
        except IncompleteAnswerError:
            self._poll_past_lag(lags=True, moved=False)
            raise
        self._poll_past_lag(step.lags, bool(step.added))
        return step

    def _poll_past_lag(self, lags: bool, moved: bool) -> None:
        self._lagging_polls = _LAGGING_POLLS if lags else max(0, self._lagging_polls - 1)
        if lags or (self._lagging_polls > 0 and not moved):
            self._due -= (self._due - self._polled_at) / 2

    def _compare(self, subscription: HeadSubscription) -> None:
        """Compare the newest block with the announcements, and schedule the next poll."""
        newest = self._newest
        subscription.compare(newest)
        # Polls are still needed for blocks that are not announced, but at a longer interval.
        if subscription.is_complete(newest):
            self._due += (_ANNOUNCED_POLLS - 1) * (self._due - self._polled_at)
        if subscription.newest <= newest:
            self._polls_for_announced = 0
        elif self._polls_for_announced < len(_ANNOUNCED_S):  # the endpoint may lag a little
            self.poll_within(_ANNOUNCED_S[self._polls_for_announced])
            self._polls_for_announced += 1

    async def _update_tagged(self) -> None:
        """Request the newest block that has the chain's `block_tag`.

        Raises:
            ChainUnavailableError, RpcError: see `ChainClient.call`.
            IncompleteAnswerError: no endpoint has such a block.
        """
        tag = self._chain.block_tag
        number: int = await self._client.call(
            "eth_getBlockByNumber", [tag, False], read=lambda raw: read_tagged(raw, tag)
        )
        # A final block stays final, even if the endpoint that answers now lags behind.
        self._tagged = max(self._tagged, number) if tag == FINALIZED else number

    def _failed(self, failure: Exception, error: str) -> None:
        # After a failure use the short interval, even while no monitor is active. The client
        # itself pauses endpoints that fail.
        self._due = min(self._due, self._polled_at + self.poll_s)
        self._contradictions += isinstance(failure, MalformedAnswerError)
        if self._contradictions >= _CONTRADICTIONS:
            self._contradictions = 0
            self._client.report_contradiction(error)
        if self._failing_since is None:
            self._failing_since = self._polled_at
        if time.monotonic() - self._failing_since > _NO_CHAIN_S:
            # The reason names no endpoint, because not everybody who may read the health status
            # may see the endpoints.
            self._host.health.raise_(NO_CHAIN, f"chain {self._chain.name}")
        self._progress.update_state(failures=self._progress.state.failures + 1)

    def _apply(self, step: Step) -> None:
        watches = self._progress.watches
        if step.added:
            if not self._follower.blocks or (
                step.vanished or step.added[0].number != self._follower.newest + 1
            ):
                for watch in watches.values():  # blocks may have been skipped
                    watch.look_up_again()
            rewound = self._rewound(step)
            added = {header.number: header.hash for header in step.added}
            self._store.put_blocks(hashes_to_bytes(added), (*step.vanished, *step.dropped), rewound)
            self._follower.apply(step)
            for monitor_id, cursor in rewound.items():
                watches[monitor_id].cursor = cursor
            self.transactions.update(tx for header in step.added for tx in header.transactions)
            self._progress.update_state(head=self._follower.newest, head_ms=clock.now_ms())
            if step.dropped:
                self._forget_announced()
        if step.vanished:
            self._report_reorganisation(step)

    def _rewound(self, step: Step) -> dict[int, Cursor]:
        """Return new cursors for monitors that have processed or announced removed blocks."""
        ancestor = step.ancestor
        if ancestor is None:
            return {}
        rewound = {}
        for monitor_id, watch in self._progress.watches.items():
            passed = watch.monitor.kind == CONTRACT_LOG and watch.cursor.block > ancestor
            if passed or self._progress.announced(watch, ancestor + 1):
                before = watch.cursor.rewind
                rewind = ancestor if before < 0 else min(before, ancestor)
                rewound[monitor_id] = msgspec.structs.replace(watch.cursor, rewind=rewind)
        return rewound

    def _report_reorganisation(self, step: Step) -> None:
        depth = len(step.vanished)
        log.log(
            logging.ERROR if step.lost else logging.INFO,
            "chain %s: reorganisation: %sthe last %d block(s) were removed; block %d is unchanged",
            self._chain.name,
            "at least " if step.lost else "",
            depth,
            step.ancestor,
        )
        state = self._progress.state
        self._progress.update_state(
            reorganisations=state.reorganisations + 1, deepest=max(state.deepest, depth)
        )
        self._progress.flush(now=True)

    def _forget_announced(self) -> None:
        """Delete the rows of events in blocks that are too old for a reorganisation."""
        cursors = [watch.cursor for watch in self._progress.watches.values()]
        rewinds = [cursor.rewind + 1 for cursor in cursors if cursor.rewind >= 0]
        self._store.delete_announced(min([self._follower.oldest, *rewinds]))
