"""Limits of what devices leave at the embedded broker: a flood ends at the limit, and an
administrator can remove the rest."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.gateway.mqtt import embedded_broker
from fieldbrook.gateway.mqtt.broker_bounds import Bounds, StateUsage, read_usage
from fieldbrook.gateway.mqtt.nats_source import NatsSource
from fieldbrook.gateway.mqtt.old_broker.nats_wire import NatsConnection
from fieldbrook.gateway.mqtt.sources import Delivery
from tests.support.applets import TALLY
from tests.support.brokers import REFUSED, Device, Embedded, Mosquitto
from tests.support.nodes import RunningNode, StartNode, message, strategies, until
from tests.support.shell import Shell
from tests.support.tools import require_tool

LIMIT = 10
FLOOD = 60
TIGHT = Bounds(LIMIT, LIMIT, LIMIT)


@pytest.fixture(scope="module")
def node(start_module_node: StartNode) -> RunningNode:
    """Each test removes what it leaves at the broker."""
    flags = [
        *("--mqtt-retained-limit", str(LIMIT), "--mqtt-qos2-limit", str(LIMIT)),
        *("--mqtt-session-limit", str(LIMIT)),
    ]
    running = start_module_node(*flags)
    until(lambda: "connected to the embedded broker" in running.log, "the broker has its limits")
    return running


@pytest.fixture(scope="module")
def events(node: RunningNode) -> Events:
    return Events(node)


@pytest.fixture
def shell(node: RunningNode, tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home", node)


def kept(node: RunningNode) -> dict[str, Any]:
    answer = node.call("GET", "/mqtt")
    assert answer.status == 200, answer
    return {row["kind"]: row for row in answer.json["data"]}


def states(node: RunningNode) -> list[str]:
    return [condition["state"] for condition in node.call("GET", "/health").json["data"]]


class Events:
    """A project whose applet counts events, and a device of it."""

    def __init__(self, node: RunningNode) -> None:
        self.node = node
        node.create_project("p")
        self.applet_id = node.deploy("p", TALLY, strategies=strategies(DEFAULT="start"))["appletID"]
        self.body = json.dumps(message(node.add_publisher("p", "d"))).encode()

    def count(self) -> int:
        return self.node.count("p", self.applet_id)

    def one_is_handled(self) -> None:
        before = self.count()
        with Device(self.node.mqtt_port, "d") as device:
            device.publish("p", self.body)
        until(lambda: self.count() == before + 1, "the event is handled")


def test_retained_messages_beyond_the_limit_are_handled_and_not_kept(
    node: RunningNode, shell: Shell, events: Events
) -> None:
    before = events.count()
    with Device(node.mqtt_port, "flood") as device:
        for number in range(FLOOD):
            device.publish(f"t{number}", bytes(1_000), retain=True)
        device.publish("p", events.body, retain=True)
    until(lambda: events.count() == before + 1, "a retained message is an event, too")
    retained = kept(node)["retained"]
    assert (retained["count"], retained["limit"], retained["full"]) == (LIMIT, LIMIT, True)
    assert "broker_limit" not in states(node), "nobody is refused"
    assert shell.json("mqtt", "clear", "retained") == {"kind": "retained", "removed": LIMIT}
    assert kept(node)["retained"]["count"] == 0
    with Device(node.mqtt_port, "again") as device:
        device.publish("t1", b"1", retain=True)
    assert kept(node)["retained"]["count"] == 1

    def audited() -> list[str]:
        return [row["path"] for row in node.call("GET", "/audit?operation=ClearMqtt").json["data"]]

    until(lambda: audited() == ["/mqtt/retained"], "the audit log has it")


def test_unreleased_qos_2_messages_end_at_the_limit_and_can_be_removed(
    node: RunningNode, shell: Shell, events: Events
) -> None:
    taken = 0
    with Device(node.mqtt_port, "flood") as device, pytest.raises(ConnectionError):
        for number in range(FLOOD):
            device.begin_qos2("q", bytes(1_000), number + 1)
            taken += 1
    assert taken == LIMIT == kept(node)["qos2"]["count"]
    events.one_is_handled()
    until(lambda: "broker_limit" in states(node), "the condition is reported")
    gauges = node.call("GET", "/metrics").body.decode()
    assert f'fieldbrook_broker_kept{{kind="qos2"}} {LIMIT}.0' in gauges
    assert "qos2" in shell.text("mqtt", "status")
    assert shell.json("mqtt", "clear", "qos2")["removed"] == LIMIT
    with Device(node.mqtt_port, "again") as device:
        device.begin_qos2("q", b"1", 1)
    until(lambda: "broker_limit" not in states(node), "the condition has ended")


def test_sessions_end_at_the_limit_and_can_be_removed(
    node: RunningNode, shell: Shell, events: Events
) -> None:
    made = 0
    with pytest.raises(ConnectionError):
        for number in range(FLOOD):
            with Device(node.mqtt_port, f"s{number}", clean=False) as device:
                assert device.subscribe("ack/x", 1) != REFUSED
                made += 1
    assert 0 < made <= LIMIT == kept(node)["sessions"]["count"]
    until(lambda: "broker_limit" in states(node), "the condition is reported")
    assert shell.json("mqtt", "clear", "sessions")["removed"] == LIMIT

    def connects() -> bool:
        try:
            Device(node.mqtt_port, "d", clean=False).close()
        except OSError:
            return False
        return True

    until(connects, "the broker is there again and takes devices")
    until(lambda: node.log.count("connected to the embedded broker") == 2, "the node, too")
    events.one_is_handled()
    until(lambda: "broker_limit" not in states(node), "the condition has ended")


def test_an_unknown_kind_of_state_is_refused_by_name(node: RunningNode, shell: Shell) -> None:
    answer = node.call("DELETE", "/mqtt/everything")
    assert answer.status == 400
    assert "must be one of retained, qos2, sessions" in answer.body.decode()
    assert "everything" in shell.fails("mqtt", "clear", "everything", code=2)


def test_only_administrators_may_remove_what_devices_left(node: RunningNode) -> None:
    login = {"username": "dev", "password": "correct horse"}
    person = {**login, "role": "DEVELOPER"}
    assert node.call("POST", "/register/admin", person).status == 201
    token = node.call("PUT", "/login", login, token="").json["token"]
    for method, path in (("GET", "/mqtt"), ("DELETE", "/mqtt/retained")):
        assert node.call(method, path, token=token).json["key"] == "NoAdminPermission"


def test_with_an_external_broker_the_node_names_where_to_look(tmp_path: Path) -> None:
    require_tool("mosquitto")
    with Mosquitto(tmp_path) as outside:
        running = RunningNode(tmp_path / "n", "--mqtt-broker", f"127.0.0.1:{outside.port}")
        try:
            running.log_in()
            answer = running.call("GET", "/mqtt")
            assert answer.status == 404
            assert "external MQTT broker" in answer.json["desc"]
        finally:
            running.stop()


# ---------------------------------------------------------------- the broker without a node


def seen(running: Embedded, bounds: Bounds = TIGHT) -> dict[str, StateUsage]:
    async def ask() -> list[StateUsage]:
        connection = NatsConnection(lambda reason: None, lambda: None)
        await connection.open(embedded_broker.read_endpoint(running.folder), "test", 5)
        try:
            return await read_usage(connection, bounds)
        finally:
            connection.close()

    return {kept.kind: kept for kept in asyncio.run(ask())}


def serve_once(running: Embedded, bounds: Bounds) -> None:
    """A gateway comes, sets the limits and goes."""

    async def serve() -> None:
        source = NatsSource(lambda: embedded_broker.read_endpoint(running.folder), bounds)
        await source.start(lambda delivery: delivery.ack())
        while not source.connected:
            await asyncio.sleep(0.01)
        await source.stop()

    asyncio.run(asyncio.wait_for(serve(), 30))


def flood(running: Embedded, number: int) -> None:
    with Device(running.port, "retained") as device:
        for each in range(number):
            device.publish(f"t{each}", b"x", retain=True)
    with Device(running.port, "qos2") as device:
        for each in range(number):
            device.begin_qos2("q", b"x", each + 1)


def test_what_an_earlier_version_kept_beyond_the_limits_is_dropped_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Embedded(tmp_path) as running:
        flood(running, FLOOD)
        before = seen(running)
        assert before["retained"].number == before["qos2"].number == FLOOD
        serve_once(running, TIGHT)
        after = seen(running)
        assert after["retained"].number == after["qos2"].number == LIMIT
    said = [record.message for record in caplog.records if "above the limit" in record.message]
    assert said == [
        f"dropped {FLOOD - LIMIT} {kind} that the broker kept above the limit"
        for kind in ("retained", "qos2")
    ]


def test_the_limits_hold_while_no_node_runs_and_after_the_broker_was_killed(
    tmp_path: Path,
) -> None:
    with Embedded(tmp_path) as running:
        serve_once(running, TIGHT)
        running.kill()
        running.start()
        with pytest.raises(ConnectionError):
            flood(running, FLOOD)
        found = seen(running)
        assert found["retained"].number == found["qos2"].number == LIMIT


def test_a_broker_that_runs_out_of_memory_is_started_again_and_the_node_goes_on(
    start_node: StartNode,
) -> None:
    node = start_node("--mqtt-memory-bytes", str(300 << 20))
    node.create_project("p")
    node.deploy("p", TALLY)
    publisher = node.add_publisher("p", "d")
    first = broker_of(node)
    limits = Path(f"/proc/{first}/limits").read_text()
    assert re.search(rf"^Max data size +{300 << 20} +{300 << 20} ", limits, re.MULTILINE)
    # A Go program that has no memory left, or panics, ends as after this signal: with code 2.
    os.kill(first, signal.SIGQUIT)
    until(lambda: broker_of(node) not in (0, first), "the broker is there again")
    assert node.send("p", message(publisher)).status == 201
    until(lambda: connects(node.mqtt_port), "devices connect again")
    assert "ended with code 2; it restarts in" in node.log


def broker_of(node: RunningNode) -> int:
    """The process of the node's broker; 0 for none."""
    for pid in node.processes():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "nats-server":
                return pid
    return 0


