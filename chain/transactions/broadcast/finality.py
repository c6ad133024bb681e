"""Watches the blocks of transactions until they are final: a reorganisation may remove them.

The newest of these blocks speaks for those below it, because each block names its parent. So one
header per look is enough, and one for each block that has come to be watched.
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
"""How long an answer that shows fewer blocks or nonces than an earlier one is taken for that of an
endpoint that lags behind."""
_COMPARED_AGAIN_MS = 600_000  # everything, in case that answers of two forks were mixed
_TOGETHER = 8  # blocks that are compared at one look; transactions wait to be sent meanwhile

Place = tuple[int, str]
"""The number and the hash of a block."""


class Blocks:
    """The blocks that transactions are in, compared with the chain at each look.

    Args:
        rpc: the client of the chain.
        clock: returns Unix milliseconds.
    """

    def __init__(self, rpc: Rpc, clock: Clock) -> None:
        self._rpc = rpc
        self._clock = clock
        self._head = 0
        self._head_at = 0
        self._newest: Place | None = None  # at the last look, when it was on the chain
        self._known: set[Place] = set()  # those that were found on the chain, up to the newest
        # Those that were known when a newer one vanished. Each is an ancestor of the next one, so
        # that one of them that is still on the chain speaks for those below it.
        self._linked: set[Place] = set()
        self._since = 0  # what is known was found after this time, Unix ms

    def highest(self, head: int) -> int:
        """Return the highest recent head; a lower one may be that of an endpoint that lags."""
        now = self._clock()
        if head >= self._head or now - self._head_at >= LAGS_MS:
            self._head, self._head_at = head, now
        return self._head

    def is_known(self, row: Transaction) -> bool:
        """Return whether the last look found a transaction's block, or it has none."""
        return not row.mined or _place(row) in self._known

    async def vanished(
        self, rows: Sequence[Transaction], head: int, doubted: Sequence[Transaction] = ()
    ) -> list[Transaction]:
        """Return those of `rows` whose block is certainly not on the chain.

        Args:
            rows: transactions in blocks that may vanish.
            head: see `highest`.
            doubted: those of them whose nonces the chain does not count. The block of the first
                one is compared at once, because all others of its account wait for it.

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
        asked = {newest, *sorted(places - self._known, reverse=True)[:_TOGETHER]}
        if self._newest is not None:
            asked.add(self._newest)
        if doubted:
            asked.add(min(map(_place, doubted)))
        gone, unsure = await self._compared(asked, head)
        if gone:  # what is below them may have vanished as well, and is compared anew
            linked = self._known or self._linked
            lowest = min(gone & linked, default=None)
            if lowest is not None:  # an ancestor of those above it
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
        """Return the blocks that are not on the chain, and those that could not be compared."""
        found = await gather_or_cancel(*(self._hash_at(number) for number, _ in asked))
        gone, unsure = set(), set()
        for place, on_chain in zip(asked, found, strict=True):
            if on_chain is not None:
                if on_chain != place[1].lower():
                    gone.add(place)
            elif place[0] > head:  # the chain has become shorter
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
