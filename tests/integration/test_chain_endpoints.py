"""RPC endpoints that fail in every known way, and chains that are too long to read in one
request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from fieldbrook.chain.errors import RpcError
from fieldbrook.chain.monitors import head
from fieldbrook.chain.rpc import client as client_module
from fieldbrook.chain.rpc.client import ChainClient
from fieldbrook.core.errors import ChainUnavailableError
from fieldbrook.observability import metrics
from fieldbrook.observability.health import NO_CHAIN
from tests.chain.evm import CHAIN_ID, Evm
from tests.chain.proxy import Proxy
from tests.chain.tall import ADDRESS, TallChain
from tests.chain.world import World, eventually
from tests.support.tools import LIMIT_S

SECRET = "s3cret-key-of-mine"
SLOW_S = 5  # the other endpoint has no more


@pytest.fixture
def proxies(evm: Evm) -> Iterator[list[Proxy]]:
    made = [Proxy(evm.url), Proxy(evm.url)]
    yield made
    for proxy in made:
        proxy.close()


class Clock:
    """The client's, which goes when a test says so: how long endpoints take is no part of it."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(client_module, "time", made)
    return made


def client_of(proxies: list[Proxy], *, limit_s: float = LIMIT_S) -> ChainClient:
    return ChainClient(CHAIN_ID, [proxy.url for proxy in proxies], limit_s=limit_s, probe_s=0.2)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("drop", "closed the connection"),
        ("slow", f"no answer to eth_chainId within {SLOW_S} s"),
        ("busy", "429"),
        ("broken", "HTTP status 500"),
        ("garbage", "not JSON"),
        ("silent", "neither result nor error"),
    ],
)
async def test_an_endpoint_that_fails_rests_and_the_next_one_answers(
    evm: Evm,
    proxies: list[Proxy],
    clock: Clock,
    fault: str,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    first, second = proxies
    first.fault = fault
    client = client_of(proxies, limit_s=SLOW_S if fault == "slow" else LIMIT_S)
    try:
        for _ in range(3):
            assert int(await client.call("eth_blockNumber", []), 16) == evm.height
        assert first.asked.total() == 1, "it rests"
        assert second.asked["eth_blockNumber"] == 3
        bad, good = client.status()
        assert reason in bad.reason
        assert (bad.failures, good.failures, good.reason) == (1, 0, "")
        first.fault = ""
        clock.now += 0.6
        await client.call("eth_blockNumber", [])
        assert first.answered == 2, "it is asked again, and who it is before that"
        assert client.status()[0].reason == ""
    finally:
        await client.close()
    assert "endpoint http://127.0.0.1" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("form", ["seconds", "a date"])
async def test_an_endpoint_that_names_a_time_rests_for_it(
    proxies: list[Proxy], clock: Clock, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    (first, _) = proxies
    later = formatdate(time.time() + 3_600, usegmt=True)
    first.fault, first.retry_after = "busy", "3600" if form == "seconds" else later
    client = client_of(proxies)
    try:
        await client.call("eth_blockNumber", [])
        first.fault = ""
        clock.now += 3_000
        await client.call("eth_blockNumber", [])
        assert first.asked.total() == 1
        clock.now += 601
        await client.call("eth_blockNumber", [])
        assert first.asked.total() > 1
    finally:
        await client.close()
    assert "429" in caplog.text


async def test_when_no_endpoint_answers_the_error_says_why_and_tells_no_address(
    proxies: list[Proxy], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    proxies[0].fault, proxies[1].chain_id = "broken", 1
    client = client_of(proxies)
    try:
        with pytest.raises(ChainUnavailableError) as caught:
            await client.call("eth_blockNumber", [])
        text = str(caught.value)
        assert "HTTP status 500" in text
        assert f"it belongs to chain 1, not to {CHAIN_ID}" in text
        assert SECRET not in text
        with pytest.raises(ChainUnavailableError, match="HTTP status 500"):
            await client.call("eth_blockNumber", [])
        assert proxies[0].asked.total() == 1, "nobody is asked while all rest"
    finally:
        await client.close()
    assert caplog.text
    assert SECRET not in caplog.text


async def test_an_endpoint_whose_head_is_old_is_passed_over_until_it_has_caught_up(
    evm: Evm, proxies: list[Proxy], clock: Clock
) -> None:
    first, second = proxies
    evm.mine(20)
    first.head = evm.height - 10
    client = client_of(proxies)
    try:
        for _ in range(2):
            assert int((await client.head())["number"], 16) == evm.height
        assert client.status()[0].reason == "its head lags behind other endpoints"
        await client.call("eth_gasPrice", [])
        assert (first.asked["eth_gasPrice"], second.asked["eth_gasPrice"]) == (0, 1)
        first.head = None
        clock.now += 0.25
        await client.head()
        await client.call("eth_gasPrice", [])
        assert first.asked["eth_gasPrice"] == 1
    finally:
        await client.close()


async def test_requests_that_fail_together_make_an_endpoint_rest_as_one_that_fails(
    proxies: list[Proxy], caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = proxies
    client = client_of(proxies, limit_s=10.0)
    try:
        await client.call("eth_blockNumber", [])
        first.fault = "broken"
        await asyncio.gather(*(client.call("eth_blockNumber", []) for _ in range(8)))
        assert client.status()[0].failures > 1
        assert client._endpoints[0].consecutive_failures == 1
        first.fault = ""
        await eventually(lambda: client._endpoints[0].paused_until < time.monotonic())
        await client.call("eth_blockNumber", [])
        assert client.status()[0].reason == ""
    finally:
        await client.close()
    assert caplog.text.count("HTTP status 500") == 1, "and that is one line in the log"


async def test_each_change_of_the_endpoint_that_answers_is_counted_once(
    evm: Evm, proxies: list[Proxy], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = proxies
    client = client_of(proxies, limit_s=10.0)
    before = metrics.here.row[metrics.CHAIN_FAILOVERS]

    def changes() -> float:
        return metrics.here.row[metrics.CHAIN_FAILOVERS] - before

    async def ask(times: int) -> None:
        await asyncio.gather(*(client.call("eth_blockNumber", []) for _ in range(times)))

    try:
        await ask(8)
        assert changes() == 0, "the first one is no change"
        first.fault = "broken"
        await ask(8)  # each of them fails over, and it is one change
        assert changes() == 1
        await asyncio.sleep(0.6)
        await ask(8)  # asked again, and again it fails: the second one answers as before
        assert changes() == 1
        first.fault = ""
        await eventually(lambda: client._endpoints[0].paused_until < time.monotonic())
        await ask(8)
        assert changes() == 2, "the preferred one is there again"
        second.fault = "broken"
        await ask(8)
        assert changes() == 2
        evm.mine(20)
        first.head, second.fault = evm.height - 10, ""
        await eventually(lambda: client._endpoints[1].paused_until < time.monotonic())
        await client.head()
        assert changes() == 3, "it lies behind"
    finally:
        await client.close()
    assert SECRET not in caplog.text


async def test_a_request_that_one_endpoint_does_not_know_is_no_change_of_endpoints() -> None:
    class Plain(TallChain):
        async def request(self, method: str, params: list[object]) -> dict[str, object]:
            if method == "eth_getLogs":
                return {"error": {"code": -32601, "message": "method not found"}}
            return await super().request(method, params)

    chains = {"http://a": Plain(), "http://b": TallChain()}
    client = ChainClient(CHAIN_ID, list(chains), transport=chains.__getitem__)
    before = metrics.here.row[metrics.CHAIN_FAILOVERS]
    for _ in range(3):
        await client.head()
        assert await client.call("eth_getLogs", [{"fromBlock": "0x61", "toBlock": "0x61"}])
    assert metrics.here.row[metrics.CHAIN_FAILOVERS] == before


async def test_a_refused_request_is_the_callers_and_holds_no_endpoint(
    evm: Evm, proxies: list[Proxy]
) -> None:
    contract = evm.deploy()
    client = client_of(proxies)
    try:
        data = contract.data("refuse", "not today")
        with pytest.raises(RpcError, match="not today") as caught:
            await client.call("eth_call", [{"to": contract.address, "data": data}, "latest"])
        assert caught.value.code == 3
        assert caught.value.data.startswith("0x08c379a0")
        with pytest.raises(RpcError):
            await client.call("eth_noSuchMethod", [])
        assert [status.reason for status in client.status()] == ["", ""]
    finally:
        await client.close()


# ---------------------------------------------------------------- monitors over such endpoints


@pytest.mark.parametrize("fault", ["drop", "slow", "busy", "broken", "garbage"])
async def test_monitors_go_on_over_another_endpoint_and_lose_and_double_nothing(
    tmp_path: Path, evm: Evm, proxies: list[Proxy], fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, [proxy.url for proxy in proxies])
    world.client_options = {"limit_s": 1.0 if fault == "slow" else LIMIT_S, "probe_s": 0.2}
    contract = evm.deploy()
    world.logs(contract.address, first=evm.height)
    async with world.running():
        for n in range(4):
            proxies[n % 2].fault = fault
            contract.call("many", 10 * n, 2)
            evm.mine(2)
            proxies[1 - n % 2].fault = ""
            await eventually(lambda n=n: len(world.handled) == 2 * n + 2)  # type: ignore[misc]
    assert world.numbers() == [0, 1, 10, 11, 20, 21, 30, 31]
    assert max(world.ids().values()) == 1
    assert SECRET not in caplog.text


async def test_an_endpoint_that_becomes_one_of_another_chain_is_no_reorganisation(
    tmp_path: Path, evm: Evm, caplog: pytest.LogCaptureFixture
) -> None:
    other = Evm(chain_id=999)
    proxy = Proxy(evm.url)
    try:
        world = World(tmp_path, [proxy.url])
        contract = evm.deploy()
        monitor_id = world.logs(contract.address, first=evm.height)
        async with world.running():
            contract.call("ping", 1, "")
            await eventually(lambda: world.numbers() == [1])
            block = world.cursor(monitor_id).block
            other.mine(evm.height + 20 - other.height)
            proxy.target = other.url
            await eventually(lambda: "belongs to chain 999" in world.store.state().error)
            assert world.cursor(monitor_id).block in range(block, evm.height + 1)
            proxy.target = evm.url
            contract.call("ping", 2, "")
        async with world.running():  # at once, instead of after its rest
            await eventually(lambda: world.numbers() == [1, 2])
        assert world.numbers("SEEN_REMOVED") == []
        assert world.store is not None
    finally:
        other.stop()
        proxy.close()
    assert SECRET not in caplog.text


async def test_a_chain_that_does_not_answer_is_a_condition_of_the_node_until_it_does(
    tmp_path: Path,
    evm: Evm,
    proxies: list[Proxy],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(head, "_NO_CHAIN_S", 0.2)
    world = World(tmp_path, [proxies[0].url])
    world.logs("0x" + "11" * 20)
    proxies[0].fault = "broken"
    async with world.running():
        await eventually(lambda: NO_CHAIN in world.health)
        assert "HTTP status 500" in world.store.state().error
        proxies[0].fault = ""
        await eventually(lambda: NO_CHAIN not in world.health)
        await eventually(lambda: world.store.state().error == "")
    assert SECRET not in caplog.text


async def test_a_head_that_is_older_than_what_is_known_takes_nothing_back(
    tmp_path: Path, evm: Evm, proxies: list[Proxy]
) -> None:
    proxy = proxies[0]
    world = World(tmp_path, [proxy.url])
    contract = evm.deploy()
    world.logs(contract.address, first=evm.height)
    async with world.running():
        for n in range(3):
            contract.call("ping", n, "")
        await eventually(lambda: world.numbers() == [0, 1, 2])
        proxy.head = evm.height - 2
        before = proxy.asked["eth_getBlockByNumber"]
        await eventually(lambda: proxy.asked["eth_getBlockByNumber"] > before + 3)
        assert len(world.handled) == 3
        proxy.head = None
        contract.call("ping", 3, "")
        await eventually(lambda: world.numbers() == [0, 1, 2, 3])
    assert world.numbers("SEEN_REMOVED") == []


async def test_a_hundred_thousand_blocks_are_read_in_ranges_the_endpoint_takes(
    tmp_path: Path,
) -> None:
    chain = TallChain()
    world = World(tmp_path, ["http://tall.example"])
    world.client_options = {"transport": lambda _url: chain}
    ids = [world.logs(ADDRESS, first=first) for first in (1, 50_000)]
    expected = len(chain.numbers()) + len(chain.numbers(50_000))
    async with world.running():
        await eventually(lambda: len(world.handled) == expected)
        await eventually(lambda: all(world.cursor(n).block == chain.height for n in ids))
    assert sorted(world.numbers()) == sorted(chain.numbers() + chain.numbers(50_000))
    assert len(world.sent) == expected
    # 40 logs are those of 1,260 blocks: not many more requests than that takes.
    assert chain.asked["eth_getLogs"] < 450
    assert chain.refused < 60
    assert len(chain.headers) < 32, "blocks that lie deep are read without their headers"


async def test_a_back_fill_that_is_broken_off_goes_on_where_it_was(tmp_path: Path) -> None:
    chain = TallChain(height=30_000)
    world = World(tmp_path, ["http://tall.example"])
    world.client_options = {"transport": lambda _url: chain}
    monitor_id = world.logs(ADDRESS)
    async with world.running():
        await eventually(lambda: len(world.handled) > 300)
    sent = len(world.sent)
    async with world.running():
        assert world.cursor(monitor_id).block > 5_000
        await eventually(lambda: len(world.handled) == len(chain.numbers()))
    assert world.numbers() == chain.numbers()
    assert len(world.sent) - sent < len(chain.numbers())