def connects(port: int) -> bool:
    """Whether a device is let in."""
    try:
        Device(port, "after").close()
    except (OSError, TimeoutError):
        return False
    return True


def test_a_limit_of_zero_keeps_nothing(tmp_path: Path) -> None:
    none = Bounds(retained=0, qos2=0)
    with Embedded(tmp_path) as running:
        serve_once(running, none)
        with pytest.raises(ConnectionError):
            flood(running, LIMIT)
        found = seen(running, none)
        assert found["retained"].number == found["qos2"].number == 0
        assert not found["retained"].full
        with Device(running.port, "d") as device:
            device.publish("p", b"QoS 1 as ever")
        serve_once(running, TIGHT)
        flood(running, LIMIT)
        assert seen(running)["qos2"].number == LIMIT, "raised again"


# ---------------------------------------------------------------- what waits for absent devices


def stored(running: Embedded) -> int:
    """How many messages wait at the broker, for the node or for a device."""

    async def ask() -> int:
        connection = NatsConnection(lambda reason: None, lambda: None)
        await connection.open(embedded_broker.read_endpoint(running.folder), "test", 5)
        try:
            found = await connection.ask("$JS.API.STREAM.INFO.$MQTT_msgs", None, 5)
            return int(found["state"]["messages"])
        finally:
            connection.close()

    return asyncio.run(ask())


