"""Endpoints that omit logs: the node detects the omission by the block header and asks again."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldbrook.chain.blocks.bloom import bloom_of
from fieldbrook.chain.blocks.logs import read_logs
from fieldbrook.chain.blocks.omissions import RETRIES_PER_BLOCK
from fieldbrook.chain.monitors import watch
from fieldbrook.chain.rpc import endpoint
from fieldbrook.chain.rpc.answers import FULL_BLOOM, read_header
from fieldbrook.observability import metrics
from tests.chain.evm import Evm
from tests.chain.forgetful import ALL, BY_CONTRACT, RECEIPTS, Busy, Forgetful, Strange
from tests.chain.forked import ADDRESS, TOPIC, Block
from tests.chain.proxy import Proxy
from tests.chain.world import World, eventually, world_over


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call a failed endpoint again at once."""
    monkeypatch.setattr(endpoint, "_PAUSES_S", (0.0, 0.01))
    monkeypatch.setattr(watch, "_PAUSES_S", (0.02,))


def left_out() -> float:
    """Return how many omitted logs were found."""
    return metrics.here.row[metrics.CHAIN_LOGS_OMITTED]


def watched(folder: Path, *chains: Forgetful, **settings: int) -> tuple[World, int]:
    """Make a world over endpoints, and its monitor from the first block on."""
    world = world_over(folder, *chains, **settings)
    return world, world.logs(ADDRESS, [TOPIC])


async def reads(world: World, monitor_id: int, block: int) -> None:
    """Wait until a monitor has reached a block."""
    await eventually(lambda: (c := world.store.cursor(monitor_id)) and c.block == block)


class View(Forgetful):
    """Another endpoint of the same chain."""

    def __init__(self, chain: Forgetful) -> None:
        super().__init__(0)
        self.chain = chain.chain


async def test_logs_that_the_preferred_endpoint_leaves_out_are_those_of_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chain = Forgetful(50)
    lazy = View(chain)
    chain.grow(1, 2)
    lazy.forgets = lambda _how: True
    world, monitor_id = watched(tmp_path, lazy, chain)
    before = left_out()
    async with world.running():
        await eventually(lambda: world.numbers() == [1, 2, 3])
        chain.grow(0, 3, 0)
        await reads(world, monitor_id, chain.chain[-1].number)
        await eventually(lambda: world.numbers() == chain.logs())
        assert world.cursor(monitor_id).failures == 0
    assert left_out() - before in range(1, 7), "the one that leaves out rests meanwhile"
    assert ALL not in lazy.queries, "another one is asked again, not the same"
    assert world.client.status()[0].failures
    assert "omitted logs of block 5" in caplog.text


@pytest.mark.parametrize("forgotten", [{BY_CONTRACT}, {BY_CONTRACT, ALL}, {ALL, RECEIPTS}])
@pytest.mark.parametrize("hashless", [False, True])
async def test_a_lone_endpoint_is_asked_in_other_ways(
    tmp_path: Path, forgotten: set[str], hashless: bool
) -> None:
    chain = Forgetful(50, hashless=hashless)
    chain.forgets = lambda how: how in forgotten
    world, monitor_id = watched(tmp_path, chain)
    async with world.running():
        for logs in (1, 2, 3):
            chain.grow(0, logs)
            await eventually(lambda: world.numbers() == chain.logs())
        assert world.cursor(monitor_id).failures == 0, "without a delay"
    assert (ALL in chain.queries) == (BY_CONTRACT in forgotten), "only where it must be"


async def test_a_block_whose_logs_nobody_gives_yet_is_not_passed(
    tmp_path: Path, impatient: None
) -> None:
    chain = Forgetful(50)
    world, monitor_id = watched(tmp_path, chain)
    async with world.running() as service:
        await reads(world, monitor_id, 50)
        until = len(chain.queries) + 9  # three queries in each of three rounds
        errors = set()

        def forgets(_how: str) -> bool:
            errors.add(service._progress.watches[monitor_id].cursor.error)
            return len(chain.queries) <= until

        chain.forgets = forgets
        chain.grow(1)
        await reads(world, monitor_id, 51)
        await eventually(lambda: world.cursor(monitor_id).error == "")
        assert world.cursor(monitor_id).failures == 3
    assert world.numbers() == [1]
    assert errors == {
        "",
        "an endpoint's answer is not usable: fewer logs than the block's Bloom filter shows",
    }
    assert world.client.status()[0].failures == 0, "it may only be a little behind"


