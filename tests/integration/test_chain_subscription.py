"""Subscriptions to new blocks that fail in every known way: no block is missed, and the node
returns to polling, and later to the subscription, by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldbrook.chain.monitors import subscription
from fieldbrook.chain.monitors.service import MonitorService
from fieldbrook.chain.monitors.subscription import HeadSubscription
from tests.chain.announcer import Announcer
from tests.chain.cable import Cable
from tests.chain.evm import Contract, Evm
from tests.chain.evms import EVMS, running
from tests.chain.proxy import Proxy
from tests.chain.world import World, eventually

NEVER_MS = 3_600_000
SECRET = "s3cret-key-of-mine"


@pytest.fixture(scope="module", params=EVMS)
def evm(request: pytest.FixtureRequest) -> Iterator[Evm]:
    yield from running(request.param)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry a failed subscription at once, and detect a silent one soon."""
    monkeypatch.setattr(subscription, "_PAUSES_S", (0.02,))
    monkeypatch.setattr(subscription, "_SILENT_S", 0.2)


@pytest.fixture
def contract(evm: Evm) -> Contract:
    return evm.deploy()


def watching(folder: Path, contract: Contract, websocket: str, **settings: object) -> World:
    """Make a world with a monitor of a contract."""
    world = World(folder, [contract.evm.url], websocket=websocket, **settings)
    world.logs(contract.address, first=contract.evm.height)
    return world


def subscribed(service: MonitorService) -> HeadSubscription:
    assert service._head.subscription is not None
    return service._head.subscription


async def test_a_subscription_tells_of_a_block_before_the_next_poll_is_due(
    tmp_path: Path, evm: Evm, contract: Contract
) -> None:
    websocket = evm.url.replace("http", "ws")
    world = watching(tmp_path, contract, websocket, poll_ms=NEVER_MS)
    async with world.running() as service:
        await eventually(lambda: service._follower.blocks)
        for n in range(3):
            contract.call("ping", n, "")
            await eventually(lambda n=n: world.numbers() == [*range(n + 1)])  # type: ignore[misc]
        await eventually(lambda: world.store.state().websocket == "OK")


