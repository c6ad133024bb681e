"""Monitors over endpoints with the limits, the error texts and the faults of public providers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldbrook.actors.wire import WireEvent
from fieldbrook.gateway.links.pending_event import Settle
from tests.chain.evm import Contract
from tests.chain.hardhat import Hardhat
from tests.chain.providers import PERSONALITIES, Refusal
from tests.chain.reading import ledger, providers, reading
from tests.chain.world import eventually

BLOCKS, TRANSACTIONS, LOGS = 600, 30, 3
LONG = 40_000
LIMIT_S = 90.0
QUOTA = Refusal("block range exceeds the quota of your plan", -32600)


@pytest.fixture(scope="module")
def contracts() -> Iterator[list[Contract]]:
    """Contracts on a chain with logs in blocks of every height."""
    evm = Hardhat()
    made = [evm.deploy() for _ in range(3)]
    evm.spread(made, TRANSACTIONS, LOGS, BLOCKS)
    yield made
    evm.stop()


@pytest.fixture(scope="module")
def long() -> Iterator[list[Contract]]:
    """Contracts on a chain with more blocks than endpoints allow in one query."""
    evm = Hardhat()
    made = [evm.deploy() for _ in range(3)]
    evm.spread(made, TRANSACTIONS, LOGS, LONG)
    yield made
    evm.stop()


@pytest.fixture(scope="module")
def dense() -> Iterator[Contract]:
    """A contract with more logs than some endpoints return in one answer."""
    evm = Hardhat()
    made = evm.deploy()
    evm.spread([made], TRANSACTIONS, 60, BLOCKS)
    yield made
    evm.stop()


@pytest.mark.parametrize("names", [*PERSONALITIES, "infura+pool"])
@pytest.mark.thorough("distant", "avalanche")
async def test_logs_are_told_once_and_in_order_whatever_a_provider_limits_and_drops(
    tmp_path: Path, contracts: list[Contract], names: str, caplog: pytest.LogCaptureFixture
) -> None:
    evm = contracts[0].evm
    with providers(evm, names.split("+"), failures=0.1, seed=1) as endpoints:
        for endpoint in endpoints:
            endpoint.change(rate=3 * endpoint.personality.rate)  # the tests are not to take long
        async with reading(tmp_path, contracts, endpoints, 3, poll_ms=500) as monitors:
            await monitors.caught_up(evm.height, LIMIT_S)
            await monitors.follow(3, 1.0)
            await monitors.caught_up(evm.height, LIMIT_S)
        monitors.assert_complete()
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("infura", "range 16000 exceeds limit of 10000"),
        ("quicknode", "eth_getLogs is limited to a 10,000 range"),
        ("ankr", "block range is too wide"),
        ("drpc", "ranges over 10000 blocks are not support"),
        ("avalanche", "requested too many blocks from"),
        ("bsc", "exceed maximum block range: 5000"),
        ("gateway", "<html>Request Entity Too Large</html>"),
        ("pool", "query timeout exceeded"),
    ],
)
@pytest.mark.thorough(
    "infura-range 16000 exceeds limit of 10000", "gateway-<html>Request Entity Too Large</html>"
)
async def test_a_range_that_is_refused_in_a_providers_own_words_is_read_in_parts(
    tmp_path: Path,
    long: list[Contract],
    name: str,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    evm = long[0].evm
    with providers(evm, [name], failures=0.0, seed=1) as [endpoint]:
        endpoint.change(rate=3 * endpoint.personality.rate, slow_blocks=LONG)
        async with reading(tmp_path, long, [endpoint], 3, poll_ms=500) as monitors:
            await monitors.caught_up(evm.height, LIMIT_S)
        monitors.assert_complete()
    refused = [count for text, count in endpoint.refused.items() if text[:30] == words[:30]]
    assert refused, endpoint.refused
    assert sum(refused) < endpoint.calls["eth_getLogs"] / 2
    assert "s3cret" not in caplog.text


@pytest.mark.timeout(300)
@pytest.mark.thorough
async def test_a_range_that_exceeds_a_quota_is_no_request_too_many(
    tmp_path: Path, long: list[Contract], caplog: pytest.LogCaptureFixture
) -> None:
    evm = long[0].evm
    with providers(evm, ["ankr"], failures=0.0, seed=1) as [endpoint]:
        endpoint.change(range_words=lambda *_: QUOTA, rate=300)
        async with reading(tmp_path, long, [endpoint], 3, poll_ms=500) as monitors:
            await monitors.caught_up(evm.height, 2 * LIMIT_S)
        monitors.assert_complete()
    assert endpoint.refused[QUOTA.text[:40]]
    assert "quota" in caplog.text


async def test_answers_that_fail_on_the_way_are_asked_for_again_and_no_others(
    tmp_path: Path, contracts: list[Contract]
) -> None:
    evm = contracts[0].evm
    with providers(evm, ["iotex"], failures=0.05, seed=1) as [endpoint]:
        async with reading(tmp_path, contracts, [endpoint], 3, poll_ms=500) as monitors:
            await monitors.caught_up(evm.height, LIMIT_S)
            evm.mine(150)  # as many headers
            await monitors.caught_up(evm.height, LIMIT_S)
        monitors.assert_complete()
    assert endpoint.calls["eth_getBlockByNumber"] < 400


@pytest.mark.parametrize("rate", [5, 10, 25])
@pytest.mark.thorough("5")
async def test_what_a_slow_endpoint_has_answered_is_not_asked_for_again(
    tmp_path: Path, contracts: list[Contract], rate: int, caplog: pytest.LogCaptureFixture
) -> None:
    evm = contracts[0].evm
    with providers(evm, ["gateway"], failures=0.0, seed=1) as [endpoint]:
        endpoint.change(rate=rate)
        async with reading(tmp_path, contracts, [endpoint], 3, poll_ms=2_000) as monitors:
            await monitors.caught_up(evm.height, LIMIT_S)
        monitors.assert_complete()
    assert endpoint.refused["<html>429</html>"] < 10
    assert endpoint.calls["eth_getBlockByNumber"] < 100, "32 headers, some in refused batches"
    assert endpoint.calls["eth_getLogs"] < 32 + 20
    assert "429" in caplog.text


async def test_ranges_whose_logs_an_endpoint_cuts_without_a_word_are_read_in_parts(
    tmp_path: Path, dense: Contract
) -> None:
    evm = dense.evm
    with providers(evm, ["iotex"], failures=0.0, seed=1) as [endpoint]:
        async with reading(tmp_path, [dense], [endpoint], 1) as monitors:
            await monitors.caught_up(evm.height, LIMIT_S)
        monitors.assert_complete()
    assert endpoint.calls["eth_getLogs"] < 32 + 20


async def test_logs_of_new_blocks_are_told_up_to_one_that_no_node_knows_yet(
    tmp_path: Path, contracts: list[Contract]
) -> None:
    evm = contracts[0].evm
    with providers(evm, ["drpc"], failures=0.0, seed=1) as endpoints:
        endpoints[0].change(rate=1_000)
        async with reading(tmp_path, contracts, endpoints, 3, poll_ms=200) as monitors:
            await monitors.caught_up(evm.height, LIMIT_S)
            unknown = evm.height + 3
            endpoints[0].lacks = lambda block: block == unknown
            await monitors.follow(5, 0.0)
            await monitors.caught_up(unknown - 1, LIMIT_S)
            assert monitors.behind(evm.height) == evm.height - unknown + 1
            endpoints[0].lacks = lambda _block: False
            await monitors.caught_up(evm.height, LIMIT_S)
        monitors.assert_complete()


async def test_old_blocks_are_read_from_the_endpoint_that_gives_much_larger_ranges(
    tmp_path: Path, long: list[Contract]
) -> None:
    evm = long[0].evm
    with providers(evm, ["alchemy", "quicknode"], failures=0.0, seed=1) as endpoints:
        for endpoint in endpoints:
            endpoint.change(rate=1_000)
        async with reading(tmp_path, long, endpoints, 3, poll_ms=500) as monitors:
            await monitors.caught_up(evm.height, LIMIT_S)
        monitors.assert_complete()
    small, large = (endpoint.calls["eth_getLogs"] for endpoint in endpoints)
    assert small < 100, "of 4,000 that it would take"
    assert large < 100


async def test_a_project_that_does_not_answer_holds_no_other_monitor_up(
    tmp_path: Path, contracts: list[Contract]
) -> None:
    evm = contracts[0].evm
    with providers(evm, ["drpc"], failures=0.0, seed=1) as [endpoint]:
        endpoint.change(blocks=20, rate=10_000)
        async with reading(tmp_path, contracts, [endpoint], 3, poll_ms=200) as monitors:
            world, (silent, *others) = monitors.world, monitors.monitors
            answered = world.submit

            def submit(_project_id: int, event: WireEvent, settle: Settle) -> None:
                if not event[2].endswith(f"-{silent}"):
                    answered(_project_id, event, settle)

            world.submit = submit  # type: ignore[method-assign]

            def are_complete() -> bool:
                return all(monitors.told(n) == ledger(monitors.monitors[n]) for n in others)

            await eventually(are_complete)
            assert monitors.told(silent) == []
