"""Event ids that are labels, as firmware sends them, and the header `Idempotency-Key`."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.compat.clients import PROJECT, World, exchange, protobuf
from tests.support.brokers import Device
from tests.support.nodes import PREFIX, StartNode, message, until

ROUTE = f"{PREFIX}/event/{PROJECT}"
LONG = "0123456789abcdef"


@pytest.fixture(scope="module")
def world(start_module_node: StartNode) -> World:
    return World(start_module_node)


def labelled(world: World, payload: bytes, event_id: str = "ESP32") -> dict[str, Any]:
    """Return a message of the ESP32 client, with a constant id and a constant time."""
    sent = message(world.publisher, payload, "START")
    sent["header"] |= {"event_id": event_id, "pub_time": 1683868814000}
    return sent


def keyed(world: World, key: str, body: object, query: str = "", **more: str) -> Any:
    """POST an event with an `Idempotency-Key`; raw where there is a query."""
    path = f"/event/{PROJECT}" + (f"?{query}" if query else "")
    headers = {"Idempotency-Key": key, **more}
    token = world.token if query else ""
    return world.node.call("POST", path, body, token=token, headers=headers)


def replayed(answer: Any) -> bool:
    """Return whether an answer is marked as a stored result."""
    return bool(answer.headers.get("Idempotency-Replayed") == "true")


# ---------------------------------------------------------------- labels


def test_on_off_on_of_the_esp32_client_runs_three_times(world: World) -> None:
    before = world.count()
    for payload in (b"ON", b"OFF", b"ON"):
        answer = world.node.send(PROJECT, labelled(world, payload))
        assert (answer.status, answer.headers["X-Event-Id"]) == (201, "ESP32")
        assert not replayed(answer)
    assert world.count() == before + 3


@pytest.mark.parametrize("form", ["message", "protobuf", "push", "push with meta"])
def test_a_constant_id_over_mqtt_is_run_each_time(form: str, world: World) -> None:
    bodies = {
        "message": (PROJECT, json.dumps(labelled(world, b"ON")).encode()),
        "protobuf": (PROJECT, protobuf(world.token, b"ON", "START", "ESP32", "ESP32")),
        "push": (f"{PROJECT}/push/{world.token}/START", b"ON"),
        "push with meta": (f"{PROJECT}/push/{world.token}/START/ts=5&id=ESP32", b"ON"),
    }
    topic, body = bodies[form]
    before = world.count()
    with Device(world.node.mqtt_port, "esp32") as device:
        for qos in (0, 1, 0, 1):
            device.publish(topic, body, qos)
    until(lambda: world.count() == before + 4, "each is handled")


def test_a_constant_id_is_run_each_time_in_raw_events_and_batches(world: World) -> None:
    before = world.count()
    for _ in range(3):
        answer = world.post("eventType=START&eventID=ESP32&timestamp=5", b"ON")
        assert (answer.status, answer.json["eventID"]) == (201, "esp32")
    answer = world.node.send(PROJECT, {"events": [labelled(world, b"ON")] * 4})
    assert [item["eventID"] for item in answer.json] == ["ESP32"] * 4
    assert world.count() == before + 7


def test_all_events_with_a_label_are_found_in_the_history_under_it(world: World) -> None:
    for payload in (b"1", b"22", b"333"):
        assert world.node.send(PROJECT, labelled(world, payload, "label-7")).status == 201
    path = f"/event_log/{PROJECT}?eventID=label-7"

    def sizes() -> list[int]:
        return [row["size"] for row in world.node.call("GET", path).json["data"]]

    until(lambda: sizes() == [3, 2, 1], "the history has them, the newest first")


def test_one_id_with_another_type_is_answered_by_that_types_handlers(world: World) -> None:
    sent = labelled(world, b"x", LONG)
    first = world.node.send(PROJECT, sent)
    sent["header"]["event_type"] = "SEVEN"
    other = world.node.send(PROJECT, sent)
    assert [answer.json["results"][0]["code"] for answer in (first, other)] == [0, 7]
    raw = [world.post(f"eventType={kind}&eventID=raw-{LONG}", b"x") for kind in ("START", "SEVEN")]
    assert [answer.json["results"][0]["handler"] for answer in raw] == ["start", "seven"]


@pytest.mark.parametrize("event_id", ["x" * 15, "x" * 16])
def test_an_id_names_its_event_from_16_characters_on(event_id: str, world: World) -> None:
    before = world.count()
    known = len(event_id) >= 16
    sent = labelled(world, event_id.encode(), event_id)
    answers = [world.node.send(PROJECT, sent) for _ in range(3)]
    assert [replayed(answer) for answer in answers] == [False, known, known]
    later = labelled(world, event_id.encode(), event_id)
    later["header"]["pub_time"] += 1
    assert not replayed(world.node.send(PROJECT, later)), "another time: another event"
    assert world.count() == before + (2 if known else 4)


def test_an_event_sent_again_over_another_transport_is_known(world: World) -> None:
    before = world.count()
    sent = labelled(world, b"roaming", f"roaming-{LONG}")
    assert world.node.send(PROJECT, sent).status == 201
    with Device(world.node.mqtt_port, "roaming") as device:
        device.publish(PROJECT, json.dumps(sent).encode(), 1)
        device.publish(PROJECT, json.dumps(labelled(world, b"after")).encode(), 1)
    until(lambda: world.count() == before + 2, "the message after it is handled")
    path = f"/event_log/{PROJECT}?eventID=roaming-{LONG}"

    def known() -> list[bool]:
        return [row["again"] for row in world.node.call("GET", path).json["data"]]

    until(lambda: known() == [True, False], "the history has both, the newest first")


# ---------------------------------------------------------------- Idempotency-Key


@pytest.mark.parametrize("origin", ["", "https://page.example"])
def test_a_message_with_an_idempotency_key_runs_once(origin: str, world: World) -> None:
    """With an `Origin` a request goes another way through the node."""
    more = {"Origin": origin} if origin else {}
    before, key = world.count(), str(uuid.uuid4())
    answers = [keyed(world, key, labelled(world, b"x"), **more) for _ in range(3)]
    assert {(answer.status, answer.body) for answer in answers} == {(201, answers[0].body)}
    assert [replayed(answer) for answer in answers] == [False, True, True]
    assert not replayed(keyed(world, str(uuid.uuid4()), labelled(world, b"x"), **more))
    assert world.count() == before + 2


def test_a_raw_event_with_an_idempotency_key_runs_once(world: World) -> None:
    before, key = world.count(), str(uuid.uuid4())
    answers = [keyed(world, key, b"x", "eventType=START") for _ in range(3)]
    answers.append(keyed(world, f'"{key}"', b"x", "eventType=START"))
    assert [replayed(answer) for answer in answers] == [False, True, True, True]
    assert all(answer.json["results"] == answers[0].json["results"] for answer in answers)
    assert world.count() == before + 1


def test_a_batch_sent_again_with_its_key_runs_what_it_did_not_run(world: World) -> None:
    """As after a batch that the project has died on: a part of it was handled."""
    before, key = world.count(), str(uuid.uuid4())
    events = [labelled(world, b"%d" % number) for number in range(5)]
    first = keyed(world, key, {"events": events[:3]})
    assert not replayed(first)
    again = keyed(world, key, {"events": events})
    assert [item.get("replayed", False) for item in again.json] == [True] * 3 + [False] * 2
    assert not replayed(again)
    whole = keyed(world, key, {"events": events})
    assert replayed(whole)
    assert [item["wasmResults"] for item in whole.json] == [
        item["wasmResults"] for item in again.json
    ]
    assert world.count() == before + 5


def test_one_key_names_different_events_alone_and_in_a_batch(
    world: World,
) -> None:
    before, key = world.count(), str(uuid.uuid4())
    assert not replayed(keyed(world, key, labelled(world, b"x")))
    assert not replayed(keyed(world, key, {"events": [labelled(world, b"x")]}))
    assert world.count() == before + 2


def test_a_data_push_with_an_idempotency_key_runs_once(world: World) -> None:
    before, key = world.count(), str(uuid.uuid4())
    access_key = world.access_key("pusher")
    items = [{"device_id": f"d{n}", "event_type": "START", "payload": "x"} for n in range(3)]
    answers = [
        world.post(
            "eventType=DA-TA_PU-SH",
            json.dumps(items).encode(),
            token=access_key,
            headers={"Idempotency-Key": key},
        )
        for _ in range(2)
    ]
    assert [replayed(answer) for answer in answers] == [False, True]
    assert [item["results"] for item in answers[0].json] == [
        item["results"] for item in answers[1].json
    ]
    assert world.count() == before + 3


def test_a_key_that_comes_with_another_event_is_refused(world: World) -> None:
    before, key = world.count(), str(uuid.uuid4())
    assert keyed(world, key, labelled(world, b"x")).status == 201
    other = labelled(world, b"y")
    refused = keyed(world, key, other)
    assert (refused.status, refused.json["key"]) == (422, "IdempotencyKeyReused")
    assert key in refused.json["desc"]
    retyped = labelled(world, b"x")
    retyped["header"]["event_type"] = "SEVEN"
    assert keyed(world, key, retyped).status == 422
    assert world.count() == before + 1


def test_two_publishers_may_have_the_same_key(world: World) -> None:
    before, key = world.count(), str(uuid.uuid4())
    other = world.node.add_publisher(PROJECT, "other-device")
    assert keyed(world, key, labelled(world, b"x")).status == 201
    sent = message(other, b"x", "START")
    assert not replayed(keyed(world, key, sent))
    assert world.count() == before + 2


def test_an_event_that_matched_nothing_may_be_sent_again_with_its_key(world: World) -> None:
    key = str(uuid.uuid4())
    path = "/event/bare"
    headers = {"Idempotency-Key": key}
    sent = message(world.bare, b"x", "START")
    for _ in range(2):
        answer = world.node.call("POST", path, sent, token="", headers=headers)
        assert (answer.status, answer.json["key"]) == (404, "StrategyNotFound")


@pytest.mark.parametrize("key", ["", '""', "x" * 256, "k\tx"])
@pytest.mark.parametrize("query", ["", "eventType=START"])
def test_a_malformed_key_is_refused_by_name(key: str, query: str, world: World) -> None:
    before = world.count()
    answer = keyed(world, key, b"x" if query else labelled(world, b"x"), query)
    assert answer.status == 400, answer
    (field,) = answer.json["fields"]
    assert (field["field"], field["in"]) == ("Idempotency-Key", "header")
    assert world.count() == before


def test_two_keys_in_one_request_are_refused(world: World) -> None:
    body = json.dumps(labelled(world, b"x")).encode()
    head = (
        f"POST {ROUTE} HTTP/1.1\r\nHost: x\r\nIdempotency-Key: a\r\nIdempotency-Key: b\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    answer = exchange(world.node.http_port, head.encode() + body)
    assert answer.status == 400
    assert "sent more than once" in answer.body.decode()


def test_a_page_of_another_origin_may_send_a_key_and_read_whether_it_was_known(
    world: World,
) -> None:
    origin = {"Origin": "https://page.example"}
    answer = world.node.call("OPTIONS", ROUTE, token="", headers=origin)
    assert "Idempotency-Key" in answer.headers["Access-Control-Allow-Headers"]
    answer = keyed(world, str(uuid.uuid4()), labelled(world, b"x"), **origin)
    assert "Idempotency-Replayed" in answer.headers["Access-Control-Expose-Headers"]
