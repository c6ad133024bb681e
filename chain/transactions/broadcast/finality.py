"""Finality: watches the blocks of transactions for reorganisations until the blocks are final.

Each block names its parent. So if the newest watched block is still on the chain, all blocks that
were found below it are, too. Therefore one check needs the header of that block and of each block
that was not checked before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fieldbrook.chain.concurrency import gather_or_cancel
from fieldbrook.chain.rpc.answers import read_header
from fieldbrook.chain.transactions.chain_state import Rpc
from fieldbrook.core.clock import Clock
from fieldbrook.storage.chain.transactions import Transaction

LAGS_MS = 30_000
"""An answer that shows fewer blocks or nonces than an earlier one counts as that of a lagging
endpoint for this time."""
_COMPARED_AGAIN_MS = (
    600_000  # then all blocks are compared, in case answers of two forks were mixed
)
_BLOCKS_PER_CHECK = 8  # new blocks that are compared at once, because sending waits for the check

Place = tuple[int, str]
"""The number and the hash of a block."""


class Blocks:
    """The blocks that include transactions, compared with the chain at each check.

    Args:
        rpc: the client of the chain.
        clock: returns Unix milliseconds.
    """

    def __init__(self, rpc: Rpc, clock: Clock) -> None:
        self._rpc = rpc
        self._clock = clock
        self._head = 0
        self._head_at = 0
        self._newest: Place | None = None  # the newest block that the last check found on the chain
        self._known: set[Place] = set()  # blocks that were found on the chain, up to the newest
        # Blocks that were known when a newer block was removed. Each is an ancestor of the next
        # one. If one of them is still on the chain, so are those below it.
        self._linked: set[Place] = set()
        self._since = 0  # all known blocks were found after this time, in Unix ms

    def highest(self, head: int) -> int:
        """Return the highest recent head, because a lower one may come from a lagging endpoint."""
        now = self._clock()
        if head >= self._head or now - self._head_at >= LAGS_MS:
            self._head, self._head_at = head, now
        return self._head

    def is_known(self, row: Transaction) -> bool:
        """Return whether the last check found a transaction's block, or it has no block."""
        return not row.mined or _place(row) in self._known

    async def vanished(
        self, rows: Sequence[Transaction], head: int, doubted: Sequence[Transaction] = ()
    ) -> list[Transaction]:
        """Return those of `rows` whose blocks a reorganisation has certainly removed.

        Args:
            rows: transactions in blocks that are not final.
            head: see `highest`.
            doubted: those of `rows` whose nonces the chain does not count, so that their blocks
                were probably removed. The lowest of these blocks is compared in this check, because
                the later transactions of its account wait for it.

        Raises:
            ChainUnavailableError, RpcError: see `ChainClient.call`.
        """
        places = {_place(row) for row in rows if row.mined}
        if not places:
            self._newest, self._known, self._linked = None, set(), set()
            return []
        now = self._clock()
        if now - self._since >= _COMPARED_AGAIN_MS:
            self._since, self._known, self._linked = now, set(), set()
        newest = max(places)
        asked = {newest, *sorted(places - self._known, reverse=True)[:_BLOCKS_PER_CHECK]}
        if self._newest is not None:
            asked.add(self._newest)
        if doubted:
            asked.add(min(map(_place, doubted)))
        gone, unsure = await self._compared(asked, head)
        if gone:  # blocks below them may be gone, too: the next checks compare these again
            linked = self._known or self._linked
            lowest = min(gone & linked, default=None)
            if lowest is not None:  # it is an ancestor of all linked blocks above it
                gone |= {place for place in linked & places if place > lowest}
            self._newest, self._linked = None, (linked & places) - gone
            self._known = set()
        elif not {newest, self._newest} & unsure:
            found = asked - unsure
            top = max(found & self._linked, default=(0, ""))
            found |= {place for place in self._linked if place[0] <= top[0]}
            self._newest, self._known = newest, (self._known | found) & places
            self._linked -= self._known
        return [row for row in rows if row.mined and _place(row) in gone]

    async def _compared(self, asked: set[Place], head: int) -> tuple[set[Place], set[Place]]:
        """Return the blocks that are not on the chain, and the blocks that cannot be compared."""
        found = await gather_or_cancel(*(self._hash_at(number) for number, _ in asked))
        gone, unsure = set(), set()
        for place, on_chain in zip(asked, found, strict=True):
            if on_chain is not None:
                if on_chain != place[1].lower():
                    gone.add(place)
            elif place[0] > head:  # the chain has become shorter than this block's number
                gone.add(place)
            else:
                unsure.add(place)
        return gone, unsure

    async def _hash_at(self, number: int) -> str | None:
        """Return the hash of a block of the chain; None if the endpoint does not have it."""
        params = [hex(number), False]
        found: str | None = await self._rpc.call("eth_getBlockByNumber", params, read=_read_hash)
        return found


def _read_hash(raw: Any) -> str | None:
    return None if raw is None else read_header(raw).hash


def _place(row: Transaction) -> Place:
    return row.block_number, row.block_hash
