"""The device library against nodes: an event that is sent once is handled once, regardless of which
process dies."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.device import (
    Accepted,
    Device,
    DeviceError,
    Event,
    InvalidEventError,
    QueueBusyError,
    QueueFullError,
    Refused,
)
from fieldbrook.device import sender as sending
from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, StartNode, strategies, until
from tests.support.tls import TlsNode, make_files
from tests.support.tools import LIMIT_S

ROOT = Path(__file__).parents[2]
TRANSPORTS = ("http", "mqtt")
ID = "reading-of-the-meter-1"


@dataclass(frozen=True)
class Place:
    """A project of a node with a publisher."""

    node: RunningNode
    applet_id: str
    token: str

    def url(self, transport: str, *, tls: bool = False) -> str:
        port = self.node.http_port if transport == "http" else self.node.mqtt_port
        return f"{transport}s://localhost:{port}" if tls else f"{transport}://127.0.0.1:{port}"

    def count(self) -> int:
        return self.node.count("room", self.applet_id)


def furnish(node: RunningNode) -> Place:
    node.create_project("room")
    handlers = strategies(START="start", FAIL="fail")
    applet_id = node.deploy("room", TALLY, strategies=handlers)["appletID"]
    return Place(node, applet_id, node.add_publisher("room", "sensor")["token"])


@pytest.fixture(scope="module")
def place(start_module_node: StartNode) -> Place:
    return furnish(start_module_node())


class Kept:
    """The outcomes that were reported to a device."""

    def __init__(self) -> None:
        self.accepted: list[Accepted] = []
        self.refused: list[Refused] = []


Connect = Callable[..., tuple[Device, Kept]]


@pytest.fixture
def connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Makes devices of the publisher `sensor`, which are closed at the end."""
    monkeypatch.setattr(sending, "LONGEST_PAUSE_S", 0.5)  # so that the test does not wait a minute
    made: list[Device] = []

    def make(place: Place, transport: str, **options: Any) -> tuple[Device, Kept]:
        kept = Kept()
        given = {
            "url": place.url(transport),
            "project": "room",
            "publisher": "sensor",
            "token": place.token,
            "queue": tmp_path / "queue",
            "on_accepted": lambda _, outcome: kept.accepted.append(outcome),
            "on_refused": lambda _, outcome: kept.refused.append(outcome),
            **options,
        }
        device = Device(**given)
        made.append(device)
        return device, kept

    yield make
    for device in made:
        device.close(flush_s=0)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.thorough("http")
def test_every_event_is_handled_once_in_order_and_with_what_was_given(
    place: Place, connect: Connect, transport: str
) -> None:
    before = place.count()
    device, kept = connect(place, transport)
    event_ids = [device.send("START", {"n": number}) for number in range(250)]
    assert device.flush(LIMIT_S)
    assert (device.pending, device.last_error) == (0, "")
    assert place.count() == before + 250
    assert len(kept.accepted) == 250
    rows = place.node.call("GET", "/event_log/room?limit=250&type=START").json["data"]
    assert [row["eventID"] for row in reversed(rows)] == event_ids
    shown = place.node.call("GET", f"/event_log/room/at/{rows[0]['place']}").json
    assert "249" in json.dumps(shown) or shown["payloadBytes"] == len('{"n":249}')


def test_over_http_a_device_learns_what_its_handlers_returned(
    place: Place, connect: Connect
) -> None:
    device, kept = connect(place, "http", batch_events=1)
    for event_type in ("START", "FAIL"):
        device.send(event_type, "x")
    assert device.flush(LIMIT_S)
    ((good,), (bad,)) = (outcome.results for outcome in kept.accepted)
    assert (good.code, good.error) == (0, "")
    assert bad.code == -1
    assert "unreachable" in bad.error


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_same_event_of_the_application_runs_once(
    place: Place, connect: Connect, transport: str
) -> None:
    before, name = place.count(), f"{ID}-{transport}"
    device, kept = connect(place, transport)
    for _ in range(3):
        device.send("START", "21.5", event_id=name)
        assert device.flush(LIMIT_S)
    device.send("START", "21.5", event_id=name, at=1_666_211_451)  # another time, another event
    assert device.flush(LIMIT_S)
    assert place.count() == before + 2
    if transport == "http":  # MQTT does not report it
        assert [outcome.replayed for outcome in kept.accepted] == [False, True, True, False]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_refused_events_are_told_and_hold_up_no_other(
    place: Place, connect: Connect, transport: str
) -> None:
    before = place.count()
    device, kept = connect(place, transport)
    for event_type in ("START", "NOBODY", "START"):
        device.send(event_type, "x")
    assert device.flush(LIMIT_S)
    assert place.count() == before + 2
    ((event, reason),) = device.refused()
    assert (event.event_type, event.payload) == ("NOBODY", b"x")
    assert [outcome.key for outcome in kept.refused] == ["StrategyNotFound"]
    assert reason.startswith("404 StrategyNotFound")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_events_refused_for_a_wrong_token_are_sent_again_with_the_right_one(
    place: Place, connect: Connect, transport: str
) -> None:
    before = place.count()
    device, kept = connect(place, transport, token="wrong")
    device.send("START", "x")
    assert device.flush(LIMIT_S)
    assert [outcome.status for outcome in kept.refused] == [401]
    device.close()
    assert place.count() == before
    device, kept = connect(place, transport)
    assert device.pending == 0
    assert device.resend_refused() == 1
    assert device.flush(LIMIT_S)
    assert place.count() == before + 1
    assert device.refused() == []


