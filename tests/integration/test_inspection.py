"""Logs and key-value pairs can be read as soon as their event is answered."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.nodes import RunningNode, StartNode, message, parts, until
from tests.support.shell import Shell

# Handlers: `start` logs its payload and does nothing else; `put` stores its payload under the
# empty key; `get` logs what is stored there.
APPLET = b"""
(module
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_get_db" (func $get_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_log" (func $log (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "alloc") (param $size i32) (result i32) (i32.const 1024))
  (func (export "start") (param $rid i32) (result i32)
    (drop (call $get_data (local.get $rid) (i32.const 0) (i32.const 4)))
    (call $log (i32.const 3) (i32.load (i32.const 0)) (i32.load (i32.const 4))))
  (func (export "put") (param $rid i32) (result i32)
    (drop (call $get_data (local.get $rid) (i32.const 0) (i32.const 4)))
    (call $set_db
      (i32.const 64) (i32.const 0) (i32.load (i32.const 0)) (i32.load (i32.const 4))))
  (func (export "get") (param $rid i32) (result i32)
    (drop (call $get_db (i32.const 64) (i32.const 0) (i32.const 0) (i32.const 4)))
    (call $log (i32.const 3) (i32.load (i32.const 0)) (i32.load (i32.const 4)))))
"""
STRATEGIES = [
    {"eventType": name, "handler": handler}
    for name, handler in (("DEFAULT", "start"), ("PUT", "put"), ("GET", "get"))
]


@pytest.fixture(scope="module")
def node(start_module_node: StartNode) -> RunningNode:
    return start_module_node("--project-idle-s", "2")


def logged(node: RunningNode, project: str) -> list[str]:
    return [row["msg"] for row in node.call("GET", f"/applet_log/{project}").json["data"]]


@pytest.mark.thorough
def test_what_a_handler_logged_can_be_read_as_soon_as_its_event_is_answered(
    node: RunningNode,
) -> None:
    node.create_project("logs")
    node.deploy("logs", APPLET, strategies=STRATEGIES)
    publisher = node.add_publisher("logs", "p")
    for number in range(20):
        answer = node.send("logs", message(publisher, b"row %d" % number))
        assert answer.status == 201
        assert logged(node, "logs")[-1:] == [f"row {number}"]
        answer = node.send("logs", message(publisher, b"again %d" % number))
        seen = node.call("GET", f"/event_log/logs?eventID={answer.headers['X-Event-Id']}").json
        assert [row["msg"] for row in seen["logs"]] == [f"again {number}"]
        assert len(seen["data"]) == 1


def test_reading_a_log_again_and_again_keeps_no_project_awake(node: RunningNode) -> None:
    node.create_project("asleep")
    node.deploy("asleep", APPLET, strategies=STRATEGIES)
    publisher = node.add_publisher("asleep", "p")
    assert node.send("asleep", message(publisher, b"one")).status == 201

    def sleeps() -> bool:
        assert logged(node, "asleep") == ["one"]
        time.sleep(0.5)  # like a user who reads twice a second
        return "project" not in parts(node)

    until(sleeps, "the project retires")
    assert logged(node, "asleep") == ["one"]
    assert "project" not in parts(node), "and a look starts none"


def test_a_value_under_the_empty_key_can_be_listed_and_read(
    node: RunningNode, tmp_path: Path
) -> None:
    node.create_project("pairs")
    applet = node.deploy("pairs", APPLET, strategies=STRATEGIES)
    publisher = node.add_publisher("pairs", "p")
    path = f"/kv/pairs?appletID={applet['appletID']}"
    assert node.call("GET", path).json["data"] == []
    assert node.call("GET", f"{path}&key=").status == 404
    node.send("pairs", message(publisher, b"kept", "PUT"))
    for encoding in ("", "&encoding=base64"):
        assert node.call("GET", path + encoding).json["data"] == [""]
    assert node.call("GET", f"{path}&prefix=x").json["data"] == []
    read = node.call("GET", f"{path}&key=").json
    assert (read["key"], read["value"]) == ("", "kept")
    node.send("pairs", message(publisher, b"", "GET"))
    assert logged(node, "pairs") == ["kept"]
    shell = Shell(tmp_path / "home", node)
    assert shell.text("kv", "get", "pairs", "") == "kept\n"
    assert shell.json("kv", "list", "pairs") == [{"key": ""}]
