"""Chains in a running node: monitors over routes and commands, and deaths of processes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chain.evm import CHAIN_ID, Contract, Evm, contract, topic
from tests.chain.proxy import Proxy
from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, parts, strategies, until
from tests.support.shell import Shell

PART = f"fb-chain:{CHAIN_ID}"
RULES = [{"eventType": "SEEN", "handler": "start"}, {"eventType": "LAST", "handler": "echo"}]


class World:
    """A node with a chain, and a project that counts what monitors send."""

    def __init__(self, folder: Path, evm: Evm, monkeypatch: pytest.MonkeyPatch) -> None:
        self.evm, self.proxy = evm, Proxy(evm.url)
        chain = {"id": CHAIN_ID, "name": "dev", "endpoints": [self.proxy.url], "poll_ms": 50}
        monkeypatch.setenv("FIELDBROOK_CHAINS", json.dumps([chain]))
        self.node = RunningNode(folder / "n")
        self.node.log_in()

    def begin(self) -> None:
        """Replace the project by a new one without data."""
        self.node.call("DELETE", "/project/p")
        self.node.create_project("p")
        self.seen: str = self.node.deploy("p", TALLY, "seen", strategies=RULES)["appletID"]
        removed = strategies(SEEN_REMOVED="start")
        self.removed: str = self.node.deploy("p", TALLY, "removed", strategies=removed)["appletID"]
        self.rest: str = self.node.deploy(
            "p", TALLY, "rest", strategies=strategies(DEFAULT="start")
        )["appletID"]

    def watch(self, contract: Contract, first: int, **more: Any) -> Any:
        body = {
            "chainID": CHAIN_ID,
            "contractAddress": contract.address,
            "blockStart": first,
            "eventType": "SEEN",
            **more,
        }
        answer = self.node.call("POST", "/monitor/x/p/contract_log", body)
        assert answer.status == 201, answer
        return answer.json

    def monitor(self, made: Any) -> Any:
        return self.node.call("GET", f"/monitor/x/p/contract_log/{made['contractlogID']}").json

    def counts(self) -> tuple[int, int]:
        """Return how many logs, and how many reverted logs, the project has counted."""
        return self.node.count("p", self.seen), self.node.count("p", self.removed)

    def last(self) -> Any:
        return json.loads(self.node.kv("p", self.seen, b"last") or b"null")

    def close(self) -> None:
        self.node.stop()
        self.proxy.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, evm: Evm) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        made = World(tmp_path_factory.mktemp("chain"), evm, monkeypatch)
        yield made  # in the context, so that a restarted node has the same chains
        made.close()


@pytest.fixture
def world(shared: World) -> World:
    shared.begin()
    return shared


@pytest.mark.thorough
def test_processes_that_are_killed_while_logs_are_delivered_lose_and_double_none(
    world: World,
) -> None:
    evm, node = world.evm, world.node
    beacon = evm.deploy()
    made = world.watch(beacon, evm.height)
    total = 0

    def counted(least: int) -> None:
        until(lambda: world.counts()[0] >= least, f"{least} are counted")

    for victim in (PART, "project", "node", PART, "project"):
        for _ in range(3):
            beacon.call("many", total, 100)
            total += 100
        counted(total - 299)
        if victim == "node":
            node.kill()
            node.start()
        else:
            running = parts(node)
            name = next(name for name in running if name.startswith(victim))
            os.kill(running[name], signal.SIGKILL)
    counted(total)
    # Reorganisations during which the chain's process is killed.
    for n, depth in enumerate((2, 3), 1):
        before = world.counts()[1]
        evm.reorganise(depth)
        until(lambda before=before: world.counts()[1] > before, "some are taken back")  # type: ignore[misc]
        os.kill(until(lambda: parts(node).get(PART), "it runs"), signal.SIGKILL)
        beacon.call("ping", total, "")
        counted(total + n)
    logs = len(evm.logs(address=beacon.address))

    def settled() -> bool:
        seen, removed = world.counts()
        return seen - removed == logs and world.monitor(made)["lag"] == 0

    until(settled, "what is counted is what is on the chain")
    seen, removed = world.counts()
    assert (seen - removed, node.count("p", world.rest)) == (logs, 0)
    state = node.call("GET", f"/chain/{CHAIN_ID}").json
    assert (state["state"], state["reorganisations"] >= 2) == ("OK", True)
    assert "s3cret" not in node.log


def test_a_monitor_shows_how_far_it_has_come_and_its_chain_how_it_fares(world: World) -> None:
    evm, node = world.evm, world.node
    beacon = evm.deploy()
    made = world.watch(beacon, evm.height, eventType="LAST")
    beacon.call("ping", 1, "")
    until(lambda: world.last(), "the log arrives")
    shown = until(lambda: (m := world.monitor(made))["events"] == 1 and m, "the monitor has moved")
    assert (shown["state"], shown["lag"], shown["removedEvents"]) == ("ACTIVE", 0, 0)
    assert shown["blockCurrent"] == evm.height + 1
    assert shown["blockHash"] == evm.rpc("eth_getBlockByNumber", "latest", False)["hash"]

    (told,) = until(lambda: node.call("GET", "/event_log/p").json["data"], "its history")
    assert (told["source"], told["eventType"]) == ("chain", "LAST")

    rows = node.call("GET", "/chain").json
    assert rows["total"] == 1
    (chain,) = rows["data"]
    assert (chain["chainID"], chain["name"], chain["state"]) == (CHAIN_ID, "dev", "OK")
    assert chain["monitors"] == {
        "active": 1,
        "paused": 0,
        "failing": 0,
        "finished": 0,
        "greatestLag": 0,
    }
    (endpoint,) = chain["endpoints"]
    assert endpoint["endpoint"] == world.proxy.url.partition("/v2")[0]
    assert node.call("GET", "/chain/dev").json["chainID"] == CHAIN_ID
    assert node.call("GET", "/chain/9").json["key"] == "BlockchainNotFound"

    world.proxy.fault = "broken"
    until(lambda: node.call("GET", "/chain/dev").json["state"] == "UNREACHABLE", "it is told")
    told = node.call("GET", "/chain/dev").body
    assert b"HTTP status 500" in told
    assert b"s3cret" not in told
    world.proxy.fault = ""
    until(lambda: node.call("GET", "/chain/dev").json["state"] == "OK", "it recovers")


def test_an_event_chosen_by_its_declaration_comes_with_its_arguments(world: World) -> None:
    evm = world.evm
    beacon = evm.deploy()
    world.watch(
        beacon,
        evm.height,
        eventType="LAST",
        event="Transfer(address indexed from, address indexed to, uint256 value)",
    )
    beacon.call("ping", 1, "another event")
    beacon.call("transfer", evm.accounts[3], 10**30)
    payload = until(lambda: world.last(), "the log arrives")
    (raw,) = evm.logs(topics=[topic("Transfer(address,address,uint256)")], address=beacon.address)
    raw.pop("blockTimestamp", None)
    assert payload == {
        **raw,
        "event": "Transfer(address,address,uint256)",
        "args": {"from": evm.account, "to": evm.accounts[3].lower(), "value": str(10**30)},
    }


def test_an_abi_reads_whatever_an_event_has(world: World) -> None:
    evm, node = world.evm, world.node
    beacon = evm.deploy()
    abi = contract("Beacon")["abi"]
    made = world.watch(beacon, evm.height, eventType="LAST", event="Report", abi=abi)
    assert made["event"] == "Report(string,int64,bool,uint8[],(int32,int32),bytes)"
    beacon.call("report", "dev-1", -40, [1, 2], b"\x00\xff")
    payload = until(lambda: world.last(), "the log arrives")
    assert payload["args"] == {
        "device": topic("dev-1"),  # only its hash is in the log
        "temperature": "-40",
        "ok": False,
        "flags": ["1", "2"],
        "position": {"latitude": "-5", "longitude": "7"},
        "data": "0x00ff",
    }
    refused = {
        "chainID": CHAIN_ID,
        "contractAddress": beacon.address,
        "blockStart": 1,
    }
    for more, reason in (
        ({"event": "Transfer"}, "must be a signature if no ABI is given"),
        ({"event": "Nothing", "abi": abi}, "no event of the ABI matches"),
        ({"abi": abi}, "more than one event of the ABI matches"),
        ({"event": "Ping", "abi": abi, "topic0": topic("x")}, "topic0 is not that of Ping"),
        ({"event": "Ping(uint7)"}, "not a valid type"),
    ):
        answer = node.call("POST", "/monitor/x/p/contract_log", {**refused, **more})
        assert answer.status == 400, more
        (field,) = answer.json["fields"]
        assert field["field"] == "event"
        assert reason in field["msg"]


@pytest.mark.thorough
def test_the_commands_of_chains_and_monitors(world: World, tmp_path: Path) -> None:
    evm = world.evm
    beacon = evm.deploy()
    shell = Shell(tmp_path / "home", world.node)
    run = shell.text
    made = run(
        *("monitor", "add-log", "p", beacon.address, "--chain", str(CHAIN_ID), "--from", "1"),
        *("--type", "SEEN", "--event", "Ping(uint256,address,string)"),
    )
    assert "Ping(uint256,address,string)" in made
    run("monitor", "add-tx", "p", "0x" + "ab" * 32, "--chain", str(CHAIN_ID))
    run("monitor", "add-height", "p", "999999", "--chain", str(CHAIN_ID))
    beacon.call("ping", 1, "")
    until(lambda: world.counts()[0] == 1, "the log is counted")
    until(lambda: "ACTIVE" in run("monitor", "list", "p"), "it is shown")
    rows = shell.json("monitor", "list", "p")
    assert sorted(row["kind"] for row in rows) == ["height", "log", "tx"]
    (log,) = (row["id"] for row in rows if row["kind"] == "log")
    again = shell.json("monitor", "rewind", "p", log, "1")
    assert (again["blockStart"], again["event"]) == (1, "Ping(uint256,address,string)")
    until(lambda: world.counts()[0] == 2, "the log is sent again, as a new event")
    ids = [row["id"] for row in shell.json("monitor", "list", "p")]
    assert len(ids) == 3
    assert log not in ids
    run("monitor", "pause", "p", *ids)
    assert run("monitor", "list", "p").count("PAUSED") == 3
    run("monitor", "start", "p", *ids)
    assert "dev" in run("chain", "list")
    shown = run("chain", "show", "dev")
    assert "127.0.0.1" in shown
    assert "s3cret" not in shown
    run("monitor", "delete", "p", *ids)
    assert shell.json("monitor", "list", "p") == []