def handle(running: Embedded, bounds: Bounds, until_left: int, *, finish: bool) -> None:
    """A gateway comes, leaves events of the project `p` unfinished unless `finish`, and looks at
    what the broker keeps until that is no more than so many messages."""

    def take(delivery: Delivery) -> None:
        if finish:
            delivery.ack()

    async def serve() -> None:
        source = NatsSource(lambda: embedded_broker.read_endpoint(running.folder), bounds)
        source.set_topics(frozenset(["p"]))
        await source.start(take)
        while (
            await source.read_usage() is None
            or await asyncio.to_thread(stored, running) > until_left
        ):
            await asyncio.sleep(0.05)
        await source.stop()

    asyncio.run(asyncio.wait_for(serve(), 30))


def test_what_waits_for_a_device_that_is_away_does_not_fill_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bounds = Bounds(waiting_bytes=1 << 20)
    with Embedded(tmp_path) as running:
        serve_once(running, bounds)
        with Device(running.port, "away", clean=False, own_id=False) as away:
            assert away.subscribe("ack", 1) == 1
        with Device(running.port, "flood") as device:
            for _ in range(20):
                device.publish("ack", bytes(100_000))
            device.publish("p", b"an event")
            for _ in range(20):
                device.publish("ack", bytes(100_000))
        assert stored(running) == 41
        handle(running, bounds, 21, finish=False)
        assert stored(running) == 21, "the event that nobody has finished stays, and what follows"
        handle(running, bounds, 0, finish=True)
        with Device(running.port, "flood") as device:
            device.publish("ack", b"the subscription goes on")
        with Device(running.port, "away", clean=False, own_id=False) as away:
            assert away.read()[1].endswith(b"the subscription goes on")
    said = [record.message for record in caplog.records if "disconnected devices" in record.message]
    assert said[0] == "dropped 20 messages for disconnected devices"


def test_what_waits_for_a_device_that_is_away_is_kept_as_long_as_there_is_room(
    tmp_path: Path,
) -> None:
    with Embedded(tmp_path) as running:
        serve_once(running, TIGHT)
        with Device(running.port, "away", clean=False, own_id=False) as away:
            assert away.subscribe("ack", 1) == 1
        with Device(running.port, "other") as device:
            device.publish("ack", b"kept")
        handle(running, TIGHT, 1, finish=True)
        with Device(running.port, "away", clean=False, own_id=False) as away:
            assert away.read()[1].endswith(b"kept")
