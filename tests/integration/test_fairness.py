"""Fairness: a project or publisher with many events takes no capacity from others."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.support.applets import TALLY
from tests.support.brokers import Device, Mosquitto
from tests.support.nodes import PREFIX, Answer, StartNode, message, strategies, until
from tests.support.tools import LIMIT_S

STRATEGIES = strategies("start", "burn")
_QUIET = 60
_FEW = 5
_BATCH = 8_192  # events: the limit of waiting events for one publisher


class Pair:
    """A node with a slow, noisy project and a quiet project."""

    def __init__(self, start: StartNode, *flags: str, command: str = "up") -> None:
        self.node = start(*flags, command=command)
        self.applets: dict[str, Any] = {}
        self.publishers: dict[str, Any] = {}
        for name in ("noisy", "quiet"):
            self.node.create_project(name)
            self.applets[name] = self.node.deploy(name, TALLY, strategies=STRATEGIES)
            self.publishers[name] = self.node.add_publisher(name, "d")

    def slow(self) -> dict[str, Any]:
        """Return an event whose handler computes for a fixed number of steps, so that all times
        depend on the machine's speed in the same way: on a busy machine, a fixed deadline would
        also end handlers of the quiet project."""
        return message(self.publishers["noisy"], b"", "BURN")

    def letters(self) -> int:
        """Return how many of the slow events have been handled, which are dead letters because
        their handler fails."""
        total: int = self.node.call("GET", "/dead_letter/noisy?limit=1").json["total"]
        return total

    def takes(self, project: str, event: dict[str, Any]) -> bool:
        """Return whether an event is handled."""
        return self.node.send(project, event).status == 201

    def counted(self) -> int:
        return self.node.count("quiet", self.applets["quiet"]["appletID"])

    def refuses(self) -> bool:
        """Return whether events of the noisy project have been refused because too many wait
        already.

        The answers of the batches do not show this at once: a batch is refused as a whole only if
        none of its events can wait, and batches that arrive together share the free places.
        """
        rows = self.node.call("GET", "/refused_event?limit=100").json["data"]
        return any((row["project"], row["error"]) == ("noisy", "TooManyRequests") for row in rows)

    @contextmanager
    def flood(self) -> Iterator[list[Answer]]:
        """Send slow events of two publishers until the end of the context."""
        answers: list[Answer] = []
        body = json.dumps({"events": [self.slow()] * _BATCH}).encode()
        over = threading.Event()
        connections = [self.node.connection(self.node.http_port) for _ in range(3)]

        def send(connection: HTTPConnection) -> None:
            try:
                while not over.is_set():
                    connection.request("POST", f"{PREFIX}/event/noisy", body)
                    reply = connection.getresponse()
                    answers.append(Answer(reply.status, dict(reply.getheaders()), reply.read()))
                    over.wait(0.05)
            except (OSError, HTTPException):
                if not over.is_set():
                    raise

        threads = [threading.Thread(target=send, args=[each]) for each in connections]
        for thread in threads:
            thread.start()
        try:
            until(self.refuses, "some are refused")
            yield answers
        finally:
            over.set()
            for thread, connection in zip(threads, connections, strict=True):
                # The waiting events take minutes.
                with suppress(OSError, AttributeError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
                thread.join()
                connection.close()


@pytest.fixture
def pair(start_node: StartNode) -> Pair:
    return Pair(start_node, "--body-limit-bytes", str(16 << 20))


def test_a_quiet_projects_events_are_all_taken_while_a_noisy_one_is_refused(pair: Pair) -> None:
    with pair.flood() as answers:
        for number in range(_QUIET):
            sent = message(pair.publishers["quiet"], b"%d" % number, "START")
            answer = pair.node.send("quiet", sent)
            assert answer.status == 201, answer
            assert answer.json["results"][0]["code"] == 0
        assert pair.counted() == _QUIET
        assert {answer.status for answer in answers} <= {201, 429}


@pytest.mark.thorough
def test_a_quiet_publisher_has_its_turn_beside_a_noisy_one_of_its_project(pair: Pair) -> None:
    quiet = pair.node.add_publisher("noisy", "quiet")
    with pair.flood():
        for number in range(5):
            # On a busy machine, the running events may take 15 s.
            until(partial(pair.takes, "noisy", message(quiet, b"%d" % number, "START")), "its turn")
        assert pair.letters() < _BATCH // 2, "most of the noisy one's still wait"


@pytest.mark.parametrize("kind", ["own port", "external"])
@pytest.mark.thorough("external")
def test_a_device_that_floods_its_slow_project_over_mqtt_holds_up_no_other(
    start_node: StartNode, tmp_path: Path, kind: str
) -> None:
    if kind == "external":
        (tmp_path / "b").mkdir()
        with Mosquitto(tmp_path / "b") as broker:
            _flood_over_mqtt(
                Pair(start_node, "--mqtt-broker", f"127.0.0.1:{broker.port}", command="node"),
                broker.port,
            )
    else:
        pair = Pair(start_node)
        _flood_over_mqtt(pair, pair.node.mqtt_port)


def _flood_over_mqtt(pair: Pair, port: int) -> None:
    """Check that events of another project, and of another device of the same project, are handled
    long before the flood is over."""
    slow = json.dumps(pair.slow()).encode()
    quick = json.dumps(message(pair.publishers["quiet"], b"x", "START")).encode()
    patient = pair.node.add_publisher("noisy", "patient")
    beside = json.dumps(message(patient, b"x", "START")).encode()
    applet_id = pair.applets["noisy"]["appletID"]
    with Device(port, "noisy") as noisy, Device(port, "quiet") as quiet:
        flood = threading.Thread(target=_flood, args=(noisy, slow))
        flood.start()
        until(lambda: pair.letters() > 0, "the flood is at work")
        quiet.publish_all([("noisy", beside)] * _FEW)
        quiet.publish_all([("quiet", quick)] * _QUIET)
        until(lambda: pair.counted() == _QUIET, "the quiet one's events")
        until(
            lambda: pair.node.count("noisy", applet_id) == _FEW,
            "those of a device beside the noisy one",
        )
        assert pair.letters() < 1_500  # most events of the noisy project still wait
    flood.join(LIMIT_S)
    assert not flood.is_alive()


def _flood(noisy: Device, body: bytes) -> None:
    """Publish until the connection is closed, which happens before all is acknowledged."""
    with suppress(OSError):
        noisy.publish_all([("noisy", body)] * 6_000)
