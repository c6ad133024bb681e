"""Topics that all clients may use, and messages without a project."""

from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.applets import SENDER, TALLY
from tests.support.brokers import REFUSED, Device
from tests.support.nodes import RunningNode, StartNode, message, parts, strategies, until

TOPICS = "readings, sender, out/#, +/status"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    folder = tmp_path_factory.mktemp("topics") / "n"
    running = RunningNode(folder, "--mqtt-device-topics", TOPICS)
    running.log_in()
    yield running
    running.stop()


def refused(node: RunningNode, **wanted: str) -> list[dict[str, Any]]:
    rows = node.call("GET", "/refused_event?limit=1000").json["data"]
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def counted(node: RunningNode) -> float:
    wanted = 'fieldbrook_events_refused_total{gateway="mqtt",reason="ProjectNotFound"} '
    lines = node.call("GET", "/metrics").body.decode().splitlines()
    return sum(float(line.removeprefix(wanted)) for line in lines if line.startswith(wanted))


def test_devices_may_subscribe_to_what_the_setting_names_and_to_nothing_else(
    node: RunningNode,
) -> None:
    with Device(node.mqtt_port, "d") as device:
        for allowed in ("readings", "out/#", "out", "out/a/b", "a/status", "ack/#", "ack/key"):
            assert device.subscribe(allowed) != REFUSED, allowed
        for forbidden in (
            "other",
            "#",
            "+",
            "+/#",
            "readings/push/#",
            "+/push/+/+",
            "a/other",
            "$SYS/#",
        ):
            assert device.subscribe(forbidden) == REFUSED, forbidden


def test_a_device_receives_what_a_handler_publishes_to_a_topic_of_one_level(
    node: RunningNode,
) -> None:
    node.create_project("makers")
    module = SENDER.replace(b'(data (i32.const 80) "sender")', b'(data (i32.const 80) "reads!")')
    module = module.replace(b"reads!", b"sender")
    node.deploy("makers", module, strategies=strategies(LOOP="loopback"))
    publisher = node.add_publisher("makers", "d")
    before = counted(node)
    with Device(node.mqtt_port, "listener") as device:
        assert device.subscribe("sender") == 0
        assert node.send("makers", message(publisher, b"for all", "LOOP")).status == 201
        assert device.read() == (0x30, b"\x00\x06senderfor all")
    assert counted(node) == before, "what a handler publishes is no refused event"


@pytest.mark.parametrize("user", ["esp32", "node", "device", "admin", "x" * 300])
def test_a_device_with_any_user_name_and_password_may_do_what_one_without_may(
    node: RunningNode, user: str
) -> None:
    with Device(node.mqtt_port, "d", user, "any password") as device:
        device.publish("nobodys", b"x")
        for qos in (0, 1):
            assert device.subscribe("ack/key", qos) == qos
            assert device.subscribe("sender", qos) == qos
            for forbidden in ("other", "#", "+", "readings/push/#"):
                assert device.subscribe(forbidden, qos) == REFUSED, forbidden


def test_a_node_without_logins_lets_in_devices_that_send_none(start_node: StartNode) -> None:
    running = start_node("--mqtt-logins", "false", logged_in=False)
    with pytest.raises(ConnectionError):
        Device(running.mqtt_port, "d", "esp32", "any password")
    with Device(running.mqtt_port, "d") as device:
        assert device.subscribe("ack/key") == 0


def test_a_device_with_a_login_is_let_in_again_after_the_gateway_died(node: RunningNode) -> None:
    os.kill(parts(node)["fb-mqtt:0"], signal.SIGKILL)

    def comes_in() -> bool:
        try:
            Device(node.mqtt_port, "d", "esp32", "secret").close()
        except OSError:
            return False
        return True

    until(comes_in, "it is let in")


@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_for_an_unknown_project_is_among_the_refused_events_and_counted(
    node: RunningNode, qos: int
) -> None:
    before = counted(node)
    name = f"typo{qos}"
    header = {"pub_id": "p", "token": "t", "event_type": "T", "event_id": f"event-{qos}"}
    body = {"header": header, "payload": base64.b64encode(b"x").decode()}
    with Device(node.mqtt_port, "d") as device:
        device.publish(name, json.dumps(body).encode(), qos)
        device.publish(f"{name}/push/token/T", b"raw", qos)
        device.publish(name, b"neither", qos)
    rows = until(lambda: len(found := refused(node, project=name)) == 3 and found, "three of them")
    assert sorted(row["error"] for row in rows) == ["InvalidToken", *2 * ["ProjectNotFound"]]
    assert {row["source"] for row in rows} == {"mqtt"}
    assert f"event-{qos}" in {row["eventID"] for row in rows}
    until(lambda: counted(node) == before + 2, "the counter says so, too")
    assert f"message on {name} was refused" in node.log


def test_a_message_that_comes_right_after_its_project_is_no_refused_one(node: RunningNode) -> None:
    def is_handled(name: str, applet_id: str) -> bool:
        return node.count(name, applet_id) == 1

    for number in range(5):
        name = f"young{number}"
        node.create_project(name)
        applet_id = node.deploy(name, TALLY, strategies=strategies(DEFAULT="start"))["appletID"]
        event = json.dumps(message(node.add_publisher(name, "d"))).encode()
        with Device(node.mqtt_port, "d") as device:
            device.publish(name, event)
        until(partial(is_handled, name, applet_id), "it is handled")
