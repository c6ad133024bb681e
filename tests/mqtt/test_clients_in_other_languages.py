"""MQTT clients for Go, Java and Rust of other projects, unmodified, with the node's own server.

One program for each language forwards commands to a client: see `go/main.go`.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.mqtt.conftest import PROJECT, Site
from tests.support.mqtt_client import new_id
from tests.support.nodes import until
from tests.support.tools import LIMIT_S, built, require_tool

HERE = Path(__file__).parent


def _go(library: str) -> list[str]:
    return [str(built(HERE / "go") / "client"), library]


def _java(library: str) -> list[str]:
    build = built(HERE / "java")
    # A short-lived process needs neither the optimising compiler nor much memory.
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx64m"]
    path = f"{build / 'classes'}:{build / 'lib'}/*"
    return [require_tool("java"), *options, "-cp", path, "Client", library]


def _rust(version: str) -> list[str]:
    return [str(built(HERE / "rust") / "debug" / "client"), version]


# A client's name: the version of MQTT and the command that starts it.
CLIENTS: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "paho.mqtt.golang": ("3.1.1", lambda: _go("paho.mqtt.golang")),
    "paho.golang": ("5.0", lambda: _go("paho.golang")),
    "paho.mqtt.java": ("3.1.1", lambda: _java("paho")),
    "hivemq-mqtt-client": ("5.0", lambda: _java("hivemq")),
    "rumqttc": ("3.1.1", lambda: _rust("4")),
    "rumqttc-v5": ("5.0", lambda: _rust("5")),
}


class Client:
    """A running program that carries out commands with a client's library."""

    def __init__(self, site: Site, name: str) -> None:
        self.version, command = CLIENTS[name]
        # The qualities of service with which the client repeats messages according to the standard.
        # rumqttc 0.25 does not mark repeated messages (DUP), against [MQTT-3.3.1-1], so they are
        # handled as new. When it reconnects, it sends all waiting messages regardless of the
        # receive maximum: packet ids collide, and it loses messages. paho.mqtt.golang 1.5.1 sends a
        # message of QoS 2 again after its PUBREL, against [MQTT-4.3.3-1].
        wrong = {"rumqttc": (1, 2), "rumqttc-v5": (1, 2), "paho.mqtt.golang": (2,)}
        self.resends_correctly = {1, 2} - set(wrong.get(name, ()))
        self._process = subprocess.Popen(
            [*command(), str(site.node.mqtt_port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ask(self, *words: str | int) -> list[str]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        limit = threading.Timer(LIMIT_S, process.kill)
        limit.start()
        try:
            process.stdin.write("\t".join(map(str, words)) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        finally:
            limit.cancel()
        assert answer, f"no answer to {words[:2]}"
        return answer.removesuffix("\n").split("\t")

    def connect(self, name: str, *will: str, kept: bool = False) -> bool:
        """Connect; return whether the server had a session of that name."""
        return self._ask("connect", name, "true" if kept else "false", *will) == ["true"]

    def subscribe(self, topic_filter: str, qos: int) -> None:
        assert self._ask("subscribe", topic_filter, qos) == [str(qos)]

    def publish(self, topic: str, payload: str, qos: int, *, retain: bool = False) -> int:
        """Publish; return the reason code of the acknowledgement, when it has arrived."""
        (code,) = self._ask("publish", topic, payload, qos, "true" if retain else "false")
        return int(code)

    def start(self, topic: str, qos: int, payloads: Iterable[str]) -> None:
        """Publish several messages without waiting."""
        self._ask("start", topic, qos, *payloads)

    def reconnected(self) -> None:
        """Wait until the client has reconnected by itself."""
        self._ask("reconnected")

    def finish(self) -> None:
        """Wait until all started messages are acknowledged."""
        self._ask("finish")

    def receive(self, count: int) -> list[tuple[str, str, int, bool]]:
        """Return topic, payload, QoS and retain flag of the next messages."""
        words = iter(self._ask("receive", count))
        found = zip(words, words, words, words, strict=True)
        return [(topic, payload, int(qos), kept == "true") for topic, payload, qos, kept in found]

    def disconnect(self) -> None:
        self._ask("disconnect")

    def kill(self) -> None:
        """End the program like a power failure."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture(params=CLIENTS)
def start(site: Site, request: pytest.FixtureRequest) -> Iterator[Callable[[], Client]]:
    """Starts programs with one of the clients."""
    running: list[Client] = []

    def begin() -> Client:
        running.append(Client(site, request.param))
        return running[-1]

    yield begin
    for each in running:
        each.kill()


@pytest.fixture
def client(start: Callable[[], Client]) -> Client:
    return start()


@pytest.fixture
def topic() -> str:
    """Return a topic that no other test uses."""
    return f"lake/{new_id('other')}"


def test_a_client_finds_its_session_again(client: Client, topic: str) -> None:
    name = new_id("kept")
    assert not client.connect(name, kept=True)
    client.subscribe(topic, 1)
    client.disconnect()
    assert client.connect(name, kept=True)
    assert client.publish(topic, "again", 1) == 0  # it is still subscribed
    assert client.receive(1) == [(topic, "again", 1, False)]
    client.disconnect()
    assert not client.connect(name)


def test_an_event_has_been_handled_when_its_acknowledgement_comes(
    site: Site, client: Client
) -> None:
    client.connect(new_id("events"), kept=True)
    for qos in (1, 2):
        payload = new_id("event").encode()
        assert client.publish(PROJECT, site.event(payload, "ECHO").decode(), qos) == 0
        assert site.last() == payload
    assert client.publish(PROJECT, "{}", 1) == (0x99 if client.version == "5.0" else 0)


def test_messages_come_with_their_quality_of_service(client: Client, topic: str) -> None:
    client.connect(new_id("reader"))
    for qos in (0, 1, 2):
        client.subscribe(f"{topic}/{qos}", qos)
        client.publish(f"{topic}/{qos}", f"n{qos}", qos)
        assert client.receive(1) == [(f"{topic}/{qos}", f"n{qos}", qos, False)]


def test_messages_wait_for_a_client_that_is_away(client: Client, topic: str) -> None:
    name, count = new_id("away"), 30
    client.connect(name, kept=True)
    client.subscribe(topic, 2)
    client.disconnect()
    client.connect(new_id("writer"))
    for number in range(count):
        client.publish(topic, f"{number}", 1 + number % 2)
    client.disconnect()
    assert client.connect(name, kept=True)
    found = client.receive(count)
    for qos in (1, 2):  # some clients deliver a message of QoS 2 after PUBREL
        expected = [(topic, f"{number}", qos, False) for number in range(qos - 1, count, 2)]
        assert [each for each in found if each[2] == qos] == expected


def test_retained_messages_come_with_a_subscription(client: Client, topic: str) -> None:
    client.connect(new_id("retained"))
    for qos in (0, 1, 2):
        client.publish(f"{topic}/{qos}", f"k{qos}", qos, retain=True)
    client.subscribe(f"{topic}/#", 2)
    expected = [(f"{topic}/{qos}", f"k{qos}", qos, True) for qos in (0, 1, 2)]
    assert sorted(client.receive(3)) == expected
    client.disconnect()
    client.connect(new_id("retained"))
    for qos in (0, 1, 2):
        client.publish(f"{topic}/{qos}", "", 1, retain=True)  # removes the retained message
    client.publish(f"{topic}/end", "end", 1, retain=True)
    client.subscribe(f"{topic}/#", 2)
    assert client.receive(1) == [(f"{topic}/end", "end", 1, True)]


def test_the_will_of_a_client_is_published_when_it_dies(
    site: Site, start: Callable[[], Client], topic: str
) -> None:
    reader, leaves, dies, sends = start(), start(), start(), start()
    reader.connect(new_id("reader"))
    reader.subscribe(topic, 1)
    leaves.connect(new_id("leaves"), topic, "left")
    leaves.disconnect()
    dies.connect(new_id("dies"), topic, "died")
    dies.kill()
    assert reader.receive(1) == [(topic, "died", 1, False)]
    payload = new_id("event").encode()
    sends.connect(new_id("dies"), PROJECT, site.event(payload, "ECHO").decode())
    sends.kill()
    until(lambda: site.last() == payload, "the will is handled as an event")


def _has_counted(site: Site, at_least: int) -> bool:
    return site.count() >= at_least


def test_events_run_once_although_the_gateway_is_killed_meanwhile(
    site: Site, client: Client
) -> None:
    client.connect(new_id("crash"), kept=True)
    before = site.count()
    # No two events are equal: after a crash, equal events of a client that reuses a packet id at
    # once would be taken for duplicates.
    sizes = dict.fromkeys(client.resends_correctly, 200) or {1: 50}
    for qos, size in sizes.items():
        events = [site.event(b"%d %d" % (qos, number)).decode() for number in range(size)]
        client.start(PROJECT, qos, events)
    until(partial(_has_counted, site, before + 1), "some are handled")
    site.kill("fb-mqtt:0")
    client.reconnected()
    client.finish()
    expected = before + sum(sizes.values())
    until(partial(_has_counted, site, expected), "all are handled")
    assert client.publish(PROJECT, site.event(b"", "ECHO").decode(), 1) == 0
    if client.resends_correctly:
        assert site.count() == expected
