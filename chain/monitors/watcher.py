"""Monitors: convert logs, transactions and block heights of a chain to events of projects.

Each monitor has a cursor: the last block whose events are answered. Monitors with the same
cursor share their requests. Recent blocks, which a reorganisation may still remove, are read
one by one by their hashes. Older blocks are read in ranges as large as the endpoint allows.
Events of recent blocks are stored before they are sent, so that they can be retracted after a
reorganisation, even if the process crashes in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from fieldbrook.actors.wire import WireEvent
from fieldbrook.chain.blocks.follower import DEPTH, Follower, Step, as_bytes, as_text
from fieldbrook.chain.blocks.log_fetcher import LogFetcher
from fieldbrook.chain.blocks.logs import Log, Mined, normal, read_mined
from fieldbrook.chain.blocks.omissions import Wanted
from fieldbrook.chain.errors import ChainError, MalformedAnswerError, RpcError
from fieldbrook.chain.monitors.events import (
    Decode,
    Submit,
    deliver,
    height_event,
    payload_of,
    removed_event,
    told_event,
)
from fieldbrook.core import clock
from fieldbrook.core.errors import ChainUnavailableError, NodeError, StoreError
from fieldbrook.core.model import CHAIN_HEIGHT, CHAIN_TX, CONTRACT_LOG, Monitor
from fieldbrook.core.settings import Chain
from fieldbrook.gateway.base import essential
from fieldbrook.observability.health import NO_CHAIN, ProcessHealth
from fieldbrook.storage.chain.store import AnnouncedEvent, ChainStore, Cursor, EndpointState
from fieldbrook.storage.registry.service import RegistryClient, RegistryReader

if TYPE_CHECKING:
    from fieldbrook.chain.rpc.client import ChainClient

log = logging.getLogger(__name__)

_TURN_S = 0.5  # interval of checks for changes of the registry
_FLUSH_S = 0.2
_STATE_S = 1.0
_REST_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_ODD_LOOKS = 3  # consecutive contradictory looks before another endpoint is asked
_LEAST_BETWEEN_LOOKS_S = 0.02
_IDLE_LOOK_S = 30.0  # between looks while no monitor is active
_TIP_BLOCKS = 16  # recent blocks that are read by hash at the same time
_LOOKED_UP_AGAIN_S = 60.0
_SUBSCRIBE_AGAIN_S = 10.0
_TROUBLE = (ChainError, ChainUnavailableError)
_NO_CHAIN_S = 10.0  # time of failed looks before the health condition is raised


class Host(Protocol):
    """The part of `chain.process.ChainGateway` that the service uses."""

    @property
    def chain(self) -> Chain:
        """The settings of the chain."""
        ...

    @property
    def client(self) -> ChainClient:
        """The client of the chain's endpoints."""
        ...

    @property
    def store(self) -> ChainStore:
        """The store of the chain."""
        ...

    @property
    def reader(self) -> RegistryReader:
        """Reads the monitors in the registry."""
        ...

    @property
    def registry(self) -> RegistryClient:
        """Sends commands to the registry."""
        ...

    @property
    def health(self) -> ProcessHealth:
        """Receives health conditions."""
        ...

    def submit(self, project_id: int, event: WireEvent, settle: Any) -> None:
        """Send an event to a project."""


@dataclass(slots=True)
class Watch:
    """One unfinished monitor and its progress."""

    monitor: Monitor
    cursor: Cursor
    wanted: Wanted
    decode: Decode | None = None
    task: asyncio.Task[None] | None = None
    rests_until: float = 0.0
    in_a_row: int = 0
    looked_up_at: float = float("-inf")
    mined: int | None = None

    @property
    def last(self) -> int:
        """The last block that the monitor covers."""
        return self.monitor.block_end or (1 << 63)

    def may_go_on(self, now: float) -> bool:
        """Return whether it has no task, is not paused, and its pause after a failure is over."""
        return self.task is None and not self.monitor.paused and self.rests_until <= now


