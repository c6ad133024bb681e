"""The metrics of a node, read as Prometheus reads them and compared with what was sent."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.support.applets import SENDER, TALLY
from tests.support.brokers import publish
from tests.support.metrics import Figures, one, scrape
from tests.support.nodes import (
    RunningNode,
    StartNode,
    alive,
    flood,
    message,
    parts,
    strategies,
    until,
)


def counters(figures: Figures) -> dict[Any, float]:
    ends = ("_total", "_bucket", "_count", "_sum")
    return {key: value for key, value in figures.items() if key[0].endswith(ends)}


@pytest.fixture(scope="module")
def node(start_module_node: StartNode) -> RunningNode:
    running = start_module_node(
        *("--http-gateways", "2", "--deadline-ms", "1000", "--metrics-projects", "1"),
    )
    running.create_project("load")
    running.deploy("load", TALLY, strategies=strategies("quiet", "fail", "spin"))
    return running


@pytest.fixture(scope="module")
def publisher(node: RunningNode) -> Any:
    return node.add_publisher("load", "d")


class Change:
    """The change of a gateway's metrics since this object was made."""

    def __init__(self, node: RunningNode, gateway: str) -> None:
        self._node, self._gateway = node, gateway
        self._before = scrape(node)

    def of(self, name: str, **labels: str) -> float:
        key = f"fieldbrook_{name}", frozenset({"gateway": self._gateway, **labels}.items())
        return scrape(self._node).get(key, 0.0) - self._before.get(key, 0.0)


def test_what_was_sent_over_http_is_what_the_metrics_say(node: RunningNode, publisher: Any) -> None:
    change = Change(node, "http")
    handled = one(node, "project_events_total", project=project_of(node))
    body = json.dumps(message(publisher, b"x", "QUIET")).encode()
    assert flood(node.http_port, "load", body, 3_000, depth=100) == 3_000
    batch = [message(publisher, b"x", "QUIET") for _ in range(5)]
    batch.append(message({**publisher, "token": "wrong"}, b"x", "QUIET"))
    assert node.send("load", {"events": batch}).status == 201
    assert node.send("absent", message(publisher)).status == 404
    assert node.send("load", b"{}").status == 400
    assert node.send("load", message({**publisher, "token": "wrong"})).status == 401
    assert node.send("load", message(publisher, b"", "UNHEARD")).status == 404
    assert node.send("load", b" " * 1_500_000).status == 413

    assert change.of("events_received_total") == 3_011
    assert change.of("events_acknowledged_total") == 3_005
    assert change.of("events_unmatched_total") == 1
    assert change.of("events_refused_total", reason="ProjectNotFound") == 1
    assert change.of("events_refused_total", reason="badRequest") == 1
    assert change.of("events_refused_total", reason="InvalidEventToken") == 2
    assert change.of("events_refused_total", reason="RequestEntityTooLarge") == 1
    assert change.of("event_duration_seconds_count") == 3_005
    assert change.of("event_duration_seconds_bucket", le="+Inf") == 3_005
    now = one(node, "project_events_total", project=project_of(node))
    assert now - handled == 3_006  # the event without a matching strategy is included


def test_what_was_sent_over_mqtt_is_what_the_metrics_say(node: RunningNode, publisher: Any) -> None:
    change = Change(node, "mqtt")
    acknowledged = one(node, "mqtt_acknowledged_total")
    body = json.dumps(message(publisher, b"x", "QUIET")).encode()
    assert publish(node.mqtt_port, "load", body, 500) == 500
    assert publish(node.mqtt_port, "load", b'{"no": "message"}', 3) == 3
    until(lambda: change.of("events_acknowledged_total") == 500, "500 are acknowledged")
    until(lambda: change.of("events_refused_total", reason="badRequest") == 3, "3 are refused")
    assert change.of("events_received_total") == 503
    assert one(node, "mqtt_acknowledged_total") - acknowledged == 503
    until(lambda: one(node, "mqtt_connections") == 0, "the connections are seen to have ended")


def project_of(node: RunningNode) -> str:
    """Return the id of the project that has metrics of its own."""
    project: str = node.call("GET", "/project").json["data"][0]["projectID"]
    return project


