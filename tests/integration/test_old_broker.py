"""The messages that an earlier version's broker holds are delivered once, then it is removed."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fieldbrook.core.errors import UnavailableError
from fieldbrook.gateway.mqtt.old_broker import drain as drains
from fieldbrook.gateway.mqtt.old_broker import store
from fieldbrook.gateway.mqtt.old_broker.drain import drain, topic_of
from fieldbrook.gateway.mqtt.old_broker.server import find_program
from fieldbrook.observability.health import OLD_BROKER, ProcessHealth
from tests.support.applets import TALLY
from tests.support.brokers import Device, numbered
from tests.support.nodes import StartNode, alive, message, until
from tests.support.old_broker import OldBroker, old_broker
from tests.support.tools import LIMIT_S

PROJECTS = ["p1", "p2/push/token/DEFAULT", "p3"]
DROPPED = "the old broker is removed"

_CHILD = """\
import asyncio, sys
from pathlib import Path
from fieldbrook.gateway.mqtt.old_broker.drain import drain
from fieldbrook.observability.health import ProcessHealth

async def deliver(topic, payload, name):
    print(name, flush=True)
    return True

asyncio.run(drain(Path(sys.argv[1]), deliver, ProcessHealth()))
"""


class Node:
    """The receiver of a drain: it stores the handled messages, and refuses those for projects in
    `refuses`."""

    def __init__(self) -> None:
        self.handled: list[tuple[str, bytes, str]] = []
        self.offered = 0
        self.refuses: set[str] = set()
        self.on_offer: Callable[[], None] = lambda: None
        self.health = ProcessHealth()

    async def deliver(self, topic: str, payload: bytes, name: str) -> bool:
        self.offered += 1
        self.on_offer()
        await asyncio.sleep(0)
        if topic.partition("/")[0] in self.refuses:
            return False
        self.handled.append((topic, payload, name))
        return True

    async def drain(self, data: Path) -> None:
        async with asyncio.timeout(LIMIT_S):
            await drain(data, self.deliver, self.health)

    def numbers(self, topic: str) -> list[int]:
        return [int(payload) for where, payload, _ in self.handled if where == topic]


def publish(broker: OldBroker, start: int, end: int) -> None:
    with broker.device() as device:
        sent = device.publish_all(numbered(PROJECTS, start, end))
    assert sent == end - start


def servers(data: Path) -> list[int]:
    """Return the server processes on a data folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if str(data / "broker" / "nats.conf").encode() in words and alive(int(path.parent.name)):
            found.append(int(path.parent.name))
    return found


async def test_all_messages_for_the_node_are_delivered_in_order_and_the_broker_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    large = b"x" * (1 << 20)
    with old_broker(tmp_path) as broker:
        with broker.device("subscriber", clean=False) as device:
            device.subscribe("p1", 1)
        publish(broker, 0, 1_500)
        broker.node_handles(300)
        with broker.device() as device:
            device.publish("p1", large)
            device.publish("p1", b"retained", retain=True)
            for packet_id in (1, 2):
                device.begin_qos2("p1", b"unreleased", packet_id)
    (tmp_path / "broker" / "mosquitto.db").write_bytes(b"of another broker")

    node = Node()
    caplog.set_level(logging.INFO)
    await node.drain(tmp_path)

    assert len(node.handled) == 1_202
    for number, topic in enumerate(PROJECTS):
        sent = [n for n in range(300, 1_500) if n % len(PROJECTS) == number]
        assert [int(p) for where, p, _ in node.handled if where == topic and p.isdigit()] == sent
    assert [payload for _, payload, _ in node.handled[-2:]] == [large, b"retained"]
    names = [name for _, _, name in node.handled]
    assert len(set(names)) == len(names)
    assert all(name.startswith("mqtt-") for name in names)
    warned = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warned) == 1
    assert DROPPED in warned[0]
    assert "1 retained messages" in warned[0]
    assert "2 QoS 2 messages that were not released" in warned[0]
    assert "502 messages that only devices waited for" in warned[0]
    assert [path.name for path in (tmp_path / "broker").iterdir()] == ["mosquitto.db"]
    assert not servers(tmp_path)
    await node.drain(tmp_path)
    assert len(node.handled) == 1_202


async def test_a_store_without_messages_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with old_broker(tmp_path) as broker:
        publish(broker, 0, 30)
        broker.node_handles(30)
    node = Node()
    await node.drain(tmp_path)
    assert not node.handled
    assert not (tmp_path / "broker").exists()


async def test_a_project_that_takes_nothing_now_holds_up_no_other_and_keeps_its_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with old_broker(tmp_path) as broker:
        publish(broker, 0, 2_100)
    node = Node()
    node.refuses.add("p3")

    def others_are_done() -> bool:
        return len(node.handled) == 1_400

    async with asyncio.timeout(LIMIT_S):
        draining = asyncio.create_task(node.drain(tmp_path))
        while not others_are_done():
            await asyncio.sleep(0.01)
        assert not draining.done()
        offered = node.offered
        while node.offered == offered:  # the next pass has begun
            await asyncio.sleep(0.01)
        node.refuses.clear()
        await draining
    for number, topic in enumerate(PROJECTS):
        assert node.numbers(topic) == list(range(number, 2_100, len(PROJECTS)))


