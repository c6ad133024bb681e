"""Which events are refused after one that could not be stored."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from fieldbrook.actors.frame_server import Connection
from fieldbrook.actors.project.execution.mqtt_order import MqttOrder
from fieldbrook.actors.wire import BY_MQTT, NODE_COMMAND, RESUME, WireEvent


@pytest.fixture
def connection() -> Iterator[Connection]:
    ours, theirs = socket.socketpair()
    with theirs:
        made = Connection(ours, lambda _: None)
        yield made
        made.close()


def event(flags: int, publisher_id: int = 1, event_type: str = "DEFAULT") -> WireEvent:
    return event_type, publisher_id, "e", b"", 0, flags, ""


def test_mqtt_messages_are_refused_until_the_gateway_resumes(connection: Connection) -> None:
    order = MqttOrder()
    order.hold(connection, [event(0), event(BY_MQTT)])
    assert order.refusal(connection, event(BY_MQTT)) is not None
    assert order.refusal(connection, event(0)) is None
    assert order.refusal(connection, event(0, NODE_COMMAND, RESUME)) is None
    assert order.refusal(connection, event(BY_MQTT)) is None


def test_events_of_other_sources_hold_nothing_back(connection: Connection) -> None:
    order = MqttOrder()
    order.hold(connection, [event(0)])
    assert not order.held


def test_a_closed_connection_is_forgotten(connection: Connection) -> None:
    order = MqttOrder()
    order.hold(connection, [event(BY_MQTT)])
    connection.close()
    order.forget_closed()
    assert not order.held
