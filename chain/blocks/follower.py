"""Follower: tracks the newest blocks of a chain and detects reorganisations.

The follower keeps the hashes of the newest blocks. The parent of each new block must be the newest
known block. If it is not, the follower searches for the common ancestor and reports all known
blocks above it as vanished. If the head is an older, known block, the endpoint lags behind, and
nothing changes.

A poll that fails keeps the headers that it has received. The next poll requests only the missing
ones.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from fieldbrook.chain.errors import CHAIN_FAILURES, IncompleteAnswerError, MalformedAnswerError
from fieldbrook.chain.rpc.answers import Header, read_header
from fieldbrook.chain.rpc.request import compared_later

DEPTH = 128  # kept blocks, which is also the depth of the deepest reorganisation that is followed
FIRST_BLOCKS = 32  # headers that are read at the first poll, or after a pause that leaves a gap


class Caller(Protocol):
    """The part of `ChainClient` that the follower uses."""

    async def call(
        self,
        method: str,
        params: list[Any],
        *,
        read: Callable[[Any], Any],
        proves: Callable[[Any], bool | None],
    ) -> Any:
        """See `client.ChainClient.call`."""
        ...

    async def head(self, proves: Callable[[Header], bool | None]) -> Header:
        """See `client.ChainClient.head`."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """The result of a poll of the chain.

    Attributes:
        added: headers of the new blocks.
        dropped: numbers of blocks that are too old to be kept.
        vanished: numbers of blocks that a reorganisation removed.
        ancestor: the number of the last unchanged block; None if no block vanished.
        lost: whether the reorganisation is deeper than the known blocks. Then unknown blocks may
            have vanished, too.
        lags: whether an answer came from a lagging node. Several nodes may share the address of
            an endpoint; this one lacks blocks that another one has returned before.
    """

    added: tuple[Header, ...] = ()
    dropped: tuple[int, ...] = ()
    vanished: tuple[int, ...] = ()
    ancestor: int | None = None
    lost: bool = False
    lags: bool = False


@dataclass
class Follower:
    """The newest blocks of a chain.

    Attributes:
        blocks: maps block numbers to hashes, in ascending order and without a gap.
        blooms: maps block numbers to Bloom filters, for blocks read since the process started.
        depth: how many blocks are kept.
        first_blocks: how many of the newest blocks are read if there is a gap below them.
    """

    blocks: dict[int, str] = field(default_factory=dict)
    blooms: dict[int, int] = field(default_factory=dict)
    depth: int = DEPTH
    first_blocks: int = FIRST_BLOCKS
    _received: dict[int, Header] = field(default_factory=dict)  # headers from failed polls

    @property
    def newest(self) -> int:
        """The number of the newest known block; -1 if none is known."""
        return next(reversed(self.blocks), -1)

    @property
    def oldest(self) -> int:
        """The number of the oldest known block; -1 if none is known."""
        return next(iter(self.blocks), -1)

    async def poll(self, client: Caller) -> Step:
        """Request the head and return the changes since the last poll.

        The caller stores the step and then calls `apply`. Until then `blocks` stays unchanged.

        Raises:
            ChainUnavailableError, RpcError: see `ChainClient.call`.
            MalformedAnswerError: an answer is not a block, the endpoint lags too far behind, or
                the chain changed during the poll.
        """
        head = await client.head(self._proves_chain)
        if not self.blocks:
            return Step(added=await self._first_headers(client, head))
        if self.blocks.get(head.number) == head.hash:
            return Step(lags=head.number < self.newest)
        if head.number < self.oldest:
            raise MalformedAnswerError(
                f"its newest block is {head.number}, but the oldest known block is {self.oldest}: "
                "the endpoint lags behind, or the chain was restarted from its first block"
            )
        if head.parent == self.blocks.get(head.number - 1) and head.number > self.newest:
            return self._extended((head,))
        return await self._catch_up(client, head)

    def apply(self, step: Step) -> None:
        """Apply a step that `poll` has returned."""
        for number in (*step.vanished, *step.dropped):
            self.blocks.pop(number, None)
            self.blooms.pop(number, None)
        self.blocks.update((header.number, header.hash) for header in step.added)
        self.blooms.update((header.number, header.bloom) for header in step.added)
        newest = self.newest
        self._received = {n: header for n, header in self._received.items() if n > newest}

    def _proves_chain(self, head: Header) -> bool | None:
        """Return whether a head is a known block or the child of one, which proves the chain; see
        `Request.proves`.

        Returns None for any other head, because `poll` then compares its ancestors.
        """
        known = self.blocks.get
        if known(head.number) == head.hash or known(head.number - 1) == head.parent:
            return True
        return None if self.blocks else False

    async def bloom(self, client: Caller, number: int) -> int:
        """Return the Bloom filter of a known block; 0 if it contains no information.

        Raises:
            ChainUnavailableError, RpcError: see `ChainClient.call`.
            MalformedAnswerError: the block's hash has changed, or the answer is not a block.
        """
        if number not in self.blooms:
            header = await _header(client, number)
            if header.hash != self.blocks.get(number):
                raise MalformedAnswerError("the chain changed while its blocks were read")
            self.blooms[number] = header.bloom
        return self.blooms[number]

    async def _first_headers(self, client: Caller, head: Header) -> tuple[Header, ...]:
        start = max(0, head.number - self.first_blocks + 1)
        return await self._headers(client, range(start, head.number), head)

    async def _catch_up(self, client: Caller, head: Header) -> Step:
        """Return the step to a head whose parent is not the newest known block."""
        if head.number > self.newest and head.number - self.newest <= self.depth:
            # In most cases there is no reorganisation, only several new blocks.
            try:
                added = await self._headers(client, range(self.newest + 1, head.number), head)
            except CHAIN_FAILURES:
                # Some nodes behind the endpoint's address may lack the newest blocks. Use the
                # blocks that were received.
                added = self._received_next()
                if not added:
                    raise
            if added[0].parent == self.blocks[self.newest]:
                return self._extended(added, lags=added[-1] is not head)
        ancestor = await self._ancestor(client, min(head.number, self.newest))
        lost = ancestor is None
        last_kept = self.oldest - 1 if ancestor is None else ancestor
        vanished = tuple(number for number in self.blocks if number > last_kept)
        start = last_kept + 1
        if lost or head.number - start >= self.depth:
            start = max(start, head.number - self.first_blocks + 1)
        added = await self._headers(client, range(start, head.number), head)
        gap = start > last_kept + 1 or lost
        if not gap and added[0].parent != self.blocks[last_kept]:
            raise MalformedAnswerError("the chain changed while its blocks were read")
        kept = [number for number in self.blocks if number <= last_kept]
        dropped = tuple(kept) if gap else self._surplus(kept, len(added))
        return Step(
            added, dropped, vanished, last_kept if vanished else None, lost and bool(vanished)
        )

    def _received_next(self) -> tuple[Header, ...]:
        """Return the received headers that follow the newest known block without a gap."""
        found: list[Header] = []
        parent, number = self.blocks[self.newest], self.newest + 1
        while (header := self._received.get(number)) is not None and header.parent == parent:
            found.append(header)
            parent, number = header.hash, number + 1
        return tuple(found)

    def _extended(self, added: tuple[Header, ...], *, lags: bool = False) -> Step:
        return Step(added, self._surplus(list(self.blocks), len(added)), lags=lags)

    def _surplus(self, kept: list[int], added: int) -> tuple[int, ...]:
        return tuple(kept[: max(0, len(kept) + added - self.depth)])

    async def _ancestor(self, client: Caller, number: int) -> int | None:
        """Find the newest unchanged block; None if all known blocks have changed.

        All blocks below an unchanged one are unchanged, too. So the search goes down in steps that
        double, and then continues as a binary search.
        """
        changed, step = number + 1, 1
        while True:
            number = max(self.oldest, number)
            header = await self._compared(client, number)
            if header.hash == self.blocks[number]:
                break
            if number == self.oldest:
                return None
            changed, number, step = number, number - step, step * 2
        while changed - number > 1:
            middle = (changed + number) // 2
            header = await self._compared(client, middle)
            if header.hash == self.blocks[middle]:
                number = middle
            else:
                changed = middle
        return number

    async def _compared(self, client: Caller, number: int) -> Header:
        """Return the current header of a known block's number."""
        # A changed hash proves nothing: the endpoint may have switched to another chain.
        return await _header(client, number, lambda found: found.hash == self.blocks[number])

    async def _headers(self, client: Caller, numbers: range, head: Header) -> tuple[Header, ...]:
        """Return the headers of these numbers and the head.

        Raises:
            ChainUnavailableError, RpcError: see `ChainClient.call`.
            MalformedAnswerError: a header is not the parent of the next one.
        """
        received = self._received = {n: h for n, h in self._received.items() if n in numbers}
        asking = (_header(client, number) for number in numbers if number not in received)
        failures = []
        for answer in await asyncio.gather(*asking, return_exceptions=True):
            if isinstance(answer, Header):
                received[answer.number] = answer
            else:
                failures.append(answer)
        if failures:
            raise failures[0]
        found = (*(received[number] for number in numbers), head)
        if any(lower.hash != upper.parent for lower, upper in itertools.pairwise(found)):
            self._received = {}
            raise MalformedAnswerError("the chain changed while its blocks were read")
        return found


async def _header(
    client: Caller, number: int, proves: Callable[[Header], bool | None] = compared_later
) -> Header:
    def read(raw: Any) -> Header:
        if raw is None:  # this happens if several nodes share the endpoint's address
            raise IncompleteAnswerError(f"block {number} is missing, although a newer one is known")
        header = read_header(raw)
        if header.number != number:
            raise MalformedAnswerError(f"block {header.number} instead of {number}")
        return header

    params = [hex(number), False]
    found: Header = await client.call("eth_getBlockByNumber", params, read=read, proves=proves)
    return found


def hashes_to_bytes(blocks: Mapping[int, str]) -> dict[int, bytes]:
    """Convert block hashes from hexadecimal to bytes, as a store keeps them."""
    return {number: bytes.fromhex(text[2:]) for number, text in blocks.items()}


def hashes_to_text(blocks: Mapping[int, bytes]) -> dict[int, str]:
    """Convert block hashes from bytes to hexadecimal, as endpoints write them."""
    return {number: "0x" + data.hex() for number, data in blocks.items()}
