"""Every form of an event over MQTT, at the node's own port and at mosquitto."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from fieldbrook.gateway.events.protobuf import decode_event
from fieldbrook.gateway.events.request import Meta
from fieldbrook.gateway.mqtt.event_topics import EventTopic, ack_topic, publisher_of, read_topic
from fieldbrook.gateway.mqtt.sources import Delivery
from tests.compat.clients import BARE, OTHER, PROJECT, WALLET, World, protobuf
from tests.support.brokers import Device, Mosquitto
from tests.support.nodes import StartNode, message, until
from tests.support.tools import LIMIT_S, require_tool

VECTOR = bytes.fromhex(
    "0a230a0744454641554c5412046d6e30311a057733625f542080d095ffbc312a046576743112087b2274223a32357d"
)


@pytest.fixture(scope="module", params=["listener", "mosquitto"])
def world(
    request: pytest.FixtureRequest,
    start_module_node: StartNode,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    if request.param == "listener":
        # Here another connection than the one that sends reads the replies.
        yield World(start_module_node, "--mqtt-device-topics", "ack/#")
        return
    with Mosquitto(tmp_path_factory.mktemp("mqtt")) as broker:
        made = World(start_module_node, "--mqtt-broker", f"127.0.0.1:{broker.port}")
        made.node.mqtt_port = broker.port
        until(lambda: "connected to the broker" in made.node.log, "the node is connected")
        # The broker client subscribes a moment after a change of the registry.
        until(lambda: _arrives(made), "the project's topics are subscribed to")
        yield made
        made.node.stop()


def _arrives(world: World) -> bool:
    publish(world, PROJECT, json.dumps(message(world.publisher, b"ready")).encode())
    return world.last == b"ready"


def publish(world: World, topic: str, payload: bytes, qos: int = 1) -> None:
    with Device(world.node.mqtt_port, "device") as device:
        device.publish(topic, payload, qos)


def handled(world: World, payload: bytes) -> None:
    until(lambda: world.last == payload, f"{payload!r} is handled")


class Listener:
    """A device that is subscribed to its acknowledgement topic."""

    def __init__(self, world: World, key: str) -> None:
        self._device = Device(world.node.mqtt_port, "listener")
        assert self._device.subscribe(f"ack/{key}") == 0

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self._device.close()

    def told(self) -> Any:
        """Return the next acknowledgement."""
        kind, body = self._device.read()
        assert kind == 0x30
        size = int.from_bytes(body[:2], "big")
        return json.loads(body[2 + size :])


# ---------------------------------------------------------------- forms


@pytest.mark.thorough("listener")
def test_bearer_before_a_token_is_no_part_of_it_in_any_form(world: World) -> None:
    bearer = f"Bearer {world.token}"
    publish(world, PROJECT, protobuf(bearer, b"in protobuf", "ECHO"))
    handled(world, b"in protobuf")
    single = message({**world.publisher, "token": bearer}, b"in JSON")
    publish(world, PROJECT, json.dumps(single).encode())
    handled(world, b"in JSON")
    for prefix in ("Bearer", "Bearer "):
        publish(world, f"{PROJECT}/push/{prefix}{world.token}/ECHO", prefix.encode())
        handled(world, prefix.encode())
    assert world.node.send(PROJECT, {**single, "payload": "SFRUUA=="}).status == 201
    handled(world, b"HTTP")


@pytest.mark.parametrize("qos", [0, 1])
def test_a_json_message_on_the_projects_own_topic_is_an_event(qos: int, world: World) -> None:
    payload = b"json %d" % qos
    publish(world, PROJECT, json.dumps(message(world.publisher, payload)).encode(), qos)
    handled(world, payload)
    spaced = b"\n  " + json.dumps(message(world.publisher, payload + b" spaced")).encode()
    publish(world, PROJECT, spaced, qos)
    handled(world, payload + b" spaced")


def test_the_rest_of_a_buffer_after_the_json_is_left_out_and_a_heartbeat_has_no_payload(
    world: World,
) -> None:
    sent = message(world.publisher, b"from a buffer")
    publish(world, PROJECT, json.dumps(sent).encode() + b"\0" * 20 + b"\n")
    handled(world, b"from a buffer")
    del sent["payload"]
    publish(world, PROJECT, json.dumps(sent).encode() + b"\0")
    handled(world, b"")


@pytest.mark.parametrize("qos", [0, 1])
def test_a_protobuf_message_on_the_same_topic_is_one_too_and_is_acknowledged(
    qos: int, world: World
) -> None:
    with Listener(world, "my_publisher_id") as listener:
        body = protobuf(world.token, b'{"t":25}', "ECHO", pub_id="ESP32", event_id="EVT1")
        publish(world, PROJECT, body, qos)
        told = listener.told()
    assert world.last == b'{"t":25}'
    assert told.pop("timestamp") > 1_700_000_000_000
    assert told == {
        "channel": PROJECT,
        "publisherID": world.publisher["publisherID"],
        "publisherKey": "my_publisher_id",
        "eventID": "evt1",
        "results": [
            {
                "appletName": "tally",
                "instanceID": world.instance_id,
                "handler": "echo",
                "returnValue": None,
                "code": 0,
            }
        ],
    }


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("rest", ["ECHO", "ECHO/ts=1700000000000&id=Evt9", "", "WITH A BLANK"])
def test_raw_bytes_below_push_are_an_event_with_the_topics_meta_data(
    rest: str, qos: int, world: World
) -> None:
    payload = f"raw {rest} {qos}".encode()
    with Listener(world, "my_publisher_id") as listener:
        publish(world, f"{PROJECT}/push/{world.token}/{rest}", payload, qos)
        told = listener.told()
    assert world.last == payload
    assert told["results"][0]["handler"] == "echo"
    assert (told["eventID"] == "evt9") == ("id=" in rest)


def test_a_topic_may_have_the_owners_prefix(world: World) -> None:
    channel = f"aid_{world.project['accountID']}_{PROJECT}"
    publish(world, channel, json.dumps(message(world.publisher, b"one")).encode())
    handled(world, b"one")
    with Listener(world, "my_publisher_id") as listener:
        publish(world, channel, protobuf(world.token, b"two"))
        assert listener.told()["channel"] == channel
        assert world.last == b"two"
        publish(world, f"{channel}/push/{world.token}/ECHO", b"three")
        assert listener.told()["channel"] == channel
    assert world.last == b"three"


def test_any_bytes_are_a_payload_below_push(world: World) -> None:
    early = json.dumps(message(world.publisher, b"hi")).encode()
    with Listener(world, "my_publisher_id") as listener:
        for payload in (early, b"\x0a\x7b", bytes(range(256)) * 100, b"{"):
            publish(world, f"{PROJECT}/push/{world.token}/ECHO", payload)
            assert listener.told()["results"][0]["code"] == 0
            assert world.last == payload


def test_an_event_that_nobody_handles_is_acknowledged_with_null(world: World) -> None:
    with Listener(world, "quiet") as listener:
        publish(world, f"{BARE}/push/{world.bare['token']}/X", b"x")
        assert listener.told()["results"] is None


def test_a_channel_that_is_not_the_tokens_is_said_in_the_acknowledgement(world: World) -> None:
    with Listener(world, "my_publisher_id") as listener:
        publish(world, f"{OTHER}/push/{world.token}/ECHO", b"x")
        told = listener.told()
    assert (told["error"], told["results"]) == ("InvalidEventChannel", None)
    until(lambda: "InvalidEventChannel" in world.node.log, "the log says so too")


# ---------------------------------------------------------------- what bad messages get


BAD = {
    "neither JSON nor protobuf": ("{project}", b"hello", "neither a JSON message nor"),
    "cut protobuf": ("{project}", VECTOR[:20], "neither a JSON message nor"),
    "protobuf with a foreign token": ("{project}", VECTOR, "InvalidAccessKey"),
    "protobuf without a token": ("{project}", protobuf("", b"x"), "token is empty"),
    "JSON without a header": ("{project}", b'{"payload":""}', "header"),
    "too few levels": ("{project}/push/{token}", b"x", "the topic must be"),
    "too many levels": ("{project}/push/{token}/A/ts=1/more", b"x", "the topic must be"),
    "no time": ("{project}/push/{token}/A/ts=now", b"x", "not a 64-bit integer"),
    "a bad token": ("{project}/push/nonsense/A", b"x", "InvalidToken"),
    "no token": ("{project}/push//A", b"x", "token is empty"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_a_bad_message_is_logged_with_its_reason_and_stops_nothing(case: str, world: World) -> None:
    topic, payload, reason = BAD[case]
    seen = len(world.node.log)

    def logged() -> bool:  # at most ten of them in a second: another may be due first
        publish(world, topic.format(project=PROJECT, token=world.token), payload)
        return reason in world.node.log[seen:]

    until(logged, "the reason is in the log")
    publish(world, PROJECT, json.dumps(message(world.publisher, case.encode())).encode())
    handled(world, case.encode())
    assert world.token not in world.node.log


def test_mosquitto_pub_delivers_with_every_quality_of_service(world: World) -> None:
    program = require_tool("mosquitto_pub")
    topic = f"{PROJECT}/push/{world.token}/ECHO"
    with Listener(world, "my_publisher_id") as listener:
        for qos in "012":
            text = f"from mosquitto_pub {qos}"
            to = ["-h", "127.0.0.1", "-p", str(world.node.mqtt_port), "-q", qos]
            done = subprocess.run(
                [program, *to, "-t", topic, "-m", text],
                timeout=LIMIT_S,
                capture_output=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert listener.told()["results"][0]["code"] == 0
            assert world.last == text.encode()


# ---------------------------------------------------------------- without a broker


def test_the_worked_bytes_decode() -> None:
    meta, payload = decode_event(VECTOR)
    assert meta == Meta("DEFAULT", "evt1", "1700000000000", "w3b_T")
    assert payload == b'{"t":25}'
    assert protobuf("w3b_T", b'{"t":25}', "DEFAULT", "mn01", "evt1") == VECTOR


@pytest.mark.parametrize(
    ("topic", "ingress"),
    [
        ("room", EventTopic("room", None)),
        (f"{WALLET}_room", EventTopic(f"{WALLET}_room", None)),
        ("room/push/tok/T", EventTopic("room", Meta("T", "", "", "tok"))),
        ("room/push/Bearer tok/T", EventTopic("room", Meta("T", "", "", "tok"))),
        ("room/push//", EventTopic("room", Meta("", "", "", ""))),
        ("room/push/tok/T/ts=5&id=e=1", EventTopic("room", Meta("T", "e=1", "5", "tok"))),
        ("room/push/tok/T/id=e", EventTopic("room", Meta("T", "e", "", "tok"))),
        ("room/push/tok/T/", EventTopic("room", Meta("T", "", "", "tok"))),
        ("room/push/tok/T on", EventTopic("room", Meta("T on", "", "", "tok"))),
        ("room/push/tok", None),
        ("room/push/tok/T/ts=1/x", None),
        ("room/pull/tok/T", None),
        ("room/", None),
    ],
)
def test_a_topic_says_the_channel_and_the_meta_data(topic: str, ingress: EventTopic | None) -> None:
    assert read_topic(topic) == ingress


@pytest.mark.parametrize(
    ("key", "topic"),
    [
        ("sensor-1", "ack/sensor-1"),
        ("a/b.c", "ack/a/b.c"),
        ("pushed/x", "ack/pushed/x"),
        ("push/token/type", None),
        ("a b", None),
        ("a+", None),
        ("#", None),
        ("a\n", None),
        ("a*", None),
        (">", None),
        ("x" * 257, None),
    ],
)
def test_a_key_that_makes_no_topic_is_told_nothing(key: str, topic: str | None) -> None:
    assert ack_topic(key) == topic


HEADED = b'{"header": {"pub_id": "d", "token": "T"}, "payload": "eA=="}'


@pytest.mark.parametrize(
    ("topic", "payload", "publisher"),
    [
        ("p/push/T/DEFAULT", b"anything", "T"),
        ("p/push/Bearer T/DEFAULT/id=1", b"{}", "T"),
        ("p", HEADED, "T"),
        ("p", b"\n " + HEADED, "T"),
        ("p", b'{"HEADER": {"Token": "T"}, "payload": {"a": 1}}', "T"),
        ("p", protobuf("T", b"x"), "T"),
        ("p", protobuf("T" * 300, b"x"), "T" * 300),
        ("p", protobuf("", b"x"), ""),
        ("p", b'{"header": {"pub_id": "d", "token": 7}}', ""),
        ("p", b'{"header": null}', ""),
        ("p", b'{"header": [', ""),
        ("p", b"[" * 100_000, ""),
        ("p", b"hello", ""),
        ("p/elsewhere", HEADED, ""),
    ],
)
def test_a_messages_publisher_is_told_by_its_token_in_every_form(
    topic: str, payload: bytes, publisher: str
) -> None:
    delivery = Delivery(topic, payload, 1, "1", lambda: None, may_repeat=False)
    assert publisher_of(delivery.topic, delivery.payload) == publisher
