"""Isolation of applets: events that share an instance, over real HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, StartNode, flood, message, strategies

STRATEGIES = strategies("start", "echo", "fail")


@pytest.fixture(scope="module")
def node(start_module_node: StartNode) -> RunningNode:
    return start_module_node("--deadline-ms", "1000")


def batch(publisher: Any, types: list[str]) -> dict[str, Any]:
    return {"events": [message(publisher, b"%d" % n, name) for n, name in enumerate(types)]}


def test_events_of_a_batch_in_one_instance_are_each_counted_and_answered(
    node: RunningNode,
) -> None:
    node.create_project("shared")
    applet = node.deploy("shared", TALLY, strategies=STRATEGIES, isolation="BATCH")
    assert applet["isolation"] == "BATCH"
    publisher = node.add_publisher("shared", "d")
    types = [*["START"] * 60, *["FAIL"] * 3, *["ECHO"] * 9, *["START"] * 28]
    answer = node.send("shared", batch(publisher, types))
    assert answer.status == 201
    codes = [item["wasmResults"][0]["code"] for item in answer.json]
    assert codes == [-1 if name == "FAIL" else 0 for name in types]
    assert node.count("shared", applet["appletID"]) == 88
    assert node.kv("shared", applet["appletID"], b"last") == b"71"


def test_a_flood_of_single_events_in_shared_instances_is_counted_exactly(
    node: RunningNode,
) -> None:
    node.create_project("flood")
    applet = node.deploy("flood", TALLY, strategies=STRATEGIES, isolation="BATCH")
    publisher = node.add_publisher("flood", "d")
    body = json.dumps(message(publisher, b"x", "START")).encode()
    assert flood(node.http_port, "flood", body, 5_000, connections=32, depth=100) == 5_000
    assert node.count("flood", applet["appletID"]) == 5_000


def test_state_in_memory_lasts_where_an_instance_is_kept_and_ends_with_a_restart(
    node: RunningNode,
) -> None:
    node.create_project("kept")
    module = b"""(module (memory (export "memory") 1) (global $n (mut i32) (i32.const 0))
      (func (export "start") (param i32) (result i32)
        (global.set $n (i32.add (global.get $n) (i32.const 1))) (global.get $n)))"""
    applet = node.deploy("kept", module, isolation="INSTANCE", reuseEvents=4)
    assert applet["reuseEvents"] == 4
    publisher = node.add_publisher("kept", "d")

    def send() -> int:
        answer = node.send("kept", message(publisher, b"", "DEFAULT"))
        code: int = answer.json["results"][0]["code"]
        return code

    assert [send() for _ in range(6)] == [1, 2, 3, 4, 1, 2]
    instance = applet["instance"]["instanceID"]
    assert node.call("PUT", f"/deploy/{instance}/RESTART").status == 204
    assert send() == 1


def test_isolation_is_what_was_said_last_and_one_of_three_words(node: RunningNode) -> None:
    node.create_project("words")
    applet = node.deploy("words", TALLY)
    assert applet["isolation"] == "EVENT"
    answer = node.upload("words", TALLY, "other", isolation="PLANET")
    assert answer.status == 400
    assert "info.isolation" in str(answer.json["fields"]) or "isolation" in str(
        answer.json["fields"]
    )


def test_handlers_of_several_applets_have_nothing_of_each_other_s(node: RunningNode) -> None:
    """One event runs four handlers: one traps, one never ends, and two count under the same key."""
    node.create_project("apart")
    handlers = ("start", "fail", "spin", "quiet")
    applets = {
        handler: node.deploy(
            "apart", TALLY, handler, strategies=[{"eventType": "ALL", "handler": handler}]
        )["appletID"]
        for handler in handlers
    }
    publisher = node.add_publisher("apart", "d")
    event = message(publisher, b"x", "ALL")
    for _ in range(2):
        answer = node.send("apart", {"events": [event]})
        assert answer.status == 201, answer
        (item,) = answer.json
        assert sorted(result["code"] for result in item["wasmResults"]) == [-1, -1, 0, 0]
    counts = {handler: node.count("apart", applets[handler]) for handler in handlers}
    assert counts == {"start": 2, "fail": 0, "spin": 0, "quiet": 2}
