"""Detects transactions that the pools of the endpoints have lost.

A pool loses its transactions when its node restarts, or when another node answers at its address.
All later transactions of an account wait for the one with the next nonce. Therefore this
transaction is looked up often. If it was lost, the later ones of its account are assumed to be
lost, too. To send a transaction again costs one request, as much as to look it up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fieldbrook.chain.errors import MalformedAnswerError
from fieldbrook.chain.transactions.chain_state import Rpc
from fieldbrook.core.clock import Clock
from fieldbrook.storage.chain.transactions import Transaction

# The transaction with the next nonce is looked up after this time and this number of blocks.
_NEXT_AGAIN_MS, _NEXT_BLOCKS = 2_000, 2
# The first `_SOON` transactions of an account are looked up every `_SOON_MS`, the others every
# `_LATER_MS`.
_SOON, _SOON_MS, _LATER_MS = 8, 15_000, 300_000


class Pool:
    """The transactions that wait for a block in the pools of the endpoints.

    Args:
        rpc: the client of the chain.
        clock: returns Unix milliseconds.
    """

    def __init__(self, rpc: Rpc, clock: Clock) -> None:
        self._rpc = rpc
        self._clock = clock
        # By transaction id: the time of the last look-up in Unix ms, and the newest block then.
        self._looked_up: dict[int, tuple[int, int]] = {}
        self._lost: set[int] = set()  # transaction ids

    async def has_lost(self, row: Transaction, head: int, *, ahead: int) -> bool:
        """Return whether a transaction was lost, after looking it up if a look-up is due.

        Args:
            row: a transaction that was sent.
            head: the newest block.
            ahead: how many transactions of its account must be included before it.

        Raises:
            ChainUnavailableError, RpcError: see `ChainClient.call`.
        """
        if self.is_lost(row):
            return True
        now = self._clock()
        looked_up, block = self._looked_up.get(row.transaction_id, (row.sent_at, 0))
        waited_ms = now - looked_up
        soon = not ahead and waited_ms >= _NEXT_AGAIN_MS and head - block >= _NEXT_BLOCKS
        if not soon and waited_ms < (_SOON_MS if ahead < _SOON else _LATER_MS):
            return False
        self._looked_up[row.transaction_id] = now, head
        params = [row.last.hash]
        known: bool = await self._rpc.call("eth_getTransactionByHash", params, read=is_known)
        return not known

    def is_lost(self, row: Transaction) -> bool:
        """Return whether a transaction is known or assumed to be lost."""
        return row.transaction_id in self._lost

    def is_unseen(self, row: Transaction) -> bool:
        """Return whether this process has neither sent a transaction nor looked it up."""
        return row.transaction_id not in self._looked_up

    def mark_lost(self, rows: Iterable[Transaction]) -> None:
        """Mark transactions as lost."""
        self._lost.update(row.transaction_id for row in rows)

    def record_sent(self, row: Transaction, head: int) -> None:
        """Record that an endpoint has accepted a transaction."""
        self._lost.discard(row.transaction_id)
        self._looked_up[row.transaction_id] = self._clock(), head

    def keep_only(self, rows: Iterable[Transaction]) -> None:
        """Forget all other transactions."""
        kept = {row.transaction_id for row in rows}
        self._lost &= kept
        self._looked_up = {id_: look for id_, look in self._looked_up.items() if id_ in kept}


def is_known(raw: Any) -> bool:
    """Return whether an answer to `eth_getTransactionByHash` contains a transaction.

    Raises:
        MalformedAnswerError: the answer is neither a transaction nor null.
    """
    if raw is not None and not isinstance(raw, Mapping):
        raise MalformedAnswerError("the transaction is not an object")
    return raw is not None
