"""Monitors on real EVM chains: each log is one event, and a reorganisation reverts it with another
event."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.actors.wire import BY_CHAIN, EXACT, NAMED
from fieldbrook.chain.blocks.follower import DEPTH
from fieldbrook.core.errors import PayloadTooLargeError, TooManyRequestsError
from fieldbrook.core.model import NODE_PUBLISHER
from tests.chain.evm import CHAIN_ID, Evm, topic, word
from tests.chain.evms import EVMS, running
from tests.chain.proxy import Proxy
from tests.chain.world import World, eventually

PING = topic("Ping(uint256,address,string)")


@pytest.fixture(scope="module", params=EVMS)
def evm(request: pytest.FixtureRequest) -> Iterator[Evm]:
    yield from running(request.param)


@pytest.fixture
def world(tmp_path: Path, evm: Evm) -> World:
    return World(tmp_path, [evm.url])


async def test_each_log_is_one_event_in_the_order_of_the_chain_with_the_payload_of_geth(
    world: World, evm: Evm
) -> None:
    contract = evm.deploy()
    contract.call("ping", 1, "before")
    monitor_id = world.logs(contract.address, first=evm.height)
    async with world.running():
        await eventually(lambda: world.numbers() == [1])
        contract.call("many", 2, 3)
        contract.call("ping", 5, "after")
        await eventually(lambda: len(world.numbers()) == 5)
        await eventually(lambda: world.cursor(monitor_id).block == evm.height)
        assert world.numbers() == [1, 2, 3, 4, 5]
        assert world.cursor(monitor_id).events == 5
    raw = evm.logs(address=contract.address)
    keys = [
        *("address", "topics", "data", "blockNumber", "transactionHash", "transactionIndex"),
        *("blockHash", "logIndex", "removed"),
    ]
    assert world.payloads() == [{key: log[key] for key in keys} for log in raw]
    assert list(world.payloads()[0]) == keys
    event = world.handled[1]
    first = raw[1]
    assert event[2] == (
        f"log-{CHAIN_ID}-{first['blockHash'][2:]}-{int(first['logIndex'], 16)}-{monitor_id}"
    )
    assert (event[0], event[1], event[5]) == ("SEEN", NODE_PUBLISHER, NAMED | BY_CHAIN)


async def test_a_topic_that_is_given_must_be_equal_at_its_place(world: World, evm: Evm) -> None:
    contract, other = evm.deploy(), evm.deploy()
    first = evm.height + 1
    contract.call("ping", 7, "")
    contract.call("ping", 8, "")
    other.call("ping", 7, "")
    contract.call("transfer", evm.accounts[1], 9)
    sender = word(int(evm.account, 16))
    chosen = {
        "ALL": (),
        "PING": (PING,),
        "SEVEN": ("", word(7)),
        "BOTH": (PING, word(8), sender.upper().replace("0X", "0x")),
        "NONE": (word(1),),
        "FOURTH": ("", "", "", word(0)),
    }
    address = contract.address.upper().removeprefix("0X")
    for name, topics in chosen.items():
        world.logs(address, topics, first, event_type=name)
    async with world.running():
        ids = [m.monitor_id for m in world.reader.monitors(world.project_id)]
        await eventually(
            lambda: all((c := world.store.cursor(n)) and c.block == evm.height for n in ids)
        )
    seen = {name: len(world.payloads(name)) for name in chosen}
    assert seen == {"ALL": 3, "PING": 2, "SEVEN": 1, "BOTH": 1, "NONE": 0, "FOURTH": 0}


async def test_many_monitors_share_one_request_for_a_new_block(world: World, evm: Evm) -> None:
    proxy = Proxy(evm.url)
    contracts = [evm.deploy() for _ in range(3)]
    world.urls = (proxy.url,)
    for n in range(60):
        first = evm.height - n % 3
        world.logs(contracts[n % 3].address, event_type=f"T{n}", first=first)
    async with world.running():
        ids = [m.monitor_id for m in world.reader.monitors(world.project_id)]

        def at_head() -> bool:
            cursors = [world.store.cursor(n) for n in ids]
            return all(c is not None and c.block == evm.height for c in cursors)

        await eventually(at_head)
        before = proxy.asked["eth_getLogs"], proxy.asked["eth_getBlockByNumber"]
        height = evm.height
        for n in range(6):
            contracts[n % 3].call("ping", n, "")
            await eventually(at_head)
        blocks = evm.height - height
        assert proxy.asked["eth_getLogs"] - before[0] == blocks
    assert len(world.handled) == 120
    proxy.close()


async def test_without_monitors_only_the_head_is_asked_for_and_the_first_one_misses_nothing(
    world: World, evm: Evm
) -> None:
    proxy = Proxy(evm.url)
    contract = evm.deploy()
    evm.mine(40)
    contract.call("ping", 1, "")
    world.urls = (proxy.url,)
    async with world.running() as service:
        await eventually(lambda: world.store.state().head == evm.height)
        assert proxy.asked["eth_getBlockByNumber"] == 1
        contract.call("ping", 2, "")
        service._head.poll_within(0.0)
        await eventually(lambda: world.store.state().head == evm.height)
        assert world.store.state().confirmed == evm.height
        assert proxy.asked["eth_getBlockByNumber"] == 2
        world.logs(contract.address)
        await eventually(lambda: world.numbers() == [1, 2])
        evm.reorganise(1)
        await eventually(lambda: world.numbers("SEEN_REMOVED") == [2])
        contract.call("ping", 3, "")
        await eventually(lambda: world.numbers() == [1, 2, 3])
    proxy.close()


@pytest.mark.parametrize("depth", [1, 2, 3, 5, 10])
async def test_a_reorganisation_takes_back_what_vanished_the_newest_first(
    world: World, evm: Evm, depth: int
) -> None:
    contract = evm.deploy()
    first = evm.height + 1
    evm.mine(2)
    contract.call("ping", 100, "stays")
    evm.mine(1)
    for n in range(depth):
        contract.call("many", 10 * n, 2)
    monitor_id = world.logs(contract.address, first=first)
    async with world.running():
        await eventually(lambda: len(world.numbers()) == 1 + 2 * depth)
        told = world.numbers()[1:]
        evm.reorganise(depth)
        await eventually(lambda: len(world.numbers("SEEN_REMOVED")) == 2 * depth)
        contract.call("ping", 200, "after")
        await eventually(lambda: 200 in world.numbers())
        await eventually(lambda: world.cursor(monitor_id).block == evm.height)
        assert world.numbers("SEEN_REMOVED") == told[::-1]
        assert world.numbers() == [100, *told, 200]
        cursor = world.cursor(monitor_id)
        assert (cursor.removed, cursor.rewind) == (2 * depth, -1)
        await eventually(lambda: world.store.state().reorganisations)
        state = world.store.state()
        assert (state.reorganisations, state.deepest) == (1, depth)
    removed = [event for event in world.handled if event[0] == "SEEN_REMOVED"]
    assert all(event[5] == NAMED | EXACT | BY_CHAIN for event in removed)
    assert all(event[2].startswith("removed-log-") for event in removed)
    original = {event[2]: json.loads(event[3]) for event in world.handled}
    for event in removed:
        taken = json.loads(event[3])
        assert taken == {**original[event[2].removeprefix("removed-")], "removed": True}
    assert max(world.ids().values()) == 1


async def test_a_reorganisation_while_nobody_looked_is_found_at_the_start(
    world: World, evm: Evm
) -> None:
    contract = evm.deploy()
    contract.call("ping", 1, "stays")
    contract.call("ping", 2, "vanishes")
    world.logs(contract.address, first=evm.height - 1)
    async with world.running():
        await eventually(lambda: world.numbers() == [1, 2])
    evm.reorganise(1)
    contract.call("ping", 3, "comes")
    async with world.running():
        await eventually(lambda: world.numbers() == [1, 2, 3])
    assert world.numbers("SEEN_REMOVED") == [2]
    assert max(world.ids().values()) == 1


async def test_what_was_perhaps_sent_before_a_crash_is_sent_before_it_is_taken_back(
    world: World, evm: Evm
) -> None:
    contract = evm.deploy()
    world.logs(contract.address, first=evm.height)
    async with world.running():
        contract.call("ping", 1, "")
        world.silent = True  # the event arrives, but its answer never does
        await eventually(lambda: world.sent)
    assert world.handled == []
    evm.reorganise(1)
    evm.mine(1)
    world.silent = False
    async with world.running():
        await eventually(lambda: len(world.handled) == 2)
    assert [event[0] for event in world.handled] == ["SEEN", "SEEN_REMOVED"]
    assert world.handled[0][2:4] == world.sent[0][2:4], "the same event again"


async def test_a_monitor_that_begins_later_is_not_put_before_its_beginning(
    world: World, evm: Evm
) -> None:
    contract = evm.deploy()
    evm.mine(3)
    monitor_id = world.logs(contract.address, first=evm.height + 3)
    async with world.running() as service:
        await eventually(lambda: service._follower.newest == evm.height)
        await service._head.poll()  # now the hashes of the blocks are known
        evm.reorganise(2)
        await eventually(lambda: world.store.state().reorganisations)
        for n in range(4):
            contract.call("ping", n, "")
        await eventually(lambda: world.cursor(monitor_id).block == evm.height)
    assert world.numbers() == [2, 3]


async def test_with_confirmations_a_log_is_told_when_enough_blocks_lie_on_it(
    tmp_path: Path, evm: Evm
) -> None:
    world = World(tmp_path, [evm.url], confirmations=3)
    contract = evm.deploy()
    world.logs(contract.address, first=evm.height)
    evm.mine(4)
    async with world.running() as service:
        contract.call("ping", 1, "")
        evm.mine(2)
        await eventually(lambda: service._follower.newest == evm.height)
        assert world.sent == []
        evm.reorganise(3)  # removes the log before anybody has seen it
        contract.call("ping", 2, "")
        evm.mine(3)
        await eventually(lambda: world.numbers() == [2])
    assert world.numbers("SEEN_REMOVED") == []


async def test_a_paused_monitor_is_sent_nothing_and_goes_on_where_it_was(
    world: World, evm: Evm
) -> None:
    contract = evm.deploy()
    other_id = world.logs(contract.address, first=evm.height, event_type="OTHER")
    monitor_id = world.logs(contract.address, first=evm.height)
    async with world.running() as service:
        contract.call("ping", 1, "")
        await eventually(lambda: world.numbers() == [1])
        world.writer.pause_monitors(world.project_id, "contract_log", [monitor_id], True)
        await eventually(lambda: service._progress.watches[monitor_id].monitor.paused)
        contract.call("ping", 2, "")
        await eventually(lambda: world.numbers("OTHER") == [1, 2])
        assert world.numbers() == [1]
        world.writer.pause_monitors(world.project_id, "contract_log", [monitor_id], False)
        await eventually(lambda: world.numbers() == [1, 2])
        world.writer.remove_monitor(other_id)
        await eventually(lambda: world.store.cursor(other_id) is None)
        contract.call("ping", 3, "")
        await eventually(lambda: world.numbers() == [1, 2, 3])
        assert world.numbers("OTHER") == [1, 2]


async def test_at_its_last_block_a_monitor_is_finished_and_may_be_made_again(
    world: World, evm: Evm
) -> None:
    contract = evm.deploy()
    first = evm.height + 1
    monitor_id = world.logs(contract.address, first=first, block_end=first + 1)
    async with world.running():
        for n in range(3):
            contract.call("ping", n, "")
        await eventually(lambda: world.numbers() == [0, 1])
        await eventually(lambda: world.cursor(monitor_id).block == first + 1)
        assert not world.finished(monitor_id), "it may yet vanish"
        evm.mine(DEPTH)
        await eventually(lambda: world.finished(monitor_id))
        assert world.numbers() == [0, 1]
        monitor = world.reader.monitor(monitor_id)
        assert monitor is not None
        assert monitor.block_current == first + 2
        again = world.logs(contract.address, first=first, block_end=first + 1)
        await eventually(lambda: world.numbers() == [0, 1, 0, 1])
        assert again != monitor_id


async def test_a_transaction_is_told_once_when_it_is_in_a_block(world: World, evm: Evm) -> None:
    contract = evm.deploy()
    before = contract.call("ping", 1, "")
    evm.mine(40)
    evm.rpc("evm_setAutomine", False)
    try:
        later = contract.call("ping", 2, "", mined=False)
        before_id = world.transaction(before.removeprefix("0x").upper())
        later_id = world.transaction(later)
        world.transaction("0x" + "ab" * 32)
        async with world.running():
            await eventually(lambda: len(world.payloads("MINED")) == 1)
            await asyncio.sleep(0.3)
            assert len(world.payloads("MINED")) == 1, "the other one is in no block yet"
            evm.rpc("evm_mine")
            await eventually(lambda: len(world.payloads("MINED")) == 2)
            await eventually(lambda: world.finished(before_id))
            assert not world.finished(later_id), "it may yet vanish"
            evm.mine(DEPTH)
            await eventually(lambda: world.finished(later_id))
    finally:
        evm.rpc("evm_setAutomine", True)
    for payload, tx_hash in zip(world.payloads("MINED"), (before, later), strict=True):
        raw = evm.rpc("eth_getTransactionByHash", tx_hash)
        assert payload["hash"] == tx_hash
        assert {key: raw[key] for key in payload} == payload
        assert {"from", "to", "input", "value", "nonce", "gas", "blockNumber"} <= set(payload)
    assert max(world.ids().values()) == 1


@pytest.mark.parametrize("depth", range(1, 11))
async def test_a_transaction_that_vanishes_is_taken_back_and_told_again_in_its_other_block(
    world: World, evm: Evm, depth: int
) -> None:
    contract = evm.deploy()
    tx_hash = contract.call("ping", depth, "")
    kept = evm.kept(tx_hash)
    evm.mine(depth - 1)
    monitor_id = world.transaction(tx_hash)
    async with world.running():
        await eventually(lambda: len(world.payloads("MINED")) == 1)
        evm.reorganise(depth)
        await eventually(lambda: len(world.payloads("MINED_REMOVED")) == 1)
        await eventually(lambda: not world.cursor(monitor_id).stands)
        evm.send_again(kept)
        await eventually(lambda: len(world.payloads("MINED")) == 2)
        await eventually(lambda: world.cursor(monitor_id).stands)
    first, again = world.payloads("MINED")
    assert world.payloads("MINED_REMOVED") == [{**first, "removed": True}]
    assert first["hash"] == again["hash"] == tx_hash
    assert first["blockHash"] != again["blockHash"]
    assert again["blockHash"] == evm.rpc("eth_getTransactionByHash", tx_hash)["blockHash"]
    ids = [event[2] for event in world.handled]
    assert ids == [
        f"tx-{CHAIN_ID}-{first['blockHash'][2:]}-0-{monitor_id}",
        f"removed-tx-{CHAIN_ID}-{first['blockHash'][2:]}-0-{monitor_id}",
        f"tx-{CHAIN_ID}-{again['blockHash'][2:]}-0-{monitor_id}",
    ]
    assert [event[5] for event in world.handled] == [
        NAMED | BY_CHAIN,
        NAMED | EXACT | BY_CHAIN,
        NAMED | BY_CHAIN,
    ]


async def test_a_transaction_with_its_confirmations_is_taken_back_only_by_a_deeper_reorganisation(
    tmp_path: Path, evm: Evm
) -> None:
    world = World(tmp_path, [evm.url], confirmations=3)
    contract = evm.deploy()
    tx_hash = contract.call("ping", 1, "")
    kept = evm.kept(tx_hash)
    evm.mine(1)
    world.transaction(tx_hash)
    async with world.running():
        await eventually(lambda: world.store.state().head == evm.height)
        evm.reorganise(2)
        await eventually(lambda: world.store.state().reorganisations == 1)
        evm.send_again(kept)
        await eventually(lambda: world.store.state().head == evm.height)
        assert world.handled == [], "it had too few blocks on it to be told of"
        evm.mine(3)
        await eventually(lambda: len(world.payloads("MINED")) == 1)
        evm.reorganise(5)
        evm.mine(1)
        await eventually(lambda: len(world.payloads("MINED_REMOVED")) == 1)
        evm.mine(5)
        await eventually(lambda: world.store.state().head == evm.height)
    assert len(world.handled) == 2


async def test_a_transaction_that_vanishes_while_nobody_looks_is_taken_back_at_the_start(
    world: World, evm: Evm
) -> None:
    contract = evm.deploy()
    tx_hash = contract.call("ping", 1, "")
    kept = evm.kept(tx_hash)
    world.transaction(tx_hash)
    async with world.running(killed=True):
        await eventually(lambda: world.payloads("MINED"))
    evm.reorganise(1)
    evm.send_again(kept)
    async with world.running():
        await eventually(lambda: len(world.payloads("MINED")) == 2)
    assert [event[0] for event in world.handled] == ["MINED", "MINED_REMOVED", "MINED"]
    assert max(world.ids().values()) == 1


async def test_logs_of_a_monitor_that_has_reached_its_last_block_are_taken_back(
    world: World, evm: Evm
) -> None:
    contract = evm.deploy()
    first = evm.height + 1
    contract.call("many", 0, 2)
    world.logs(contract.address, first=first, block_end=first)
    async with world.running():
        await eventually(lambda: world.numbers() == [0, 1])
        evm.reorganise(1)
        await eventually(lambda: world.numbers("SEEN_REMOVED") == [1, 0])


async def test_a_height_is_told_once_when_the_chain_has_reached_it(world: World, evm: Evm) -> None:
    height = evm.height + 5
    monitor_id = world.height(height)
    world.height(height + 1_000)  # so that the chain is polled all the time
    async with world.running() as service:
        evm.mine(4)
        await eventually(lambda: service._follower.newest == height - 1)
        await asyncio.sleep(0.2)
        assert world.handled == []
        evm.mine(3)
        await eventually(lambda: world.handled)
        evm.mine(3)
        await eventually(lambda: world.finished(monitor_id))
        await eventually(lambda: service._follower.newest == evm.height)
        evm.reorganise(5)
        await eventually(lambda: world.store.state().reorganisations)
        evm.mine(5)
        await eventually(lambda: world.store.state().head == evm.height)
    assert len(world.handled) == 1, "it names no block, so nothing of it is taken back"
    assert world.payloads("HIGH") == [{"HeaderNumber": height}]


async def test_a_thousand_logs_in_one_block_are_a_thousand_events(world: World, evm: Evm) -> None:
    contract = evm.deploy()
    world.logs(contract.address, first=evm.height)
    async with world.running():
        contract.call("many", 0, 1000)
        await eventually(lambda: len(world.handled) == 1000)
    assert world.numbers() == list(range(1000))
    assert len(world.sent) == 1000


async def test_a_project_that_cannot_take_events_holds_its_monitor_and_no_other(
    world: World, evm: Evm
) -> None:
    contract = evm.deploy()
    held = world.logs(contract.address, first=evm.height)
    world.logs(contract.address, first=evm.height, event_type="OTHER")
    full = TooManyRequestsError(what="full")
    world.refuse = lambda event: full if event[0] == "SEEN" else None
    async with world.running():
        for n in range(3):
            contract.call("ping", n, "")
        await eventually(lambda: world.numbers("OTHER") == [0, 1, 2])
        await eventually(lambda: "full" in world.cursor(held).error)
        world.refuse = lambda _event: None
        await eventually(lambda: world.numbers() == [0, 1, 2])
        await eventually(lambda: world.cursor(held).error == "")


async def test_an_event_that_can_never_be_handled_is_logged_and_does_not_hold_the_others(
    world: World, evm: Evm, caplog: pytest.LogCaptureFixture
) -> None:
    contract = evm.deploy()
    world.logs(contract.address, first=evm.height)

    def refuse(event: Any) -> PayloadTooLargeError | None:
        number = int(json.loads(event[3])["topics"][1], 16)
        return PayloadTooLargeError(size=2, limit_bytes=1) if number == 1 else None

    world.refuse = refuse
    async with world.running():
        contract.call("many", 0, 3)
        await eventually(lambda: world.numbers() == [0, 2])
        await eventually(lambda: "of a chain was not handled" in caplog.text)


async def test_an_endpoint_may_be_a_websocket(tmp_path: Path, evm: Evm) -> None:
    world = World(tmp_path, [evm.url.replace("http", "ws")])
    contract = evm.deploy()
    contract.call("ping", 1, "")
    world.logs(contract.address, first=evm.height)
    async with world.running():
        await eventually(lambda: world.numbers() == [1])
