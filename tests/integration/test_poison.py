"""Events that kill their project's worker become dead letters; the other events are handled."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.gateway.mqtt.protocol.packets import Publish
from tests.support.applets import TALLY
from tests.support.metrics import one
from tests.support.mqtt_client import MqttClient
from tests.support.nodes import (
    RunningNode,
    StartNode,
    long_id,
    message,
    named,
    parts,
    strategies,
    until,
)
from tests.support.tools import LIMIT_S

HANDLERS = ("start", "spin")
# More than a process uses that only reads an event.
_BUSY_TICKS = 20


@pytest.fixture
def node(start_node: StartNode) -> RunningNode:
    # An endless handler runs for its whole deadline, which is long enough for a kill.
    return start_node("--deadline-ms", "10000")


def ticks(pid: int) -> int:
    """Return the processor time of a process, in clock ticks."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])
    except OSError:
        return 0


def kill_while_busy(node: RunningNode, killed: set[int]) -> int:
    """Kill the project's worker with SIGKILL when a handler has run in it for a while."""
    pid = int(until(lambda: parts(node).get("project", 0), "the project runs"))
    while pid in killed:
        pid = int(until(lambda: parts(node).get("project", 0), "it runs again"))
    # A start takes processor time, too; on a slow machine as much as the handler.
    until(lambda: one(node, "up", part="project") == 1, "it has started")
    before = ticks(pid)
    until(lambda: ticks(pid) > before + _BUSY_TICKS, "the handler runs")
    os.kill(pid, signal.SIGKILL)
    return pid


def test_an_event_that_killed_its_project_twice_becomes_a_dead_letter_and_others_are_handled(
    node: RunningNode,
) -> None:
    node.create_project("deadly")
    applet_id = node.deploy("deadly", TALLY, strategies=strategies(*HANDLERS))["appletID"]
    publisher = node.add_publisher("deadly", "d")
    with MqttClient(node.mqtt_port) as device:
        device.connect()
        for number, (payload, kind) in enumerate(((b"deadly", "SPIN"), (b"harmless", "START")), 1):
            sent = message(publisher, payload, kind)
            named(sent, payload.decode())
            device.send(Publish("deadly", json.dumps(sent).encode(), 1, packet_id=number))
        killed: set[int] = set()
        for _ in range(3):  # at the first kill both were in flight
            killed.add(kill_while_busy(node, killed))
        until(lambda: node.count("deadly", applet_id) == 1, "the harmless event is handled")
    (letter,) = node.call("GET", "/dead_letter/deadly").json["data"]
    assert letter["eventID"] == long_id("deadly")
    assert letter["handler"] == "spin"
    assert letter["reason"] == "the project's process died on this event twice"
    shown = node.call("GET", f"/dead_letter/deadly/{letter['letterID']}").json
    assert shown["payload"] == "ZGVhZGx5"
    history = until(
        lambda: node.call("GET", f"/event_log/deadly?eventID={long_id('deadly')}").json["data"],
        "its history",
    )
    assert history[0]["results"][0]["code"] == -1
    # The project recognises the id: if a device sends the event again, nothing dies.
    again = named(message(publisher, b"deadly", "SPIN"), "deadly")
    answer = node.send("deadly", again)
    assert answer.json["results"][0]["errMsg"] == letter["reason"]
    assert parts(node)["project"] not in killed


def test_nothing_of_a_batch_runs_after_the_event_that_killed_its_project(
    node: RunningNode,
) -> None:
    node.create_project("ordered")
    applet_id = node.deploy("ordered", TALLY, strategies=strategies(*HANDLERS))["appletID"]
    ours, others = (node.add_publisher("ordered", key) for key in ("one", "other"))
    kinds = ["START"] * 5 + ["SPIN"] + ["START"] * 400
    events = [message(ours, b"x", kind) for kind in kinds]
    events += [message(others, b"y", "START") for _ in range(100)]
    with ThreadPoolExecutor(1) as thread:
        sent = thread.submit(node.send, "ordered", {"events": events})
        kill_while_busy(node, set())
        answer = sent.result(LIMIT_S)
    assert answer.status == 201, answer
    became = [_became(item) for item in answer.json]
    one, another = became[: len(kinds)], became[len(kinds) :]
    for each in (one, another):
        assert each == sorted(each, key=("ran", "unknown", "behind").index), "in this order"
    assert one.index("unknown") <= kinds.index("SPIN")
    assert one[-1] == "behind"
    counted, ran = node.count("ordered", applet_id), became.count("ran")
    assert ran <= counted <= ran + became.count("unknown")


def _became(item: dict[str, Any]) -> str:
    """Return the outcome of an event of a batch."""
    error = item.get("errMsg", "")
    if "[OutcomeUnknown]" in error:
        return "unknown"
    if "an earlier event of this publisher" in error:
        return "behind"
    assert item["wasmResults"], error
    return "ran"
