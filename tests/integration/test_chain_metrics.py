"""Metrics and commands of a running node about its chain, while blocks and failures happen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chain.evm import CHAIN_ID, Contract, Evm
from tests.chain.proxy import Proxy
from tests.support.applets import TALLY
from tests.support.metrics import one
from tests.support.nodes import RunningNode, strategies, until
from tests.support.shell import Shell

CHAIN = str(CHAIN_ID)


class World:
    """A node with a chain that has two endpoints, and a project that watches a contract."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.evm = Evm()
        self.first, self.second = Proxy(self.evm.url), Proxy(self.evm.url)
        urls = [self.first.url, self.second.url]
        chain = {"id": CHAIN_ID, "name": "dev", "endpoints": urls, "poll_ms": 50}
        monkeypatch.setenv("FIELDBROOK_CHAINS", json.dumps([chain]))
        self.node = RunningNode(folder / "n")
        self.node.log_in()
        self.shell = Shell(folder / "home", self.node)
        self.node.create_project("p")
        self.applet: str = self.node.deploy(
            "p", TALLY, "seen", strategies=strategies(SEEN="start")
        )["appletID"]
        self.beacon: Contract = self.evm.deploy()
        body = {
            "chainID": CHAIN_ID,
            "contractAddress": self.beacon.address,
            "blockStart": self.evm.height,
            "eventType": "SEEN",
        }
        assert self.node.call("POST", "/monitor/x/p/contract_log", body).status == 201
        until(lambda: self.lag == 0 and self.metric("head_block") == self.evm.height, "it follows")

    def metric(self, name: str, **labels: str) -> float:
        return one(self.node, f"chain_{name}", chain=CHAIN, **labels)

    @property
    def lag(self) -> float:
        return self.metric("monitor_lag_blocks")

    def shown(self) -> Any:
        """Return the chain as shown by `chain show`."""
        return self.shell.json("chain", "show", "dev")

    def monitor(self) -> Any:
        """Return the monitor as shown by `monitor list`."""
        (row,) = self.shell.json("monitor", "list", "p")
        return row

    def counted(self) -> int:
        return self.node.count("p", self.applet)

    def close(self) -> None:
        self.node.stop()
        self.first.close()
        self.second.close()
        self.evm.stop()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        made = World(tmp_path_factory.mktemp("chain"), monkeypatch)
        yield made
        made.close()


def becomes(figure: Callable[[], Any], value: Any, what: str) -> None:
    """Wait until a metric has a value; a failure shows its last value."""
    seen: list[Any] = []

    def there() -> bool:
        seen[:] = [figure()]
        return bool(seen[0] == value)

    try:
        until(there, what)
    except AssertionError:
        raise AssertionError(f"{what}: {seen[0]} instead of {value}") from None


@pytest.mark.thorough
def test_how_far_a_monitor_lags_is_shown_while_it_does_and_until_it_has_caught_up(
    world: World,
) -> None:
    evm, before, counted = world.evm, world.monitor()["events"], world.counted()
    for proxy in (world.first, world.second):
        proxy.refuses["eth_getLogs"] = "logs are not indexed yet"
    world.beacon.call("ping", 1, "")
    evm.mine(6)
    becomes(lambda: world.lag, 7, "the metrics show that it stands")
    becomes(lambda: world.metric("monitors_failing"), 1, "and that it cannot go on")
    becomes(lambda: world.monitor()["lag"], 7, "so does the command")
    row = world.monitor()
    assert (row["state"], row["events"]) == ("FAILING", before)
    assert "logs are not indexed yet" in row["lastError"]
    assert world.shown()["monitors"]["greatestLag"] == 7
    assert "FAILING" in world.shell.text("monitor", "list", "p")

    for proxy in (world.first, world.second):
        proxy.refuses.clear()
    becomes(lambda: world.lag, 0, "the metrics show that it has caught up")
    becomes(lambda: world.metric("monitors_failing"), 0, "and that it goes on")
    becomes(lambda: world.monitor()["lag"], 0, "so does the command")
    row = world.monitor()
    assert (row["state"], row["events"]) == ("ACTIVE", before + 1)
    assert world.counted() == counted + 1
    assert world.metric("head_block") == evm.height


def test_a_reorganisation_is_shown_with_its_depth_when_it_has_happened(world: World) -> None:
    evm = world.evm
    before = world.metric("reorganisations_total")
    for turn, depth in enumerate((2, 4, 3), 1):
        evm.mine(4)
        world.beacon.call("ping", turn, "")
        removed = world.monitor()["removedEvents"]
        becomes(lambda: world.metric("head_block"), evm.height, "the block is seen")
        becomes(lambda: world.lag, 0, "the log is handled")
        evm.reorganise(depth)
        evm.mine(1)
        becomes(
            lambda: world.metric("reorganisations_total"), before + turn, "the metrics count it"
        )
        deepest = max((2, 4, 3)[:turn])
        assert world.metric("deepest_reorganisation_blocks") == deepest
        shown = world.shown()
        assert shown["reorganisations"] == before + turn
        assert shown["deepestReorganisation"] == deepest
        becomes(lambda: world.monitor()["removedEvents"], removed + 1, "the log is taken back")
    assert f"{before + 3:.0f}" in world.shell.text("chain", "list")


@pytest.mark.thorough
def test_an_endpoint_that_goes_away_is_a_failover_and_its_return_is_another(world: World) -> None:
    assert world.metric("endpoint_usable", endpoint="0") == 1
    before, counted = world.metric("failovers_total"), world.counted()
    world.first.fault = "drop"
    world.beacon.call("ping", 1, "")
    becomes(lambda: world.metric("failovers_total"), before + 1, "the second one is asked")
    becomes(world.counted, counted + 1, "the log is handled all the same")
    becomes(lambda: world.metric("endpoint_usable", endpoint="0"), 0, "the first one is not")
    assert "http://127.0.0.1" in world.shell.text("chain", "show", "dev")
    assert "closed the connection" in world.shown()["endpoints"][0]["state"]
    asked = world.first.asked.total()
    until(lambda: world.first.asked.total() > asked, "the first one is asked again, and fails")
    world.beacon.call("ping", 2, "")
    becomes(world.counted, counted + 2, "the second one goes on")
    assert world.metric("failovers_total") == before + 1, "that is no change"
    world.first.fault = ""
    becomes(lambda: world.metric("failovers_total"), before + 2, "the first one is asked again")
    becomes(lambda: world.metric("endpoint_usable", endpoint="0"), 1, "and serves")
    assert "s3cret" not in world.node.log
