"""Watches the blocks of transactions until they are final: a reorganisation may remove them.

The newest of these blocks speaks for those below it, because each block names its parent. So one
header per look is enough, and one for each block that has come to be watched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from fieldbrook.chain.errors import MalformedAnswerError
from fieldbrook.chain.rpc.answers import read_header
from fieldbrook.chain.transactions.chain_state import Rpc
from fieldbrook.core.clock import Clock
from fieldbrook.core.errors import ChainUnavailableError
from fieldbrook.storage.chain.transactions import INIT, PENDING, Transaction

LAGS_MS = 30_000
"""How long an answer that shows fewer blocks or nonces than an earlier one is taken for that of an
endpoint that lags behind."""
_TOGETHER = 32  # blocks that are compared at one look

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

    def highest(self, head: int) -> int:
        """Return the highest recent head; a lower one may be that of an endpoint that lags."""
        now = self._clock()
        if head >= self._head or now - self._head_at >= LAGS_MS:
            self._head, self._head_at = head, now
        return self._head

    def is_known(self, row: Transaction) -> bool:
        """Return whether the last look found a transaction's block, or it has none."""
        return not row.mined or _place(row) in self._known

    async def vanished(self, rows: Sequence[Transaction], head: int) -> list[Transaction]:
        """Return those of `rows` whose block is certainly not on the chain.

        Args:
            rows: transactions in blocks that may vanish.
            head: see `highest`.

        Raises:
            ChainUnavailableError, RpcError: see `ChainClient.call`.
        """
        places = {_place(row) for row in rows if row.mined}
        if not places:
            self._newest, self._known = None, set()
            return []
        newest = max(places)
        asked = {newest, *sorted(places - self._known, reverse=True)[:_TOGETHER]}
        if self._newest is not None:
            asked.add(self._newest)
        gone, unsure = await self._compared(asked, head)
        if gone:  # what is below them may have vanished as well, and is compared anew
            self._newest, self._known = None, set()
        elif not {newest, self._newest} & unsure:
            self._newest, self._known = newest, (self._known | asked) & places - unsure
        return [row for row in rows if row.mined and _place(row) in gone]

    async def _compared(self, asked: set[Place], head: int) -> tuple[set[Place], set[Place]]:
        """Return the blocks that are not on the chain, and those that could not be compared."""
        found = await asyncio.gather(*(self._hash_at(number) for number, _ in asked))
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
        raw = await self._rpc.call("eth_getBlockByNumber", [hex(number), False])
        try:
            return None if raw is None else read_header(raw).hash
        except MalformedAnswerError as error:
            raise ChainUnavailableError(chain="", reason=f"block {number}: {error}") from None


class Counts:
    """How many nonces of each account the chain counts, compared with the node's transactions.

    Attributes:
        behind: by account, how many nonces the chain counts and how many the node has used, where
            the chain counts fewer.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, int] = {}
        self.behind: dict[str, tuple[int, int]] = {}

    def compare(self, sender: str, rows: Sequence[Transaction], counted: int) -> int:
        """Compare an account's transactions with the chain's count.

        Args:
            sender: the account.
            rows: its unfinished and its watched transactions.
            counted: how many nonces the chain counts.

        Returns:
            For how many ms the chain has counted fewer than were used.
        """
        waiting = [row for row in rows if row.state in (INIT, PENDING)]
        used = [row.nonce + 1 for row in rows if row not in waiting or row.vanished]
        used += [min(row.nonce for row in waiting)] if waiting else []
        expected = max(used, default=0)
        if counted >= expected:
            self._since.pop(sender, None)
            self.behind.pop(sender, None)
            return 0
        now = self._clock()
        self.behind[sender] = counted, expected
        return now - self._since.setdefault(sender, now)

    def keep_only(self, senders: Collection[str]) -> None:
        """Forget all other accounts."""
        for sender in self.behind.keys() - set(senders):
            del self.behind[sender], self._since[sender]

    @property
    def missing(self) -> int:
        """How many nonces the chain lacks, of all accounts."""
        return sum(expected - counted for counted, expected in self.behind.values())

    def describe(self, senders: Collection[str]) -> str:
        """Describe the differences of some accounts, for the health condition."""
        return "; ".join(
            f"account {sender}: the chain counts {counted} nonces, the node has used {expected}"
            for sender, (counted, expected) in self.behind.items()
            if sender in senders
        )


def _place(row: Transaction) -> Place:
    return row.block_number, row.block_hash
