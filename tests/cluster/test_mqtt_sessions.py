"""An MQTT session moves with its client from host to host."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.gateway.mqtt.protocol.packets import (
    VERSION_311,
    Disconnect,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
)
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from tests.support.applets import SENDER, TALLY
from tests.support.hosts import Cluster, Host
from tests.support.mqtt_client import MqttClient, new_id
from tests.support.nodes import message, strategies

PROJECT, TOPIC = "mail", "out/readings"
COUNTING = "room"


class Site:
    """Three hosts, and a project whose handler publishes each event on `TOPIC`."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder, self._prepare)
        self.hosts = self.cluster.hosts

    def _prepare(self, host: Host) -> None:
        host.create_project(PROJECT)
        host.deploy(PROJECT, SENDER, strategies=strategies(DEFAULT="publish"))
        self.publisher: Any = host.add_publisher(PROJECT, "sensor")
        host.create_project(COUNTING)
        self.tally: str = host.deploy(COUNTING, TALLY)["appletID"]
        self.counted: Any = host.add_publisher(COUNTING, "meter")
        privileges = [{"name": "Event", "perm": "READ_WRITE"}]
        body = {"name": "subscriber", "privileges": privileges}
        key = host.call("POST", "/account_access_key", body).json["accessKey"]
        self.login = {"username": "admin", "password": key}

    def publish(self, text: str, host: int = 0) -> None:
        event = message(self.publisher, text.encode())
        assert self.hosts[host].send(PROJECT, event).status == 201

    def client(self, host: int, client_id: str, *, present: bool | None = None) -> MqttClient:
        """A client whose session outlives its connection."""
        client = MqttClient(self.hosts[host].mqtt_port)
        answer = client.connect(client_id, clean=False, expiry_s=600, **self.login)
        assert answer.code is ReasonCode.SUCCESS
        assert present in (None, answer.session_present)
        return client

    def subscriber(self, host: int, qos: int = 1) -> tuple[str, MqttClient]:
        """Make a client that has just subscribed; return it and its id."""
        client_id = new_id()
        client = self.client(host, client_id, present=False)
        assert client.subscribe(TOPIC, qos) == qos
        return client_id, client

    def sessions(self, client_id: str) -> list[int]:
        """Return the hosts that have a session of a client."""
        path = f"/mqtt/session/{client_id}"
        found = [host.call("GET", path).status for host in self.hosts]
        assert set(found) <= {200, 404}
        return [number for number, status in enumerate(found) if status == 200]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("hosts"))
    yield made
    made.cluster.kill()


def received(client: MqttClient) -> str:
    """Acknowledge the next message and return its text."""
    packet = client.expect(Publish)
    client.send(PubAck(packet.packet_id))
    return packet.payload.decode()


def is_acknowledged(answer: PubAck | PubRec | None) -> bool:
    return answer is not None and answer.code is ReasonCode.SUCCESS


def test_the_messages_of_an_absent_client_are_sent_on_another_host(site: Site) -> None:
    client_id, client = site.subscriber(0)
    client.socket.close()
    texts = [f"absent {number}" for number in range(6)]
    for number, text in enumerate(texts):
        site.publish(text, number % 3)
    with site.client(1, client_id, present=True) as client:
        assert [received(client) for _ in texts] == texts
        site.publish("present", 2)
        assert received(client) == "present"
    assert site.sessions(client_id) == [1]
    with site.client(0, client_id, present=True) as client:
        site.publish("back", 1)
        assert received(client) == "back"


def test_an_unacknowledged_message_is_repeated_with_its_packet_id(site: Site) -> None:
    client_id, client = site.subscriber(0)
    site.publish("unacknowledged")
    first = client.expect(Publish)
    client.socket.close()
    with site.client(2, client_id, present=True) as client:
        again = client.expect(Publish)
        assert (again.payload, again.packet_id) == (b"unacknowledged", first.packet_id)
        assert again.dup
        client.send(PubAck(again.packet_id))
        site.publish("next")
        following = client.expect(Publish)
        assert following.payload == b"next"
        assert not following.dup
        assert following.packet_id != first.packet_id
        client.send(PubAck(following.packet_id))


def test_a_released_message_of_qos_2_is_completed_on_another_host(site: Site) -> None:
    client_id, client = site.subscriber(1, qos=2)
    body = {"topic": TOPIC, "payload": "once", "qos": 2}
    assert site.hosts[1].call("POST", "/mqtt/publish", body).status == 201
    with client:
        found = client.expect(Publish)
        assert (found.payload, found.qos) == (b"once", 2)
        client.send(PubRec(found.packet_id))
        assert client.expect(PubRel).packet_id == found.packet_id
    with site.client(0, client_id, present=True) as client:
        assert client.expect(PubRel).packet_id == found.packet_id
        client.send(PubComp(found.packet_id))
        site.publish("after it")
        assert received(client) == "after it"
    assert site.sessions(client_id) == [0]


