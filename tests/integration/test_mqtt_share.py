"""Full projects over MQTT: messages that a project cannot store delay no other project."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import ExitStack, suppress

import pytest

from fieldbrook.gateway.mqtt.protocol.packets import VERSION_311, Publish
from tests.support.applets import TALLY
from tests.support.brokers import Device
from tests.support.mqtt_client import MqttClient
from tests.support.nodes import StartNode, message, strategies, until

STRATEGIES = strategies("echo", "quiet")
LIMIT_BYTES = 1 << 20


@pytest.mark.thorough
def test_messages_for_a_project_with_a_full_store_leave_room_for_another_project(
    start_node: StartNode,
) -> None:
    flags = ("--project-map-bytes", str(LIMIT_BYTES), "--body-limit-bytes", str(2 << 20))
    node = start_node(*flags)
    publishers, applets = {}, {}
    for name in ("full", "other"):
        node.create_project(name)
        applets[name] = node.deploy(name, TALLY, strategies=STRATEGIES)["appletID"]
        publishers[name] = node.add_publisher(name, "d")
    # While one is stored in 1 MiB, another does not fit: it is refused, and tried again.
    large = json.dumps(message(publishers["full"], b"x" * 900_000, "ECHO")).encode()
    small = json.dumps(message(publishers["other"], b"x", "QUIET")).encode()
    with ExitStack() as stack:
        for number in range(8):  # more bytes than the gateway holds for all projects
            client = stack.enter_context(MqttClient(node.mqtt_port, VERSION_311))
            client.connect()
            packets = [Publish("full", large, 1, packet_id=n + 1) for n in range(10)]
            sender = threading.Thread(target=_send, args=(client, packets), name=f"full{number}")
            sender.start()
            stack.callback(sender.join)
            # This wakes the sender; closing the socket would not.
            stack.callback(client.socket.shutdown, socket.SHUT_RDWR)
        device = stack.enter_context(Device(node.mqtt_port, "d"))
        for _ in range(20):
            device.publish("other", small)
        assert node.count("other", applets["other"]) == 20


def _send(client: MqttClient, packets: list[Publish]) -> None:
    """Send until the connection is closed, because the node stops reading for a full project."""
    with suppress(OSError):
        client.send(*packets)


def test_a_message_that_never_fits_is_refused_with_its_reason_and_those_behind_it_are_handled(
    start_node: StartNode,
) -> None:
    flags = ("--project-map-bytes", str(LIMIT_BYTES), "--body-limit-bytes", str(4 << 20))
    node = start_node(*flags)
    node.create_project("p")
    applet_id = node.deploy("p", TALLY, strategies=STRATEGIES)["appletID"]
    publisher = node.add_publisher("p", "d")
    too_large = message(publisher, b"x" * (LIMIT_BYTES + 1), "ECHO")
    too_large["header"]["event_id"] = "too-large"
    small = json.dumps(message(publisher, b"x", "QUIET")).encode()
    with Device(node.mqtt_port, "d") as device:
        device.publish("p", json.dumps(too_large).encode())
        for _ in range(5):
            device.publish("p", small)
        until(lambda: node.count("p", applet_id) == 5, "those behind it")
    assert "EffectsTooLarge" in node.log
    assert node.send("p", too_large).status == 413

    def reasons() -> list[str]:
        found = node.call("GET", "/event_log/p?eventID=too-large").json
        return [refusal["error"] for refusal in found["refusals"]]

    until(lambda: reasons() == ["EffectsTooLarge"] * 2, "the reasons")
    assert node.send("p", json.loads(small)).status == 201
