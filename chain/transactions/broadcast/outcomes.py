"""Outcomes of transactions: receipts, confirmed and failed states, removed blocks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from fieldbrook.chain.errors import MalformedAnswerError, RpcError
from fieldbrook.chain.rpc.answers import BLOCK_LIMIT, hex_bytes, quantity
from fieldbrook.chain.transactions.broadcast.refusals import Refusals
from fieldbrook.chain.transactions.broadcast.rows import Rows
from fieldbrook.chain.transactions.chain_state import EachRpc, reason_of
from fieldbrook.core.clock import Clock
from fieldbrook.core.errors import ChainUnavailableError
from fieldbrook.core.settings import Chain
from fieldbrook.observability import fault_points
from fieldbrook.storage.chain.transactions import (
    CONFIRMED,
    FAILED,
    IN_BLOCK,
    INIT,
    Spending,
    Transaction,
)

log = logging.getLogger(__name__)

RECEIPTS_AT_ONCE = 16
"""The number of transactions whose receipts are requested at the same time."""


class Receipt(NamedTuple):
    """The receipt of a transaction. `tx_hash` tells which of its signatures the block includes.

    `good` is False if the transaction has reverted. `gas_price` is in wei.
    """

    tx_hash: str
    block: int
    block_hash: str
    gas_used: int
    gas_price: int
    good: bool


class Receipts(NamedTuple):
    """Receipts by transaction id; None for a transaction that no block includes.

    Transactions that could not be looked up are missing, and `failure` is the reason.
    """

    found: dict[int, Receipt | None]
    failure: ChainUnavailableError | RpcError | None


class Outcomes:
    """Follows transactions from their blocks to their final states.

    Args:
        chain: the settings of the chain.
        rpc: the client of the chain.
        rows: the stored transactions.
        refusals: cleared for an account when a block includes one of its transactions.
        on_final: called with each transaction that is confirmed or failed.
        clock: returns Unix milliseconds.

    Attributes:
        counted: the newest block whose transactions are confirmed. `Broadcaster` updates it in
            each round; -1 before the first round.
    """

    def __init__(
        self,
        chain: Chain,
        rpc: EachRpc,
        rows: Rows,
        refusals: Refusals,
        on_final: Callable[[Transaction], None],
        clock: Clock,
    ) -> None:
        self._chain = chain
        self._rpc = rpc
        self._rows = rows
        self._refusals = refusals
        self._on_final = on_final
        self._clock = clock
        self.counted = -1

    async def look_up(self, row: Transaction, head: int) -> Transaction:
        """Ask all endpoints whether a block includes a transaction, and record the receipt.

        Raises:
            ChainUnavailableError: see `receipt_anywhere`.
        """
        receipt = await self.receipt_anywhere(row)
        return row if receipt is None else await self.record(row, receipt, head)

    async def receipt_anywhere(self, row: Transaction) -> Receipt | None:
        """Ask all endpoints for the receipt of a transaction, because some may lack it.

        Returns:
            The receipt of one of its signatures; None if no block includes any of them.

        Raises:
            ChainUnavailableError: no endpoint gave a usable answer for one of the signatures.
        """
        for tried in reversed(row.attempts):
            denied = False
            for answer in await self._rpc.ask_all("eth_getTransactionReceipt", [tried.hash]):
                with contextlib.suppress(MalformedAnswerError):
                    found = None if isinstance(answer, RpcError) else _read_receipt(answer)
                    if found is not None:
                        return Receipt(tried.hash, *found)
                    denied |= answer is None
            if not denied:
                reason = f"no endpoint answers a request for the receipt of {tried.hash}"
                raise ChainUnavailableError(chain=self._chain.id, reason=reason)
        return None

    async def receipts(self, rows: Iterable[Transaction]) -> Receipts:
        """Look up concurrently which blocks include the transactions."""
        asked = list(rows)
        answers = await asyncio.gather(*map(self._receipt, asked), return_exceptions=True)
        found: dict[int, Receipt | None] = {}
        failure = None
        for row, answer in zip(asked, answers, strict=True):
            if isinstance(answer, (ChainUnavailableError, RpcError)):
                failure = failure or answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found[row.transaction_id] = answer
        return Receipts(found, failure)

    async def _receipt(self, row: Transaction) -> Receipt | None:
        for tried in reversed(row.attempts):
            params = [tried.hash]
            found = await self._rpc.call("eth_getTransactionReceipt", params, read=_read_receipt)
            if found is not None:
                return Receipt(tried.hash, *found)
        return None

    def vanish(self, row: Transaction) -> Transaction:
        """Store that a reorganisation has removed the block of a transaction.

        The transaction becomes `INIT` again, so that it is sent again at once, because the pools of
        the endpoints may have lost it.
        """
        fields: dict[str, Any] = {
            "state": INIT,
            "reason": f"block {row.block_number} ({row.block_hash}) has vanished",
            "mined": "",
            "block_number": 0,
            "block_hash": "",
        }
        if row.state == IN_BLOCK:
            log.info("transaction %s: %s", row.name, fields["reason"])
            return self._rows.update(row, **fields)
        log.warning(
            "transaction %s of project %d was %s, but %s; the node sends it again",
            *(row.name, row.project_id, row.state, fields["reason"]),
        )
        now = self._clock()
        again = msgspec.structs.replace(
            row,
            **fields,
            reported=False,
            refused_at=now,
            watched_since=0,
            vanished=row.vanished + 1,
            updated_at=now,
        )
        self._rows.stored.finish(again, self._spent(row, -1))
        return again

    async def record(self, row: Transaction, receipt: Receipt, head: int) -> Transaction:
        """Store the block that includes a transaction, and the final state if it is confirmed."""
        fault_points.hit("chain.receipt_received")
        self._refusals.clear(row.sender)
        row = self._rows.update(
            row,
            state=IN_BLOCK,
            reason="",
            refused_at=0,
            mined=receipt.tx_hash,
            block_number=receipt.block,
            block_hash=receipt.block_hash,
            gas_used=receipt.gas_used,
            gas_price=receipt.gas_price,
        )
        fault_points.hit("chain.block_stored")
        if receipt.block > self.counted:
            return row
        tried = next(tried for tried in row.attempts if tried.hash == receipt.tx_hash)
        if tried.cancels:
            return self.finish(row, FAILED, tried.why, head)
        if receipt.good:
            return self.finish(row, CONFIRMED, "", head)
        return self.finish(row, FAILED, await self._revert_reason(row), head)

    async def _revert_reason(self, row: Transaction) -> str:
        """Find out why a transaction reverted: run its call again on the state before its block."""
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
        return "execution reverted (out of gas, or because of earlier transactions of its block)"

    def finish(self, row: Transaction, state: str, reason: str, head: int) -> Transaction:
        """Store the final state of a transaction and the project's totals.

        The transaction is watched until its block is final. If a reorganisation moves it to another
        block and the new state is the one last reported, it is not reported again.
        """
        since = row.block_number or head
        final = head - since >= self._chain.finality
        done = msgspec.structs.replace(
            row,
            state=state,
            reason=reason,
            refused_at=0,
            watched_since=0 if final else since,
            reported=row.outcomes[-1:] == [state],
            updated_at=self._clock(),
        )
        fault_points.hit("chain.before_final_state_stored")
        self._rows.stored.finish(done, self._spent(done, 1))
        fault_points.hit("chain.final_state_stored")
        log.info(
            "transaction %s of project %d: %s %s",
            done.name,
            done.project_id,
            state,
            reason,
        )
        if not done.reported:
            self._on_final(done)
        return done

    def _spent(self, row: Transaction, count: int) -> Spending:
        """Return a project's totals after adding (`count` 1) or removing (-1) a transaction."""
        spent = self._rows.stored.spending(row.project_id)
        good = row.state == CONFIRMED
        return msgspec.structs.replace(
            spent,
            confirmed=spent.confirmed + count * good,
            failed=spent.failed + count * (not good),
            gas_used=spent.gas_used + count * row.gas_used,
            fees_wei=str(int(spent.fees_wei) + count * row.gas_used * row.gas_price),
        )


def _read_receipt(raw: Any) -> tuple[int, str, int, int, bool] | None:
    """Parse all fields of a `Receipt` except the hash; None if no block includes the transaction.

    Raises:
        MalformedAnswerError: the value is neither a receipt nor null.
    """
    if raw is None:
        return None
    if not isinstance(raw, Mapping):
        raise MalformedAnswerError("the receipt is not an object")
    if raw.get("blockNumber") is None:
        return None
    return (
        quantity(raw["blockNumber"], BLOCK_LIMIT),
        hex_bytes(raw.get("blockHash"), 32),
        quantity(raw.get("gasUsed")),
        quantity(raw.get("effectiveGasPrice") or "0x0"),
        quantity(raw.get("status") or "0x1") == 1,
    )
