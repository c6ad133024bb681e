"""A disk that is full, and has room again: the embedded broker's, and the projects'."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
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
from tests.support.brokers import Device
from tests.support.nodes import Answer, RunningNode, message, until
from tests.support.tools import require_tool

_LIMIT_S = 90.0
_RECOVERY_S = 10.0  # 5 on a machine that has nothing else to do
_FILLS = 4
_EVENTS = 600


def small_disk(folder: Path, size_mib: int) -> Iterator[Path]:
    """A file system of its own for a folder."""
    require_tool("mount")
    folder.mkdir(parents=True)
    if os.getuid() != 0:
        pytest.skip("only root can mount a file system")
    options = ["-t", "tmpfs", "-o", f"size={size_mib}m"]
    subprocess.run(["mount", *options, "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data folder whose broker has a small disk."""
    for store in small_disk(tmp_path / "n" / "broker" / "store", 40):
        yield store.parents[1]


@pytest.fixture
def tight(tmp_path: Path) -> Iterator[Path]:
    """A data folder whose projects have a small disk."""
    for projects in small_disk(tmp_path / "n" / "projects", 64):
        yield projects.parent


def fill(ballast: Path) -> None:
    """Leave no block of a disk free."""
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 12))


@pytest.mark.timeout(400)
def test_a_broker_whose_disk_was_full_is_named_and_goes_on_within_seconds_of_room(
    data: Path,
) -> None:
    node = RunningNode(data)
    try:
        node.log_in()
        node.create_project("p")
        rules = [{"eventType": "DEFAULT", "handler": "quiet"}]
        applet_id = node.deploy("p", TALLY, strategies=rules)["appletID"]
        event = json.dumps(message(node.add_publisher("p", "d"))).encode()
        with Device(node.mqtt_port, "d") as device:
            device.publish("p", event)
            until(lambda: node.count("p", applet_id) == 1, "the first event")
        ballast = data / "broker" / "store" / "ballast"
        fill(ballast)
        with contextlib.suppress(OSError), Device(node.mqtt_port, "d", limit_s=1) as device:
            device.publish("p", event)  # nobody says that it was stored

        def broker() -> str:
            body: dict[str, str] = node.call("GET", "/liveness").json
            return body["Broker"]

        until(lambda: broker().startswith("broker_full"), "the condition", _LIMIT_S)
        assert node.call("GET", "/readiness").status == 200, "HTTP goes on"
        assert "it was ended" not in node.log, "before there is room that would not help"
        ballast.unlink()

        def stored() -> bool:
            with contextlib.suppress(OSError), Device(node.mqtt_port, "d", limit_s=1) as device:
                device.publish("p", event)
                return True
            return False

        before = node.count("p", applet_id)
        until(stored, "the broker takes messages again", _RECOVERY_S)
        until(lambda: node.count("p", applet_id) > before, "and they are handled", _LIMIT_S)
        until(lambda: broker() == "ok", "the condition has ended", _LIMIT_S)
    finally:
        node.stop()


@pytest.mark.timeout(400)
def test_a_publishers_mqtt_events_keep_their_order_while_the_disk_is_full_now_and_then(
    tight: Path,
) -> None:
    node = RunningNode(tight)
    try:
        node.log_in()
        node.create_project("p")
        node.deploy("p", counter(1, 16_384))
        publisher = node.add_publisher("p", "d")
        events = [
            ("p", json.dumps(message(publisher, b"%06d" % number)).encode())
            for number in range(_EVENTS + 1)
        ]
        ballast = tight / "projects" / "ballast"

        def full() -> bool:
            return any("disk_full" in text for text in node.call("GET", "/liveness").json.values())

        def handled() -> list[int]:
            rows = node.call("GET", "/event_log/p?limit=1000").json["data"]
            return [int(row["eventID"][5:].partition(".")[0]) for row in reversed(rows)]

        def settled(number: int) -> bool:
            return full() or len(handled()) > number

        was_full, share = 0, _EVENTS // _FILLS
        with Device(node.mqtt_port, "d") as device:
            device.publish(*events.pop(0))  # its store is made
            until(handled, "the first event is handled")
            for first in range(0, _EVENTS, share):
                fill(ballast)
                half, end = first + share // 2, first + share
                assert device.publish_all(events[first:half]) == half - first
                until(partial(settled, half), "what fits is handled")
                was_full += full()
                # Some are on their way to the project in the moment in which there is room.
                ballast.unlink()
                assert device.publish_all(events[half:end]) == end - half
        assert was_full
        until(lambda: len(handled()) > _EVENTS, "all are handled", _LIMIT_S)
        assert handled() == sorted(handled())
    finally:
        node.stop()


