"""Full disks of projects, of the registry and of a whole node, which get space again. The node
reports the condition, refuses what it cannot store, and continues within seconds after there is
space."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from fieldbrook.actors.wire import (
    BY_MQTT,
    DELIVERY,
    NODE_COMMAND,
    RESUME,
    EventResult,
    FrameReader,
    WireEvent,
    frame,
    pack,
    unpack,
)
from tests.faults.applet import counter
from tests.support.applets import TALLY
from tests.support.brokers import Device, publish_packet
from tests.support.disks import MIB, fill, small_disk
from tests.support.nodes import (
    Answer,
    RunningNode,
    StartNode,
    alive,
    message,
    named,
    part_of,
    parts,
    until,
    worker_of,
)

_LIMIT_S = 90.0
_RECOVERY_S = 5.0  # the promise of the node
_FILLS = 4
_EVENTS = 600
_WINDOW = 16


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A small disk in the data folder of the node that the test starts."""
    folder, size = request.param
    with small_disk(tmp_path / "n" / folder, size) as mounted:
        yield mounted


def small(folder: str, mib: int) -> pytest.MarkDecorator:
    """The folder in a node's data folder that has a small disk of its own."""
    return pytest.mark.parametrize("disk", [(folder, mib * MIB)], indirect=True, ids=[folder])


def node_that_counts(start_node: StartNode, value_size: int) -> tuple[RunningNode, dict[str, str]]:
    """Start a node with a project `p` that stores this number of bytes per event; return it and a
    publisher."""
    node = start_node()
    node.create_project("p")
    node.deploy("p", counter(1, value_size))
    return node, node.add_publisher("p", "d")


def handled_over_mqtt(node: RunningNode) -> list[int]:
    """Return the numbers of the last handled events over MQTT, in their order.

    The history also has temporarily refused events, and events that were sent again because their
    sender or a gateway ended between the commit and the acknowledgement.
    """
    rows = node.call("GET", "/event_log/p?limit=1000").json["data"]
    return [
        int(row["eventID"].rpartition("-")[2])
        for row in reversed(rows)
        if row["source"] == "mqtt" and row["outcome"] == "ok"
    ]


# ---------------------------------------------------------------- projects


@small("projects", 64)
@pytest.mark.timeout(400)
@pytest.mark.thorough
def test_a_publishers_mqtt_events_keep_their_order_over_times_of_a_full_disk(
    disk: Path, start_node: StartNode
) -> None:
    node, publisher = node_that_counts(start_node, 16_384)
    events = [
        ("p", json.dumps(named(message(publisher), f"{number:06}")).encode())
        for number in range(_EVENTS + 1)
    ]

    def full() -> bool:
        return any("disk_full" in text for text in node.call("GET", "/liveness").json.values())

    def handled() -> list[int]:
        return handled_over_mqtt(node)

    def settled(number: int) -> bool:
        return full() or len(handled()) > number

    was_full, share = 0, _EVENTS // _FILLS
    with Device(node.mqtt_port, "d") as device:
        device.publish(*events.pop(0))  # creates the project's store
        until(handled, "the first event is handled")
        for first in range(0, _EVENTS, share):
            filler = fill(disk)
            half, end = first + share // 2, first + share
            assert device.publish_all(events[first:half]) == half - first
            until(partial(settled, half), "the events that fit are handled")
            was_full += full()
            # Some events are in flight to the project when there is space again.
            filler.unlink()
            assert device.publish_all(events[half:end]) == end - half
    assert was_full
    until(lambda: len(handled()) > _EVENTS, "all events are handled", _LIMIT_S)
    numbers = handled()
    overtaken = [pair for pair in itertools.pairwise(numbers) if pair[0] > pair[1]]
    assert not overtaken, "pairs of events that were handled in the wrong order"


def refusal(send: Callable[[], Answer]) -> Answer | None:
    """Return the answer to a request that is refused because of a full disk."""
    answer = send()
    return None if answer.status == 201 else answer


def is_507(answer: Answer) -> None:
    assert (answer.status, answer.headers["Retry-After"]) == (507, "1"), answer
    assert (answer.json["key"], answer.json["code"]) == ("InsufficientStorage", 507_999_002)
    # LMDB reports a write that took only some of its bytes as an input/output error.
    assert answer.json["desc"] in (
        "the disk is full",
        "the disk is full or failing (input/output error)",
    )


