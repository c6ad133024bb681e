"""Broadcaster: sends committed transactions and watches them until they have enough confirmations.

Every signature is stored before it is sent, so that the same bytes are sent again after a
crash. A transaction is signed again in three cases only: with higher fees and the same nonce
when no block includes it, with the same nonce to cancel it, and with another nonce when a
foreign transaction has used its nonce for good.

A refused transaction blocks only the later ones of its account. It is retried with growing
pauses, and cancelled if the chain can never include it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from fieldbrook.chain.errors import RpcError
from fieldbrook.chain.transaction import (
    TRANSFER_GAS,
    ContractCall,
    Fees,
    TransactionRefusedError,
    fees_for,
    raised_fees,
    rejection,
    sign,
)
from fieldbrook.chain.transactions.nonces import (
    Leases,
    Rpc,
    attempt,
    call_of,
    fees_of,
    number,
    reason_of,
)
from fieldbrook.core.clock import Clock, now_ms
from fieldbrook.core.errors import ChainUnavailableError, NodeError, StoreError
from fieldbrook.core.settings import Chain
from fieldbrook.observability import fault_points, metrics
from fieldbrook.observability.health import STUCK_TRANSACTIONS, ProcessHealth
from fieldbrook.storage.chain.transactions import (
    CONFIRMED,
    FAILED,
    FINISHED,
    IN_BLOCK,
    INIT,
    LEASED,
    PENDING,
    Attempt,
    Spending,
    Transaction,
    TransactionWriter,
)

log = logging.getLogger(__name__)

NOBODY = 0  # project id for a turn that belongs to no project
CANCELLED = "cancelled by an administrator"
_AGAIN_MS = 15_000  # interval of looking up a pending transaction, to resend one that was lost
_TURN_LIMIT_S = 1.0
_PAUSES_S = (0.5, 1, 2, 5)  # pauses before a refused transaction is retried
_GIVEN_UP_AFTER = 3  # refusals before a transaction that can never be valid is cancelled


class EachRpc(Rpc, Protocol):
    """The part of `ChainClient` that sends transactions, also to all endpoints."""

    async def ask_all(self, method: str, params: list[Any]) -> list[Any | RpcError]: ...


class _Refusals(NamedTuple):
    """Consecutive refusals of an account's next transaction, and when (Unix ms) to retry it."""

    times: int = 0
    until: int = 0


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
        self._rows = rows
        self._leases = leases
        self._finished = finished
        self._restored = restored
        self._health = health or ProcessHealth()
        self._clock = clock
        self._refusals: dict[str, _Refusals] = {}  # by account
        self._wake = asyncio.Event()
        self._asked: dict[int, int] = {}  # transaction id: last look-up, Unix ms
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
            idle_s = self._chain.poll_ms / 1_000 if self._waiting() else None
            try:
                async with asyncio.timeout(idle_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def round(self) -> None:
        """Take every unfinished transaction one step further.

        Raises:
            ChainUnavailableError, RpcError: no endpoint gave the chain's state.
            StoreError: a step could not be stored; its transaction is unchanged.
        """
        async with self._stepping:
            await self._round()

    async def _round(self) -> None:
        waiting = self._waiting()
        if not waiting:
            self._report()
            return
        head = number(await self._rpc.call("eth_blockNumber", []))
        parked = self._rows.parked or self._restored()
        failed: StoreError | None = None
        for sender in dict.fromkeys(row.sender for row in waiting):
            rows = sorted((r for r in waiting if r.sender == sender), key=_turn)
            try:
                await self._account(sender, rows, head, parked)
            except StoreError as error:  # other accounts continue
                failed = error
        self._report()
        if failed is not None:
            raise failed

    def _report(self) -> None:
        """Raise the health condition if transactions are stuck, else clear it."""
        stuck = [row for row in self._waiting() if row.refused_at]
        if not stuck:
            self._health.clear(STUCK_TRANSACTIONS)
            return
        first = min(stuck, key=lambda row: row.refused_at)
        behind = sum(row.sender == first.sender for row in self._waiting()) - 1
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
            row = self._under_way(transaction_id)
            if row.last.cancels:
                return
            market, _ = await self._leases.market()
            fees = raised_fees(fees_of(row.last), market, self._chain.max_fee_per_gas)
            fees = fees or fees_for(market, self._chain.max_fee_per_gas)
            self._sign_again(row, row.nonce, fees, CANCELLED, cancels=True)
            metrics.add(metrics.SIGNED_AGAIN["cancel"])
            self._refusals.pop(row.sender, None)
        self.wake()

    async def retry(self, transaction_id: int) -> None:
        """Sign a transaction again with higher fees.

        If it was refused for a reason other than its fees, it is only sent again at once.

        Raises:
            TransactionRefusedError: a block includes it already, it is finished, or the cap does
                not allow higher fees.
        """
        async with self._stepping:
            row = self._under_way(transaction_id)
            self._refusals.pop(row.sender, None)
            if row.refused_at and rejection(row.reason) not in ("fee", "underpriced"):
                self.wake()
                return
            if not await self._raise_fees(self._under_way(transaction_id)):
                reason = f"it pays as much as it may: {self._chain.max_fee_per_gas} wei per gas"
                raise TransactionRefusedError(reason)
        self.wake()

    def _under_way(self, transaction_id: int) -> Transaction:
        row = self._rows.unfinished.get(transaction_id)
        if row is None or row.state not in (INIT, PENDING):
            raise TransactionRefusedError("a block has it already, or it has come to its end")
        return row

    async def _raise_fees(self, row: Transaction) -> bool:
        """Sign a transaction again with higher fees; returns False if the cap forbids it."""
        market, _ = await self._leases.market()
        fees = raised_fees(fees_of(row.last), market, self._chain.max_fee_per_gas)
        if fees is None:
            return False
        self._sign_again(row, row.nonce, fees, "higher fees", cancels=row.last.cancels)
        metrics.add(metrics.SIGNED_AGAIN["fees"])
        return True

    def _waiting(self) -> list[Transaction]:
        return [
            row
            for row in self._rows.unfinished.values()
            if row.state != LEASED and row.state not in FINISHED
        ]

    # ---------------------------------------------------------------- one account

    async def _account(self, sender: str, rows: list[Transaction], head: int, parked: bool) -> None:
        """Process the transactions of one account in the order of their nonces."""
        counted = number(await self._rpc.call("eth_getTransactionCount", [sender, "latest"]))
        going = not parked and self._clock() >= self._refusals.get(sender, _Refusals()).until
        taken = set()
        for known in rows:
            row = known
            if row.state == IN_BLOCK or row.nonce < counted:
                row = await self._look(row, head)
            if row.state not in (INIT, PENDING):
                continue
            if row.nonce < counted:
                await self._replaced(row, head)
            elif row.nonce in taken:
                # A lease was dropped and its nonce reused, although its event was committed.
                # This transaction gets its own nonce once a block includes the other one.
                self._change(row, reason=f"another transaction has the nonce {row.nonce}, too")
            elif going:
                taken.add(row.nonce)
                # After a refusal stop: transactions with later nonces could only wait for it.
                try:
                    going = await self._push(row, is_next=row.nonce == counted)
                except TransactionRefusedError as error:
                    going = self._refused(row, str(error))

    async def _push(self, row: Transaction, *, is_next: bool) -> bool:
        """Send a transaction, or check one that was sent; returns False if it was refused."""
        if row.state == INIT:
            return await self._send(row)
        now = self._clock()
        if is_next and now - row.sent_at >= self._chain.reprice_s * 1_000:
            if await self._raise_fees(row):
                return await self._send(self._rows.unfinished[row.transaction_id])
            cap = self._chain.max_fee_per_gas
            row = self._stuck(row, f"no block takes it; it pays what it may: {cap} wei per gas")
        if now - self._asked.get(row.transaction_id, row.sent_at) >= _AGAIN_MS:
            self._asked[row.transaction_id] = now
            if await self._rpc.call("eth_getTransactionByHash", [row.last.hash]) is None:
                return await self._send(row)
        return True

    async def _send(self, row: Transaction) -> bool:
        """Send the newest signature to an endpoint; returns False if it was refused."""
        fault_points.hit("chain.sends")
        try:
            await self._rpc.call("eth_sendRawTransaction", ["0x" + row.last.raw.hex()])
        except RpcError as error:
            match rejection(error.text):
                case "known":
                    pass
                case "nonce":
                    self._change(row, reason="its nonce is in a block already")
                    return True  # the next round finds out which transaction used it
                case "fee" | "underpriced" as why:
                    return await self._too_cheap(row, why, error.text)
                case "funds":
                    return self._refused(row, error.text)
                case _:
                    if not await self._offered_to_all(row):
                        return await self._refused_by_all(row, error.text)
        fault_points.hit("chain.sent")
        self._refusals.pop(row.sender, None)
        if row.refused_at:
            log.warning("transaction %s: an endpoint takes it now", row.name)
        self._change(row, state=PENDING, reason="", refused_at=0, sent_at=self._clock())
        fault_points.hit("chain.pending")
        return True

    async def _too_cheap(self, row: Transaction, why: str, text: str) -> bool:
        """Raise the fees of a transaction that pays less than a block or its rival requires."""
        market, _ = await self._leases.market()
        cap = self._chain.max_fee_per_gas
        dearer = why == "underpriced" or fees_for(market, cap).limit > row.last.limit
        if dearer and await self._raise_fees(row):
            return False  # the next round sends it
        return self._refused(row, f"{text}; it may pay {cap} wei per gas at most")

    # ---------------------------------------------------------------- what is refused

    async def _offered_to_all(self, row: Transaction) -> bool:
        """Send the newest signature to every endpoint; returns whether any of them has it."""
        answers = await self._rpc.ask_all("eth_sendRawTransaction", ["0x" + row.last.raw.hex()])
        return any(
            not isinstance(answer, RpcError) or rejection(answer.text) == "known"
            for answer in answers
        )

    async def _refused_by_all(self, row: Transaction, text: str) -> bool:
        """Pause a transaction that all endpoints refuse, or cancel it if it can never be valid.

        It is cancelled by an empty transaction with the same nonce. The chain includes only one
        of the two, so the call cannot run after the cancellation.
        """
        now, times = self._clock(), self._refusals.get(row.sender, _Refusals()).times
        long = row.refused_at and now - row.refused_at >= self._chain.reprice_s * 1_000
        never = rejection(text) == "never" and not row.last.cancels
        if not (never and long and times >= _GIVEN_UP_AFTER) or await self._is_known(row):
            return self._refused(row, text)
        market, _ = await self._leases.market()
        fees = fees_for(market, self._chain.max_fee_per_gas)
        why = f"refused for good: {text}"
        log.warning("transaction %s of project %d: %s", row.name, row.project_id, why)
        self._sign_again(row, row.nonce, fees, why, cancels=True)
        metrics.add(metrics.SIGNED_AGAIN["cancel"])
        return await self._send(self._rows.unfinished[row.transaction_id])

    async def _is_known(self, row: Transaction) -> bool:
        """Return whether any endpoint has a signature of a transaction; True if none answers."""
        for tried in row.attempts:
            answers = await self._rpc.ask_all("eth_getTransactionByHash", [tried.hash])
            if not answers or any(answer is not None for answer in answers):
                return True
        return False

    def _refused(self, row: Transaction, reason: str) -> bool:
        """Pause an account whose next transaction was refused; always returns False."""
        times = self._refusals.get(row.sender, _Refusals()).times + 1
        pause_s = _PAUSES_S[min(times, len(_PAUSES_S)) - 1]
        self._refusals[row.sender] = _Refusals(times, self._clock() + int(pause_s * 1_000))
        self._stuck(row, reason, state=INIT)
        return False

    def _stuck(self, row: Transaction, reason: str, **fields: Any) -> Transaction:
        """Record and log why a transaction is stuck."""
        if not row.refused_at:
            log.warning(
                "transaction %s of project %d holds up its account %s: %s",
                *(row.name, row.project_id, row.sender, reason),
            )
        since = row.refused_at or self._clock()
        return self._change(row, reason=reason, refused_at=since, **fields)

    # ---------------------------------------------------------------- what became of it

    async def _look(self, row: Transaction, head: int) -> Transaction:
        """Look up the block that includes one of a transaction's signatures.

        If the known block has vanished in a reorganisation, the transaction is sent again.
        """
        for tried in reversed(row.attempts):
            receipt = await self._rpc.call("eth_getTransactionReceipt", [tried.hash])
            if receipt is not None and receipt.get("blockNumber") is not None:
                return await self._found(row, tried, receipt, head)
        if row.state != IN_BLOCK:
            return row
        log.info("transaction %s: block %d has vanished", row.name, row.block_number)
        return self._change(
            row,
            # INIT means that it is sent again at once, because pools may have lost it.
            state=INIT,
            reason=f"block {row.block_number} ({row.block_hash}) has vanished",
            mined="",
            block_number=0,
            block_hash="",
        )

    async def _found(
        self, row: Transaction, tried: Attempt, receipt: dict[str, Any], head: int
    ) -> Transaction:
        block = number(receipt["blockNumber"])
        fault_points.hit("chain.receipt")
        self._refusals.pop(row.sender, None)
        row = self._change(
            row,
            state=IN_BLOCK,
            reason="",
            refused_at=0,
            mined=tried.hash,
            block_number=block,
            block_hash=str(receipt["blockHash"]),
            gas_used=number(receipt["gasUsed"]),
            gas_price=number(receipt.get("effectiveGasPrice") or "0x0"),
        )
        fault_points.hit("chain.in_block")
        if head - block < self._chain.confirmations:
            return row
        good = number(receipt.get("status") or "0x1") == 1
        if tried.cancels:
            return self._finish(row, FAILED, tried.why)
        if good:
            return self._finish(row, CONFIRMED, "")
        return self._finish(row, FAILED, await self._why(row))

    async def _why(self, row: Transaction) -> str:
        """Find out why a transaction reverted: run its call on the state before its block."""
        fields = {
            "from": row.sender,
            "to": row.to,
            "value": hex(int(row.value)),
            "data": "0x" + row.data.hex(),
            "gas": hex(row.gas),
        }
        try:
            await self._rpc.call("eth_call", [fields, hex(row.block_number - 1)])
        except RpcError as error:
            return reason_of(error)
        except ChainUnavailableError:
            return "execution reverted"
        return "execution reverted (out of gas, or for what came before it in its block)"

    def _finish(self, row: Transaction, state: str, reason: str) -> Transaction:
        fee = row.gas_used * row.gas_price
        spent = self._rows.spending(row.project_id)
        good = state == CONFIRMED
        total = Spending(
            window=spent.window,
            window_count=spent.window_count,
            day=spent.day,
            day_wei=spent.day_wei,
            confirmed=spent.confirmed + good,
            failed=spent.failed + (not good),
            gas_used=spent.gas_used + row.gas_used,
            fees_wei=str(int(spent.fees_wei) + fee),
        )
        done = msgspec.structs.replace(
            row, state=state, reason=reason, refused_at=0, updated_at=self._clock()
        )
        fault_points.hit("chain.finishes")
        self._rows.finish(done, total)
        fault_points.hit("chain.finished")
        self._asked.pop(row.transaction_id, None)
        log.log(
            logging.INFO,
            "transaction %s of project %d: %s %s",
            done.name,
            done.project_id,
            state,
            reason,
        )
        self._finished(done)
        return done

    # ---------------------------------------------------------------- another signature

    async def _replaced(self, row: Transaction, head: int) -> None:
        """Handle a transaction whose nonce another transaction has used.

        Nothing happens until the use of the nonce has enough confirmations. Then a cancellation
        is finished as failed, and any other transaction is signed with another nonce.
        """
        deep = max(0, head - self._chain.confirmations)
        block = hex(deep)
        settled = number(await self._rpc.call("eth_getTransactionCount", [row.sender, block]))
        if settled <= row.nonce:
            return
        # The receipts were read before the nonce count and may be outdated: look once more.
        if (await self._look(row, head)).state not in (INIT, PENDING):
            return
        if row.last.cancels:
            self._finish(row, FAILED, row.last.why)
            return
        why = f"nonce {row.nonce} was used by another transaction"
        try:
            async with asyncio.timeout(_TURN_LIMIT_S), self._leases.turn(row.sender, NOBODY):
                market, _ = await self._leases.market()
                nonce = await self._leases.next_nonce(row.sender)
                fees = fees_for(market, self._chain.max_fee_per_gas)
                self._sign_again(row, nonce, fees, why)
                metrics.add(metrics.SIGNED_AGAIN["nonce"])
        except TimeoutError:
            return  # a batch holds leases of the account; the next round tries again
        log.warning("transaction %s: %s; it has nonce %d now", row.name, why, nonce)
        self.wake()

    def _sign_again(
        self, row: Transaction, nonce: int, fees: Fees, why: str, *, cancels: bool = False
    ) -> None:
        """Sign a transaction again and store the signature; the next round sends it.

        Raises:
            TransactionRefusedError: the operator's key was removed.
        """
        secret = self._leases.secret_of(row)
        if secret is None:
            raise TransactionRefusedError(
                f"operator {row.operator_name} is gone: its key cannot sign again"
            )
        call, gas = call_of(row), row.gas
        if cancels:
            call, gas = ContractCall(row.sender, 0, b""), TRANSFER_GAS
        signed = sign(secret, self._chain.id, nonce, call, gas, fees)
        tried = attempt(signed.hash, signed.raw, nonce, fees, self._clock(), why, cancels)
        fault_points.hit("chain.signs_again")
        self._change(row, attempts=[*row.attempts, tried], state=INIT, reason=why)
        fault_points.hit("chain.signed_again")

    def _change(self, row: Transaction, **fields: Any) -> Transaction:
        """Store a transaction with changed fields, unless nothing differs."""
        changed = msgspec.structs.replace(row, **fields)
        if changed == row:
            return row
        changed = msgspec.structs.replace(changed, updated_at=self._clock())
        self._rows.put(changed)
        return changed


def _turn(row: Transaction) -> tuple[int, bool, int]:
    """Sort key for the transactions of an account: nonce, then those already sent, then id."""
    return row.nonce, not row.sent_at, row.transaction_id
