"""Data push: events of many devices in one request, with the owner's access key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.compat.clients import BARE, PROJECT, World
from tests.support.brokers import Device
from tests.support.nodes import Answer, StartNode, until

PUSH = "eventType=DA-TA_PU-SH"


@pytest.fixture(scope="module")
def world(start_module_node: StartNode) -> World:
    return World(start_module_node)


@pytest.fixture(scope="module")
def key(world: World) -> str:
    return world.access_key("gateway")


def item(device: str, payload: str = "", event_type: str = "START", **more: Any) -> dict[str, Any]:
    return {"device_id": device, "event_type": event_type, "payload": payload} | more


def push(world: World, key: str, items: object, channel: str = PROJECT) -> Answer:
    body = items if isinstance(items, bytes) else json.dumps(items).encode()
    return world.post(f"{PUSH}&timestamp=1795233228152", body, channel=channel, token=key)


def publishers(world: World) -> dict[str, Any]:
    found = world.node.call("GET", f"/publisher/{PROJECT}?size=-1").json["data"]
    return {publisher["key"]: publisher for publisher in found}


def test_each_item_is_answered_with_its_index_and_results(world: World, key: str) -> None:
    answer = push(world, key, [item("d1", '{"t":25}', "ECHO", timestamp=1795233228152), item("d2")])
    assert answer.status == 201
    result = {"appletName": "tally", "instanceID": world.instance_id, "returnValue": None}
    assert answer.json == [
        {"index": 0, "results": [result | {"handler": "echo", "code": 0}]},
        {"index": 1, "results": [result | {"handler": "start", "code": 0}]},
    ]
    assert world.last == b'{"t":25}'


def test_a_new_device_becomes_a_publisher_once_and_may_send_for_itself(
    world: World, key: str
) -> None:
    for _ in range(2):
        assert push(world, key, [item("new-1"), item("new-2"), item("new-1")]).status == 201
    found = publishers(world)
    assert found["new-1"]["name"] == "new-1"
    assert {"new-1", "new-2"} <= set(found)
    token = found["new-1"]["token"]
    assert world.post("eventType=SEVEN", token=token).json["results"][0]["code"] == 7


def test_items_are_handled_in_order_whether_their_devices_are_new_or_known(
    world: World, key: str
) -> None:
    for first in range(0, 60, 20):
        items = [
            item(f"order-{n % 7 if n % 2 else n}", str(n), "ECHO") for n in range(first, first + 20)
        ]
        assert push(world, key, items).status == 201
        assert world.last == str(first + 19).encode()


def test_what_is_wrong_with_an_item_is_in_its_result_and_costs_only_itself(
    world: World, key: str
) -> None:
    before = world.count()
    items = [
        item("d1"),
        {"payload": "no device"},
        7,
        item("d1", 5),  # type: ignore[arg-type]
        item("d1", "", "FAIL"),
        {"Device_ID": "d1", "event_type": None, "Payload": "other case"},
        item("d1"),
    ]
    answer = push(world, key, items)
    assert answer.status == 201
    results = [entry["results"][0] for entry in answer.json]
    assert [entry["index"] for entry in answer.json] == list(range(7))
    assert [result["code"] for result in results] == [0, -1, -1, -1, -1, 0, 0]
    assert "<[1].device_id:missing required field>" in results[1]["error"]
    assert "<[2]:not a JSON object>" in results[2]["error"]
    assert "<[3].payload:not a string>" in results[3]["error"]
    assert results[1]["error"].startswith("[]@StatusErr[badRequest][400000000]")
    assert (results[1]["appletName"], results[1]["instanceID"]) == ("", "0")
    assert "unreachable" in results[4]["error"]
    assert results[5]["handler"] == "echo"
    assert world.last == b"other case"
    assert world.count() == before + 2


def test_an_item_that_nobody_handles_has_null(world: World, key: str) -> None:
    assert push(world, key, [item("d")], BARE).json == [{"index": 0, "results": None}]


def test_an_empty_array_is_answered_with_one(world: World, key: str) -> None:
    answer = push(world, key, [])
    assert (answer.status, answer.json) == (201, [])


def test_a_large_push_is_handled_whole(world: World, key: str) -> None:
    before = world.count()
    answer = push(world, key, [item(f"many-{n % 100}") for n in range(2_000)])
    assert answer.status == 201
    assert [entry["results"][0]["code"] for entry in answer.json] == [0] * 2_000
    assert world.count() == before + 2_000


@pytest.mark.parametrize("body", [b"", b"hello", b"{}", b'"x"', b"[1", b'{"device_id":"d"}'])
def test_a_body_that_is_no_array_is_refused_and_named(body: bytes, world: World, key: str) -> None:
    answer = push(world, key, body)
    assert (answer.status, answer.json["key"]) == (400, "badRequest")
    assert answer.json["fields"][0]["field"] == "body"
    assert "not a JSON array of events" in answer.json["fields"][0]["msg"]


def test_too_many_items_are_refused_whole(world: World, key: str) -> None:
    before = world.count()
    answer = push(world, key, [item("d1")] * 4_097)
    assert (answer.status, answer.json["key"]) == (400, "badRequest")
    assert "4096" in answer.json["fields"][0]["msg"]
    assert world.count() == before


def test_a_publisher_held_to_event_types_is_held_to_them_here_too(world: World, key: str) -> None:
    body = {"name": "held", "key": "held", "eventTypes": ["ECHO"]}
    answer = world.node.call("POST", f"/publisher/{PROJECT}", body)
    assert answer.status == 201, answer
    refused, taken = push(world, key, [item("held"), item("held", "x", "ECHO")]).json
    assert "EventTypeNotAllowed" in refused["results"][0]["error"]
    assert taken["results"][0]["code"] == 0


# ---------------------------------------------------------------- who may


def test_only_an_accounts_access_key_may_push(world: World, key: str) -> None:
    cases = {
        "": (401, "InvalidToken"),
        "nonsense": (401, "InvalidToken"),
        world.node.token: (404, "PublisherNotFound"),
        world.token: (401, "InvalidAuthValue"),
        "w3b_nonsense": (401, "InvalidAccessKey"),
        "w3b_MV8xNzAwMDAwMDAwX0FBQUFBQUFBQUFBQQ": (404, "AccessKeyNotFound"),
        world.access_key("reader", "READONLY"): (403, "AccessKeyPermissionDenied"),
    }
    for token, wanted in cases.items():
        answer = push(world, token, [item("d1")])
        assert (answer.status, answer.json["key"]) == wanted, answer
        assert not token or token not in answer.body.decode()
    assert push(world, key, [item("d1")]).status == 201


def test_an_accounts_access_key_sends_nothing_but_a_push(world: World, key: str) -> None:
    answer = world.post("eventType=ECHO", b"x", token=key)
    assert (answer.status, answer.json["key"]) == (401, "InvalidAuthPublisherID")
    assert "DA-TA_PU-SH" in answer.json["desc"]


def test_a_stranger_may_not_push_and_an_administrator_may(world: World) -> None:
    made = {"username": "bob", "password": "correct horse", "role": "DEVELOPER"}
    assert world.node.call("POST", "/register/admin", made).status == 201
    login = {"username": "bob", "password": "correct horse"}
    token = world.node.call("PUT", "/login", login).json["token"]
    strange = world.access_key("mine", token=token)
    answer = push(world, strange, [item("d1")])
    assert (answer.status, answer.json["key"]) == (401, "NoProjectPermission")
    created = world.node.call("POST", "/project", {"name": "bobs"}, token=token)
    assert created.status == 201
    assert push(world, strange, [item("d1")], "bobs").json == [{"index": 0, "results": None}]
    administrators = world.access_key("over all")
    assert push(world, administrators, [item("d2")], "bobs").status == 201


def test_an_unknown_channel_is_refused(world: World, key: str) -> None:
    answer = push(world, key, [item("d1")], "nowhere")
    assert (answer.status, answer.json["key"]) == (404, "ProjectNotFound")


def test_a_removed_access_key_stops_working(world: World) -> None:
    gone = world.access_key("gone")
    assert push(world, gone, [item("d1")]).status == 201
    used = world.node.call("GET", "/account_access_key/data/gone")
    assert used.status == 200
    assert world.node.call("DELETE", "/account_access_key/gone").status == 204
    answer = push(world, gone, [item("d1")])
    assert (answer.status, answer.json["key"]) == (404, "AccessKeyNotFound")


def test_a_push_may_come_over_mqtt(world: World, key: str) -> None:
    before = world.count()
    body = json.dumps([item("by-mqtt"), item("by-mqtt"), 7]).encode()
    with Device(world.node.mqtt_port, "gateway") as device:
        device.publish(f"{PROJECT}/push/{key}/DA-TA_PU-SH", body)
        until(lambda: world.count() == before + 2, "the items are handled")
        device.publish(f"{PROJECT}/push/{key}/DA-TA_PU-SH", b"no array")
        until(lambda: "not a JSON array" in world.node.log, "a bad one is in the log")
    assert "by-mqtt" in publishers(world)


# ---------------------------------------------------------------- publishers' access keys


def test_a_publishers_access_key_sends_raw_events_and_messages(world: World) -> None:
    body = {"name": "keyed", "key": "keyed"}
    answer = world.node.call("POST", f"/publisher/x/{PROJECT}", body)
    assert answer.status == 201, answer
    token = answer.json["token"]
    assert token.startswith("w3b_")
    assert world.post("eventType=SEVEN", token=token).json["publisherKey"] == "keyed"
    header = {"pub_id": "keyed", "token": token, "event_type": "SEVEN"}
    sent = world.node.send(PROJECT, {"header": header, "payload": ""})
    assert sent.json["results"][0]["code"] == 7
    refused = push(world, token, [item("d1")])
    assert (refused.status, refused.json["key"]) == (401, "InvalidAuthValue")
    path = f"/publisher/data/{answer.json['publisherID']}"
    assert world.node.call("DELETE", path).status == 204
    again = world.post("eventType=SEVEN", token=token)
    assert again.status in (401, 404), again