def test_a_killed_node_loses_nothing_and_sees_what_it_sees_again_under_the_same_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with old_broker(tmp_path) as broker:
        publish(broker, 0, 6_000)
    seen: list[str] = []
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            seen += [line.strip() for line in itertools.islice(child.stdout, 1_200)]
            child.kill()
            seen += [line.strip() for line in child.stdout]
    assert len(set(seen)) < 6_000, "the node was killed before the end"
    node = Node()
    asyncio.run(node.drain(tmp_path))
    names = {name for _, _, name in node.handled}
    assert len(names) == len(node.handled)
    assert len(names | set(seen)) == 6_000
    # A name occurs again only if its acknowledgement was lost.
    assert len(node.handled) + len(seen) < 6_000 + 3 * drains.BATCH
    until(lambda: not servers(tmp_path), "servers die with their node")


async def test_a_server_that_dies_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with old_broker(tmp_path) as broker:
        publish(broker, 0, 3_000)
    node = Node()
    reports: list[dict[str, str]] = []
    node.health = ProcessHealth(lambda now: reports.append(dict(now)))
    killed: list[int] = []

    def kill_once() -> None:
        if node.offered == 1_000:
            killed.extend(servers(tmp_path))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    node.on_offer = kill_once
    await node.drain(tmp_path)
    assert killed
    assert len({name for _, _, name in node.handled}) == 3_000
    assert len(node.handled) <= 3_000 + drains.BATCH
    assert OLD_BROKER in reports[0]
    assert reports[-1] == {}


async def test_without_the_server_program_the_condition_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with old_broker(tmp_path) as broker:
        publish(broker, 0, 30)
    installed = find_program
    monkeypatch.setattr(drains, "find_program", lambda: None)
    monkeypatch.setattr(drains, "_RETRY_S", 0.01)
    node = Node()
    details: list[str] = []
    node.health = ProcessHealth(lambda now: details.extend(now.values()))
    async with asyncio.timeout(LIMIT_S):
        draining = asyncio.create_task(node.drain(tmp_path))
        while OLD_BROKER not in node.health:
            await asyncio.sleep(0.01)
        assert "pip install 'fieldbrook[old-broker]'" in details[0]
        assert "fieldbrook mqtt discard-old-broker" in details[0]
        assert not node.handled
        monkeypatch.setattr(drains, "find_program", installed)
        await draining
    assert len(node.handled) == 30
    assert OLD_BROKER not in node.health


async def test_messages_that_are_being_delivered_cannot_be_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with old_broker(tmp_path) as broker:
        publish(broker, 0, 30)
    node = Node()
    node.refuses = {"p1", "p2", "p3"}
    draining = asyncio.create_task(node.drain(tmp_path))
    async with asyncio.timeout(LIMIT_S):
        while not node.offered:
            await asyncio.sleep(0.01)
    with pytest.raises(UnavailableError, match="another process"):
        store.discard(tmp_path)
    draining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await draining
    assert not servers(tmp_path)


def test_messages_can_be_dropped(tmp_path: Path) -> None:
    with old_broker(tmp_path) as broker:
        publish(broker, 0, 30)
    command = [sys.executable, "-m", "fieldbrook", "mqtt", "discard-old-broker", "--yes"]
    done = subprocess.run(
        [*command, "--data", str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "dropped" in done.stderr + done.stdout
    assert not (tmp_path / "broker").exists()
    assert store.discard(tmp_path) is False


@pytest.mark.thorough
def test_a_node_that_is_killed_meanwhile_handles_each_event_once(start_node: StartNode) -> None:
    node = start_node(name="n")
    node.create_project("p")
    applet = node.deploy("p", TALLY)["appletID"]
    publisher = node.add_publisher("p", "device")
    node.stop()

    body = json.dumps(message(publisher)).encode()
    with old_broker(node.data) as broker, broker.device() as device:
        assert device.publish_all(("p", body) for _ in range(4_000)) == 4_000
    first = start_node(name="n")
    until(lambda: first.count("p", applet) > 200, "events are handled")
    first.kill()
    second = start_node(name="n")
    until(lambda: not (second.data / "broker").exists(), "the old broker is removed")
    assert second.count("p", applet) == 4_000
    with Device(second.mqtt_port, "device") as device:
        device.publish("p", body)
    assert second.count("p", applet) == 4_001
    assert not servers(node.data)


@pytest.mark.parametrize(
    ("subject", "topic"),
    [
        ("p1", "p1"),
        ("p1.push.a.b", "p1/push/a/b"),
        ("p1.push.a//b", "p1/push/a.b"),
        ("/.a", "/a"),
        ("a./.b", "a//b"),
        ("a./", "a/"),
    ],
)
def test_subjects_are_read_as_topics(subject: str, topic: str) -> None:
    assert topic_of(subject) == topic
