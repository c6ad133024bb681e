"""Outcomes of transactions: the block that includes one, and its final state."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from fieldbrook.chain.errors import RpcError
from fieldbrook.chain.transactions.chain_state import Rpc, number, reason_of
from fieldbrook.chain.transactions.refusals import Refusals
from fieldbrook.chain.transactions.rows import Rows
from fieldbrook.core.clock import Clock
from fieldbrook.core.errors import ChainUnavailableError
from fieldbrook.core.settings import Chain
from fieldbrook.observability import fault_points
from fieldbrook.storage.chain.transactions import (
    CONFIRMED,
    FAILED,
    IN_BLOCK,
    INIT,
    Attempt,
    Spending,
    Transaction,
)

log = logging.getLogger(__name__)


class Outcomes:
    """Follows transactions from their blocks to their final states.

    Args:
        chain: the settings of the chain.
        rpc: the client of the chain.
        rows: the stored transactions.
        refusals: is cleared for an account whose transaction a block includes.
        on_final: is called with each transaction that is confirmed or failed.
        clock: returns Unix milliseconds.

    Attributes:
        counted: the newest block whose transactions are confirmed. `Broadcaster` updates it in
            each round; until then none is.
    """

    def __init__(
        self,
        chain: Chain,
        rpc: Rpc,
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
        """Look up the block that includes one of a transaction's signatures."""
        for tried in reversed(row.attempts):
            receipt = await self._rpc.call("eth_getTransactionReceipt", [tried.hash])
            if receipt is not None and receipt.get("blockNumber") is not None:
                return await self._found(row, tried, receipt, head)
        return row

    async def is_included(self, row: Transaction) -> bool:
        """Return whether a block includes one of a transaction's signatures."""
        for tried in reversed(row.attempts):
            receipt = await self._rpc.call("eth_getTransactionReceipt", [tried.hash])
            if receipt is not None and receipt.get("blockNumber") is not None:
                return True
        return False

    def vanish(self, row: Transaction) -> Transaction:
        """Store that the block of a transaction is not on the chain any more.

        The transaction is `INIT` again, and therefore sent again at once: pools may have lost it.
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
            "transaction %s of project %d was %s, but %s; it is sent again",
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

    async def _found(
        self, row: Transaction, tried: Attempt, receipt: dict[str, Any], head: int
    ) -> Transaction:
        block = number(receipt["blockNumber"])
        fault_points.hit("chain.receipt_received")
        self._refusals.clear(row.sender)
        row = self._rows.update(
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
        fault_points.hit("chain.block_stored")
        if block > self.counted:
            return row
        good = number(receipt.get("status") or "0x1") == 1
        if tried.cancels:
            return self.finish(row, FAILED, tried.why, head)
        if good:
            return self.finish(row, CONFIRMED, "", head)
        return self.finish(row, FAILED, await self._revert_reason(row), head)

    async def _revert_reason(self, row: Transaction) -> str:
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
        return "execution reverted (out of gas, or because of earlier transactions of its block)"

    def finish(self, row: Transaction, state: str, reason: str, head: int) -> Transaction:
        """Store the final state of a transaction and the project's totals.

        It is watched until its block is final. A state that the project has received before,
        because the block vanished since, is not reported again.
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
        """Return a project's totals with a finished transaction more, or with one less."""
        spent = self._rows.stored.spending(row.project_id)
        good = row.state == CONFIRMED
        return msgspec.structs.replace(
            spent,
            confirmed=spent.confirmed + count * good,
            failed=spent.failed + count * (not good),
            gas_used=spent.gas_used + count * row.gas_used,
            fees_wei=str(int(spent.fees_wei) + count * row.gas_used * row.gas_price),
        )
