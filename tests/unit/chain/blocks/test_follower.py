"""Following a chain that changes meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from fieldbrook.chain.blocks.follower import Follower, Step
from fieldbrook.chain.errors import IncompleteAnswerError, MalformedAnswerError
from fieldbrook.chain.rpc.answers import Header, read_header
from fieldbrook.core.errors import ChainUnavailableError


class Chain:
    """A chain that the test changes; `blocks` maps numbers to the text of a block."""

    def __init__(self, height: int) -> None:
        self.blocks = {n: f"a{n}" for n in range(height + 1)}
        self.asked = 0

    @property
    def height(self) -> int:
        return max(self.blocks)

    def grow(self, blocks: int, word: str = "a") -> None:
        for number in range(self.height + 1, self.height + 1 + blocks):
            self.blocks[number] = f"{word}{number}"

    def fork(self, depth: int, blocks: int, word: str) -> None:
        """Replace the last `depth` blocks by others with other texts."""
        first = self.height - depth + 1
        self.blocks = {n: w for n, w in self.blocks.items() if n < first}
        self.grow(blocks, word)

    def hash(self, number: int) -> str:
        return "0x" + self.blocks.get(number, "zero").encode().hex().rjust(64, "0")

    async def head(self, proves: Callable[[Header], bool | None]) -> Header:
        return read_header(self._block(self.height))

    async def call(
        self,
        method: str,
        params: list[Any],
        *,
        read: Callable[[Any], Any],
        proves: Callable[[Any], bool | None],
    ) -> Any:
        assert method == "eth_getBlockByNumber"
        self.asked += 1
        number = int(params[0], 16)
        return read(self._block(number) if number in self.blocks else None)

    def _block(self, number: int) -> dict[str, Any]:
        return {
            "number": hex(number),
            "hash": self.hash(number),
            "parentHash": self.hash(number - 1),
            "transactions": ["0x" + "AB" * 32],
        }


def look(follower: Follower, chain: Chain) -> Step:
    step = asyncio.run(follower.poll(chain))
    follower.apply(step)
    return step


def test_the_first_look_knows_the_last_blocks_and_nothing_vanished() -> None:
    chain, follower = Chain(100), Follower(first_blocks=5)
    step = look(follower, chain)
    assert [header.number for header in step.added] == [96, 97, 98, 99, 100]
    assert (step.vanished, step.ancestor) == ((), None)
    assert follower.oldest == 96
    assert step.added[0].transactions == ("0x" + "ab" * 32,)


def test_a_chain_that_grows_by_one_block_is_asked_for_nothing_but_its_head() -> None:
    chain, follower = Chain(100), Follower(depth=8)
    look(follower, chain)
    before = chain.asked
    for _ in range(20):
        chain.grow(1)
        assert len(look(follower, chain).added) == 1
    assert chain.asked == before
    assert list(follower.blocks) == list(range(113, 121))


@pytest.mark.parametrize("depth", range(1, 11))
@pytest.mark.parametrize("more", [-1, 0, 1, 5])
def test_a_reorganisation_of_any_depth_is_told_to_its_ancestor(depth: int, more: int) -> None:
    chain, follower = Chain(100), Follower()
    look(follower, chain)
    blocks = max(1, depth + more)
    chain.fork(depth, blocks, "b")
    step = look(follower, chain)
    assert step.ancestor == 100 - depth
    assert step.vanished == tuple(range(100 - depth + 1, 101))
    assert [header.number for header in step.added] == list(
        range(100 - depth + 1, 100 - depth + blocks + 1)
    )
    assert not step.lost
    assert follower.blocks[chain.height] == chain.hash(chain.height)
    assert follower.newest == chain.height


def test_the_ancestor_of_a_deep_reorganisation_is_found_with_few_requests() -> None:
    chain, follower = Chain(300), Follower(first_blocks=128)
    look(follower, chain)
    chain.fork(100, 100, "b")
    before = chain.asked
    step = look(follower, chain)
    assert (step.ancestor, len(step.added)) == (200, 100)
    assert chain.asked - before < 99 + 16, "the new headers, and some to find the ancestor"


def test_headers_that_a_failed_poll_has_received_are_not_asked_for_again() -> None:
    class Flaky(Chain):
        async def call(self, method: str, params: list[Any], **more: Any) -> Any:
            if self.asked % 3 == 2:
                self.asked += 1
                raise ChainUnavailableError(chain=1, reason="HTTP status 502")
            return await super().call(method, params, **more)

    chain, follower = Flaky(1_000), Follower(first_blocks=31)
    polls = 0
    while not follower.blocks:
        polls += 1
        try:
            look(follower, chain)
        except ChainUnavailableError:
            chain.grow(1)
    assert polls > 1
    assert len(follower.blocks) == 31
    assert chain.asked < 60


def test_blocks_below_one_that_no_node_gives_yet_are_followed() -> None:
    class Pool(Chain):
        lacks = 103

        async def call(self, method: str, params: list[Any], **more: Any) -> Any:
            if int(params[0], 16) == self.lacks:
                self.asked += 1
                return more["read"](None)
            return await super().call(method, params, **more)

    chain, follower = Pool(100), Follower()
    look(follower, chain)
    chain.grow(5)
    step = look(follower, chain)
    assert [header.number for header in step.added] == [101, 102]
    assert step.lags
    before = chain.asked
    with pytest.raises(IncompleteAnswerError, match="block 103 is missing"):
        look(follower, chain)
    chain.lacks = 0
    assert [header.number for header in look(follower, chain).added] == [103, 104, 105]
    assert chain.asked - before == 2, "block 103 twice, and 104 never again"


def test_blocks_of_another_fork_below_one_that_no_node_gives_are_not_followed() -> None:
    class Pool(Chain):
        async def call(self, method: str, params: list[Any], **more: Any) -> Any:
            if int(params[0], 16) == 102:
                raise ChainUnavailableError(chain=1, reason="HTTP status 502")
            return await super().call(method, params, **more)

    chain, follower = Pool(100), Follower()
    look(follower, chain)
    chain.fork(1, 4, "b")
    with pytest.raises(ChainUnavailableError):
        look(follower, chain)
    assert follower.newest == 100


def test_headers_of_a_failed_poll_that_a_reorganisation_removed_are_asked_for_again() -> None:
    chain, follower = Chain(100), Follower(first_blocks=10)
    follower._received = {95: read_header(Chain(100)._block(95))}
    chain.fork(8, 8, "b")
    with pytest.raises(MalformedAnswerError, match="changed while"):
        look(follower, chain)
    look(follower, chain)
    assert follower.newest == 100


def test_a_head_that_is_known_and_older_changes_nothing() -> None:
    chain, follower = Chain(100), Follower(first_blocks=10)
    look(follower, chain)
    for height in (97, 91):
        assert look(follower, Chain(height)) == Step(lags=True)
    with pytest.raises(MalformedAnswerError, match="or the chain was restarted from"):
        look(follower, Chain(50))
    assert follower.newest == 100


def test_after_a_long_pause_the_newest_blocks_are_followed_and_the_old_forgotten() -> None:
    chain, follower = Chain(100), Follower(depth=10, first_blocks=10)
    look(follower, chain)
    chain.grow(1000)
    step = look(follower, chain)
    assert (step.vanished, step.ancestor) == ((), None)
    assert list(follower.blocks) == list(range(1091, 1101))


def test_a_reorganisation_during_a_long_pause_is_told() -> None:
    chain, follower = Chain(100), Follower(depth=10, first_blocks=10)
    look(follower, chain)
    chain.fork(3, 1000, "b")
    step = look(follower, chain)
    assert (step.vanished, step.ancestor, step.lost) == ((98, 99, 100), 97, False)
    assert list(follower.blocks) == list(range(chain.height - 9, chain.height + 1))


def test_a_reorganisation_deeper_than_what_is_known_is_told_as_such() -> None:
    chain, follower = Chain(100), Follower(depth=10, first_blocks=10)
    look(follower, chain)
    chain.fork(50, 51, "b")
    step = look(follower, chain)
    assert (step.vanished, step.ancestor, step.lost) == (tuple(range(91, 101)), 90, True)


def test_a_chain_that_moves_while_it_is_looked_at_is_looked_at_again() -> None:
    class Moving(Chain):
        async def head(self, proves: Callable[[Header], bool | None]) -> Header:
            head = await super().head(proves)
            self.fork(3, 4, "c")
            return head

    chain, follower = Chain(100), Follower()
    look(follower, chain)
    moving = Moving(100)
    moving.grow(5)
    with pytest.raises(MalformedAnswerError):
        asyncio.run(follower.poll(moving))
    assert follower.newest == 100


def test_whatever_a_chain_does_what_is_followed_is_the_chain() -> None:
    rng = random.Random(7)
    chain, follower = Chain(30), Follower(depth=16, first_blocks=8)
    told: dict[int, str] = {}
    for turn in range(120):
        if rng.random() < 0.3:
            depth = rng.randint(1, 6)
            chain.fork(depth, rng.randint(1, 9), f"f{turn}-")
        else:
            chain.grow(rng.choice([0, 1, 1, 2, 30]))
        step = look(follower, chain)
        if step.ancestor is not None:
            told = {n: word for n, word in told.items() if n <= step.ancestor}
        told |= {header.number: header.hash for header in step.added}
        for number, spelled in follower.blocks.items():
            if number <= chain.height:
                assert spelled == chain.hash(number)
        assert list(follower.blocks) == list(range(follower.oldest, follower.newest + 1))
        assert len(follower.blocks) <= 16
        assert all(spelled == chain.hash(n) for n, spelled in told.items() if n <= chain.height)