@small("projects", 64)
@pytest.mark.timeout(200)
def test_an_event_without_space_on_the_disk_is_answered_507_until_there_is_space(
    disk: Path, start_node: StartNode
) -> None:
    node, publisher = node_that_counts(start_node, 32_768)
    assert node.send("p", message(publisher, b"first")).status == 201
    filler = fill(disk)

    def send() -> Answer:
        return node.send("p", message(publisher, b"%d" % time.monotonic_ns()))

    is_507(until(lambda: refusal(send), "the disk has no space for an event"))
    filler.unlink()
    until(lambda: refusal(send) is None, "events are taken again", _RECOVERY_S)


class Gateway:
    """The link of a gateway to a worker, byte by byte, for its one project."""

    def __init__(self, node: RunningNode, project_id: str) -> None:
        worker = part_of(worker_of(node, project_id)).removeprefix("fb-worker:")
        [path] = [p for p in (node.data / "run").glob(f"w{worker}.*") if p.is_socket()]
        self._project_id = int(project_id)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_LIMIT_S)
        self._socket.connect(str(path))
        self._reader = FrameReader()

    def ask(self, *events: WireEvent) -> list[EventResult]:
        """Send a frame and wait for its complete answer."""
        self._socket.sendall(frame(pack([(self._project_id, events)])))
        results: list[EventResult] = []
        while len(results) < len(events):
            for answer in self._reader.feed(self._socket.recv(1 << 16)):
                for _, part in unpack(answer):
                    results += part
        return results

    def close(self) -> None:
        self._socket.close()


@small("projects", 64)
@pytest.mark.timeout(200)
def test_an_event_does_not_overtake_one_of_its_publisher_that_could_not_be_stored(
    disk: Path, start_node: StartNode
) -> None:
    node, publisher = node_that_counts(start_node, 16_384)
    assert node.send("p", message(publisher, b"first")).status == 201

    def event(number: int) -> WireEvent:
        payload = b"event %d" % number
        by = int(publisher["publisherID"])
        return "DEFAULT", by, f"mqtt-{number}.1", payload, 0, DELIVERY | BY_MQTT, ""

    with contextlib.closing(Gateway(node, publisher["projectID"])) as gateway:
        filler = fill(disk)
        number, result = 0, gateway.ask(event(0))[0]
        while not isinstance(result[0], str):
            number, result = number + 1, gateway.ask(event(number + 1))[0]
        assert result[0] == "StorageFullError"
        filler.unlink()
        [behind] = gateway.ask(event(number + 1))
        assert behind[0] == "UnavailableError", "there is space, but it would overtake"
        assert node.send("p", message(publisher, b"http")).status == 201, "other events go on"
        resume = (RESUME, NODE_COMMAND, "", pack([]), 0, 0, "")
        resumed, *handled = gateway.ask(resume, event(number), event(number + 1))
        assert resumed == ()
        assert [each[0][1:] for each in handled] == [(0, ""), (0, "")]


# ---------------------------------------------------------------- the registry


@small("registry", 4)
@pytest.mark.timeout(200)
@pytest.mark.thorough("registry")
def test_a_change_without_space_for_the_registry_is_answered_507_until_there_is_space(
    disk: Path, start_node: StartNode
) -> None:
    node, publisher = node_that_counts(start_node, 8)
    numbers = iter(range(100_000))

    def create_project() -> Answer:
        text = "x" * 1_000
        return node.call("POST", "/project", {"name": f"q{next(numbers)}", "description": text})

    filler = fill(disk)
    is_507(until(lambda: refusal(create_project), "the disk has no space for a project"))
    names = {row["name"] for row in node.call("GET", "/project/datalist?size=-1").json["data"]}
    is_507(node.upload("p", TALLY, "second"))
    key = {"name": "k", "key": "k", "description": "x" * 1_000}
    is_507(node.call("POST", "/publisher/p", key))
    assert names == {
        row["name"] for row in node.call("GET", "/project/datalist?size=-1").json["data"]
    }, "a refused change leaves nothing behind"
    assert node.send("p", message(publisher)).status == 201, "events go on"
    filler.unlink()
    until(lambda: refusal(create_project) is None, "projects are created again", _RECOVERY_S)
    assert node.upload("p", TALLY, "second").status == 201
    assert node.call("POST", "/publisher/p", key).status == 201


