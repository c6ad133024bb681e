"""Every acknowledged event is stored exactly once: at length, under load, and over deaths of
processes."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.applets import TALLY
from tests.support.brokers import publish
from tests.support.nodes import RunningNode, flood, message, parts, strategies, until

HTTP_EVENTS = 30_000
MQTT_EVENTS = 10_000


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[tuple[RunningNode, str]]:
    """A node whose project `load` counts events, and the id of the applet that counts."""
    node = RunningNode(tmp_path / "n")
    node.log_in()
    node.create_project("load")
    yield node, node.deploy("load", TALLY, strategies=strategies(DEFAULT="quiet"))["appletID"]
    node.stop()


@pytest.mark.timeout(600)
@pytest.mark.thorough
def test_30000_events_over_http_and_10000_over_mqtt_are_counted_exactly(
    counting: tuple[RunningNode, str],
) -> None:
    node, applet_id = counting
    publisher = node.add_publisher("load", "d")
    body = json.dumps(message(publisher, b"x" * 100)).encode()
    # Many at once, so that a disk with slow syncs does not delay thousands of times.
    assert flood(node.http_port, "load", body, HTTP_EVENTS, depth=250) == HTTP_EVENTS
    assert node.count("load", applet_id) == HTTP_EVENTS
    assert publish(node.mqtt_port, "load", body, MQTT_EVENTS) == MQTT_EVENTS
    expected = HTTP_EVENTS + MQTT_EVENTS
    until(lambda: node.count("load", applet_id) >= expected, "all are handled")
    time.sleep(1.0)  # an extra one would come now
    assert node.count("load", applet_id) == expected


class Ledger:
    """A client that sends numbered events until it is stopped, and records the acknowledged
    ones."""

    def __init__(self, node: RunningNode, publisher: object) -> None:
        self.node, self.publisher = node, publisher
        self.acknowledged = 0
        self.unknown = 0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        body = json.dumps(message(self.publisher)).encode()
        while not self.stopping.is_set():
            try:
                status = self.node.call("POST", "/event/load", body, token="").status
            except OSError:
                self.unknown += 1
                time.sleep(0.01)
                continue
            if status == 201:
                self.acknowledged += 1
            else:
                assert status == 503, status
                self.unknown += 1

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join()


def after_more(ledgers: list[Ledger]) -> None:
    """Wait until the node has acknowledged more events."""
    before = sum(ledger.acknowledged for ledger in ledgers)
    until(lambda: sum(ledger.acknowledged for ledger in ledgers) > before + 50, "it serves")


def running(node: RunningNode, kind: str) -> int:
    """Return the process id of a part; wait if it is just starting."""
    return int(until(lambda: parts(node).get(kind), kind))


@pytest.mark.timeout(300)
def test_no_acknowledged_event_is_lost_when_processes_are_killed_under_load(
    counting: tuple[RunningNode, str],
) -> None:
    node, applet_id = counting
    ledgers = [Ledger(node, node.add_publisher("load", f"d{n}")) for n in range(4)]
    kinds = ["project", "fb-http:0", "project", "fb-registry", "project", "fb-root"]
    for kind in kinds:
        after_more(ledgers)
        os.kill(running(node, kind), signal.SIGKILL)
    after_more(ledgers)
    for ledger in ledgers:
        ledger.stop()
    acknowledged = sum(ledger.acknowledged for ledger in ledgers)
    unknown = sum(ledger.unknown for ledger in ledgers)
    assert acknowledged <= node.count("load", applet_id) <= acknowledged + unknown


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["project", "fb-mqtt:0"])
@pytest.mark.thorough("project", "fb-mqtt:0")
def test_no_acknowledged_mqtt_message_is_lost_when_a_process_is_killed(
    counting: tuple[RunningNode, str], kind: str
) -> None:
    node, applet_id = counting
    body = json.dumps(message(node.add_publisher("load", "d"))).encode()
    assert node.send("load", json.loads(body)).status == 201
    sent = 3000
    got: list[int] = []
    sender = threading.Thread(
        target=lambda: got.append(publish(node.mqtt_port, "load", body, sent))
    )
    sender.start()
    until(lambda: node.count("load", applet_id) > 200, "messages are handled")
    os.kill(parts(node)[kind], signal.SIGKILL)
    sender.join(90)
    assert got == [sent]  # a client that lost its broker sends again what had no PUBACK
    until(lambda: node.count("load", applet_id) >= sent + 1, "every message is handled")


@pytest.mark.thorough
def test_ctrl_c_stops_everything_and_the_node_starts_again_with_what_it_knew(
    tmp_path: Path,
) -> None:
    node = RunningNode(tmp_path / "n")
    node.log_in()
    node.create_project("load")
    applet_id = node.deploy("load", TALLY)["appletID"]
    publisher = node.add_publisher("load", "d")
    assert node.send("load", message(publisher)).status == 201
    pids = node.processes()
    node.stop(signal.SIGINT)
    assert node.process.returncode == 0
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "no process is left")
    node.start()
    try:
        assert node.send("load", message(publisher)).status == 201
        assert node.count("load", applet_id) == 2
    finally:
        node.stop()
