"""Broadcaster: sends committed transactions and watches them until their blocks are final.

Every signature is stored before it is sent, so that the same bytes are sent again after a crash. A
transaction is signed again in only three cases:

* No block includes it: with the same nonce and higher fees.
* It is cancelled: an empty transaction with the same nonce.
* A foreign transaction has used its nonce, and that block is final: with another nonce.

A refused transaction blocks only the later transactions of its account. It is retried with growing
pauses, and cancelled if the chain can never include it.

A transaction with enough confirmations is reported to its project, but is still watched until its
block is final. If a reorganisation removes the block, the same bytes are sent again. Each round
also compares the chain's nonce count of each account with the nonces that the node has used.
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
from fieldbrook.chain.transactions.broadcast.outcomes import RECEIPTS_AT_ONCE, Outcomes
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
_LEAST_WATCH_S = 1.0  # least interval of rounds while transactions are only watched
_STATES = 120  # the number of recent blocks of which every endpoint keeps the state
_LAGS_BLOCKS = 8  # how far nodes that share an endpoint's address may lag behind each other
_TURN_S = 5.0  # time limit of an account's look-ups in a round
_CONCURRENT_ACCOUNTS = 4


class Broadcaster:
    """Sends transactions to the chain and follows them, in rounds.

    Args:
        chain: the settings of the chain.
        rpc: the client of the chain.
        rows: the stored transactions of the chain.
        leases: assigns nonces and opens keys.
        finished: called with each transaction that is confirmed or failed.
        restored: returns whether the data was restored from a backup, so that no transaction may
            be sent yet.
        health: receives a condition while a transaction is stuck.
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
        # Held by a round or a management command, so that only one of them changes transactions.
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
                    log.warning(
                        "chain %s: transactions wait for its endpoints: %s", self._chain.name, error
                    )
                self._down = True
            except NodeError as error:
                log.error("chain %s: a round of transactions failed: %s", self._chain.name, error)
            try:
                async with asyncio.timeout(self._idle_s()):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _idle_s(self) -> float | None:
        """Return the time until the next round; None if only `wake` starts one."""
        poll_s = self._chain.poll_ms / 1_000
        if self._rows.committed():
            return poll_s
        return max(_LEAST_WATCH_S, poll_s) if self._rows.stored.watched else None

    async def round(self) -> None:
        """Take every unfinished transaction one step further.

        Raises:
            ChainUnavailableError, RpcError: no endpoint returned the chain's state.
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
            # Search for removed blocks last, so that no transaction waits for these requests. The
            # next round sends the transactions of removed blocks again.
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
        """Process several accounts at a time. A failure does not affect the other accounts.

        Returns:
            The failures; errors of the store come first.
        """
        failures: list[NodeError | RpcError] = []
        slots = asyncio.Semaphore(_CONCURRENT_ACCOUNTS)

        async def process(sender: str) -> None:
            async with slots:
                try:
                    await self._account(sender, head, parked)
                except (NodeError, RpcError) as error:
                    failures.append(error)

        await gather_or_cancel(*map(process, senders))
        return sorted(failures, key=lambda error: not isinstance(error, StoreError))

    async def _counted(self, head: int) -> int:
        """Return the newest block whose transactions are confirmed.

        The block has enough confirmations and the chain's `block_tag`. The result is -1 if no
        endpoint knows a block with that tag. Then transactions are sent, but none is confirmed;
        the state of the chain shows the reason (`chain.monitors.head`).
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
            f"{behind} wait for it; to list all stuck ones: fieldbrook tx list --stuck",
        )

    async def cancel(self, transaction_id: int) -> None:
        """Cancel a transaction by signing an empty transaction with the same nonce.

        A block includes only one of the two, and this one decides the outcome.

        Raises:
            TransactionRefusedError: a block already includes the transaction, or it is finished.
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

        If it was refused for a reason other than its fees, send the same signature again at once
        instead.

        Raises:
            TransactionRefusedError: a block already includes the transaction, it is finished, or
                the cap does not allow higher fees.
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

        The transactions with the next nonces are sent first, because a block must include them
        before all later ones. Reading the receipts of earlier ones from an endpoint that limits
        requests may take longer than `_TURN_S`.
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
        except (ChainUnavailableError, RpcError) as error:  # receipts may still be readable
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
        """Return the transactions that no block includes, at most one for each nonce.

        Two transactions have the same nonce if a lease was dropped and its nonce was used again,
        although the lease's event was committed. The second one gets another nonce after a
        block includes the first one.
        """
        found: dict[int, Transaction] = {}
        for row in rows:
            if row.state in (INIT, PENDING) and found.setdefault(row.nonce, row) is not row:
                self._rows.update(
                    row, reason=f"another transaction of the node also has nonce {row.nonce}"
                )
        return list(found.values())

    async def _look_up(
        self, rows: Sequence[Transaction], counted: int, head: int, ends_at: float
    ) -> ChainUnavailableError | RpcError | None:
        """Look up and record which blocks include the transactions of an account.

        After `ends_at` (time of the event loop) the rest is left for the next round, because other
        accounts and commands wait.

        Returns:
            The reason why some transactions could not be looked up; None if all could.
        """

        def is_due(row: Transaction) -> bool:
            if row.state == IN_BLOCK:
                return row.block_number <= self._outcomes.counted
            return row.nonce < counted

        due = list(filter(is_due, rows))
        for first in range(0, len(due), RECEIPTS_AT_ONCE):
            if first and asyncio.get_running_loop().time() > ends_at:
                self.wake()
                return None
            some = due[first : first + RECEIPTS_AT_ONCE]
            found, failure = await self._outcomes.receipts(some)
            for row in some:
                if (receipt := found.get(row.transaction_id)) is not None:
                    await self._outcomes.record(row, receipt, head)
                elif row.transaction_id in found and row.state in (INIT, PENDING):
                    await self._resolve_used_nonce(row, head)
            if failure is not None:
                return failure
        return None

    # ---------------------------------------------------------------- used nonces

    async def _resolve_used_nonce(self, row: Transaction, head: int) -> None:
        """Handle a transaction whose nonce another transaction has used.

        Wait until the block that used the nonce is final, or as deep as endpoints keep states. If a
        reorganisation removed that block after a new signature was sent, the chain could include
        both signatures. After the wait, a cancellation is finished as failed. Any other
        transaction is signed with another nonce.
        """
        depth = max(_LAGS_BLOCKS, self._chain.confirmations, min(self._chain.finality, _STATES))
        params = [row.sender, hex(max(0, head - depth))]
        try:
            settled = await self._rpc.call("eth_getTransactionCount", params, read=quantity)
        except RpcError as error:
            log.info(
                "transaction %s: another one used its nonce; whether that block is final is "
                "unknown: %s",
                *(row.name, error),
            )
            return
        if settled <= row.nonce:
            return
        # The receipts were read from a single endpoint, and before the nonce count. Now ask all
        # endpoints.
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
                log.warning("transaction %s: another one used its nonce, and %s", row.name, error)
            self._rows.update(row, reason=str(error), refused_at=row.refused_at or self._clock())


def _turn(row: Transaction) -> tuple[int, bool, int]:
    """Sort key for the transactions of an account: nonce, then sent before unsent, then id."""
    return row.nonce, not row.sent_at, row.transaction_id