@pytest.mark.timeout(200)
def test_while_the_disk_is_full_http_says_507_and_when_to_come_again(tight: Path) -> None:
    node = RunningNode(tight)
    try:
        node.log_in()
        node.create_project("p")
        node.deploy("p", counter(1, 4_096))
        publisher = node.add_publisher("p", "d")
        assert node.send("p", message(publisher, b"first")).status == 201
        ballast = tight / "projects" / "ballast"
        fill(ballast)

        def refused() -> Answer | None:
            name = b"%d" % time.monotonic_ns()  # each takes a place of its own
            answer = node.send("p", message(publisher, name))
            return None if answer.status == 201 else answer

        answer = until(refused, "an event that the disk has no room for")
        assert (answer.status, answer.headers["Retry-After"]) == (507, "1")
        assert (answer.json["key"], answer.json["code"]) == ("InsufficientStorage", 507_999_002)
        ballast.unlink()
        until(lambda: refused() is None, "it is taken again", _RECOVERY_S)
    finally:
        node.stop()


class Gateway:
    """What a gateway says to a project, byte by byte."""

    def __init__(self, node: RunningNode) -> None:
        [path] = [p for p in (node.data / "run").glob("p*") if p.is_socket()]
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_LIMIT_S)
        self._socket.connect(str(path))
        self._reader = FrameReader()

    def ask(self, *events: WireEvent) -> list[EventResult]:
        """Send a frame and wait for all of its answer."""
        self._socket.sendall(frame(pack(events)))
        results: list[EventResult] = []
        while len(results) < len(events):
            for answer in self._reader.feed(self._socket.recv(1 << 16)):
                results += unpack(answer)
        return results

    def close(self) -> None:
        self._socket.close()


@pytest.mark.timeout(200)
def test_what_is_on_its_way_behind_an_event_that_could_not_be_stored_does_not_run_before_it(
    tight: Path,
) -> None:
    node = RunningNode(tight)
    try:
        node.log_in()
        node.create_project("p")
        node.deploy("p", counter(1, 16_384))
        publisher = node.add_publisher("p", "d")
        assert node.send("p", message(publisher, b"first")).status == 201

        def event(number: int) -> WireEvent:
            payload = b"event %d" % number
            by = int(publisher["publisherID"])
            return "DEFAULT", by, f"mqtt-{number}.1", payload, 0, DELIVERY | BY_MQTT, ""

        gateway = Gateway(node)
        ballast = tight / "projects" / "ballast"
        fill(ballast)
        number, result = 0, gateway.ask(event(0))[0]
        while not isinstance(result[0], str):
            number, result = number + 1, gateway.ask(event(number + 1))[0]
        assert result[0] == "StorageFullError"
        ballast.unlink()
        [behind] = gateway.ask(event(number + 1))
        assert behind[0] == "UnavailableError", "there is room, and it would overtake"
        assert node.send("p", message(publisher, b"http")).status == 201, "others go on"
        resume = (RESUME, NODE_COMMAND, "", pack([]), 0, 0, "")
        resumed, *handled = gateway.ask(resume, event(number), event(number + 1))
        assert resumed == ()
        assert [each[0][1:] for each in handled] == [(0, ""), (0, "")]
        gateway.close()
    finally:
        node.stop()
