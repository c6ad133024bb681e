"""Conversions between stored attempts and calls, fees and signed transactions.

A stored `Attempt` is one signature of a transaction.
"""

from __future__ import annotations

from fieldbrook.chain.transaction import ContractCall, Fees
from fieldbrook.storage.chain.transactions import Attempt, Transaction

LEGACY = -1  # stored as the priority fee of a legacy transaction, which has none


def attempt(
    hash_: str, raw: bytes, nonce: int, fees: Fees, now: int, why: str = "", cancels: bool = False
) -> Attempt:
    """Make the record of one signature."""
    priority = LEGACY if fees.priority is None else fees.priority
    return Attempt(hash_, raw, nonce, fees.limit, priority, now, why, cancels)


def fees_of(tried: Attempt) -> Fees:
    """Return the fees of a signature."""
    return Fees(tried.limit, None if tried.priority == LEGACY else tried.priority)


def call_of(row: Transaction) -> ContractCall:
    """Return the call of a transaction."""
    return ContractCall(row.to, int(row.value), row.data, row.gas)


def unpaid(row: Transaction) -> int:
    """Return the maximum cost of a transaction for its account, by the last signature, in wei."""
    return int(row.value) + row.gas * row.last.limit