# ---------------------------------------------------------------- a whole node


@small(".", 192)
def test_a_full_disk_ends_no_gateway_and_a_gateway_that_is_killed_there_starts_again(
    disk: Path, start_node: StartNode
) -> None:
    """The ring of refusals is a store that is created when the first event is refused."""
    node = start_node(command="node")
    node.create_project("p")
    wrong = message({**node.add_publisher("p", "d"), "token": "wrong"})
    filler = fill(disk)
    gateway = parts(node)["fb-http:0"]
    assert node.send("p", wrong).status == 401
    ring = disk / "refused" / "http-0"
    until(ring.exists, "the gateway tries to keep the refusal")
    assert node.send("p", wrong).status == 401
    assert parts(node)["fb-http:0"] == gateway
    os.kill(gateway, signal.SIGKILL)
    until(lambda: not alive(gateway), "the gateway is gone")
    until(lambda: _refuses(node, wrong), "another gateway serves on the full disk")
    filler.unlink()
    until(lambda: _refuses(node, wrong) and _kept(node), "a refusal is kept when there is space")
    assert "Fatal Python error" not in node.log


def _refuses(node: RunningNode, event: object) -> bool:
    try:
        return node.send("p", event).status == 401
    except OSError:  # it is just starting
        return False


def _kept(node: RunningNode) -> bool:
    answer = node.call("GET", "/refused_event")
    return answer.status == 200 and bool(answer.json["data"])


# ---------------------------------------------------------------- senders over MQTT


class Sender(threading.Thread):
    """A device that keeps 16 events unacknowledged, and sends them again in their order over a
    new connection when it loses the old one."""

    def __init__(self, node: RunningNode, publisher: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self._port, self._publisher = node.mqtt_port, publisher
        self.acknowledged, self.ends = 0, False

    def run(self) -> None:
        while not self.ends:
            with contextlib.suppress(OSError), Device(self._port, "d", limit_s=_LIMIT_S) as device:
                self._send(device)

    def _send(self, device: Device) -> None:
        sent = self.acknowledged
        while not self.ends or sent > self.acknowledged:
            while not self.ends and sent < self.acknowledged + _WINDOW:
                name = f"{sent:06}"
                event = json.dumps(named(message(self._publisher, name.encode()), name)).encode()
                device.send_raw(publish_packet("p", event, 1, sent % 65_535 + 1))
                sent += 1
            assert device.read()[0] == 0x40
            self.acknowledged += 1


@small(".", 160)
@pytest.mark.parametrize("victim", ["", "project", "fb-mqtt:0"])
@pytest.mark.timeout(200)
@pytest.mark.thorough("project")
def test_a_strict_senders_mqtt_events_go_on_in_their_order_within_5_s_of_space(
    disk: Path, start_node: StartNode, victim: str
) -> None:
    """This also holds if a process was killed while the disk was full, and could not start."""
    node, publisher = node_that_counts(start_node, 4_096)

    def refused() -> Answer | None:
        return refusal(lambda: node.send("p", message(publisher, b"over HTTP")))

    sender = Sender(node, publisher)
    sender.start()
    until(lambda: sender.acknowledged > _WINDOW, "events are taken")
    filler = fill(disk)
    answer = until(refused, "the disk has no space for an event")
    if victim:
        os.kill(parts(node)[victim], signal.SIGKILL)
        state = "cannot_start" if victim == "project" else "disk_full"
        until(lambda: state in str(node.call("GET", "/liveness").json), state)
        answer = until(refused, "the disk has no space for an event")
    assert answer.status in (503, 507), answer
    assert answer.headers["Retry-After"] == "1", answer
    before = sender.acknowledged
    filler.unlink()
    until(lambda: sender.acknowledged > before, "events over MQTT are taken again", _RECOVERY_S)
    until(lambda: refused() is None, "events over HTTP are taken again", _RECOVERY_S)
    until(lambda: sender.acknowledged > before + _WINDOW, "those that waited are acknowledged")
    sender.ends = True
    sender.join(_LIMIT_S)
    assert not sender.is_alive(), "everything that was sent is acknowledged"
    numbers = handled_over_mqtt(node)
    wrong = [pair for pair in itertools.pairwise(numbers) if pair[1] != pair[0] + 1]
    assert not wrong, "events that were not handled once, in their order"
    assert numbers[-1] == sender.acknowledged - 1
