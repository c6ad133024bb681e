"""Reorganisations at any moment, and kills of the chain service at any moment."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.chain.monitors import head as head_module
from fieldbrook.chain.monitors import logs, watch
from tests.chain.evm import CHAIN_ID
from tests.chain.forked import ADDRESS, TOPIC, ForkedChain
from tests.chain.world import World, eventually


def watched(folder: Path, chain: ForkedChain, **settings: int) -> World:
    """Make a world over a chain, with a monitor from its first block on."""
    world = World(folder, ["http://forked.example"], **settings)
    world.client_options = {"transport": lambda _url: chain}
    world.logs(ADDRESS, [TOPIC])
    return world


def standing(world: World) -> Counter[int]:
    """Return the logs that were reported to the project, without the reverted ones."""
    return Counter(world.numbers()) - Counter(world.numbers("SEEN_REMOVED"))


def count(world: World, event_type: str, wanted: int) -> bool:
    return len(world.payloads(event_type)) == wanted


async def test_a_block_that_vanishes_and_comes_again_is_at_again_each_time(
    tmp_path: Path,
) -> None:
    chain = ForkedChain(50)
    world = watched(tmp_path, chain)
    async with world.running():
        chain.grow(1, 2)
        await eventually(lambda: world.numbers() == [1, 2, 3])
        for turn in range(1, 4):
            here = chain.fork(1)
            chain.grow(0, 0)
            await eventually(partial(count, world, "SEEN_REMOVED", 2 * turn))
            there = chain.fork(2)
            chain.chain += here
            # The chain is shorter than before: only the hash of its last block shows the fork.
            await eventually(partial(count, world, "SEEN", 3 + 2 * turn))
            assert there[0].number == here[0].number
    assert world.numbers() == [1, *[2, 3] * 4]
    assert world.numbers("SEEN_REMOVED") == [3, 2] * 3
    ids = [event[2] for event in world.handled]
    assert len(ids) == len(set(ids))
    assert [i.rpartition("-")[2] for i in ids if i.startswith("log") and "-1-" in i][-1] == "3"


async def test_a_new_block_that_the_answering_node_lacks_is_asked_for_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this test, the monitor would pause for an hour after any other failure."""
    monkeypatch.setattr(watch, "_PAUSES_S", (3_600.0,))
    monkeypatch.setattr(logs, "_MOST_PAUSE_S", 0.01)
    monkeypatch.setattr(logs, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(logs, "_REPORTED_S", 0.0)
    chain = ForkedChain(50)
    world = watched(tmp_path, chain)
    (monitor,) = world.reader.monitors_of_chain(CHAIN_ID)

    def is_at(block: int, failures: int) -> bool:
        cursor = world.store.cursor(monitor.monitor_id)
        return cursor is not None and (cursor.block, cursor.failures) >= (block, failures)

    async with world.running():
        await eventually(lambda: is_at(50, 0))
        chain.logs_behind = 1
        chain.grow(1)
        await eventually(lambda: is_at(50, 10))
        chain.logs_behind = 0
        await eventually(lambda: world.numbers() == [1])


async def test_a_poll_that_also_asks_for_an_unknown_block_comes_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_FIRST_PAUSE_S", 3_600.0)
    monkeypatch.setattr(logs, "_POLL_WITHIN_S", 0.05)
    chain = ForkedChain(50)
    world = watched(tmp_path, chain, poll_ms=3_600_000)
    async with world.running() as service:
        await eventually(lambda: service._head.confirmed == 50)
        chain.logs_behind = 1
        chain.grow(1)
        service._head.poll_within(0.0)
        await eventually(lambda: service._logs._unknown is not None)
        chain.logs_behind = 0
        await eventually(lambda: world.numbers() == [1])


class Pool(ForkedChain):
    """Nodes of different heights: the answering node has no block with the number `lacks`."""

    lacks = -1

    async def request(self, method: str, params: list[Any]) -> dict[str, Any]:
        if method == "eth_getBlockByNumber" and params[0] == hex(self.lacks):
            return {"result": None}
        return await super().request(method, params)


async def test_where_nodes_lag_the_chain_is_looked_at_again_after_half_the_time(
    tmp_path: Path,
) -> None:
    pool = Pool(50)
    world = watched(tmp_path, pool, poll_ms=60_000)
    async with world.running() as service:
        head = service._head
        await eventually(lambda: head.confirmed == 50)

        async def pause() -> int:
            began = time.monotonic()
            await head.poll()
            return round((head.due - began) / 10) * 10

        assert await pause() == 60, "nothing tells of different heights"
        newest = pool.fork(1)
        assert [await pause(), await pause()] == [30, 30], "an older head, twice"
        pool.chain += newest
        assert await pause() == 30, "it may be old again"
        pool.grow(1)
        assert await pause() == 60
        pool.lacks = 52
        pool.grow(0, 0, 0)
        assert [await pause(), head.confirmed] == [30, 51], "a head, and no block below it"
        pool.grow(0, 0)
        pool.lacks = 55
        assert [await pause(), head.confirmed] == [30, 54], "the same once more"
        pool.lacks = -1
        assert [await pause(), head.confirmed] == [60, 56]
        for _ in range(head_module._LAGGING_POLLS):
            await head.poll()
        assert [await pause(), await pause()] == [60, 60], "it has not lagged for a while"


@pytest.mark.parametrize("killed", [False, True])
async def test_a_transaction_whose_block_comes_again_is_at_again_each_time(
    tmp_path: Path, killed: bool
) -> None:
    chain = ForkedChain(50)
    chain.grow(0, 0)
    world = World(tmp_path, ["http://forked.example"])
    world.client_options = {"transport": lambda _url: chain}
    monitor_id = world.transaction(chain.chain[-2].hash)
    for turn in range(3):
        async with world.running(killed=killed):
            await eventually(partial(count, world, "MINED", turn + 1))
            here = chain.fork(2)
            chain.grow(0, 0, 0)
            await eventually(partial(count, world, "MINED_REMOVED", turn + 1))
        chain.fork(3)
        chain.chain += here
    async with world.running():
        await eventually(partial(count, world, "MINED", 4))
    first = f"tx-31337-{here[0].hash[2:]}-0-{monitor_id}"
    expected = [first]
    for turn in range(3):
        before = f"-{turn}" if turn else ""
        expected += [f"removed-{first}{before}", f"{first}-{turn + 1}"]
    assert [event[2] for event in world.handled] == expected


async def test_an_endpoint_that_gives_no_logs_by_hash_is_asked_by_number(tmp_path: Path) -> None:
    chain = ForkedChain(50, hashless=True)
    world = watched(tmp_path, chain)
    async with world.running():
        chain.grow(1, 2)
        await eventually(lambda: world.numbers() == [1, 2, 3])
        chain.fork(1)
        chain.grow(1)
        await eventually(lambda: world.numbers() == [1, 2, 3, 4])
    assert world.numbers("SEEN_REMOVED") == [3, 2]


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_what_stands_at_the_end_is_what_is_on_the_chain(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    chain = ForkedChain(60)
    chain.grow(1, 2, 0, 3)
    world = watched(tmp_path, chain, confirmations=rng.choice([0, 0, 2]))
    taken = chain.chain[-1:]
    for _ in range(12):
        async with world.running(killed=rng.random() < 0.7):
            for _ in range(rng.randint(0, 4)):
                world.silent = rng.random() < 0.3
                if rng.random() < 0.5:
                    depth = rng.randint(1, 8)
                    taken = chain.fork(depth)
                    chain.grow(*rng.choices([0, 1, 3], k=depth + rng.randint(-1, 2)))
                elif rng.random() < 0.3 and taken[0].parent in {b.hash for b in chain.chain}:
                    chain.fork(chain.chain[-1].number - taken[0].number + 1 or 1)
                    if chain.chain[-1].hash == taken[0].parent:
                        chain.chain += taken  # as it was before
                else:
                    chain.grow(*rng.choices([0, 1, 3], k=rng.randint(0, 12)))
                await asyncio.sleep(rng.choice([0, 0.01, 0.06, 0.15]))
        world.silent = False
    chain.grow(0, 0, 1, 0, 0)
    async with world.running():
        await eventually(
            lambda: standing(world) == Counter(chain.logs()),
            f"{standing(world)} is {Counter(chain.logs())}",
        )
    told: Counter[int] = Counter()
    for event_type, number in (
        (event[0], number)
        for event in world.handled
        for number in [int(event[3].split(b'"0x')[3][:64], 16)]
    ):
        told[number] += 1 if event_type == "SEEN" else -1
        assert told[number] in (0, 1), "taken back before it was told, or told twice"