def test_an_unknown_project_is_told_for_each_event(place: Place, connect: Connect) -> None:
    for transport in TRANSPORTS:
        device, kept = connect(place, transport, project="nowhere")
        device.send("START")
        device.send("START")
        assert device.flush(LIMIT_S)
        assert [outcome.key for outcome in kept.refused] == ["ProjectNotFound"] * 2
        device.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.thorough("http")
def test_an_event_that_is_too_large_for_the_node_holds_up_no_other(
    start_node: StartNode, connect: Connect, transport: str
) -> None:
    place = furnish(start_node("--body-limit-bytes", "20000"))
    device, kept = connect(place, transport)
    # The last but one is larger than the node reads, and than a packet of MQTT may be.
    for size in (8_000, 8_000, 15_000, 8_000, 5_000_000, 8_000):
        device.send("START", b"x" * size)
    assert device.flush(LIMIT_S), device.last_error
    assert place.count() == 4
    assert [outcome.status for outcome in kept.refused] == [413, 413]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_closing_does_not_wait_for_a_server_that_never_answers(
    place: Place, connect: Connect, transport: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{transport}://127.0.0.1:{silent.getsockname()[1]}"
        device, _ = connect(place, transport, url=url, timeout_s=3_600)
        device.send("START")
        with silent.accept()[0] as connection:
            assert connection.recv(1)
            device.close(flush_s=0)


def test_a_name_that_no_project_has_is_refused_over_mqtt(place: Place, connect: Connect) -> None:
    with pytest.raises(DeviceError, match="project"):
        connect(place, "mqtt", project="room/#")


@pytest.mark.thorough
def test_a_traffic_limit_delays_events_and_loses_none(
    start_node: StartNode, connect: Connect
) -> None:
    limited = furnish(start_node())
    body = {"threshold": 4, "duration": "1s", "apiType": "EVENT"}
    assert limited.node.call("POST", "/traffic/x/room", body).status == 201
    for transport in TRANSPORTS:
        before = limited.count()
        device, kept = connect(limited, transport)
        for number in range(9):
            device.send("START", number)
        assert device.flush(LIMIT_S)
        assert limited.count() == before + 9
        assert kept.refused == []
        device.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.thorough("mqtt")
def test_a_device_that_begins_without_a_node_sends_when_there_is_one(
    start_node: StartNode, connect: Connect, transport: str
) -> None:
    place = furnish(start_node())
    place.node.stop()
    device, _ = connect(place, transport)
    for number in range(5):
        device.send("START", number)
    until(lambda: device.last_error, "the device finds nobody")
    assert not device.flush(0)
    assert device.pending == 5
    place.node.start()
    assert device.flush(LIMIT_S)
    assert (place.count(), device.last_error) == (5, "")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.thorough("mqtt")
def test_no_event_is_lost_or_doubled_when_the_node_is_killed_in_the_middle(
    start_node: StartNode, connect: Connect, transport: str
) -> None:
    place = furnish(start_node())
    device, kept = connect(place, transport, sync=False, batch_events=10)
    sent = 0
    for _ in range(3):
        goal = len(kept.accepted) + 30
        while len(kept.accepted) < goal:
            if device.pending < 50:
                device.send("START", sent)
                sent += 1
        place.node.kill()
        place.node.start()
    assert device.flush(LIMIT_S), device.last_error
    assert len(kept.accepted) == sent
    assert place.count() == sent


PROGRAM = """
import sys
from fieldbrook.device import Device
url, token, queue, count = sys.argv[1:]
device = Device(url, project="room", publisher="sensor", token=token, queue=queue, batch_events=7)
for number in range(int(count)):
    device.send("START", number)
    print(number, flush=True)
device.flush()
print("sent", flush=True)
device.close()
"""


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.thorough("http")
def test_no_event_is_lost_or_doubled_when_the_device_is_killed_in_the_middle(
    start_node: StartNode, tmp_path: Path, transport: str
) -> None:
    place = furnish(start_node())

    def start(count: int) -> subprocess.Popen[str]:
        arguments = (place.url(transport), place.token, str(tmp_path / "queue"), str(count))
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )

    returned = 0
    for lines in (5, 40, 75):
        process = start(100_000)
        assert process.stdout is not None
        for _ in range(lines):
            assert process.stdout.readline().strip().isdecimal()
        os.kill(process.pid, signal.SIGKILL)
        # Output that was not read yet counts, too.
        returned += lines + len(process.communicate()[0].splitlines())
    last = start(0)
    assert last.communicate(timeout=LIMIT_S)[0] == "sent\n"
    # At most one `send` of each process had kept its event and not printed its line.
    assert returned <= place.count() <= returned + 3
    rows = place.node.call("GET", "/event_log/room?limit=1000").json["data"]
    assert len({row["eventID"] for row in rows}) == place.count()


