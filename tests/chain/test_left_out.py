"""Providers that omit logs of old blocks, in front of a real EVM: when an omission is detected, all
logs are read."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldbrook.chain.blocks import checks
from tests.chain.evm import Contract
from tests.chain.hardhat import Hardhat
from tests.chain.reading import ledger, providers, reading

BLOCKS, TRANSACTIONS, LOGS = 1_200, 60, 3
LIMIT_S = 90.0


@pytest.fixture(scope="module")
def contracts() -> Iterator[list[Contract]]:
    """Contracts on a chain with logs in blocks of every height."""
    evm = Hardhat()
    made = [evm.deploy() for _ in range(3)]
    evm.spread(made, TRANSACTIONS, LOGS, BLOCKS)
    yield made
    evm.stop()


@pytest.mark.parametrize(
    ("names", "per_header"),
    [(["bsc", "ankr"], checks.BLOCKS_PER_HEADER), (["ankr", "pool", "bsc"], 50), (["bsc"], 1)],
)
async def test_logs_that_a_provider_leaves_out_of_ranges_are_told_in_order_all_the_same(
    tmp_path: Path,
    contracts: list[Contract],
    names: list[str],
    per_header: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    evm = contracts[0].evm
    monkeypatch.setattr(checks, "SECOND_OPINIONS", {True: 1.0, False: 1.0})
    monkeypatch.setattr(checks, "BLOCKS_PER_HEADER", per_header)
    with providers(evm, names, failures=0.02, seed=1) as endpoints:
        for endpoint in endpoints:
            endpoint.change(blocks=50, rate=10_000)
        endpoints[0].leaves_out = lambda block: block % 3 > 0
        endpoints[0].failures = 0.0  # after one, all requests may go to another endpoint
        async with reading(tmp_path, contracts, endpoints, 3, poll_ms=500) as monitors:
            await monitors.caught_up(evm.height, LIMIT_S)
        monitors.assert_complete()
    assert "it omitted logs of blocks" in caplog.text


async def test_a_provider_without_any_log_is_noticed_on_the_way_and_read_again_from_where_it_says(
    tmp_path: Path, contracts: list[Contract], caplog: pytest.LogCaptureFixture
) -> None:
    evm = contracts[0].evm
    with providers(evm, ["bsc", "ankr"], failures=0.0, seed=1) as endpoints:
        for endpoint in endpoints:
            endpoint.change(blocks=20, rate=10_000)
        endpoints[0].leaves_out = lambda _block: True
        async with reading(tmp_path, contracts, endpoints, 1, poll_ms=500) as monitors:
            await monitors.caught_up(evm.height, LIMIT_S)
            (number, contract) = next(iter(monitors.monitors.items()))
            told = monitors.told(number)
    blocks = [int(log["blockNumber"], 16) for log in evm.logs(address=contract.address)]
    noticed = re.search(r"it omitted logs of blocks (\d+) to", caplog.text)
    if noticed is None:  # on a busy machine the other endpoint may be the one that is asked
        assert told == ledger(contract)
        return
    missing = [block for block in blocks if block < int(noticed[1])]
    assert told == ledger(contract)[len(missing) :], "none is missing from there on"
    if missing:
        said = re.search(r"its answers for blocks (\d+) to (\d+) were used", caplog.text)
        assert said, "a person is told what to read again"
        assert int(said[1]) <= missing[0]
        assert missing[-1] <= int(said[2])
