"""`fieldbrook applet dev --project`, and the simulated device of the templates, with a node."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.dev import Dev
from tests.support.nodes import RunningNode, StartNode
from tests.support.shell import Shell
from tests.support.tools import LIMIT_S, require_tool


@pytest.fixture
def node(start_node: StartNode) -> RunningNode:
    node = start_node()
    node.create_project("room")
    return node


@pytest.fixture
def shell(node: RunningNode, tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home", node)


def versions(shell: Shell) -> int:
    return len(shell.json("applet", "versions", "room", "meter"))


@pytest.mark.thorough
def test_a_save_is_deployed_and_tried_with_the_log_beside_it(
    node: RunningNode, shell: Shell, meter: Path
) -> None:
    node.add_publisher("room", "sensor")
    source, events = meter / "applet.wat", meter / "events.jsonl"
    options = ("--project", "room", "--send", str(events))
    with Dev(meter, *options, environment=shell.environment) as dev:
        block = dev.block()
        assert block["deployed"] == "deployed version 1 of meter to room"
        assert [run["result"] for run in block["runs"]] == [["code     0"]] * 3
        dev.wait(lambda: "count=3 bytes=2" in dev.rows, "the log of the events")

        source.write_text(source.read_text().replace('"count="', '"total="'))
        block = dev.block()
        assert block["deployed"] == "deployed version 2 of meter to room"
        assert [run["changes"] for run in block["runs"]] == [[]] * 3
        dev.wait(lambda: "total=6 bytes=2" in dev.rows, "the log of the new version")

        whole = source.read_text()
        source.write_text("(module (")
        block = dev.block()
        assert "not a WebAssembly text" in block["error"]
        assert versions(shell) == 2
        send = ("send", "room", "--publisher", "sensor", "--data", "abc")
        assert shell.json(*send)["results"][0]["code"] == 0
        dev.wait(lambda: "total=7 bytes=3" in dev.rows, "the log of an event from elsewhere")

        source.write_text(whole)
        assert dev.block()["deployed"] == (
            "the module is the same: version 2 of meter keeps running in room"
        )
        source.write_text(
            whole.replace("(drop\n      (call $log", "(unreachable)\n(drop (call $log")
        )
        runs = dev.block()["runs"]
        assert all(run["failed"] for run in runs)
        assert runs[0]["changes"][0] == "- code     0"
        assert "unreachable" in runs[0]["changes"][1]
        assert dev.end() == 130
    assert "Traceback" not in dev.errors


@pytest.mark.thorough
def test_blocks_for_people_name_what_keeps_running(
    node: RunningNode, shell: Shell, meter: Path
) -> None:
    options = ("--project", "room", "--name", "clock", "--strategy", "TICK=start")
    with Dev(meter, *options, environment=shell.environment, text=True) as dev:
        dev.wait(lambda: "deployed version 1 of clock to room" in dev.out, "the deployment")
        (meter / "applet.wat").write_text("(module (")
        dev.wait(lambda: "version 1 of clock keeps running in room" in dev.out, "the failure")
        publisher = node.add_publisher("room", "sensor")
        shell(
            *("send", "room", "--publisher", publisher["key"], "--type", "TICK", "--data", "a"),
        )
        dev.wait(lambda: "info    clock: count=1 bytes=1" in dev.out, "the row of the log")
        assert any(line.startswith("log  20") for line in dev.out.splitlines())


@pytest.mark.thorough
def test_a_node_that_goes_away_and_comes_back_is_deployed_to_again(
    node: RunningNode, shell: Shell, meter: Path
) -> None:
    node.add_publisher("room", "sensor")
    source = meter / "applet.wat"
    options = ("--project", "room", "--send", str(meter / "events.jsonl"))
    with Dev(meter, *options, environment=shell.environment) as dev:
        dev.block()
        dev.wait(lambda: "count=3 bytes=2" in dev.rows, "the log of the events")
        node.stop()
        dev.wait(lambda: "the log is interrupted" in dev.errors, "the note about the log")
        source.write_text(source.read_text().replace('"count="', '"total="'))
        assert "cannot reach" in dev.block()["error"]
        node.start()
        source.write_text(f"{source.read_text()}\n;; again\n")
        assert dev.block()["deployed"] == "deployed version 2 of meter to room"
        dev.wait(lambda: "total=6 bytes=2" in dev.rows, "the log after the restart")
        assert dev.rows.count("count=3 bytes=2") == 1
    assert dev.errors.count("the log is interrupted") == 1


@pytest.mark.thorough
def test_a_project_or_a_publisher_that_is_not_there_is_refused(
    node: RunningNode, shell: Shell, meter: Path
) -> None:
    def refused(*options: str) -> str:
        return shell.fails("applet", "dev", str(meter), *options)

    send = ("--send", str(meter / "events.jsonl"))
    assert "ProjectNotFound" in refused("--project", "hall")
    assert "no publisher" in refused("--project", "room", *send)
    for name in ("one", "two"):
        node.add_publisher("room", name)
    assert "name the publisher with --publisher" in refused("--project", "room", *send)
    assert "no publisher three" in refused("--project", "room", *send, "--publisher", "three")
    assert shell.json("applet", "list", "room") == []


@pytest.mark.thorough
def test_the_simulated_device_of_a_template_sends_readings(
    node: RunningNode, shell: Shell, meter: Path
) -> None:
    require_tool("curl")
    node.add_publisher("room", "sensor")
    shell("applet", "build", str(meter))
    shell("applet", "deploy", "room", str(meter / "build" / "meter.wasm"))
    token = shell.text("publisher", "token", "room", "sensor").strip()

    def device(token: str) -> subprocess.CompletedProcess[str]:
        variables = {
            **os.environ,
            "NODE": shell.environment["FIELDBROOK_SERVER"],
            "TOKEN": token,
            "PAUSE": "0",
        }
        return subprocess.run(
            ["sh", str(meter / "device.sh"), "room", "3"],
            env=variables,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
            text=True,
        )

    done = device(token)
    assert done.returncode == 0, done
    assert done.stdout.count('"code":0') == 3
    assert shell.text("kv", "get", "room", "count").strip() == "3"
    (row,) = shell.json("event", "room", "--limit", "1")["data"]
    payload = shell.text("event", "show", "room", "--place", row["place"], "--payload")
    assert payload == '{"device": "meter", "number": 3, "celsius": 21.9}'
    assert device("wrong").returncode != 0
    assert device("").returncode != 0
