"""Public projects: events without a token, from the project's anonymous publisher."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.compat.clients import PROJECT, World, protobuf
from tests.support.brokers import Device
from tests.support.nodes import StartNode, until

MINT = {"event_type": "MINT"}


def message(header: dict[str, Any], payload: bytes) -> dict[str, Any]:
    return {"header": header, "payload": base64.b64encode(payload).decode()}


def is_last(world: World, payload: bytes) -> bool:
    return world.last == payload


@pytest.fixture(scope="module")
def world(start_module_node: StartNode) -> World:
    return World(start_module_node)


@pytest.fixture
def anonymous(world: World) -> Iterator[Any]:
    """The project is public during a test."""
    answer = world.node.call("POST", f"/publisher/x/{PROJECT}/anonymous")
    assert answer.status == 201, answer
    yield answer.json
    path = f"/publisher/data/{answer.json['publisherID']}"
    assert world.node.call("DELETE", path).status == 204


def test_a_raw_event_without_a_token_is_the_anonymous_publishers(
    world: World, anonymous: Any
) -> None:
    for query in ("eventType=ECHO", "eventID=e1", ""):
        answer = world.post(query, b"raw " + query.encode(), token="")
        assert answer.status == 201, answer
        assert answer.json["publisherKey"] == "anonymous"
        assert answer.json["publisherID"] == anonymous["publisherID"]
        assert answer.json["results"][0]["handler"] == "echo"
        assert world.last == b"raw " + query.encode()


def test_a_message_with_neither_publisher_nor_token_is_too(world: World, anonymous: Any) -> None:
    for header in (MINT, MINT | {"pub_id": "", "token": ""}):
        sent = message(header, b"one")
        assert world.node.send(PROJECT, sent).json["results"][0]["code"] == 0
        (item,) = world.node.send(PROJECT, {"events": [sent]}).json
        assert item["wasmResults"][0]["code"] == 0
    assert world.last == b"one"


def test_a_message_with_only_a_publisher_or_only_a_token_is_refused(
    world: World, anonymous: Any
) -> None:
    for header, missing in (({"pub_id": "my_publisher_id"}, "token"), ({"token": "t"}, "pub_id")):
        answer = world.node.send(PROJECT, message(MINT | header, b"x"))
        assert (answer.status, answer.json["key"]) == (400, "badRequest")
        (field,) = answer.json["fields"]
        assert (field["field"], field["msg"]) == (f"header.{missing}", "missing required field")


def test_an_invalid_token_is_not_treated_as_a_missing_one(world: World, anonymous: Any) -> None:
    assert world.post("eventType=ECHO", token="x").status == 401
    answer = world.node.send(PROJECT, message({"pub_id": "my_publisher_id", "token": "x"}, b""))
    assert answer.status == 401


def test_what_is_wrong_with_an_anonymous_message_is_still_named(
    world: World, anonymous: Any
) -> None:
    answer = world.node.send(PROJECT, {"header": MINT | {"pub_time": "x"}, "payload": "*"})
    assert (answer.status, answer.json["key"]) == (400, "badRequest")
    assert {f["field"] for f in answer.json["fields"]} == {"header.pub_time", "payload"}


def test_known_publishers_are_themselves_in_a_public_project(world: World, anonymous: Any) -> None:
    assert world.post("eventType=ECHO").json["publisherKey"] == "my_publisher_id"


def test_every_form_over_mqtt_may_be_anonymous(world: World, anonymous: Any) -> None:
    sent = {
        b"json": (PROJECT, json.dumps(message(MINT, b"json")).encode()),
        b"protobuf": (PROJECT, protobuf("", b"protobuf", "ECHO")),
        b"raw": (f"{PROJECT}/push//ECHO", b"raw"),
    }
    with Device(world.node.mqtt_port, "anybody") as device:
        for payload, (topic, body) in sent.items():
            device.publish(topic, body)
            until(partial(is_last, world, payload), f"{payload!r} is handled")


def test_a_project_is_public_alone_and_only_as_long_as_its_owner_wants(world: World) -> None:
    raw, early = "eventType=ECHO", message(MINT, b"x")
    assert world.post(raw, token="").status == 401
    assert world.node.send(PROJECT, early).status == 400
    answer = world.node.call("POST", f"/publisher/x/{PROJECT}/anonymous")
    assert answer.status == 201
    assert world.post(raw, token="").status == 201
    assert world.node.send(PROJECT, early).status == 201
    assert world.post(raw, channel="bare", token="").status == 401
    path = f"/publisher/data/{answer.json['publisherID']}"
    assert world.node.call("DELETE", path).status == 204
    assert world.post(raw, token="").status == 401
    assert world.node.send(PROJECT, early).status == 400


def test_two_public_projects_have_an_anonymous_publisher_each(world: World, anonymous: Any) -> None:
    other = world.node.call("POST", "/publisher/x/other/anonymous").json
    assert other["publisherID"] != anonymous["publisherID"]
    for project, publisher in ((PROJECT, anonymous), ("other", other)):
        answer = world.post("eventType=ECHO", channel=project, token="")
        assert answer.status == 201
        assert answer.json["publisherID"] == publisher["publisherID"]
        assert "error" not in answer.json
