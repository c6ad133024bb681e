"""Signs transactions again: with higher fees, as a cancellation, or with another nonce."""

from __future__ import annotations

import asyncio
import logging

from fieldbrook.chain.transaction import (
    TRANSFER_GAS,
    ContractCall,
    Fees,
    TransactionRefusedError,
    fees_for,
    raised_fees,
    sign,
    warm_up,
)
from fieldbrook.chain.transactions.broadcast.rows import Rows
from fieldbrook.chain.transactions.nonces import Leases
from fieldbrook.chain.transactions.signatures import attempt, call_of, fees_of
from fieldbrook.core.clock import Clock
from fieldbrook.core.settings import Chain
from fieldbrook.observability import fault_points, metrics
from fieldbrook.storage.chain.transactions import INIT, Transaction

log = logging.getLogger(__name__)

NOBODY = 0  # project id with which the node itself locks an account
_TURN_LIMIT_S = 1.0


class Replacements:
    """Signs transactions again. The signatures are stored here and sent by the next round.

    Every method raises TransactionRefusedError if the operator's key was removed.
    """

    def __init__(self, chain: Chain, rows: Rows, leases: Leases, clock: Clock) -> None:
        self._chain = chain
        self._rows = rows
        self._leases = leases
        self._clock = clock

    async def raise_fees(self, row: Transaction) -> bool:
        """Sign a transaction with higher fees. Return False if the cap does not allow it."""
        market, _ = await self._leases.chain_state.market()
        fees = raised_fees(fees_of(row.last), market, self._chain.max_fee_per_gas)
        if fees is None:
            return False
        await self._sign(row, row.nonce, fees, "higher fees", cancels=row.last.cancels)
        metrics.add(metrics.TRANSACTIONS_REPLACED["fees"])
        return True

    async def cancel(self, row: Transaction, why: str, *, competes: bool) -> None:
        """Sign an empty transaction with the same nonce, to cancel the original.

        Args:
            row: the original transaction.
            why: the reason, which becomes the reason in the outcome.
            competes: whether endpoints may have the original, so that the new fees must be
                higher.
        """
        market, _ = await self._leases.chain_state.market()
        cap = self._chain.max_fee_per_gas
        fees = raised_fees(fees_of(row.last), market, cap) if competes else None
        await self._sign(row, row.nonce, fees or fees_for(market, cap), why, cancels=True)
        metrics.add(metrics.TRANSACTIONS_REPLACED["cancel"])

    async def assign_nonce(self, row: Transaction) -> bool:
        """Sign a transaction with a new nonce, because another one used its nonce finally.

        Returns:
            False if a project holds leases of the account; try again later.
        """
        why = f"nonce {row.nonce} was used by another transaction"
        market, _ = await self._leases.chain_state.market()
        fees = fees_for(market, self._chain.max_fee_per_gas)
        try:
            async with (
                asyncio.timeout(_TURN_LIMIT_S) as limit,
                self._leases.turn(row.sender, NOBODY),
            ):
                limit.reschedule(None)
                nonce = await self._leases.next_nonce(row.sender)
                await self._sign(row, nonce, fees, why)
                metrics.add(metrics.TRANSACTIONS_REPLACED["nonce"])
        except TimeoutError:
            return False
        log.warning("transaction %s: %s; its new nonce is %d", row.name, why, nonce)
        return True

    async def _sign(
        self, row: Transaction, nonce: int, fees: Fees, why: str, *, cancels: bool = False
    ) -> None:
        """Sign a transaction again and store the signature."""
        await asyncio.to_thread(warm_up)  # the libraries may not be imported yet
        secret = self._leases.secret_of(row)
        if secret is None:
            raise TransactionRefusedError(
                f"operator {row.operator_name} was removed, so the node cannot sign again with its "
                "key"
            )
        call, gas = call_of(row), row.gas
        if cancels:
            call, gas = ContractCall(row.sender, 0, b""), TRANSFER_GAS
        signed = sign(secret, self._chain.id, nonce, call, gas, fees)
        tried = attempt(signed.hash, signed.raw, nonce, fees, self._clock(), why, cancels)
        fault_points.hit("chain.replacement_signed")
        self._rows.update(row, attempts=[*row.attempts, tried], state=INIT, reason=why)
        fault_points.hit("chain.replacement_stored")