def test_an_event_that_is_repeated_on_another_host_runs_once(site: Site) -> None:
    client_id = new_id()
    event = json.dumps(message(site.counted, b"x")).encode()
    with site.client(0, client_id) as client:
        assert is_acknowledged(client.publish(COUNTING, event, packet_id=9))
    for host in (1, 2, 0):
        with site.client(host, client_id, present=True) as client:
            assert is_acknowledged(client.publish(COUNTING, event, dup=True, packet_id=9))
    assert site.hosts[0].count(COUNTING, site.tally) == 1
    with site.client(1, client_id, present=True) as client:
        assert is_acknowledged(client.publish(COUNTING, event, packet_id=10))
    assert site.hosts[0].count(COUNTING, site.tally) == 2


@pytest.mark.parametrize("clean", [True, False])
def test_the_connection_to_the_previous_host_ends(site: Site, clean: bool) -> None:
    client_id, old = site.subscriber(0)
    new = MqttClient(site.hosts[1].mqtt_port)
    with old, new:
        answer = new.connect(client_id, clean=clean, expiry_s=600, **site.login)
        assert answer.session_present is not clean
        assert old.expect(Disconnect).code is ReasonCode.SESSION_TAKEN_OVER
    assert site.sessions(client_id) == [1]


def test_a_session_of_version_311_moves(site: Site) -> None:
    client_id = new_id()
    with MqttClient(site.hosts[0].mqtt_port, VERSION_311) as client:
        assert not client.connect(client_id, clean=False, **site.login).session_present
        assert client.subscribe(TOPIC, 1) == 1
    site.publish("to 3.1.1")
    with MqttClient(site.hosts[1].mqtt_port, VERSION_311) as client:
        assert client.connect(client_id, clean=False, **site.login).session_present
        assert received(client) == "to 3.1.1"
    with MqttClient(site.hosts[2].mqtt_port, VERSION_311) as client:
        assert not client.connect(client_id, clean=True, **site.login).session_present
    assert site.sessions(client_id) == []


def test_no_message_is_lost_while_a_client_moves(site: Site) -> None:
    client_id, client = site.subscriber(0)
    texts = [f"moving {number}" for number in range(150)]

    def send() -> None:
        for text in texts:
            site.publish(text, 1)

    sending = threading.Thread(target=send)
    sending.start()
    found: dict[str, None] = {}
    moves = 0
    while len(found) < len(texts):
        for _ in range(7):
            found[received(client)] = None
            if len(found) == len(texts):
                break
        client.socket.close()
        moves += 1
        client = site.client(moves % 3, client_id, present=True)
    sending.join()
    client.socket.close()
    assert list(found) == texts
    assert moves > 15


def test_a_client_that_connects_to_two_hosts_at_once_has_one_session(site: Site) -> None:
    client_id, client = site.subscriber(0)
    client.socket.close()
    codes: list[ReasonCode] = []

    def connect(host: int) -> None:
        with MqttClient(site.hosts[host].mqtt_port) as client:
            try:
                answer = client.connect(client_id, clean=False, expiry_s=600, **site.login)
            except EOFError:  # the other connection came before the answer
                codes.append(ReasonCode.SESSION_TAKEN_OVER)
            else:
                codes.append(answer.code)

    for _ in range(5):
        both = [threading.Thread(target=connect, args=[host]) for host in (0, 1)]
        for one in both:
            one.start()
        for one in both:
            one.join()
    assert len(codes) == 10
    assert set(codes) <= {
        *(ReasonCode.SUCCESS, ReasonCode.SERVER_BUSY, ReasonCode.SERVER_UNAVAILABLE),
        ReasonCode.SESSION_TAKEN_OVER,
    }
    site.publish("to one session")
    with site.client(2, client_id, present=True) as client:
        assert received(client) == "to one session"
    assert site.sessions(client_id) == [2]


def test_a_client_of_a_dead_host_begins_a_new_session_and_the_old_one_goes(site: Site) -> None:
    client_id, client = site.subscriber(2)
    client.socket.close()
    site.hosts[2].kill()
    with site.client(0, client_id, present=False) as client:
        assert client.subscribe(TOPIC, 1) == 1
    site.hosts[2].start()
    site.cluster.await_up()
    assert site.sessions(client_id) == [0, 2]
    site.publish("to the newer session")
    with site.client(0, client_id, present=True) as client:
        assert received(client) == "to the newer session"
    assert site.sessions(client_id) == [0]