async def test_a_chain_whose_headers_do_not_fit_its_logs_holds_nobody(
    tmp_path: Path, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(Forgetful):
        odd = True

        def bloom(self, block: Block) -> int:
            return FULL_BLOOM >> 1 if self.odd else super().bloom(block)

    chain = Odd(50)
    world, monitor_id = watched(tmp_path, chain)
    async with world.running():
        chain.grow(*[0, 1] * 10)
        await reads(world, monitor_id, 70)
        assert world.numbers() == chain.logs()
        assert world.cursor(monitor_id).failures < 10, "the first block was tried, no other"
        chain.odd = False
        for height in range(130, 371, 60):  # then the budget has a reserve again
            chain.grow(*[0] * 60)
            await reads(world, monitor_id, height)
        chain.forgets = lambda how: how == BY_CONTRACT
        chain.grow(2)
        await reads(world, monitor_id, 371)  # the filter matches: headers are trusted from now on
        chain.forgets = lambda how: how in (BY_CONTRACT, ALL)
        chain.grow(3)
        await reads(world, monitor_id, 372)
        assert world.numbers() == chain.logs()
    assert caplog.text.count("Bloom filters are not used") == 1


async def test_logs_of_a_form_that_is_not_known_hold_nobody_and_make_no_endpoint_fail(
    tmp_path: Path, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    chain = Strange(50)
    world, monitor_id = watched(tmp_path, chain)
    async with world.running():
        await reads(world, monitor_id, 50)
        failures = world.cursor(monitor_id).failures
        asked = len(chain.queries)
        chain.grow(*[0, 1] * 30)
        await reads(world, monitor_id, 110)
        assert world.cursor(monitor_id).failures == failures == 3
        assert len(chain.queries) - asked <= 62, "it is not asked in vain all the time"
        assert world.client.status()[0].failures == 0
    assert world.numbers() == chain.logs()
    assert caplog.text.count("Bloom filters are not used") == 1


async def test_blocks_whose_headers_tell_of_everything_cost_nothing(tmp_path: Path) -> None:
    class Full(Forgetful):
        def bloom(self, block: Block) -> int:
            return FULL_BLOOM

    chain = Full(50)
    chain.grow(*[0, 0, 0, 1] * 10)
    world, monitor_id = watched(tmp_path, chain)
    async with world.running():
        await reads(world, monitor_id, 90)
    assert world.numbers() == chain.logs()
    assert set(chain.queries) == {BY_CONTRACT}


async def test_what_full_blocks_cost_is_bounded_and_holds_nobody(tmp_path: Path) -> None:
    chain = Busy(50)
    blocks = 50
    world, monitor_id = watched(tmp_path, chain)
    async with world.running():
        for _ in range(10):
            chain.grow(*[0] * 38, 2, 0)
            blocks += 40
            await reads(world, monitor_id, blocks)
        assert world.cursor(monitor_id).failures == 0
    assert world.numbers() == chain.logs()
    in_vain = chain.queries.count(ALL)
    assert blocks * RETRIES_PER_BLOCK / 2 < in_vain < 32 + 16 + blocks * RETRIES_PER_BLOCK
    assert RECEIPTS not in chain.queries


async def test_an_endpoint_that_is_a_little_behind_is_no_worse_for_being_asked_again(
    tmp_path: Path,
) -> None:
    """The endpoint does not have the logs of a block yet, although its header shows some."""
    chain = Busy(50)
    behind = View(chain)
    behind.forgets = lambda _how: True
    world, monitor_id = watched(tmp_path, chain, behind)
    async with world.running():
        chain.grow(0, 0, 0)
        await reads(world, monitor_id, 53)
        assert behind.queries, "it was asked"
        assert world.cursor(monitor_id).failures == 0
        assert [status.failures for status in world.client.status()] == [0, 0]


async def test_blocks_that_were_seen_before_a_restart_are_looked_at_as_others_are(
    tmp_path: Path, impatient: None
) -> None:
    chain = Forgetful(50)
    world, monitor_id = watched(tmp_path, chain, confirmations=6)
    async with world.running() as service:
        await reads(world, monitor_id, 44)
        chain.grow(1, 0, 2)
        await eventually(lambda: service._follower.newest == 53)
    chain.forgets = lambda how: how == BY_CONTRACT
    chain.grow(*[0] * 6)
    async with world.running():
        await reads(world, monitor_id, 53)
    assert world.numbers() == chain.logs() == [1, 2, 3]


# ---------------------------------------------------------------- a real chain


def test_the_bits_of_a_real_block_are_those_of_its_logs(evm: Evm) -> None:
    contract = evm.deploy()
    contract.call("many", 1, 20)
    contract.call("ping", 1, "text")
    contract.call("transfer", evm.accounts[1], 9)
    evm.mine(1)
    for number in range(evm.height + 1):
        raw = evm.rpc("eth_getBlockByNumber", hex(number), False)
        logs = read_logs(evm.rpc("eth_getLogs", {"blockHash": raw["hash"]}))
        assert read_header(raw).bloom == bloom_of(logs)


@pytest.mark.parametrize("endpoints", [1, 2])
async def test_logs_of_a_real_chain_are_found_though_an_endpoint_has_none(
    tmp_path: Path, evm: Evm, endpoints: int, caplog: pytest.LogCaptureFixture
) -> None:
    """With only one endpoint, the logs come from the receipts."""
    proxies = [Proxy(evm.url) for _ in range(endpoints)]
    try:
        world = World(tmp_path, [proxy.url for proxy in proxies])
        contract = evm.deploy()
        monitor_id = world.logs(contract.address, first=evm.height)
        async with world.running():
            proxies[0].forgets = True
            for n in range(3):
                contract.call("many", 10 * n, 2)
                await eventually(lambda n=n: len(world.numbers()) == 2 * n + 2)  # type: ignore[misc]
            await reads(world, monitor_id, evm.height)
        assert world.numbers() == [0, 1, 10, 11, 20, 21]
    finally:
        for proxy in proxies:
            proxy.close()
    assert proxies[0].asked["eth_getBlockReceipts"] == (3 if endpoints == 1 else 0)
