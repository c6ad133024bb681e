"""The lock of the data folder: only one node at a time uses it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.applets import TALLY
from tests.support.brokers import Device
from tests.support.nodes import (
    READY,
    RunningNode,
    StartNode,
    alive,
    message,
    parts,
    strategies,
    until,
)
from tests.support.tools import LIMIT_S, free_port


@pytest.fixture(params=["up", "node"])
def node(start_node: StartNode, request: pytest.FixtureRequest) -> RunningNode:
    running = start_node(command=request.param, logged_in=False)
    until(lambda: "fb-worker:0" in parts(running), "a worker is there")
    return running


@pytest.fixture
def whole(start_node: StartNode) -> RunningNode:
    return start_node(logged_in=False)


def start_another(command: str, data: Path) -> subprocess.CompletedProcess[str]:
    """Start a node on this folder, on ports of its own; it must end at once."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "fieldbrook", command, "--data", str(data)),
            *("--http-port", str(free_port()), "--mqtt-port", str(free_port())),
            *("--bind", "127.0.0.1", "--dashboard-port", str(free_port())),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


@pytest.mark.parametrize("command", ["node", "up"])
@pytest.mark.thorough("node-up", "up-node")
def test_a_second_node_on_the_same_data_is_refused_and_told_who_runs_there(
    node: RunningNode, command: str
) -> None:
    second = start_another(command, node.data)
    assert second.returncode == 2
    expected = f"another node runs on the data folder {node.data} (process {node.process.pid})"
    assert expected in second.stderr
    assert node.call("GET", "/").status == 204


@pytest.mark.thorough
def test_a_second_up_on_a_running_nodes_data_leaves_its_mqtt_alone(whole: RunningNode) -> None:
    whole.log_in()
    whole.create_project("p")
    applet_id = whole.deploy("p", TALLY, strategies=strategies(DEFAULT="quiet"))["appletID"]
    event = json.dumps(message(whole.add_publisher("p", "d"))).encode()
    assert start_another("up", whole.data).returncode == 2
    with Device(whole.mqtt_port, "d") as device:
        device.publish("p", event)
    until(lambda: whole.count("p", applet_id) == 1, "the event is handled")


@pytest.mark.parametrize("command", ["node", "up"])
def test_nothing_is_started_or_written_where_a_restore_did_not_finish(
    tmp_path: Path, command: str
) -> None:
    (tmp_path / "n" / ".restoring").mkdir(parents=True)
    done = start_another(command, tmp_path / "n")
    assert done.returncode == 2
    assert "a restore did not finish" in done.stderr
    assert [path.name for path in (tmp_path / "n").iterdir()] == [".restoring"]


@pytest.mark.thorough
def test_a_node_that_is_started_again_waits_for_the_processes_of_the_run_before(
    whole: RunningNode,
) -> None:
    first = parts(whole)
    os.kill(first["fb-node"], signal.SIGKILL)
    until(lambda: whole.log.count(READY) == 2, "the node serves again")
    left = [name for name, pid in first.items() if name.startswith("fb-") and alive(pid)]
    assert left == []
    assert "another node runs" not in whole.log


@pytest.mark.thorough
def test_the_data_folder_is_free_when_all_processes_of_a_killed_node_have_ended(
    whole: RunningNode,
) -> None:
    whole.kill()
    whole.start()
    assert whole.call("GET", "/").status == 204
