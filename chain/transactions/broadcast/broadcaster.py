"""Broadcaster: sends committed transactions and watches them until their blocks are final.

Every signature is stored before it is sent, so that the same bytes are sent again after a
crash. A transaction is signed again in three cases only: with higher fees and the same nonce
when no block includes it, with the same nonce to cancel it, and with another nonce when a
foreign transaction has used its nonce for good.

A refused transaction blocks only the later ones of its account. It is retried with growing
pauses, and cancelled if the chain can never include it.

A transaction that has its confirmations is reported to its project, but watched further. If a
reorganisation removes its block, the same bytes are sent again. Each round also compares how many
nonces of each account the chain counts with how many were used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

import msgspec

from fieldbrook.chain.concurrency import gather_or_cancel
from fieldbrook.chain.errors import MalformedAnswerError, RpcError
from fieldbrook.chain.rpc.answers import quantity, read_tagged
from fieldbrook.chain.rpc.refusals import classify_rejection
from fieldbrook.chain.transaction import TransactionRefusedError
from fieldbrook.chain.transactions.broadcast.finality import Blocks
from fieldbrook.chain.transactions.broadcast.gaps import Gaps
from fieldbrook.chain.transactions.broadcast.outcomes import RECEIPTS_TOGETHER, Outcomes
from fieldbrook.chain.transactions.broadcast.refusals import Refusals
from fieldbrook.chain.transactions.broadcast.replacements import Replacements
from fieldbrook.chain.transactions.broadcast.rows import Rows
from fieldbrook.chain.transactions.broadcast.submissions import Submissions
from fieldbrook.chain.transactions.chain_state import EachRpc
from fieldbrook.chain.transactions.nonces import Leases
from fieldbrook.core.clock import Clock, now_ms
from fieldbrook.core.errors import ChainUnavailableError, NodeError, StoreError
from fieldbrook.core.settings import Chain
from fieldbrook.core.settings.chain import LATEST
from fieldbrook.observability import metrics
from fieldbrook.observability.health import NONCES_DIFFER, STUCK_TRANSACTIONS, ProcessHealth
from fieldbrook.storage.chain.transactions import (
    FAILED,
    IN_BLOCK,
    INIT,
    PENDING,
    Transaction,
    TransactionWriter,
)

log = logging.getLogger(__name__)

CANCELLED = "cancelled by an administrator"
_LEAST_WATCH_S = 1.0  # between rounds while nothing is under way
_STATES = 120  # blocks; endpoints keep the state of so many
_LAGS_BLOCKS = 8  # nodes behind one address may lack so many blocks that others of them have
_TURN_S = 5.0  # of one account in a round
_ACCOUNTS_TOGETHER = 4


class Broadcaster:
    """Sends transactions to the chain and follows them, in rounds.

    Args:
        chain: the settings of the chain.
        rpc: the client of the chain.
        rows: the stored transactions of the chain.
        leases: assigns nonces and opens keys.
        finished: is called with each transaction that is confirmed or failed.
        restored: whether the data was restored from a backup and nothing may be sent yet.
        health: gets a condition while a transaction is stuck.
        clock: returns Unix milliseconds.

    Attributes:
        spans: see `Submissions`.
    """

    def __init__(
        self,
        chain: Chain,
        rpc: EachRpc,
        rows: TransactionWriter,
        leases: Leases,
        finished: Callable[[Transaction], None],
        restored: Callable[[], bool] = lambda: False,
        health: ProcessHealth | None = None,
        clock: Clock = now_ms,
    ) -> None:
        self._chain = chain
        self._rpc = rpc
        self._rows = Rows(rows, clock)
        self._refusals = Refusals(clock)
        self._replacements = Replacements(chain, self._rows, leases, clock)
        self._outcomes = Outcomes(chain, rpc, self._rows, self._refusals, finished, clock)
        self._gaps = Gaps(self._rows, self._outcomes, clock)
        self._blocks = Blocks(rpc, clock)
        self._submissions = Submissions(
            *(chain, rpc, self._rows, self._refusals, self._replacements),
            *(self._gaps, leases.chain_state, clock),
        )
        self.spans = self._submissions.spans
        self._restored = restored
        self._health = health or ProcessHealth()
        self._clock = clock
        self._wake = asyncio.Event()
        self._down = False
        # Rounds and commands exclude each other, so that no transaction changes within a step.
        self._stepping = asyncio.Lock()

    def wake(self) -> None:
        """Start the next round now."""
        self._wake.set()

    async def run(self) -> None:
        """Run rounds until cancelled."""
        while True:
            self._wake.clear()
            try:
                await self.round()
                self._down = False
            except (ChainUnavailableError, RpcError) as error:
                if not self._down:
                    log.warning("transactions of chain %s wait: %s", self._chain.name, error)
                self._down = True
            except NodeError as error:
                log.error("transactions of chain %s: %s", self._chain.name, error)
            try:
                async with asyncio.timeout(self._idle_s()):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _idle_s(self) -> float | None:
        """Return the time until the next round; None if only `wake` begins one."""
        poll_s = self._chain.poll_ms / 1_000
        if self._rows.committed():
            return poll_s
        return max(_LEAST_WATCH_S, poll_s) if self._rows.stored.watched else None

    async def round(self) -> None:
        """Take every unfinished transaction one step further.

        Raises:
            ChainUnavailableError, RpcError: no endpoint gave the chain's state.
            StoreError: a step could not be stored; its transaction is unchanged.
        """
        async with self._stepping:
            await self._round()

    async def _round(self) -> None:
        failures: list[NodeError | RpcError] = []
        senders: list[str] = []
        if self._rows.committed() or self._rows.stored.watched:
            newest = await self._rpc.call("eth_blockNumber", [], read=quantity)
            head = self._blocks.highest(newest)
            if self._rows.committed():
                self._outcomes.counted = await self._counted(head)
            parked = self._rows.stored.parked or self._restored()
            rows = [*self._rows.committed(), *self._rows.stored.watched.values()]
            senders = list(dict.fromkeys(row.sender for row in rows))
            failures = await self._all_accounts(senders, head, parked)
            # Last, because nothing should wait for these requests; the next round sends again.
            included, counts = self._rows.included(), self._gaps.counts
            doubted = [row for row in included if row.mined and not counts.has_counted(row)]
            for row in await self._blocks.vanished(included, head, doubted):
                self._outcomes.vanish(self._rows.current(row))
                self.wake()
            self._end_watches(head)
            self._submissions.keep_only(self._rows.committed())
        self._gaps.keep_only(senders)
        self._report_health()
        if failures:
            raise failures[0]

    async def _all_accounts(
        self, senders: Sequence[str], head: int, parked: bool
    ) -> list[NodeError | RpcError]:
        """Process accounts, some at the same time; returns the failures, worst first.

        Where one fails, the others continue.
        """
        failures: list[NodeError | RpcError] = []
        some = asyncio.Semaphore(_ACCOUNTS_TOGETHER)

        async def process(sender: str) -> None:
            async with some:
                try:
                    await self._account(sender, head, parked)
                except (NodeError, RpcError) as error:
                    failures.append(error)

        await gather_or_cancel(*map(process, senders))
        return sorted(failures, key=lambda error: not isinstance(error, StoreError))

    async def _counted(self, head: int) -> int:
        """Return the newest block that counts: it has the confirmations and the `block_tag`.

        -1 if no endpoint knows a block of that tag: then transactions are sent, but none is
        confirmed. The state of the chain says why (`chain.monitors.head`).
        """
        counted, tag = head - self._chain.confirmations, self._chain.block_tag
        if tag == LATEST:
            return counted
        try:
            found = await self._rpc.call("eth_getBlockByNumber", [tag, False])
            return min(counted, read_tagged(found, tag))
        except (RpcError, MalformedAnswerError) as error:
            log.debug("chain %s: no block %s: %s", self._chain.name, tag, error)
            return -1

    def _end_watches(self, head: int) -> None:
        """End the watch of transactions whose blocks are final."""
        final = [
            msgspec.structs.replace(row, watched_since=0)
            for row in self._rows.stored.watched.values()
            if head - row.watched_since >= self._chain.finality
            and self._blocks.is_known(row)
            and row.sender not in self._gaps.counts.behind
        ]
        if final:
            self._rows.stored.put(*final)

    def _report_health(self) -> None:
        """Raise or clear the health conditions for stuck transactions and differing nonces."""
        counts, differing = self._gaps.counts, self._gaps.differing
        metrics.put(metrics.CHAIN_NONCES_MISSING, counts.missing)
        if differing:
            self._health.raise_(NONCES_DIFFER, counts.describe(differing))
        else:
            self._health.clear(NONCES_DIFFER)
        stuck = [row for row in self._rows.committed() if row.refused_at]
        if not stuck:
            self._health.clear(STUCK_TRANSACTIONS)
            return
        first = min(stuck, key=lambda row: row.refused_at)
        behind = sum(row.sender == first.sender for row in self._rows.committed()) - 1
        self._health.raise_(
            STUCK_TRANSACTIONS,
            f"{first.name}, operator {first.operator_name} ({first.sender}): {first.reason}; "
            f"{behind} wait behind it; all of them: fieldbrook tx list --stuck",
        )

    async def cancel(self, transaction_id: int) -> None:
        """Cancel a transaction by signing an empty one with the same nonce.

        The one of the two that a block includes decides the outcome.

        Raises:
            TransactionRefusedError: a block includes the transaction already, or it is finished.
        """
        async with self._stepping:
            row = self._pending(transaction_id)
            if row.last.cancels:
                return
            await self._replacements.cancel(row, CANCELLED, competes=True)
            self._refusals.clear(row.sender)
        self.wake()

    async def retry(self, transaction_id: int) -> None:
        """Sign a transaction again with higher fees.

        If it was refused for a reason other than its fees, it is only sent again at once.

        Raises:
            TransactionRefusedError: a block includes it already, it is finished, or the cap does
                not allow higher fees.
        """
        async with self._stepping:
            row = self._pending(transaction_id)
            self._refusals.clear(row.sender)
            if row.refused_at and classify_rejection(row.reason) not in ("fee", "underpriced"):
                self.wake()
                return
            if not await self._replacements.raise_fees(self._pending(transaction_id)):
                reason = f"it pays the cap already: {self._chain.max_fee_per_gas} wei per gas"
                raise TransactionRefusedError(reason)
        self.wake()

    def _pending(self, transaction_id: int) -> Transaction:
        row = self._rows.stored.unfinished.get(transaction_id)
        if row is None or row.state not in (INIT, PENDING):
            raise TransactionRefusedError(
                "a block includes the transaction already, or it is finished"
            )
        return row

    # ---------------------------------------------------------------- one account

    async def _account(self, sender: str, head: int, parked: bool) -> None:
        """Process the transactions of one account.

        The next ones are sent first: blocks can include no others before them, and receipts of
        earlier ones may take an endpoint that limits requests longer than a turn.
        """
        rows = sorted((r for r in self._rows.committed() if r.sender == sender), key=_turn)
        params = [sender, "latest"]
        counted: int = await self._rpc.call("eth_getTransactionCount", params, read=quantity)
        ends_at = asyncio.get_running_loop().time() + _TURN_S
        waiting: Sequence[Transaction] = ()
        if not parked and not self._refusals.is_paused(sender):
            waiting = self._first_of_nonces(r for r in rows if r.nonce >= counted)
        failure = None
        try:
            waiting = await self._submissions.send_next(waiting, counted, head)
        except (ChainUnavailableError, RpcError) as error:  # receipts may be had nevertheless
            waiting, failure = (), error
        failure = await self._look_up(rows, counted, head, ends_at) or failure
        if not await self._submissions.send_others(waiting, counted, head, ends_at):
            self.wake()
        if failure is not None:
            raise failure
        if gap := await self._gaps.compare(sender, counted):
            self._submissions.block(
                min(gap, key=_turn),
                f"the chain counts {counted} nonces of its account, and no transaction of the node "
                f"has nonce {counted}",
            )

    def _first_of_nonces(self, rows: Iterable[Transaction]) -> list[Transaction]:
        """Return the transactions that no block includes, one for each nonce.

        A lease may be dropped and its nonce used again, although its event was committed. The
        second transaction gets a nonce of its own once a block includes the first one.
        """
        found: dict[int, Transaction] = {}
        for row in rows:
            if row.state in (INIT, PENDING) and found.setdefault(row.nonce, row) is not row:
                self._rows.update(row, reason=f"another transaction has nonce {row.nonce} too")
        return list(found.values())

    async def _look_up(
        self, rows: Sequence[Transaction], counted: int, head: int, ends_at: float
    ) -> ChainUnavailableError | RpcError | None:
        """Look up and record which blocks include the transactions of an account.

        After `ends_at` (time of the event loop) no further group of them is looked up before the
        next round, because other accounts and commands wait for this one.

        Returns the reason why some could not be looked up.
        """

        def is_due(row: Transaction) -> bool:
            if row.state == IN_BLOCK:
                return row.block_number <= self._outcomes.counted
            return row.nonce < counted

        due = list(filter(is_due, rows))
        for first in range(0, len(due), RECEIPTS_TOGETHER):
            if first and asyncio.get_running_loop().time() > ends_at:
                self.wake()
                return None
            some = due[first : first + RECEIPTS_TOGETHER]
            found, failure = await self._outcomes.receipts(some)
            for row in some:
                if (receipt := found.get(row.transaction_id)) is not None:
                    await self._outcomes.record(row, receipt, head)
                elif row.transaction_id in found and row.state in (INIT, PENDING):
                    await self._resolve_used_nonce(row, head)
            if failure is not None:
                return failure
        return None

    # ---------------------------------------------------------------- what ends

    async def _resolve_used_nonce(self, row: Transaction, head: int) -> None:
        """Handle a transaction whose nonce another transaction has used.

        Nothing happens until the use of the nonce is final, or as deep as endpoints can tell: if it
        vanished after that, the chain could include both signatures. Then a cancellation
        is finished as failed, and any other transaction is signed with another nonce.
        """
        depth = max(_LAGS_BLOCKS, self._chain.confirmations, min(self._chain.finality, _STATES))
        params = [row.sender, hex(max(0, head - depth))]
        try:
            settled = await self._rpc.call("eth_getTransactionCount", params, read=quantity)
        except RpcError as error:
            log.info("transaction %s: its nonce is used; is that final? %s", row.name, error)
            return
        if settled <= row.nonce:
            return
        # The receipts were read before the nonce count, from one endpoint: look once more.
        if (await self._outcomes.look_up(row, head)).state not in (INIT, PENDING):
            return
        if row.last.cancels:
            self._outcomes.finish(row, FAILED, row.last.why, head)
            return
        try:
            if await self._replacements.assign_nonce(row):
                self.wake()
        except TransactionRefusedError as error:
            if not row.refused_at:
                log.warning("transaction %s: its nonce was used, and %s", row.name, error)
            self._rows.update(row, reason=str(error), refused_at=row.refused_at or self._clock())


def _turn(row: Transaction) -> tuple[int, bool, int]:
    """Sort key for the transactions of an account: nonce, then those already sent, then id."""
    return row.nonce, not row.sent_at, row.transaction_id
