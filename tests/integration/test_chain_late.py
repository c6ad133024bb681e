"""A chain that is unreachable when its node starts, or later for a while: monitors resume."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.chain.monitors import head, watch
from fieldbrook.chain.rpc import endpoint
from fieldbrook.observability.health import NO_CHAIN
from tests.chain.evm import CHAIN_ID, Evm
from tests.chain.proxy import Proxy
from tests.chain.world import World, eventually
from tests.support.applets import TALLY
from tests.support.metrics import one
from tests.support.nodes import StartNode, until
from tests.support.tools import free_port

_KINDS = ("contract_log", "chain_tx", "chain_height")


def history(evm: Evm) -> tuple[str, str]:
    """Make the same history on the chain each time: a contract and one of its transactions."""
    beacon = evm.deploy()
    evm.mine(2)
    beacon.call("many", 1, 3)
    data = beacon.data("ping", 4, "x")
    tx_hash = evm.send(
        beacon.address, data, maxFeePerGas=hex(10**10), maxPriorityFeePerGas=hex(10**9)
    )
    evm.mine(40)
    beacon.call("ping", 5, "y")
    return beacon.address, tx_hash


@pytest.mark.thorough
def test_a_node_whose_chain_comes_late_tells_of_it_and_misses_nothing(
    start_node: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Evm()
    address, tx_hash = history(before)
    height = before.height
    before.stop()
    port = free_port()
    chain = {"id": CHAIN_ID, "name": "dev", "endpoint": f"http://127.0.0.1:{port}", "poll_ms": 50}
    monkeypatch.setenv("FIELDBROOK_CHAINS", json.dumps([chain]))
    node = start_node()
    node.create_project("p")
    applets = {}
    for kind in _KINDS:
        rules = [{"eventType": kind.upper(), "handler": "start"}]
        applets[kind] = node.deploy("p", TALLY, kind, strategies=rules)["appletID"]
    made: dict[str, dict[str, Any]] = {
        "contract_log": {"contractAddress": address, "blockStart": 1},
        "chain_tx": {"txAddress": tx_hash},
        "chain_height": {"height": height - 1},
    }
    for kind, fields in made.items():
        body = {"chainID": CHAIN_ID, "eventType": kind.upper(), **fields}
        assert node.call("POST", f"/monitor/x/p/{kind}", body).status == 201

    until(lambda: one(node, "health_state", state=NO_CHAIN) == 1, "the health tells of it")
    assert node.call("GET", "/chain/dev").json["state"] == "UNREACHABLE"
    for kind in _KINDS:
        (row,) = node.call("GET", f"/monitor/x/p/{kind}/datalist").json["data"]
        assert (row["state"], row["events"]) == ("UNREACHABLE", 0)
    assert node.call("GET", "/readiness", token="").status == 200, "the rest serves"

    late = Evm(port=port)
    try:
        assert history(late) == (address, tx_hash)
        until(lambda: one(node, "health_state", state=NO_CHAIN) == 0, "it ends by itself", 90)
        until(lambda: node.count("p", applets["contract_log"]) == 5, "each log is told")
        until(lambda: node.count("p", applets["chain_tx"]) == 1, "so is the transaction")
        until(lambda: node.count("p", applets["chain_height"]) == 1, "and the height")
        until(
            lambda: one(node, "chain_head_block", chain=str(CHAIN_ID)) == late.height,
            "it is at the newest block",
        )
        state = node.call("GET", "/chain/dev").json
        assert (state["state"], state["monitors"]["greatestLag"]) == ("OK", 0)
        (row,) = node.call("GET", "/monitor/x/p/contract_log/datalist").json["data"]
        assert (row["state"], row["events"], row["removedEvents"]) == ("ACTIVE", 5, 0)
        assert [node.count("p", applets[kind]) for kind in _KINDS] == [5, 1, 1]
    finally:
        late.stop()


@pytest.mark.parametrize("restarted", [False, True])
async def test_monitors_go_on_at_once_when_their_chain_is_there_again(
    tmp_path: Path,
    evm: Evm,
    proxy: Proxy,
    restarted: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They do not wait for the end of their pause, which is an hour in this test."""

    async def away(world: World, monitor_id: int) -> None:
        await eventually(lambda: (c := world.store.cursor(monitor_id)) and c.error)
        proxy.fault = "drop"
        await eventually(lambda: world.store.state().error)
        proxy.fault = ""
        proxy.refuses.clear()

    monkeypatch.setattr(endpoint, "_PAUSES_S", (0.0, 0.05))
    monkeypatch.setattr(watch, "_PAUSES_S", (3_600.0,))
    world = World(tmp_path, [proxy.url], confirmations=2)
    contract = evm.deploy()
    monitor_id = world.logs(contract.address, first=evm.height)
    async with world.running():
        await eventually(lambda: world.store.state().head == evm.height)
        proxy.refuses["eth_getLogs"] = "not now"
        contract.call("ping", 1, "")
        evm.mine(3)
        await eventually(lambda: world.store.state().head == evm.height)
        if not restarted:
            await away(world, monitor_id)
            await eventually(lambda: world.numbers() == [1])
    if restarted:
        proxy.fault = "drop"
        async with world.running():
            await away(world, monitor_id)
            await eventually(lambda: world.numbers() == [1])
    assert max(world.ids().values()) == 1
    assert "closed the connection" in caplog.text


async def test_a_chain_that_nobody_watches_is_found_when_it_comes_and_one_failure_is_no_condition(
    tmp_path: Path,
    evm: Evm,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(endpoint, "_PAUSES_S", (0.0, 0.05))
    monkeypatch.setattr(head, "_NO_CHAIN_S", 0.2)
    world = World(tmp_path, [proxy.url])
    proxy.fault = "drop"
    async with world.running() as service:
        await eventually(lambda: NO_CHAIN in world.health)
        proxy.fault = ""
        await eventually(lambda: NO_CHAIN not in world.health)
        await eventually(lambda: world.store.state().head == evm.height)
        # It was polled long ago, like a chain that nobody watches.
        monkeypatch.setattr(head, "_NO_CHAIN_S", 3_600.0)
        proxy.fault = "drop"
        service._head._polled_at = time.monotonic() - 7_200.0
        service._head.poll_within(0.0)
        await eventually(lambda: world.store.state().error)
        assert NO_CHAIN not in world.health
        proxy.fault = ""
        await eventually(lambda: not world.store.state().error)
    assert "closed the connection" in caplog.text
