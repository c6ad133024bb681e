"""Blocks that may be removed and nonces that the chain may not count, without a chain."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from fieldbrook.chain.transactions.broadcast.finality import LAGS_MS, Blocks
from fieldbrook.chain.transactions.broadcast.gaps import Counts
from fieldbrook.storage.chain.transactions import (
    CONFIRMED,
    IN_BLOCK,
    INIT,
    PENDING,
    Attempt,
    Transaction,
)
from tests.unit.chain.transactions.endpoint import AnyEndpoint

SENDER = "0x" + "aa" * 20
ROW = Transaction(
    transaction_id=1,
    chain_id=1,
    project_id=1,
    call_key=b"",
    event_id="",
    operator_id=1,
    operator_name="",
    sender=SENDER,
    to=SENDER,
    value="0",
    data=b"",
    gas=21_000,
    attempts=[],
    event_type="",
    created_at=0,
    updated_at=0,
)


def row(nonce: int, state: str, block: int = 0, fork: int = 0, vanished: int = 0) -> Transaction:
    return msgspec.structs.replace(
        ROW,
        attempts=[Attempt("0x", b"", nonce, 1, 1, 0)],
        state=state,
        mined="0x" if block else "",
        block_number=block,
        block_hash=_hash(block, fork),
        vanished=vanished,
    )


def _hash(number: int, fork: int) -> str:
    return f"0x{number:032x}{fork:032x}"


class Chain(AnyEndpoint):
    """Blocks up to `head`, those from `fork_at` on of another fork; `asked` are their numbers."""

    def __init__(self, head: int) -> None:
        self.head = head
        self.fork_at = 1 << 62
        self.lacks = 0  # the number of newest blocks that the endpoint lacks
        self.asked: list[int] = []

    async def answer(self, method: str, params: list[Any]) -> Any:
        assert method == "eth_getBlockByNumber"
        number = int(params[0], 16)
        self.asked.append(number)
        if number > self.head - self.lacks:
            return None
        own = _hash(number, number >= self.fork_at)
        parent = _hash(number - 1, number - 1 >= self.fork_at)
        return {"number": hex(number), "hash": own, "parentHash": parent}


class Clock:
    now = 1_000_000

    def __call__(self) -> int:
        return self.now


def looked(
    blocks: Blocks, chain: Chain, rows: list[Transaction], doubted: Sequence[Transaction] = ()
) -> list[int]:
    """Check the blocks; return the nonces of transactions whose blocks were removed."""
    chain.asked.clear()
    head = blocks.highest(chain.head)
    return [found.nonce for found in asyncio.run(blocks.vanished(rows, head, doubted))]


def test_one_header_shows_that_all_blocks_are_on_the_chain_once_each_was_seen_there() -> None:
    chain = Chain(20)
    blocks = Blocks(chain, Clock())
    rows = [row(nonce, CONFIRMED, nonce + 1) for nonce in range(8)]
    assert looked(blocks, chain, rows) == []
    assert sorted(chain.asked) == list(range(1, 9))
    assert looked(blocks, chain, rows) == []
    assert chain.asked == [8]
    rows.append(row(10, IN_BLOCK, 15))
    assert looked(blocks, chain, rows) == []
    assert sorted(chain.asked) == [8, 15]
    assert all(blocks.is_known(each) for each in rows)


def test_blocks_of_another_fork_have_vanished_and_those_below_have_not() -> None:
    chain = Chain(20)
    blocks = Blocks(chain, Clock())
    rows = [row(nonce, CONFIRMED, nonce + 1) for nonce in range(10)]
    assert looked(blocks, chain, rows) == []
    chain.fork_at = 8
    gone = []
    for _ in range(2):  # the newest is seen first, the others at the next check
        found = looked(blocks, chain, [each for each in rows if each.nonce not in gone])
        gone += found
    assert sorted(gone) == [7, 8, 9]
    assert looked(blocks, chain, rows[:7]) == []
    assert looked(blocks, chain, rows[:7]) == []
    assert chain.asked == [7], "what was known below them is known again"
    assert all(blocks.is_known(each) for each in rows[:7])


def test_what_was_above_the_first_nonce_that_the_chain_does_not_count_has_vanished_with_it() -> (
    None
):
    chain = Chain(60)
    blocks = Blocks(chain, Clock())
    rows = [row(nonce, CONFIRMED, nonce + 1) for nonce in range(40)]
    while not all(blocks.is_known(each) for each in rows):
        assert looked(blocks, chain, rows) == []
    assert looked(blocks, chain, rows, rows[30:]) == [], "the endpoint only lags"
    assert sorted(chain.asked) == [31, 40]
    chain.fork_at = 21
    assert looked(blocks, chain, rows, rows[20:]) == list(range(20, 40))
    assert sorted(chain.asked) == [21, 40]
    assert looked(blocks, chain, rows[:20]) == []
    assert looked(blocks, chain, rows[:20]) == []
    assert chain.asked == [20]
    assert all(blocks.is_known(each) for each in rows[:20])


def test_a_second_reorganisation_is_seen_while_the_first_one_is_looked_at() -> None:
    chain = Chain(60)
    blocks = Blocks(chain, Clock())
    rows = [row(nonce, CONFIRMED, nonce + 1) for nonce in range(40)]
    while not all(blocks.is_known(each) for each in rows):
        assert looked(blocks, chain, rows) == []
    gone: list[int] = []
    for fork_at in (38, 20):
        chain.fork_at = fork_at
        gone += looked(blocks, chain, [each for each in rows if each.nonce not in gone])
    for _ in range(4):
        gone += looked(blocks, chain, [each for each in rows if each.nonce not in gone])
    assert sorted(gone) == list(range(19, 40))
    looked(blocks, chain, rows[:19])
    assert all(blocks.is_known(each) for each in rows[:19])


def test_blocks_of_two_forks_do_not_speak_for_each_other() -> None:
    chain = Chain(200)
    blocks = Blocks(chain, Clock())
    rows = [row(nonce, CONFIRMED, nonce + 1) for nonce in range(40)]
    while not all(blocks.is_known(each) for each in rows):
        assert looked(blocks, chain, rows) == []
    chain.fork_at = 20
    rows = [each for each in rows if each.nonce not in looked(blocks, chain, rows)]
    later = [row(nonce, IN_BLOCK, nonce + 1, fork=1) for nonce in range(60, 70)]
    assert looked(blocks, chain, [*rows, *later]) == []
    chain.head = 67  # the newest blocks are removed
    clock = blocks._clock
    assert isinstance(clock, Clock)
    clock.now += LAGS_MS
    rows += later
    for _ in range(20):
        gone = looked(blocks, chain, rows)
        rows = [each for each in rows if each.nonce not in gone]
    assert [each.nonce for each in rows] == [*range(19), *range(60, 67)]
    assert all(blocks.is_known(each) for each in rows)


def test_everything_is_compared_again_after_a_while() -> None:
    chain, clock = Chain(20), Clock()
    blocks = Blocks(chain, clock)
    rows = [row(nonce, CONFIRMED, nonce + 1) for nonce in range(4)]
    assert looked(blocks, chain, rows) == []
    assert looked(blocks, chain, rows) == []
    assert chain.asked == [4]
    clock.now += 600_000
    assert looked(blocks, chain, rows) == []
    assert sorted(chain.asked) == [1, 2, 3, 4]


def test_many_blocks_are_compared_at_several_looks() -> None:
    chain = Chain(1_000)
    blocks = Blocks(chain, Clock())
    rows = [row(nonce, CONFIRMED, nonce + 1) for nonce in range(100)]
    for _ in range(13):
        assert looked(blocks, chain, rows) == []
        assert len(chain.asked) <= 9
    assert all(blocks.is_known(each) for each in rows)


def test_a_block_that_an_endpoint_does_not_have_yet_has_not_vanished() -> None:
    chain = Chain(20)
    blocks = Blocks(chain, Clock())
    chain.lacks = 2
    assert looked(blocks, chain, [row(0, IN_BLOCK, 20)]) == []
    assert not blocks.is_known(row(0, IN_BLOCK, 20))
    chain.lacks = 0
    assert looked(blocks, chain, [row(0, IN_BLOCK, 20)]) == []
    assert blocks.is_known(row(0, IN_BLOCK, 20))


def test_a_chain_that_stays_shorter_than_a_block_does_not_have_it() -> None:
    chain, clock = Chain(20), Clock()
    blocks = Blocks(chain, clock)
    rows = [row(0, CONFIRMED, 20)]
    assert looked(blocks, chain, rows) == []
    chain.head = 5
    assert looked(blocks, chain, rows) == [], "the endpoint may only lag"
    clock.now += LAGS_MS
    assert looked(blocks, chain, rows) == [0]


def test_nonces_that_the_chain_does_not_count_are_told_with_how_long_it_has_been_so() -> None:
    clock = Clock()
    counts = Counts(clock)
    rows = [row(0, CONFIRMED, 5), row(1, IN_BLOCK, 6), row(2, PENDING), row(3, INIT)]
    assert counts.compare(SENDER, rows, 2) == 0
    assert (counts.behind, counts.missing) == ({}, 0)
    assert counts.compare(SENDER, rows, 1) == 0
    clock.now += 500
    assert counts.compare(SENDER, rows, 0) == 500
    assert (counts.behind, counts.missing) == ({SENDER: (0, 2)}, 2)
    assert "the chain counts 0 nonces, the node has used 2" in counts.describe([SENDER])
    assert counts.compare(SENDER, rows, 4) == 0
    assert counts.describe([SENDER]) == ""


def test_what_is_sent_again_counts_as_missing_and_so_does_a_gap_below_what_waits() -> None:
    counts = Counts(Clock())
    counts.compare(SENDER, [row(0, INIT, vanished=1)], 0)
    assert counts.behind == {SENDER: (0, 1)}
    counts.compare(SENDER, [row(5, PENDING)], 3)
    assert counts.behind == {SENDER: (3, 5)}
    counts.keep_only([])
    assert counts.missing == 0