async def test_a_subscription_that_is_cut_is_polling_until_there_is_one_again(
    tmp_path: Path, evm: Evm, contract: Contract, soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    async with Cable(evm.port) as cable:
        world = watching(tmp_path, contract, f"ws://{cable.address}", poll_ms=300)
        async with world.running() as service:
            await eventually(lambda: not subscribed(service).reason)
            contract.call("ping", 1, "")
            await eventually(lambda: world.numbers() == [1])
            cable.cut()
            contract.call("ping", 2, "")
            await eventually(lambda: world.numbers() == [1, 2])
            await eventually(lambda: "websocket ws://127.0.0.1" in caplog.text)
            cable.mend()
            await eventually(lambda: not subscribed(service).reason)
            contract.call("ping", 3, "")
            await eventually(lambda: world.numbers() == [1, 2, 3])
        assert max(world.ids().values()) == 1


async def test_no_block_is_missed_however_often_the_connection_ends(
    tmp_path: Path, evm: Evm, contract: Contract, soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    async with Announcer(evm) as announcer:
        world = watching(tmp_path, contract, announcer.url, poll_ms=NEVER_MS)
        async with world.running() as service:
            await eventually(lambda: service._follower.blocks)
            for n in range(20):
                await eventually(lambda n=n: announcer.subscriptions > n)  # type: ignore[misc]
                await asyncio.to_thread(contract.call, "many", 3 * n, 2)
                await announcer.cut()
                await asyncio.to_thread(contract.call, "many", 3 * n + 2, 1)
            await eventually(lambda: world.numbers() == [*range(60)])
        assert max(world.ids().values()) == 1
    assert SECRET not in caplog.text


async def test_a_subscription_that_comes_late_tells_of_the_blocks_that_came_before_it(
    tmp_path: Path, evm: Evm, contract: Contract, soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    async with Cable(evm.port) as cable:
        cable.cut()
        world = watching(tmp_path, contract, f"ws://{cable.address}", poll_ms=NEVER_MS)
        async with world.running() as service:
            await eventually(lambda: service._follower.blocks)
            contract.call("ping", 1, "")
            await eventually(
                lambda: "does not announce blocks" in caplog.text
            )  # after three attempts
            assert world.numbers() == []
            cable.mend()
            await eventually(lambda: world.numbers() == [1])


FAULTS = {
    "mute": "no answer within 0.3 s",
    "deaf": "it does not answer pings",
    "refusing": "it refuses: no eth_subscribe at ...",
    "nameless": "its answer names no subscription",
    "garbage": "its answer is not JSON",
    "redirecting": "HTTP status 302: it redirects to another address",
    "html": "HTTP status 200 instead of a WebSocket",
}
FAULTS_OF_ANNOUNCEMENTS = {
    "malformed": "an announcement has no block number",
    "large": "it sent a message of more than 1048576 bytes",
    "flooding": "more than 1000 announcements within 10 s",
    "silent": "it does not announce new blocks",
}


@pytest.mark.parametrize("fault", [*FAULTS, *FAULTS_OF_ANNOUNCEMENTS])
@pytest.mark.thorough("anvil-mute")
async def test_an_endpoint_that_announces_nothing_usable_is_polling_and_says_why(
    tmp_path: Path,
    evm: Evm,
    contract: Contract,
    soon: None,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(subscription, "_ANSWER_LIMIT_S", 0.3 if fault == "mute" else 10.0)
    monkeypatch.setattr(subscription, "_PING_S", 0.2 if fault == "deaf" else 20.0)
    async with Announcer(evm) as announcer:
        announcer.fault = fault
        world = watching(tmp_path, contract, announcer.url, poll_ms=100)
        async with world.running() as service:
            end = f"ws://127.0.0.1:{announcer._port} does not announce blocks: "
            end += {**FAULTS, **FAULTS_OF_ANNOUNCEMENTS}[fault]
            told_of = 0

            async def ping() -> None:
                nonlocal told_of
                await asyncio.to_thread(contract.call, "ping", told_of, "")
                told_of += 1
                await eventually(lambda: world.numbers() == [*range(told_of)])

            await ping()
            # The block before the subscription is not announced, which may end the subscription;
            # then a later block belongs to no subscription.
            while fault in FAULTS_OF_ANNOUNCEMENTS and end not in caplog.text:
                await eventually(lambda: not subscribed(service).reason or end in caplog.text)
                await ping()
            await eventually(lambda: end in caplog.text)
            connects = announcer.connects
            announcer.fault = ""
            await eventually(lambda: announcer.connects > connects)
            await eventually(lambda: not subscribed(service).reason)
            await ping()
            await eventually(lambda: subscribed(service).newest == evm.height)
            await eventually(lambda: world.store.state().websocket == "OK")
        assert max(world.ids().values()) == 1
    assert SECRET not in caplog.text


async def test_a_subscription_of_another_chain_is_not_used(
    tmp_path: Path, evm: Evm, contract: Contract, soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    async with Announcer(evm) as announcer:
        announcer.chain_id = 1
        world = watching(tmp_path, contract, announcer.url, poll_ms=NEVER_MS)
        async with world.running() as service:
            await eventually(lambda: "it belongs to chain 1" in subscribed(service).reason)
            await eventually(lambda: announcer.connects > 3)
            assert (announcer.subscriptions, announcer.announced) == (0, 0)
    assert "it belongs to chain 1, not to 31337" in caplog.text


async def test_announcements_of_blocks_that_no_endpoint_has_are_looked_for_and_then_polled(
    tmp_path: Path, evm: Evm, contract: Contract, soon: None
) -> None:
    async with Announcer(evm) as announcer:
        announcer.ahead = 1_000
        world = watching(tmp_path, contract, announcer.url, poll_ms=200)
        async with world.running() as service:
            await eventually(lambda: not subscribed(service).reason)
            for n in range(5):
                await asyncio.to_thread(contract.call, "ping", n, "")
                await eventually(lambda n=n: world.numbers() == [*range(n + 1)])  # type: ignore[misc]
            assert not subscribed(service).is_complete(evm.height)


async def test_a_block_that_is_announced_before_the_endpoint_has_it_is_looked_for_again(
    tmp_path: Path, evm: Evm, contract: Contract, soon: None
) -> None:
    proxy = Proxy(evm.url)
    world = World(tmp_path, [proxy.url], poll_ms=NEVER_MS, websocket=evm.url.replace("http", "ws"))
    world.logs(contract.address, first=evm.height)
    try:
        async with world.running() as service:
            await eventually(lambda: not subscribed(service).reason)
            await eventually(lambda: service._follower.newest == evm.height)
            proxy.head = evm.height
            looks = proxy.asked["eth_getBlockByNumber"]
            await asyncio.to_thread(contract.call, "ping", 1, "")
            await eventually(lambda: proxy.asked["eth_getBlockByNumber"] > looks + 1)
            proxy.head = None
            await eventually(lambda: world.numbers() == [1])
    finally:
        proxy.close()


async def test_polls_are_rare_while_blocks_are_announced(
    tmp_path: Path, evm: Evm, contract: Contract, soon: None
) -> None:
    proxy = Proxy(evm.url)
    world = World(tmp_path, [proxy.url], poll_ms=1_000, websocket=evm.url.replace("http", "ws"))
    world.logs(contract.address, first=evm.height)
    try:
        async with world.running() as service:
            await eventually(lambda: not subscribed(service).reason)
            await asyncio.to_thread(contract.call, "ping", 1, "")
            await eventually(lambda: subscribed(service).is_complete(service._follower.newest))
            await eventually(lambda: world.numbers() == [1])
            head = service._head  # with its own polls, each of which sets the time of the next one
            await eventually(lambda: head._due - head._polled_at == pytest.approx(2.0))
    finally:
        proxy.close()


async def test_requests_go_over_the_websocket_when_no_other_endpoint_answers(
    tmp_path: Path, evm: Evm, proxy: Proxy, contract: Contract, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, [proxy.url], websocket=evm.url.replace("http", "ws"))
    world.logs(contract.address, first=evm.height)
    async with world.running():
        contract.call("ping", 1, "")
        await eventually(lambda: world.numbers() == [1])
        proxy.fault = "broken"
        contract.call("ping", 2, "")
        await eventually(lambda: world.numbers() == [1, 2])
        first, last = world.client.status()
        assert "HTTP status 500" in first.reason
        assert (last.name.partition(":")[0], last.reason) == ("ws", "")
        proxy.fault = ""
        await eventually(lambda: world.client.status()[0].reason == "")
    assert SECRET not in caplog.text