@pytest.mark.thorough
def test_a_full_queue_refuses_or_drops_as_it_was_told(
    start_node: StartNode, connect: Connect, tmp_path: Path
) -> None:
    place = furnish(start_node())
    place.node.stop()
    device, _ = connect(place, "http", limit_events=3)
    for number in range(3):
        device.send("START", number)
    with pytest.raises(QueueFullError, match="3 events"):
        device.send("START", 3)
    assert device.pending == 3
    device.close(flush_s=0)
    dropping, _ = connect(place, "http", limit_events=3, when_full="drop-oldest")
    for number in range(2):
        dropping.send("START", number)
    assert (dropping.pending, dropping.dropped) == (3, 2)
    place.node.start()
    assert dropping.flush(LIMIT_S)
    assert place.count() == 3


def test_two_devices_cannot_share_a_queue(place: Place, connect: Connect) -> None:
    connect(place, "http")
    with pytest.raises(QueueBusyError):
        connect(place, "http")


def test_an_invalid_event_is_refused_at_once(place: Place, connect: Connect) -> None:
    device, _ = connect(place, "http")
    with pytest.raises(InvalidEventError):
        device.send("START", "x", event_id="short")
    assert device.pending == 0


@pytest.mark.thorough
def test_tls_needs_the_authority_of_the_node(
    tmp_path: Path, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    node = TlsNode(tmp_path)
    try:
        node.log_in()
        place = furnish(node)
        stranger = make_files(tmp_path / "stranger")
        for transport in TRANSPORTS:
            before = place.count()
            url = place.url(transport, tls=True)
            device, _ = connect(place, transport, url=url, ca=stranger.ca)
            device.send("START", "x")
            until(lambda: device.last_error, "the node is not trusted")  # noqa: B023
            assert "certificate" in device.last_error
            device.close(flush_s=0)
            assert place.count() == before
            device, _ = connect(place, transport, url=url, ca=node.files.ca)
            assert device.flush(LIMIT_S), device.last_error
            assert place.count() == before + 1
            device.close()
    finally:
        node.stop()


def test_an_answer_that_is_not_a_nodes_refuses_nothing(place: Place, connect: Connect) -> None:
    """Such an answer comes from the login page of a network, for example; the node answers this
    path differently."""
    url = f"http://127.0.0.1:{place.node.dashboard_port}/docs"
    device, kept = connect(place, "http", url=url)
    device.send("START", "x")
    until(lambda: device.last_error, "the answer is none")
    assert device.pending == 1
    assert kept.refused == []


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.thorough("mqtt")
def test_a_connection_that_was_idle_is_opened_again(
    start_node: StartNode, connect: Connect, transport: str
) -> None:
    """A node that stops and starts closes it."""
    place = furnish(start_node())
    device, _ = connect(place, transport)
    device.send("START", 1)
    assert device.flush(LIMIT_S)
    place.node.stop()
    place.node.start()
    device.send("START", 2)
    assert device.flush(LIMIT_S)
    assert device.last_error == ""
    assert place.count() == 2


def test_the_event_of_a_callback_is_the_one_that_was_sent(place: Place, connect: Connect) -> None:
    seen: list[Event] = []
    device, _ = connect(place, "http", on_accepted=lambda event, _: seen.append(event))
    event_id = device.send("START", b"\0\xff", at=1_666_211_451.5)
    assert device.flush(LIMIT_S)
    assert seen == [Event("START", b"\0\xff", event_id, 1_666_211_451_500)]
