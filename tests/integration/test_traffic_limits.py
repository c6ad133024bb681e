"""Traffic limits in a running node: refused events do not run, and counts are exact."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.support.applets import TALLY
from tests.support.brokers import Device
from tests.support.nodes import StartNode, alive, flood, message, parts, strategies, until


class World:
    """A node with a project whose applet counts, and two publishers."""

    def __init__(self, start: StartNode, *flags: str) -> None:
        self.node = start(*flags)
        self.node.create_project("p")
        applet = self.node.deploy("p", TALLY, "tally", strategies=strategies(DEFAULT="quiet"))
        self.applet_id: str = applet["appletID"]
        self.one, self.two = (self.node.add_publisher("p", key) for key in ("one", "two"))

    def limit(self, **fields: Any) -> Any:
        """Replace the limit of the project."""
        self.node.call("DELETE", "/traffic/x/p")
        body = {"threshold": 3, "duration": "24h", "apiType": "EVENT", **fields}
        answer = self.node.call("POST", "/traffic/x/p", body)
        assert answer.status == 201, answer
        return answer.json

    def send(self, publisher: Any) -> Any:
        return self.node.send("p", message(publisher))

    def count(self) -> int:
        return self.node.count("p", self.applet_id)


@pytest.fixture(scope="module")
def world(start_module_node: StartNode) -> World:
    return World(start_module_node)


def test_an_event_over_the_limit_is_429_with_retry_after_and_does_not_run(world: World) -> None:
    world.limit()
    before = world.count()
    assert [world.send(world.one).status for _ in range(3)] == [201, 201, 201]
    refused = world.send(world.two)
    assert refused.status == 429
    assert refused.json["key"] == "TrafficLimitExceededFailed"
    assert refused.json["code"] == 429_999_014
    assert 0 < int(refused.headers["Retry-After"]) <= 86_400
    assert world.count() == before + 3


def test_counts_survive_the_death_of_the_project(world: World) -> None:
    limit = world.limit()
    assert world.send(world.one).status == 201
    assert world.send(world.one).status == 201
    process = parts(world.node)["project"]
    os.kill(process, signal.SIGKILL)
    until(lambda: not alive(process), "the project dies")
    # An event for the dead process was answered 503: it did not run and was not counted.
    assert until(lambda: {201: "taken"}.get(world.send(world.one).status), "a new process")
    assert world.send(world.one).status == 429
    change = {"threshold": 4, "duration": "24h"}
    path = f"/traffic/x/p/{limit['trafficLimitID']}"
    assert world.node.call("PUT", path, change).status == 200
    assert [world.send(world.one).status for _ in range(2)] == [201, 429]


def test_a_limit_is_exact_under_load_and_gone_when_it_is_removed(world: World) -> None:
    world.limit(threshold=500)
    before = world.count()
    body = json.dumps(message(world.one)).encode()
    assert flood(world.node.http_port, "p", body, 700) == 500
    assert world.count() == before + 500
    world.node.call("DELETE", "/traffic/x/p")
    assert world.send(world.one).status == 201


def test_a_publishers_own_limit_leaves_room_for_the_others(world: World) -> None:
    world.limit(threshold=3, publisherThreshold=1)
    answers = [world.send(who).status for who in (world.one, world.one, world.two, world.two)]
    assert answers == [201, 429, 201, 429]


def test_in_a_batch_each_message_is_told_and_one_that_is_all_over_is_429(world: World) -> None:
    world.limit(threshold=2)
    events = {"events": [message(world.one) for _ in range(3)]}
    first = world.node.send("p", events)
    assert first.status == 201
    assert ["errMsg" in item for item in first.json] == [False, False, True]
    assert "TrafficLimitExceededFailed" in first.json[2]["errMsg"]
    second = world.node.send("p", events)
    assert second.status == 429
    assert int(second.headers["Retry-After"]) > 0
    assert second.json["key"] == "TrafficLimitExceededFailed"


def test_a_message_of_the_broker_over_the_limit_is_refused_and_does_not_come_again(
    world: World,
) -> None:
    world.limit(threshold=1)
    assert world.send(world.one).status == 201
    before = world.count()
    body = json.dumps(message(world.one)).encode()
    with Device(world.node.mqtt_port, "device") as device:
        device.publish("p", body)
        until(lambda: "message on p was refused" in world.node.log, "the refusal is in the log")
        assert "TrafficLimitExceededFailed" in world.node.log
        world.node.call("DELETE", "/traffic/x/p")
        # A topic's messages are handled in order: a kept message would have been counted by now.
        device.publish("p", body)
        until(lambda: world.count() > before, "the next message is handled")
    assert world.count() == before + 1


def test_events_over_the_limit_are_found_and_counted_and_push_out_none_that_were_handled(
    world: World,
) -> None:
    world.limit(threshold=1)
    handled, refused = message(world.one, b"a"), message(world.two, b"b")
    handled["header"]["event_id"], refused["header"]["event_id"] = "was-handled", "over-http"
    assert world.node.send("p", handled).status == 201
    before = world.node.call("GET", "/refused_event").json
    assert flood(world.node.http_port, "p", json.dumps(message(world.one)).encode(), 500) == 0
    assert world.node.send("p", refused).status == 429
    refused["header"]["event_id"] = "over-mqtt"
    with Device(world.node.mqtt_port, "device") as device:
        device.publish("p", json.dumps(refused).encode())

    def found(event_id: str) -> Any:
        return world.node.call("GET", f"/event_log/p?eventID={event_id}").json

    def refusal_of(event_id: str) -> Any:
        (refusal,) = until(lambda: found(event_id)["refusals"], "the reason is found")
        return refusal

    for event_id, source in (("over-http", "http"), ("over-mqtt", "mqtt")):
        refusal = refusal_of(event_id)
        assert refusal["error"] == "TrafficLimitExceededFailed"
        assert (refusal["publisher"], refusal["source"]) == ("two", source)
        assert found(event_id)["data"] == []
    until(lambda: found("was-handled")["data"], "its history")

    def counted() -> int:
        now = world.node.call("GET", "/refused_event?limit=1000").json
        kept = sum(row["error"] == "TrafficLimitExceededFailed" for row in now["data"])
        return int(kept + now["more"] - before["more"])

    until(lambda: counted() >= 502, "all are counted")


@pytest.mark.thorough
def test_a_limit_is_one_however_many_gateways_take_the_events(start_node: StartNode) -> None:
    several = World(start_node, "--http-gateways", "2")
    several.limit(threshold=300)
    body = json.dumps(message(several.one)).encode()
    with Device(several.node.mqtt_port, "device") as device:
        assert device.publish_all([("p", body)] * 150) == 150
    until(lambda: several.count() == 150, "those of the broker are handled")
    # The kernel distributes connections to the gateways: with 16, both get some.
    assert flood(several.node.http_port, "p", body, 320, connections=16) == 150
    with Device(several.node.mqtt_port, "device") as device:
        assert device.publish_all([("p", body)] * 20) == 20
    until(
        lambda: "20 more" in several.node.log or "message on p was refused" in several.node.log,
        "those of the broker are refused",
    )
    assert several.count() == 300
