"""A node whose MQTT port also serves ordinary topics, with a project and a publisher."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from fieldbrook.gateway.mqtt.protocol.packets import VERSION_5
from tests.support.applets import TALLY
from tests.support.mqtt_client import MqttClient
from tests.support.nodes import RunningNode, StartNode, message, parts, strategies, until

PROJECT, BARE = "meadow", "bare"


class Site:
    """A node with a project whose handler counts events, and with two publishers."""

    def __init__(self, node: RunningNode) -> None:
        self.node = node
        node.create_project(PROJECT)
        rules = strategies(DEFAULT="start", ECHO="echo")
        self.applet_id: str = node.deploy(PROJECT, TALLY, strategies=rules)["appletID"]
        self.publisher: Any = node.add_publisher(PROJECT, "gauge")
        node.create_project(BARE)  # has no strategy
        self.bare: Any = node.add_publisher(BARE, "quiet")
        self.other: Any = node.add_publisher(PROJECT, "valve")

    def client(self, version: int = VERSION_5) -> MqttClient:
        """A client that has not sent CONNECT."""
        return MqttClient(self.node.mqtt_port, version)

    def kept(self, client_id: str, **more: Any) -> MqttClient:
        """A connected client whose session is kept after its connection ends."""
        client = self.client()
        client.connect(client_id, clean=False, expiry_s=600, **more)
        return client

    def event(self, payload: bytes = b"", event_type: str = "DEFAULT") -> bytes:
        """Return an event of the first publisher."""
        return json.dumps(message(self.publisher, payload, event_type)).encode()

    def count(self) -> int:
        """Return how many events were counted."""
        return self.node.count(PROJECT, self.applet_id)

    def last(self) -> bytes:
        """Return the payload of the last event of type ECHO."""
        return self.node.kv(PROJECT, self.applet_id, b"last")

    def kill(self, name: str) -> None:
        """Kill one process of the node with SIGKILL."""
        pid = parts(self.node)[name]
        os.kill(pid, signal.SIGKILL)
        until(lambda: parts(self.node).get(name, pid) != pid, f"a new {name} runs")


@pytest.fixture(scope="module")
def site(start_module_node: StartNode) -> Site:
    return Site(start_module_node("--mqtt-device-topics", "lake/#, shared/#, will/#"))


@pytest.fixture
def new_site(start_node: StartNode) -> Callable[..., Site]:
    """Starts a node for one test, with options."""
    return lambda *flags: Site(start_node(*flags))