@dataclass
class _Look:
    """Times of the next and the last look at the chain, and new transactions since."""

    due: float = 0.0
    at: float = 0.0
    transactions: set[str] = field(default_factory=set)


class MonitorService:
    """Runs the monitors of one chain."""

    def __init__(self, host: Host, *, depth: int = DEPTH) -> None:
        self._host = host
        self._chain = host.chain
        self._client = host.client
        self._store = host.store
        self._submit: Submit = host.submit
        self._depth = depth
        self._watches: dict[int, Watch] = {}
        self._version = -1
        self._look = _Look()
        self._wake = asyncio.Event()
        self._dirty: set[int] = set()
        self._flushed_at = self._stated_at = 0.0
        self._failing_since: float | None = None  # start of the current row of failed looks
        self._odd = 0  # looks with contradictory answers since the last success
        self._tasks: list[asyncio.Task[None]] = []

    # ---------------------------------------------------------------- life

    async def start(self) -> None:
        """Resume from the stored blocks and cursors."""
        self._follower = Follower(as_text(self._store.blocks()), depth=self._depth)
        self._logs = LogFetcher(self._chain.name, self._client, self._follower)
        self._state = self._stated = self._store.state()
        self._tasks = [essential(asyncio.create_task(self._run()))]
        if self._chain.websocket is not None:
            task = asyncio.create_task(self._subscribe(self._chain.websocket))
            self._tasks.append(essential(task))

    async def stop(self) -> None:
        """Stop, and store the cursors of the monitors."""
        tasks = [*self._tasks, *(w.task for w in self._watches.values() if w.task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(StoreError):  # work whose cursor is not stored is repeated
            self._flush(now=True)

    def gone(self, project_id: int) -> None:
        """See `chain.Service`."""
        for watch in list(self._watches.values()):
            if watch.monitor.project_id == project_id:
                self._let_go(watch)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            moved = False
            try:
                self._refresh()
                if time.monotonic() >= self._look.due:
                    await self._look_at_chain()
                if self._follower.blocks:
                    moved = await self._advance()
                self._flush()
            except StoreError as error:
                log.error("chain %s: %s", self._chain.name, error)
                await asyncio.sleep(_TURN_S)
            if moved:
                await asyncio.sleep(0)
            else:
                await self._pause()

    async def _pause(self) -> None:
        wait_s = min(_TURN_S, max(0.005, self._look.due - time.monotonic()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._wake.wait()

    async def _subscribe(self, url: str) -> None:
        """Look at the chain as soon as the endpoint announces a new block."""
        from fieldbrook.chain.rpc.transport import TransportError, WebSocketTransport

        def notified(_params: Any) -> None:
            # Announcements in quick succession cause one look together.
            self._look.due = min(self._look.due, self._look.at + _LEAST_BETWEEN_LOOKS_S)
            self._wake.set()

        while True:
            transport = WebSocketTransport(url, notified)
            try:
                answer = await transport.request("eth_subscribe", ["newHeads"])
                if "result" in answer:
                    notified(None)  # blocks since the last look are not announced
                    await transport.closed()
            except TransportError as error:
                log.info("chain %s: no subscription: %s", self._chain.name, error)
            finally:
                await transport.close()
            await asyncio.sleep(_SUBSCRIBE_AGAIN_S)

    # ---------------------------------------------------------------- what is watched

    def _refresh(self) -> None:
        """Update the watched monitors if the registry has changed."""
        version = self._host.reader.version()
        if version == self._version:
            return
        monitors = {
            monitor.monitor_id: monitor
            for monitor in self._host.reader.monitors_of_chain(self._chain.id)
        }
        gone = self._version < 0
        for watch in list(self._watches.values()):
            now = monitors.get(watch.monitor.monitor_id)
            if now is None or now.finished:
                self._let_go(watch)
                gone = True
            elif now != watch.monitor:
                watch.monitor = now
                if now.paused and watch.task is not None:
                    watch.task.cancel()
        for monitor in monitors.values():
            if not monitor.finished and monitor.monitor_id not in self._watches:
                self._watches[monitor.monitor_id] = self._watch(monitor)
                self._look.due = min(self._look.due, time.monotonic() + self._poll_s)
        if gone:
            self._store.delete_other_monitors(monitors)
        self._version = version

    def _watch(self, monitor: Monitor) -> Watch:
        cursor = self._store.cursor(monitor.monitor_id)
        if cursor is None:
            cursor = Cursor(max(0, monitor.block_start) - 1, time_ms=clock.now_ms())
        topics = tuple(normal(topic) for topic in monitor.topics)
        watch = Watch(monitor, cursor, Wanted.of(normal(monitor.address), topics))
        if monitor.event_abi:
            watch.decode = _decoder(monitor)
        self._dirty.add(monitor.monitor_id)
        return watch

    def _let_go(self, watch: Watch) -> None:
        self._watches.pop(watch.monitor.monitor_id, None)
        self._dirty.discard(watch.monitor.monitor_id)
        if watch.task is not None:
            watch.task.cancel()

    # ---------------------------------------------------------------- the newest blocks

    @property
    def _poll_s(self) -> float:
        return self._chain.poll_ms / 1_000

    @property
    def _safe(self) -> int:
        """The newest block with enough confirmations."""
        return self._follower.newest - self._chain.confirmations

    async def _look_at_chain(self) -> None:
        """Ask for the head, and process new blocks and reorganisations."""
        watched = any(not watch.monitor.paused for watch in self._watches.values())
        self._look.at = time.monotonic()
        self._look.due = self._look.at + (
            self._poll_s if watched else max(self._poll_s, _IDLE_LOOK_S)
        )
        try:
            step = await self._follower.look(self._client)
            error = ""
        except _TROUBLE as failure:
            error = _why(failure)
            # After a failure look again soon, even while no monitor is active: the client
            # decides how long an endpoint is skipped.
            self._look.due = self._look.at + self._poll_s
            self._odd += isinstance(failure, MalformedAnswerError)
            if self._odd >= _ODD_LOOKS:
                self._odd = 0
                self._client.report_contradiction(error)
            if self._failing_since is None:
                self._failing_since = self._look.at
            if time.monotonic() - self._failing_since > _NO_CHAIN_S:
                # The reason names no endpoint: readers of the health status may not see them.
                self._host.health.raise_(NO_CHAIN, f"chain {self._chain.name}")
            self._state = msgspec.structs.replace(self._state, failures=self._state.failures + 1)
        else:
            if self._failing_since is not None:
                self._wake_up()
            self._failing_since, self._odd = None, 0
            self._host.health.clear(NO_CHAIN)
            self._take(step)
        endpoints = [
            EndpointState(e.name, e.head, e.failures, e.reason) for e in self._client.status()
        ]
        self._state = msgspec.structs.replace(self._state, error=error, endpoints=endpoints)

    def _wake_up(self) -> None:
        """End all pauses of monitors, because the chain answers again."""
        for watch in self._watches.values():
            watch.rests_until = 0.0

    def _take(self, step: Step) -> None:
        if step.added:
            if not self._follower.blocks or (
                step.vanished or step.added[0].number != self._follower.newest + 1
            ):
                for watch in self._watches.values():  # blocks may have been skipped
                    watch.looked_up_at, watch.mined = float("-inf"), None
            rewound = self._rewound(step)
            added = {header.number: header.hash for header in step.added}
            self._store.put_blocks(as_bytes(added), (*step.vanished, *step.dropped), rewound)
            self._follower.apply(step)
            for monitor_id, cursor in rewound.items():
                self._watches[monitor_id].cursor = cursor
            self._look.transactions.update(tx for h in step.added for tx in h.transactions)
            head, head_ms = self._follower.newest, clock.now_ms()
            self._state = msgspec.structs.replace(self._state, head=head, head_ms=head_ms)
            if step.dropped:
                self._forget_told()
        if step.vanished:
            self._tell_reorganisation(step)

    def _rewound(self, step: Step) -> dict[int, Cursor]:
        """Return new cursors for monitors that processed or announced vanished blocks."""
        ancestor = step.ancestor
        if ancestor is None:
            return {}
        rewound = {}
        for monitor_id, watch in self._watches.items():
            passed = watch.monitor.kind == CONTRACT_LOG and watch.cursor.block > ancestor
            if passed or self._standing(watch, ancestor + 1):
                before = watch.cursor.rewind
                rewind = ancestor if before < 0 else min(before, ancestor)
                rewound[monitor_id] = msgspec.structs.replace(watch.cursor, rewind=rewind)
        return rewound

    def _standing(self, watch: Watch, from_block: int = 0) -> list[AnnouncedEvent]:
        """Return what was announced to a monitor's project from a block on and not retracted."""
        told = self._store.announced(watch.monitor.monitor_id, from_block)
        return [row for row in told if not row.removed]

    def _tell_reorganisation(self, step: Step) -> None:
        deep = len(step.vanished)
        say = log.error if step.lost else log.info
        say(
            "chain %s: reorganised, %sthe last %d block(s) vanished; as it was is block %d",
            self._chain.name,
            "at least " if step.lost else "",
            deep,
            step.ancestor,
        )
        self._state = msgspec.structs.replace(
            self._state,
            reorganisations=self._state.reorganisations + 1,
            deepest=max(self._state.deepest, deep),
        )
        self._flush(now=True)

    def _forget_told(self) -> None:
        rewinds = [w.cursor.rewind for w in self._watches.values() if w.cursor.rewind >= 0]
        self._store.delete_announced(min([self._follower.oldest, *(r + 1 for r in rewinds)]))

    # ---------------------------------------------------------------- going on

    async def _advance(self) -> bool:
        """Advance every monitor that is ready; returns whether any progress was made."""
        now = time.monotonic()
        ready = [watch for watch in self._watches.values() if watch.may_go_on(now)]
        moved = False
        logs, transactions = [], []
        for watch in ready:
            if watch.monitor.kind == CHAIN_HEIGHT:
                moved |= self._go_on_height(watch)
            elif watch.cursor.rewind >= 0:
                self._begin(watch, partial(self._take_back, watch))
            elif self._has_told_all(watch):
                self._begin(watch, partial(self._finish, watch))
            elif watch.monitor.kind == CHAIN_TX and not watch.cursor.stands:
                transactions.append(watch)
            elif watch.monitor.kind == CONTRACT_LOG and watch.cursor.block < min(
                watch.last, self._safe
            ):
                logs.append(watch)
        moved |= await self._go_on_transactions(transactions, now)
        return await self._go_on_logs(logs) or moved

    def _has_told_all(self, watch: Watch) -> bool:
        """Return whether a monitor is complete and its last block is too deep to vanish."""
        if watch.monitor.kind == CHAIN_TX:
            return watch.cursor.stands and watch.cursor.block < self._follower.oldest
        return watch.cursor.block >= watch.last < self._follower.oldest

    async def _go_on_logs(self, watches: Sequence[Watch]) -> bool:
        """Read the next blocks for groups of monitors with the same cursor.

        Every group at recent blocks is served; of the groups at older blocks only the one that
        is furthest behind.
        """
        groups = defaultdict(list)
        for watch in watches:
            groups[watch.cursor.block].append(watch)
        stands = sorted(groups)
        moved = False
        for at, block in enumerate(stands):
            following = stands[at + 1] if at + 1 < len(stands) else self._safe
            group = groups[block]
            end = min(self._safe, following, *(watch.last for watch in group))
            if block + 1 >= self._follower.oldest:
                moved |= await self._read(group, block + 1, min(end, block + _TIP_BLOCKS))
            elif at == 0:
                end = min(end, self._follower.oldest - 1, block + self._logs.range_size)
                moved |= await self._read(group, block + 1, end)
        return moved

    async def _read(self, group: Sequence[Watch], first: int, last: int) -> bool:
        """Read blocks for a group of monitors and send each its logs; False after a failure."""
        wanted = [watch.wanted for watch in group]
        try:
            if first >= self._follower.oldest:
                logs = await self._logs.fetch_recent(wanted, first, last)
            else:
                found = await self._logs.fetch_range(wanted, first, last)
                if found is None:
                    return True
                logs = found
        except _TROUBLE as failure:
            for watch in group:
                self._rest(watch, _why(failure))
            return False
        rows = {watch.monitor.monitor_id: self._rows(watch, logs, first) for watch in group}
        if first >= self._follower.oldest:
            self._store.announce({monitor_id: r for monitor_id, r in rows.items() if r})
        for watch in group:
            if found_rows := rows[watch.monitor.monitor_id]:
                self._begin(watch, partial(self._tell, watch, found_rows, last))
            else:
                self._stand(watch, last)
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

    async def _tell(self, watch: Watch, rows: Sequence[AnnouncedEvent], last: int) -> None:
        await self._deliver(watch, [told_event(watch.monitor, row) for row in rows])
        self._stand(watch, last, len(rows))

    async def _take_back(self, watch: Watch) -> None:
        """Retract the events of vanished blocks, the newest first."""
        rewind = watch.cursor.rewind
        rows = self._standing(watch, rewind + 1)
        # Events beyond the cursor may not have been sent before a crash. They are sent first,
        # so that every retraction follows its event.
        unsure = [told_event(watch.monitor, r) for r in rows if r.block > watch.cursor.block]
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
        self._store.retract(watch.monitor.monitor_id, rows, watch.cursor)
        watch.looked_up_at, watch.mined = float("-inf"), None  # another block may include the tx

    # ---------------------------------------------------------------- transactions, heights

    async def _go_on_transactions(self, watches: Sequence[Watch], now: float) -> bool:
        """Look up the watched transactions that a block may include by now."""
        new, self._look.transactions = self._look.transactions, set()
        due = [
            watch
            for watch in watches
            if now - watch.looked_up_at > _LOOKED_UP_AGAIN_S
            or normal(watch.monitor.tx_hash) in new
            or (watch.mined is not None and watch.mined <= self._safe)
        ]
        found = await asyncio.gather(*(self._look_up(watch) for watch in due))
        return any(found)

    async def _look_up(self, watch: Watch) -> bool:
        monitor = watch.monitor
        try:
            announced = self._standing(watch)
            row = announced[0] if announced else await self._mined(watch)
            if row is None:
                return False
        except _TROUBLE as failure:
            self._rest(watch, _why(failure))
            return False
        self._store.announce({monitor.monitor_id: [row]})
        self._begin(watch, partial(self._tell, watch, [row], row.block))
        return True

    async def _mined(self, watch: Watch) -> AnnouncedEvent | None:
        """Look up a monitor's transaction; None until its block has enough confirmations."""
        tx_hash = normal(watch.monitor.tx_hash)
        found: Mined | None = await self._client.call(
            "eth_getTransactionByHash",
            [tx_hash],
            checked=True,
            read=lambda raw: read_mined(raw, tx_hash),
        )
        watch.looked_up_at, watch.mined = time.monotonic(), None
        if found is None:
            return None
        watch.mined = found.block
        followed = self._follower.blocks.get(found.block, found.block_hash)
        if found.block > self._safe or followed != found.block_hash:
            return None
        block_hash = bytes.fromhex(found.block_hash[2:])
        row = AnnouncedEvent(found.block, block_hash, found.index, found.payload)
        for before in self._store.announced(watch.monitor.monitor_id, row.block):
            if (before.block_hash, before.index) == (block_hash, found.index):
                # The block came back: its event gets a new id, because `round` has changed.
                return msgspec.structs.replace(before, removed=False)
        return row

    def _go_on_height(self, watch: Watch) -> bool:
        height = watch.monitor.height
        if self._safe < height:
            return False
        self._begin(watch, partial(self._tell_height, watch))
        return True

    async def _tell_height(self, watch: Watch) -> None:
        if not watch.cursor.events:
            await self._deliver(watch, [height_event(watch.monitor)])
            self._stand(watch, watch.monitor.height, 1)
        await self._finish(watch)

    # ---------------------------------------------------------------- one monitor

    def _begin(self, watch: Watch, work: Callable[[], Awaitable[None]]) -> None:
        watch.task = asyncio.create_task(self._do(watch, work))

    async def _do(self, watch: Watch, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
            watch.in_a_row = 0
        except NodeError as error:
            self._rest(watch, str(error))
        except Exception:
            log.exception("monitor %d failed", watch.monitor.monitor_id)
            self._rest(watch, "the node failed; its log says how")
        finally:
            watch.task = None
            self._wake.set()

    async def _deliver(self, watch: Watch, events: Sequence[WireEvent]) -> None:
        def on_refusal(reason: str) -> None:
            failures = watch.cursor.failures + 1
            self._change(watch, error=reason, failures=failures)

        await deliver(self._submit, watch.monitor.project_id, events, on_refusal)
        self._state = msgspec.structs.replace(self._state, events=self._state.events + len(events))

    async def _finish(self, watch: Watch) -> None:
        """Mark a complete monitor as finished in the registry."""
        self._flush(now=True)
        await self._host.registry.call(
            "finish_monitor",
            monitor_id=watch.monitor.monitor_id,
            block_current=watch.cursor.block + 1,
        )

    def _stand(self, watch: Watch, block: int, events: int = 0) -> None:
        """Move a monitor's cursor to a block up to which its events are answered."""
        self._change(
            watch,
            block=max(block, watch.cursor.block),
            block_hash=self._hash(block),
            events=watch.cursor.events + events,
            error="",
        )

    def _rest(self, watch: Watch, reason: str) -> None:
        """Pause a monitor after a failure, longer after each one in a row."""
        rest_s = _REST_S[min(watch.in_a_row, len(_REST_S) - 1)]
        watch.in_a_row += 1
        watch.rests_until = time.monotonic() + rest_s
        self._change(watch, error=reason, failures=watch.cursor.failures + 1)

    def _change(self, watch: Watch, **fields: Any) -> None:
        watch.cursor = msgspec.structs.replace(watch.cursor, time_ms=clock.now_ms(), **fields)
        if watch.monitor.monitor_id in self._watches:
            self._dirty.add(watch.monitor.monitor_id)

    def _hash(self, block: int) -> bytes:
        text = self._follower.blocks.get(block, "0x")
        return bytes.fromhex(text[2:])

    def _flush(self, *, now: bool = False) -> None:
        """Store changed cursors and state at intervals; a crash only repeats work not stored."""
        time_s = time.monotonic()
        if self._dirty and (now or time_s - self._flushed_at > _FLUSH_S):
            self._store.put_cursors({n: self._watches[n].cursor for n in self._dirty})
            self._dirty.clear()
            self._flushed_at = time_s
        if self._state != self._stated and (now or time_s - self._stated_at > _STATE_S):
            self._store.put_state(self._state)
            self._stated, self._stated_at = self._state, time_s


def _why(failure: Exception) -> str:
    """Describe a failure of the endpoints."""
    match failure:
        case RpcError():
            return f"an endpoint refused it: {failure.text}"
        case MalformedAnswerError():
            return f"an endpoint's answer: {failure}"
    return str(failure)


def _decoder(monitor: Monitor) -> Decode | None:
    """Make the decoder of a monitor's logs; None if its event declaration is unusable."""
    from fieldbrook.chain.blocks.decode import make_decoder

    try:
        return make_decoder(monitor.event_abi)
    except Exception:
        log.exception("monitor %d: its declaration cannot be used", monitor.monitor_id)
        return None
