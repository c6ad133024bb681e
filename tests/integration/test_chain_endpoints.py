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

from fieldbrook.chain.blocks.checks import BLOCKS_PER_HEADER
from fieldbrook.chain.errors import RpcError
from fieldbrook.chain.monitors import head
from fieldbrook.chain.rpc import endpoint
from fieldbrook.chain.rpc.client import ChainClient
from fieldbrook.chain.rpc.pace import Pace
from fieldbrook.core.errors import ChainUnavailableError
from fieldbrook.observability import metrics
from fieldbrook.observability.health import NO_CHAIN
from tests.chain.evm import CHAIN_ID, Evm
from tests.chain.proxy import Proxy
from tests.chain.tall import ADDRESS, TallChain
from tests.chain.world import World, eventually
from tests.support.tools import LIMIT_S

SECRET = "s3cret-key-of-mine"


@pytest.fixture
def proxies(evm: Evm) -> Iterator[list[Proxy]]:
    made = [Proxy(evm.url), Proxy(evm.url)]
    yield made
    for proxy in made:
        proxy.close()


@pytest.fixture
def long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a failed endpoint pause until `rested`, so that a test does not depend on the speed of
    the machine."""
    monkeypatch.setattr(endpoint, "_PAUSES_S", (0.0, 3_000.0))


def rested(client: ChainClient) -> None:
    """End all pauses."""
    for one in client._endpoints.all:
        one.paused_until = float("-inf")
        one.queue.pace = Pace()


def client_of(proxies: list[Proxy]) -> ChainClient:
    return ChainClient(CHAIN_ID, [proxy.url for proxy in proxies], limit_s=LIMIT_S, probe_s=0.2)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("drop", "closed the connection"),
        ("slow", "no answer to eth_chainId within 2 s"),  # for another one is there
        ("busy", "429"),
        ("broken", "HTTP status 500"),
        ("garbage", "not JSON"),
        ("silent", "neither result nor error"),
    ],
)
async def test_an_endpoint_that_fails_rests_and_the_next_one_answers(
    evm: Evm,
    proxies: list[Proxy],
    long_pauses: None,
    fault: str,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    first, second = proxies
    first.fault = fault
    client = client_of(proxies)
    try:
        assert int(await client.call("eth_blockNumber", []), 16) == evm.height
        asked = first.asked.total()
        for _ in range(3):
            assert int(await client.call("eth_blockNumber", []), 16) == evm.height
        assert first.asked.total() == asked, "it rests"
        assert second.asked["eth_blockNumber"] == 4
        bad, good = client.status()
        assert reason in bad.reason
        assert (bad.failures, good.failures, good.reason) == (fault != "busy", 0, "")
        first.fault = ""
        rested(client)
        await client.call("eth_blockNumber", [])
        assert first.answered == 2, "it is asked again, and who it is"
        assert client.status()[0].reason == ""
    finally:
        await client.close()
    assert "endpoint http://127.0.0.1" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("form", ["seconds", "a date"])
async def test_an_endpoint_that_names_a_time_rests_for_it(
    proxies: list[Proxy], form: str, caplog: pytest.LogCaptureFixture
) -> None:
    (first, _) = proxies
    later = formatdate(time.time() + 3_600, usegmt=True)
    first.fault, first.retry_after = "busy", "3600" if form == "seconds" else later
    client = client_of(proxies)
    try:
        await client.call("eth_blockNumber", [])
        first.fault = ""
        asked = first.asked.total()
        await client.call("eth_blockNumber", [])
        assert first.asked.total() == asked
        wait_s = client._endpoints.all[0].wait_s(time.monotonic())
        assert 3_500 < wait_s <= 3_600
    finally:
        await client.close()
    assert "429" in caplog.text


async def test_a_service_that_is_unavailable_and_names_a_time_is_asked_again_after_it(
    proxies: list[Proxy], caplog: pytest.LogCaptureFixture
) -> None:
    only, _ = proxies
    only.fault, only.retry_after = "unavailable", "1"
    client = client_of([only])
    try:
        began = time.monotonic()
        asking = asyncio.create_task(client.call("eth_blockNumber", []))
        await eventually(lambda: only.asked.total() > 0)
        only.fault = ""
        await asking
        assert time.monotonic() - began >= 1.0
        assert client.status()[0].failures == 0
    finally:
        await client.close()
    assert SECRET not in caplog.text


async def test_when_no_endpoint_answers_the_error_says_why_and_tells_no_address(
    proxies: list[Proxy], long_pauses: None, caplog: pytest.LogCaptureFixture
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
        asked = proxies[0].asked.total()
        with pytest.raises(ChainUnavailableError, match="HTTP status 500"):
            await client.call("eth_blockNumber", [])
        assert proxies[0].asked.total() == asked, "nobody is asked while all rest"
    finally:
        await client.close()
    assert caplog.text
    assert SECRET not in caplog.text


async def test_an_endpoint_whose_head_is_old_is_passed_over_until_it_has_caught_up(
    evm: Evm, proxies: list[Proxy]
) -> None:
    first, second = proxies
    evm.mine(20)
    first.head = evm.height - 10
    client = client_of(proxies)
    try:
        for _ in range(2):
            assert (await client.head()).number == evm.height
        assert client.status()[0].reason == "its head lags behind other endpoints"
        await client.call("eth_gasPrice", [])
        assert (first.asked["eth_gasPrice"], second.asked["eth_gasPrice"]) == (0, 1)
        first.head = None
        client._probed_at = float("-inf")
        await client.head()
        await client.call("eth_gasPrice", [])
        assert first.asked["eth_gasPrice"] == 1
    finally:
        await client.close()


async def test_requests_that_fail_together_make_an_endpoint_rest_as_one_that_fails(
    proxies: list[Proxy], caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = proxies
    client = client_of(proxies)
    try:
        await client.call("eth_blockNumber", [])
        first.fault = "broken"
        await asyncio.gather(*(client.call("eth_blockNumber", []) for _ in range(8)))
        assert client.status()[0].failures > 1
        assert client._endpoints.all[0].consecutive_failures == 1
        first.fault = ""
        await eventually(lambda: client._endpoints.all[0].paused_until < time.monotonic())
        await client.call("eth_blockNumber", [])
        assert client.status()[0].reason == ""
    finally:
        await client.close()
    assert caplog.text == "", "single outages are usual on the Internet"


async def test_each_change_of_the_endpoint_that_answers_is_counted_once(
    evm: Evm, proxies: list[Proxy], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = proxies
    client = client_of(proxies)
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
        await eventually(lambda: client._endpoints.all[0].paused_until < time.monotonic())
        await ask(8)
        assert changes() == 2, "the preferred one is there again"
        second.fault = "broken"
        await ask(8)
        assert changes() == 2
        evm.mine(20)
        first.head, second.fault = evm.height - 10, ""
        await eventually(lambda: client._endpoints.all[1].paused_until < time.monotonic())
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


@pytest.mark.parametrize(
    "text",
    [
        "project ID does not have access to archive state",
        "pruned history unavailable",
        "missing trie node 5f1c (path ) state is not available",
        "header not found",
        "Must be authenticated!",
    ],
)
async def test_what_one_endpoint_lacks_another_is_asked_for(
    evm: Evm, proxies: list[Proxy], text: str
) -> None:
    first, second = proxies
    first.refuses["eth_getBalance"] = text
    client = client_of(proxies)
    try:
        assert int(await client.call("eth_getBalance", [evm.account, "0x0"]), 16) > 0
        assert (first.asked["eth_getBalance"], second.asked["eth_getBalance"]) == (1, 1)
        assert [status.failures for status in client.status()] == [0, 0]
        second.refuses["eth_getBalance"] = "the same there"
        with pytest.raises(RpcError, match=text[:12]):
            await client.call("eth_getBalance", [evm.account, "0x0"])
    finally:
        await client.close()


async def test_a_verdict_of_the_chain_is_asked_for_once(evm: Evm, proxies: list[Proxy]) -> None:
    contract = evm.deploy()
    client = client_of(proxies)
    try:
        with pytest.raises(RpcError, match="closed"):
            call = {"to": contract.address, "data": contract.data("refuse", "closed")}
            await client.call("eth_call", [call, "latest"])
        assert [proxy.asked["eth_call"] for proxy in proxies] == [1, 0]
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
        await eventually(lambda: "HTTP status 500" in world.store.state().error)
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
    sampled = 150_000 // BLOCKS_PER_HEADER
    assert len(chain.headers) < 32 + 2 * sampled, "few deep blocks are read with their headers"


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
