"""Which sent transactions the pools of the endpoints have lost, and when to look.

A pool loses what it has when its node restarts, or when another node answers at its address. Later
nonces of an account wait for the next one. So the next one is looked up soon, and when one was
lost, the later ones of its account are taken for lost, too: to send them again costs a request
each, and so would the look-ups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fieldbrook.chain.errors import MalformedAnswerError
from fieldbrook.chain.transactions.chain_state import Rpc
from fieldbrook.core.clock import Clock
from fieldbrook.storage.chain.transactions import Transaction

_NEXT_AGAIN_MS, _NEXT_BLOCKS = 2_000, 2  # until an account's next one is looked up: after both
_SOON, _SOON_MS, _LATER_MS = 8, 15_000, 300_000  # the first ones, and those that wait behind them


class Pool:
    """The transactions that wait for a block in the pools of the endpoints.

    Args:
        rpc: the client of the chain.
        clock: returns Unix milliseconds.
    """

    def __init__(self, rpc: Rpc, clock: Clock) -> None:
        self._rpc = rpc
        self._clock = clock
        # Transaction id: the last look-up, in Unix ms, and the newest block then.
        self._looked_up: dict[int, tuple[int, int]] = {}
        self._lost: set[int] = set()  # transaction ids

    async def has_lost(self, row: Transaction, head: int, *, ahead: int) -> bool:
        """Return whether a transaction was lost, as far as is known; look it up if that is due.

        Args:
            row: a transaction that was sent.
            head: the newest block.
            ahead: how many transactions of its account a block must include before it.

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
        """Return whether a transaction is known or taken to be lost."""
        return row.transaction_id in self._lost

    def is_unseen(self, row: Transaction) -> bool:
        """Return whether this process has neither sent a transaction nor looked it up."""
        return row.transaction_id not in self._looked_up

    def lose(self, rows: Iterable[Transaction]) -> None:
        """Take transactions for lost."""
        self._lost.update(row.transaction_id for row in rows)

    def sent(self, row: Transaction, head: int) -> None:
        """Record that an endpoint has taken a transaction."""
        self._lost.discard(row.transaction_id)
        self._looked_up[row.transaction_id] = self._clock(), head

    def keep_only(self, rows: Iterable[Transaction]) -> None:
        """Forget all other transactions."""
        kept = {row.transaction_id for row in rows}
        self._lost &= kept
        self._looked_up = {id_: look for id_, look in self._looked_up.items() if id_ in kept}


def is_known(raw: Any) -> bool:
    """Parse whether an endpoint has a transaction.

    Raises:
        MalformedAnswerError: the answer is neither one nor null.
    """
    if raw is not None and not isinstance(raw, Mapping):
        raise MalformedAnswerError("the transaction is not an object")
    return raw is not None
