"""Submissions: sends signed transactions to endpoints, and handles their refusals."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Sequence
from typing import Any

from fieldbrook.chain.errors import RpcError
from fieldbrook.chain.rpc.refusals import classify_rejection
from fieldbrook.chain.transaction import TransactionRefusedError, fees_for
from fieldbrook.chain.transactions.broadcast.gaps import Gaps
from fieldbrook.chain.transactions.broadcast.pool import Pool
from fieldbrook.chain.transactions.broadcast.refusals import Refusals
from fieldbrook.chain.transactions.broadcast.replacements import Replacements
from fieldbrook.chain.transactions.broadcast.rows import Rows
from fieldbrook.chain.transactions.chain_state import ChainState, EachRpc
from fieldbrook.core.clock import Clock
from fieldbrook.core.settings import Chain
from fieldbrook.observability import fault_points, spans
from fieldbrook.storage.chain.transactions import INIT, PENDING, Transaction

log = logging.getLogger(__name__)

_SENT_AT_ONCE = 8  # transactions of one account
_GIVEN_UP_AFTER = 3  # refusals after which a transaction that can never be valid is cancelled


class Submissions:
    """Sends transactions, checks that pools still have them, and records refusals.

    Args:
        chain: the settings of the chain.
        rpc: the client of the chain.
        rows: the stored transactions.
        refusals: pauses accounts whose next transaction was refused.
        replacements: signs transactions again.
        gaps: has the accounts that wait for a nonce that no transaction has.
        chain_state: reads the current fees of the chain.
        clock: returns Unix milliseconds.

    Attributes:
        spans: OpenTelemetry spans by transaction id. A span may end before the outbox entry with
            its trace context arrives, because a transaction may be sent earlier.
    """

    def __init__(
        self,
        chain: Chain,
        rpc: EachRpc,
        rows: Rows,
        refusals: Refusals,
        replacements: Replacements,
        gaps: Gaps,
        chain_state: ChainState,
        clock: Clock,
    ) -> None:
        self._chain = chain
        self._rpc = rpc
        self._rows = rows
        self._refusals = refusals
        self._replacements = replacements
        self._pool = Pool(rpc, clock)
        self._gaps = gaps
        self._chain_state = chain_state
        self._clock = clock
        self.spans = spans.Joined()

    def keep_only(self, rows: Sequence[Transaction]) -> None:
        """Forget the look-ups and losses of all other transactions."""
        self._pool.keep_only(rows)

    async def send_next(
        self, rows: Sequence[Transaction], counted: int, head: int
    ) -> Sequence[Transaction]:
        """Send or check the transaction with the next nonce, and send the first later ones.

        Args:
            rows: the transactions that no block includes, in the order of their nonces.
            counted: how many nonces of the account the chain counts.
            head: the newest block.

        Returns:
            The transactions that are left to send or check. None are left after a refusal,
            because a block cannot include them before the refused one.

        Raises:
            ChainUnavailableError, RpcError: a transaction could not be sent or looked up.
        """
        behind = [row for row in rows if row.nonce > counted]
        for row in rows[: len(rows) - len(behind)]:
            if not await self._push(row, head, ahead=0):
                return ()
        first = list(itertools.islice(filter(self._is_to_be_sent, behind), _SENT_AT_ONCE))
        if not await self._send_at_once(first, head):
            return ()
        taken = {row.transaction_id for row in first}
        return [row for row in behind if row.transaction_id not in taken]

    async def send_others(
        self, rows: Sequence[Transaction], counted: int, head: int, ends_at: float
    ) -> bool:
        """Send or check the transactions that `send_next` has left.

        Returns:
            False if some are left for the next round, because `ends_at` (time of the event loop)
            has come.

        Raises:
            ChainUnavailableError, RpcError: see `send_next`.
        """
        now = asyncio.get_running_loop().time
        unsent: list[Transaction] = []
        sent: list[Transaction] = []
        for row in rows:
            (unsent if self._is_to_be_sent(row) else sent).append(row)
        for at in range(0, len(unsent), _SENT_AT_ONCE):
            if now() > ends_at:
                return False
            if not await self._send_at_once(unsent[at : at + _SENT_AT_ONCE], head):
                return True
        for row in sent:
            if now() > ends_at:
                return False
            if not await self._push(row, head, ahead=row.nonce - counted):
                return True
        return True

    def _is_to_be_sent(self, row: Transaction) -> bool:
        """Return whether a transaction was not sent yet, or was lost."""
        return row.state == INIT or self._pool.is_lost(row)

    async def _send_at_once(self, rows: Sequence[Transaction], head: int) -> bool:
        """Send consecutive transactions of one account concurrently; return False after a refusal.

        Sent one by one, each would wait for the endpoint's answer to the one before. If several are
        refused, only the refusal of the first one is recorded, because the others may be refused
        only because the first one is missing.

        Raises:
            ChainUnavailableError: a transaction could not be sent. Those that were sent are
                recorded.
        """
        answers = await asyncio.gather(*map(self._offer, rows), return_exceptions=True)
        for row, answer in zip(rows, answers, strict=True):
            if answer is None:
                await self._record(row, head, None)
        for row, answer in zip(rows, answers, strict=True):
            # Record a refusal last, because each success ends the account's pause.
            if isinstance(answer, RpcError):
                try:
                    return await self._record(row, head, answer)
                except TransactionRefusedError as error:
                    return self._refuse(row, str(error))
            if answer is not None:
                raise answer
        return True

    async def _push(self, row: Transaction, head: int, *, ahead: int) -> bool:
        """Send a transaction, or check one that was sent; return False if it was refused."""
        try:
            return await self._send_or_check(row, head, ahead)
        except TransactionRefusedError as error:
            return self._refuse(row, str(error))

    async def _send_or_check(self, row: Transaction, head: int, ahead: int) -> bool:
        if row.state == INIT:
            return await self._send(row, head)
        now = self._clock()
        if not ahead and now - row.sent_at >= self._chain.reprice_s * 1_000:
            if await self._replacements.raise_fees(row):
                return await self._send(self._rows.current(row), head)
            cap = self._chain.max_fee_per_gas
            row = self.block(
                row, f"no block includes it, and it already pays the cap of {cap} wei per gas"
            )
        if not ahead and self._pool.is_unseen(row) and await self._send_anew(row, head):
            return True
        if not await self._pool.has_lost(row, head, ahead=ahead):
            return True
        self._mark_lost_from(row)
        return await self._send(row, head)

    async def _send_anew(self, row: Transaction, head: int) -> bool:
        """Send a transaction again that an earlier process has sent.

        The answer also shows whether the endpoint had the transaction. So one request is enough
        instead of a look-up and a submission, which matters if the endpoint limits requests.

        Returns:
            False if the answer does not show whether the endpoint has the transaction now.
        """
        try:
            await self._rpc.call("eth_sendRawTransaction", ["0x" + row.last.raw.hex()])
        except RpcError as error:
            if not _is_known(error):
                return False
        else:
            self._mark_lost_from(row)
        self._pool.record_sent(row, head)
        return True

    def _mark_lost_from(self, row: Transaction) -> None:
        """Mark a sent transaction and the later ones of its account as lost."""
        rest = self._rows.of(row.sender)
        self._pool.mark_lost(r for r in rest if r.state == PENDING and r.nonce >= row.nonce)

    async def _send(self, row: Transaction, head: int) -> bool:
        """Send the newest signature to the first endpoint that accepts it.

        Return False if none accepts it.
        """
        return await self._record(row, head, await self._offer(row))

    async def _offer(self, row: Transaction) -> RpcError | None:
        """Send the newest signature to endpoints; return the refusal if none accepts it."""
        began_ns = time.time_ns()
        fault_points.hit("chain.before_send")
        try:
            await self._rpc.call("eth_sendRawTransaction", ["0x" + row.last.raw.hex()])
        except RpcError as error:
            if not _is_known(error):
                return error
        fault_points.hit("chain.sent")
        if spans.here is not None:
            about = _about(row, self._chain)
            self.spans.done(row.transaction_id, spans.SUBMIT, spans.CLIENT, began_ns, about)
        return None

    async def _record(self, row: Transaction, head: int, refusal: RpcError | None) -> bool:
        """Record that an endpoint has a transaction, or handle its refusal.

        Return False if the transaction is refused.
        """
        if refusal is not None:
            match classify_rejection(refusal.text):
                case "nonce":
                    self._pool.record_sent(row, head)
                    self._rows.update(
                        row, reason="a block includes another transaction with its nonce"
                    )
                    return True  # the next round looks up which transaction used the nonce
                case "fee" | "underpriced" as why:
                    return await self._too_cheap(row, why, refusal.text)
                case "funds":
                    return self._refuse(row, refusal.text)
                case _:
                    return await self._refused_by_all(row, head, refusal.text)
        self._pool.record_sent(row, head)
        self._refusals.clear(row.sender)
        fields: dict[str, Any] = {"state": PENDING, "sent_at": self._clock()}
        if row.sender not in self._gaps.unfilled:
            if row.refused_at:
                log.warning("transaction %s: an endpoint accepts it now", row.name)
            fields |= {"reason": "", "refused_at": 0}
        self._rows.update(row, **fields)
        fault_points.hit("chain.pending_stored")
        return True

    async def _too_cheap(self, row: Transaction, why: str, text: str) -> bool:
        """Raise fees that are below the base fee, or too low to replace another transaction."""
        market, _ = await self._chain_state.market()
        cap = self._chain.max_fee_per_gas
        dearer = why == "underpriced" or fees_for(market, cap).limit > row.last.limit
        if dearer and await self._replacements.raise_fees(row):
            return False  # the next round sends it
        return self._refuse(row, f"{text}; the cap max_fee_per_gas is {cap} wei per gas")

    async def _refused_by_all(self, row: Transaction, head: int, text: str) -> bool:
        """Pause a transaction that all endpoints refuse, or cancel it if it can never be valid.

        An empty transaction with the same nonce cancels it. The chain includes only one of the two,
        so the call cannot run after the cancellation.
        """
        now, times = self._clock(), self._refusals.times(row.sender)
        long = row.refused_at and now - row.refused_at >= self._chain.reprice_s * 1_000
        never = classify_rejection(text) == "never" and not row.last.cancels
        if not (never and long and times >= _GIVEN_UP_AFTER) or await self._is_known(row):
            return self._refuse(row, text)
        why = f"refused for good: {text}"
        log.warning("transaction %s of project %d: %s", row.name, row.project_id, why)
        await self._replacements.cancel(row, why, competes=False)
        return await self._send(self._rows.current(row), head)

    async def _is_known(self, row: Transaction) -> bool:
        """Return whether any endpoint has a signature of a transaction; also if none answers."""
        for tried in row.attempts:
            answers = await self._rpc.ask_all("eth_getTransactionByHash", [tried.hash])
            if not answers or any(answer is not None for answer in answers):
                return True
        return False

    def _refuse(self, row: Transaction, reason: str) -> bool:
        """Pause an account whose next transaction was refused. Always return False."""
        self._refusals.record(row.sender)
        self.block(row, reason, state=INIT)
        return False

    def block(self, row: Transaction, reason: str, **fields: Any) -> Transaction:
        """Record and log why a transaction is stuck."""
        if not row.refused_at:
            log.warning(
                "transaction %s of project %d blocks its account %s: %s",
                *(row.name, row.project_id, row.sender, reason),
            )
        since = row.refused_at or self._clock()
        return self._rows.update(row, reason=reason, refused_at=since, **fields)


def _is_known(error: RpcError) -> bool:
    return classify_rejection(error.text) == "known"


def _about(row: Transaction, chain: Chain) -> spans.Attributes:
    """Return the attributes of a transaction's span."""
    return {
        "fieldbrook.chain.id": str(chain.id),
        "fieldbrook.event.id": row.event_id,
        "fieldbrook.transaction.hash": row.last.hash,
    }
