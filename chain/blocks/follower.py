"""Follower: tracks the newest blocks of a chain and detects reorganisations.

The hashes of the newest blocks are kept. The parent of each new block must be the newest known
block. If it is not, the follower goes back to the common ancestor and reports all known blocks
above it as vanished. A head that is an older, known block comes from an endpoint that lags
behind and changes nothing.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from fieldbrook.chain.errors import MalformedAnswerError
from fieldbrook.chain.rpc.answers import Header, read_header

DEPTH = 128  # blocks that are kept, and therefore the deepest reorganisation that can be followed
FIRST_BLOCKS = 32  # blocks that are read by the first poll, including the head
_CONCURRENT_REQUESTS = 64


class Caller(Protocol):
    """The part of `ChainClient` that the follower uses."""

    async def call(
        self, method: str, params: list[Any], *, checked: bool, read: Callable[[Any], Any]
    ) -> Any:
        """See `client.ChainClient.call`."""
        ...

    async def head(self) -> dict[str, Any]:
        """See `client.ChainClient.head`."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """The result of a poll of the chain.

    Attributes:
        added: headers of the new blocks.
        dropped: numbers of blocks that are no longer kept because they are old.
        vanished: numbers of blocks that a reorganisation removed.
        ancestor: the number of the last unchanged block; None if no block vanished.
        lost: the reorganisation is deeper than the known blocks, so more may have vanished.
    """

    added: tuple[Header, ...] = ()
    dropped: tuple[int, ...] = ()
    vanished: tuple[int, ...] = ()
    ancestor: int | None = None
    lost: bool = False


@dataclass
class Follower:
    """The newest blocks of a chain.

    Attributes:
        blocks: maps block numbers to hashes, in order and without a gap.
        blooms: maps numbers of blocks read since the start to their Bloom filters.
        depth: how many blocks are kept.
        first_blocks: how many blocks the first poll reads.
    """

    blocks: dict[int, str] = field(default_factory=dict)
    blooms: dict[int, int] = field(default_factory=dict)
    depth: int = DEPTH
    first_blocks: int = FIRST_BLOCKS

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

        Nothing changes here until the caller has stored the step and calls `apply`.

        Raises:
            ChainUnavailableError, RpcError: see `ChainClient.call`.
            MalformedAnswerError: an answer is not a block, the endpoint lags too far behind, or
                the chain changed during the poll.
        """
        head = read_header(await client.head())
        if not self.blocks:
            return Step(added=await self._first_headers(client, head))
        if self.blocks.get(head.number) == head.hash:
            return Step()
        if head.number < self.oldest:
            raise MalformedAnswerError(
                f"its newest block is {head.number}, but the oldest known block is {self.oldest}: "
                "the endpoint lags behind, or the chain was started anew"
            )
        if head.parent == self.blocks.get(head.number - 1) and head.number > self.newest:
            return self._extended((head,))
        return await self._catch_up(client, head)

    def apply(self, step: Step) -> None:
        """Apply a step that `poll` returned."""
        for number in (*step.vanished, *step.dropped):
            self.blocks.pop(number, None)
            self.blooms.pop(number, None)
        self.blocks.update((header.number, header.hash) for header in step.added)
        self.blooms.update((header.number, header.bloom) for header in step.added)

    async def bloom(self, client: Caller, number: int) -> int:
        """Return the Bloom filter of a known block; 0 if it rules nothing out.

        Raises:
            ChainUnavailableError, RpcError: see `ChainClient.call`.
            MalformedAnswerError: the block has another hash now, or is not a block.
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
        """Return the step to a head that does not extend the newest known block."""
        ancestor = await self._ancestor(client, min(head.number, self.newest))
        lost = ancestor is None
        last_kept = self.oldest - 1 if ancestor is None else ancestor
        vanished = tuple(number for number in self.blocks if number > last_kept)
        start = max(last_kept + 1, head.number - self.depth + 1)
        added = await self._headers(client, range(start, head.number), head)
        gap = start > last_kept + 1 or lost
        if not gap and added[0].parent != self.blocks[last_kept]:
            raise MalformedAnswerError("the chain changed while its blocks were read")
        kept = [number for number in self.blocks if number <= last_kept]
        dropped = tuple(kept) if gap else self._surplus(kept, len(added))
        return Step(
            added, dropped, vanished, last_kept if vanished else None, lost and bool(vanished)
        )

    def _extended(self, added: tuple[Header, ...]) -> Step:
        return Step(added, self._surplus(list(self.blocks), len(added)))

    def _surplus(self, kept: list[int], added: int) -> tuple[int, ...]:
        return tuple(kept[: max(0, len(kept) + added - self.depth)])

    async def _ancestor(self, client: Caller, number: int) -> int | None:
        """Find the newest unchanged block; None if all known blocks changed."""
        while number >= self.oldest:
            # An endpoint may have switched to another chain; `checked` prevents that its blocks
            # are taken for a reorganisation.
            header = await _header(client, number, checked=True)
            if header.hash == self.blocks[number]:
                return number
            number -= 1
        return None

    async def _headers(self, client: Caller, numbers: range, head: Header) -> tuple[Header, ...]:
        """Return headers of these numbers and the head, each the parent of the next one."""
        found: list[Header] = []
        for at in range(0, len(numbers), _CONCURRENT_REQUESTS):
            some = numbers[at : at + _CONCURRENT_REQUESTS]
            found += await asyncio.gather(*(_header(client, number) for number in some))
        found.append(head)
        if any(lower.hash != upper.parent for lower, upper in itertools.pairwise(found)):
            raise MalformedAnswerError("the chain changed while its blocks were read")
        return tuple(found)


async def _header(client: Caller, number: int, *, checked: bool = False) -> Header:
    def read(raw: Any) -> Header | None:
        if raw is None:
            return None
        header = read_header(raw)
        if header.number != number:
            raise MalformedAnswerError(f"block {header.number} instead of {number}")
        return header

    params = [hex(number), False]
    found: Header | None = await client.call(
        "eth_getBlockByNumber", params, checked=checked, read=read
    )
    if found is None:  # happens if several nodes share one address
        raise MalformedAnswerError(f"block {number} is missing, although a newer one is known")
    return found


def hashes_to_bytes(blocks: Mapping[int, str]) -> dict[int, bytes]:
    """Convert block hashes from hexadecimal to bytes, as a store keeps them."""
    return {number: bytes.fromhex(text[2:]) for number, text in blocks.items()}


def hashes_to_text(blocks: Mapping[int, bytes]) -> dict[int, str]:
    """Convert block hashes from bytes to hexadecimal, as endpoints write them."""
    return {number: "0x" + data.hex() for number, data in blocks.items()}