def test_runs_that_fail_are_counted_by_what_ended_them(node: RunningNode, publisher: Any) -> None:
    project = project_of(node)

    def failures(reason: str) -> float:
        return one(node, "handler_failures_total", project=project, reason=reason)

    traps, deadlines = failures("trap"), failures("deadline")
    written = one(node, "dead_letters_written_total", project=project)
    for _ in range(2):
        assert node.send("load", message(publisher, b"", "FAIL")).status == 201
    spins = 0

    def shown() -> bool:  # it is shown for a few seconds after each endless run
        nonlocal spins
        assert node.send("load", message(publisher, b"", "SPIN")).status == 201
        spins += 1
        return one(node, "health_state", state="hung_guest") == 1

    until(shown, "the health is shown")
    assert failures("trap") - traps == 2
    assert failures("deadline") - deadlines == spins
    assert one(node, "dead_letters_written_total", project=project) - written == 2 + spins
    kept = node.call("GET", "/dead_letter/load").json["total"]
    until(lambda: one(node, "dead_letters", project=project) == kept, "dead letters are counted")
    until(lambda: one(node, "health_state", state="hung_guest") == 0, "and its end")


@pytest.mark.parametrize(
    "part", ["worker:0", "http:0", "http:1", "mqtt:0", "registry", "scheduler"]
)
def test_a_part_that_is_killed_loses_no_count(node: RunningNode, publisher: Any, part: str) -> None:
    body = json.dumps(message(publisher, b"x", "QUIET")).encode()
    assert flood(node.http_port, "load", body, 200) == 200
    change, before = Change(node, "http"), scrape(node)
    restarts = one(node, "process_restarts_total", part=part)
    pid = parts(node)[f"fb-{part}"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), f"{part} is gone")
    until(
        lambda: soon(node, "process_restarts_total", part) == restarts + 1,
        f"the death of {part} is counted",
    )
    until(lambda: soon(node, "up", part) == 1, f"{part} serves again")
    after = scrape(node)
    for key, value in counters(before).items():
        assert after.get(key, 0.0) >= value, key
    until(lambda: node.send("load", message(publisher, b"x", "QUIET")).status == 201, "it serves")
    already = change.of("events_acknowledged_total")
    assert flood(node.http_port, "load", body, 200) == 200
    assert change.of("events_acknowledged_total") - already == 200


def soon(node: RunningNode, name: str, part: str) -> float:
    """Return a metric of a part; -1 while the request reaches the killed gateway."""
    try:
        return one(node, name, part=part)
    except OSError:
        return -1.0


@pytest.mark.thorough
def test_what_handlers_send_is_counted_on_its_way(start_node: StartNode) -> None:
    node = start_node("--metrics-projects", "0")
    node.create_project("sender")
    node.deploy("sender", SENDER, strategies=strategies("publish", "submit"))
    publisher = node.add_publisher("sender", "d")
    for _ in range(4):
        assert node.send("sender", message(publisher, b"x", "PUBLISH")).status == 201
    assert node.send("sender", message(publisher, b'{"a": 1}', "SUBMIT")).status == 201
    assert one(node, "handler_effects_total", kind="mqtt") == 4
    assert one(node, "applet_metrics_total") == 1
    until(lambda: one(node, "outbox_delivered_total", kind="mqtt") == 4, "all are delivered")
    until(lambda: one(node, "outbox_pending") == 0, "nothing waits")
    assert one(node, "registry_rows", table="projects") == 1
    assert one(node, "store_bytes", store="registry") > 0
    assert one(node, "process_resident_memory_bytes", part="worker:0") > 1 << 20
    # Administrators may read them from anywhere, all others only from this machine.
    far = {"X-Forwarded-For": "192.0.2.1"}
    assert node.call("GET", "/metrics", token="", headers=far).status == 401
    assert node.call("GET", "/metrics", headers=far).status == 200
    key = node.call(
        "POST",
        "/account_access_key",
        {
            "name": "prometheus",
            "expirationDays": 1,
            "privileges": [{"name": "Account", "perm": "READONLY"}],
        },
    ).json["accessKey"]
    assert node.call("GET", "/metrics", token=key, headers=far).status == 200
    other = node.call(
        "POST",
        "/account_access_key",
        {
            "name": "other",
            "expirationDays": 1,
            "privileges": [{"name": "Applet", "perm": "READ_WRITE"}],
        },
    ).json["accessKey"]
    assert node.call("GET", "/metrics", token=other, headers=far).status == 403
    assert node.call("POST", "/metrics").status == 405


@pytest.mark.parametrize(
    ("setting", "local", "administrator"), [("token", 401, 200), ("off", 404, 404)]
)
@pytest.mark.thorough("off-404-404")
def test_metrics_can_be_for_administrators_alone_or_for_nobody(
    start_node: StartNode, setting: str, local: int, administrator: int
) -> None:
    node = start_node("--metrics", setting)
    assert node.call("GET", "/metrics", token="").status == local
    assert node.call("GET", "/metrics").status == administrator
