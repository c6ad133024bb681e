"""Monitors that wait for final blocks, over chains that report which blocks are final."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chain.evm import Evm
from tests.chain.forked import ADDRESS, ForkedChain
from tests.chain.hardhat import Hardhat
from tests.chain.world import World, eventually, world_over


@pytest.fixture(scope="module")
def evm() -> Iterator[Evm]:
    """An EVM whose blocks are final after a few others."""
    made = Evm("--slots-in-an-epoch", "2")
    yield made
    made.stop()


def numbered(evm: Evm, tag: str) -> int:
    """Return the number of the block with a tag."""
    return int(evm.rpc("eth_getBlockByNumber", tag, False)["number"], 16)


@pytest.mark.parametrize("tag", ["safe", "finalized"])
async def test_a_block_counts_when_the_endpoint_calls_it_so(
    tmp_path: Path, evm: Evm, tag: str
) -> None:
    contract = evm.deploy()
    world = World(tmp_path, [evm.url], block_tag=tag)
    world.logs(contract.address, first=evm.height)
    contract.call("ping", 1, "")
    block = evm.height
    waited = 0
    async with world.running() as service:
        while numbered(evm, tag) < block:
            await eventually(lambda: service._follower.newest == evm.height)
            await eventually(lambda: service._head.confirmed == numbered(evm, tag))
            assert world.numbers() == []
            waited += 1
            evm.mine()
        await eventually(lambda: world.numbers() == [1])
        await eventually(lambda: world.store.state().confirmed == numbered(evm, tag))
        assert world.store.state().head > world.store.state().confirmed
    assert waited >= 2


async def test_a_block_needs_its_confirmations_as_well(tmp_path: Path, evm: Evm) -> None:
    contract = evm.deploy()
    world = World(tmp_path, [evm.url], block_tag="safe", confirmations=20)
    world.logs(contract.address, first=evm.height)
    contract.call("ping", 1, "")
    evm.mine(19)
    async with world.running() as service:
        await eventually(lambda: service._head.confirmed == evm.height - 20)
        assert world.numbers() == []
        evm.mine()
        await eventually(lambda: world.numbers() == [1])


async def test_what_a_reorganisation_removes_before_it_is_final_is_never_told(
    tmp_path: Path, evm: Evm
) -> None:
    contract = evm.deploy()
    world = World(tmp_path, [evm.url], block_tag="finalized")
    world.logs(contract.address, first=evm.height)
    async with world.running() as service:
        for number in range(3):
            contract.call("ping", number, "")
            await eventually(lambda: service._follower.newest == evm.height)
            evm.reorganise(1)
            await eventually(lambda: world.store.state().reorganisations > number)  # noqa: B023
        contract.call("ping", 9, "")
        evm.mine(10)
        await eventually(lambda: world.numbers() == [9])
        assert world.numbers("SEEN_REMOVED") == []


async def test_a_chain_that_has_no_final_block_says_so_and_reports_nothing(tmp_path: Path) -> None:
    evm = Hardhat(hardfork="london")
    try:
        contract = evm.deploy()
        contract.call("ping", 1, "")
        world = World(tmp_path, [evm.url], block_tag="finalized")
        world.logs(contract.address, first=1)
        async with world.running():
            await eventually(lambda: "finalized" in world.store.state().error)
            assert world.store.state().head == evm.height, "its blocks are followed"
            assert (world.numbers(), world.store.state().confirmed) == ([], -1)
        world.settings["block_tag"] = "latest"
        async with world.running():
            await eventually(lambda: world.numbers() == [1])
            await eventually(lambda: world.store.state().error == "")
    finally:
        evm.stop()


class Finalizing(ForkedChain):
    """A chain whose final block is `final`; None if there is none."""

    final: int | None = None

    async def request(self, method: str, params: list[Any]) -> dict[str, Any]:
        if params[:1] == ["finalized"]:
            if self.final is None:
                return {"result": None}
            return await super().request(method, [hex(self.final), *params[1:]])
        return await super().request(method, params)


async def test_a_final_block_stays_final_although_an_endpoint_names_an_older_one(
    tmp_path: Path,
) -> None:
    chain = Finalizing(10)
    chain.grow(1, 1, 1)
    world = world_over(tmp_path, chain, block_tag="finalized")
    world.logs(ADDRESS)
    async with world.running() as service:
        await eventually(lambda: "no block `finalized`" in world.store.state().error)
        chain.final = 12
        await eventually(lambda: world.numbers() == chain.logs()[:2])
        await eventually(lambda: world.store.state().error == "")
        chain.final = 5
        chain.grow(0)
        await eventually(lambda: service._follower.newest == 14)
        assert service._head.confirmed == 12
        chain.final = 13
        await eventually(lambda: world.numbers() == chain.logs())
