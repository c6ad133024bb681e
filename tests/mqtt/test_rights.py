"""Who receives messages in queues, retained messages, messages of handlers, and replies below
`ack/`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import compress
from typing import Any

import pytest

from fieldbrook.gateway.mqtt.protocol.packets import (
    Disconnect,
    PingReq,
    PingResp,
    PubAck,
    Publish,
    Will,
)
from fieldbrook.gateway.mqtt.protocol.properties import Properties
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from tests.mqtt.conftest import PROJECT, Site
from tests.support.applets import SENDER
from tests.support.mqtt_client import MqttClient, new_id
from tests.support.nodes import RunningNode, message, parts, strategies, until

OTHER = "moor"


def _owner(site: Site) -> MqttClient:
    """Connect as an administrator."""
    body = {"name": new_id("key"), "privileges": [{"name": "Event", "perm": "READ_WRITE"}]}
    key = site.node.call("POST", "/account_access_key", body).json["accessKey"]
    client = site.client()
    assert client.connect(username="admin", password=key).code == 0
    return client


def _gets_nothing(client: MqttClient) -> None:
    """Check that a client gets nothing: an earlier message would arrive before the answer."""
    client.send(PingReq())
    client.expect(PingResp)


def _event_topic(publisher: Any) -> str:
    return f"{PROJECT}/push/{publisher['token']}/ECHO"


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.thorough("1", "2")
def test_what_waits_for_a_client_without_the_right_any_more_is_dropped(
    new_site: Callable[..., Site], qos: int
) -> None:
    site = new_site("--mqtt-device-topics", "lake/#, open/#")
    client_id = new_id("away")
    with site.kept(client_id) as client:
        client.subscribe("open/#", qos)
        client.subscribe("lake/#", qos)
    with _owner(site) as owner:
        for number in range(120):  # more than one page of the store
            owner.publish(f"open/{number}", b"secret", qos)
        owner.publish("lake/news", b"news", qos)
    site.node.stop()
    site.node.set_flags("--mqtt-device-topics", "lake/#")
    site.node.start()
    with site.kept(client_id) as client:
        assert client.receive().topic == "lake/news"
        _gets_nothing(client)
        assert site.node.call("GET", f"/mqtt/session/{client_id}").json["queued"] == 0


def test_replies_that_wait_in_a_session_without_a_login_go_to_nobody_else(site: Site) -> None:
    client_id = new_id("nobody")
    with site.kept(client_id) as device:
        device.subscribe("ack/#")
        device.subscribe("lake/after")
        device.send(Publish(_event_topic(site.publisher), b"", 1, packet_id=1))
        found = [device.read(), device.read()]
        assert {type(each) for each in found} == {PubAck, Publish}  # not acknowledged
    with site.client() as writer:
        writer.connect()
        writer.publish("lake/after", b"")
    with site.kept(client_id) as thief:
        assert thief.receive().topic == "lake/after"
        _gets_nothing(thief)
        assert site.node.call("GET", f"/mqtt/session/{client_id}").json["queued"] == 0


def test_replies_that_wait_for_a_publisher_are_there_when_it_logs_in_again(site: Site) -> None:
    client_id = new_id("login")
    login = {"username": "gauge", "password": site.publisher["token"]}
    with site.kept(client_id, **login) as own:
        own.subscribe("ack/#")
    with site.client() as device:
        device.connect()
        device.publish(_event_topic(site.publisher), b"")
        device.publish(_event_topic(site.other), b"")
    with site.kept(client_id, **login) as own:
        assert own.receive().topic == "ack/gauge"
        _gets_nothing(own)


def test_a_retained_message_below_ack_goes_to_its_publisher_alone(site: Site) -> None:
    with _owner(site) as owner, site.client() as own, site.client() as stranger:
        owner.publish("ack/gauge", b"kept", retain=True)
        own.connect(username="gauge", password=site.publisher["token"])
        stranger.connect()
        for client in (own, stranger):
            assert client.subscribe("ack/#") == 1
        assert own.receive().payload == b"kept"
        _gets_nothing(stranger)
        owner.publish("ack/gauge", b"", retain=True)


def test_a_publisher_reads_nothing_of_another_projects_publisher_with_its_key(site: Site) -> None:
    """The handler of the other project publishes on `ack/gauge`."""
    node = site.node
    node.create_project(OTHER)
    applet = SENDER.replace(b'"out/readings"', b'"ack/gauge\\00\\00\\00"').replace(
        b"(i32.const 64) (i32.const 12)", b"(i32.const 64) (i32.const 9)"
    )
    node.deploy(OTHER, applet, strategies=strategies(DEFAULT="publish"))
    same_key = node.add_publisher(OTHER, "gauge")
    with site.client() as own, site.client() as sender, site.client() as other:
        own.connect(username=f"{PROJECT}/gauge", password=site.publisher["token"])
        sender.connect()
        other.connect(username=f"{OTHER}/gauge", password=same_key["token"])
        for client in (own, sender, other):
            assert client.subscribe("ack/gauge") == 1
        sender.send(Publish(_event_topic(site.publisher), b"", 1, packet_id=9))
        assert {type(sender.read()), type(sender.read())} == {PubAck, Publish}
        own.receive()
        assert node.send(OTHER, message(same_key, b"for the other")).status == 201
        assert other.receive().payload == b"for the other"
        _gets_nothing(own)
        _gets_nothing(sender)
        for topic in (f"{OTHER}/gauge/mode", f"{OTHER}/{same_key['publisherID']}/mode"):
            refused = own.publish(topic, b"no")
            assert refused is not None
            assert refused.code >= 0x80
            assert own.subscribe(topic) >= 0x80


def test_a_key_that_is_the_id_of_another_publisher_gives_no_right_to_its_topics(site: Site) -> None:
    number = site.other["publisherID"]
    imitator = site.node.add_publisher(PROJECT, number)
    with site.client() as client, site.client() as other:
        client.connect(username=imitator["publisherID"], password=imitator["token"])
        assert client.subscribe(f"{PROJECT}/{number}/#") >= 0x80
        assert client.subscribe(f"{PROJECT}/{imitator['publisherID']}/#") == 1
        other.connect(username="valve", password=site.other["token"])
        assert other.subscribe(f"{PROJECT}/{number}/#") == 1


class _Owner:
    """An account that is not an administrator, on the node of a site."""

    def __init__(self, site: Site) -> None:
        self.site, self.name = site, new_id("owner")
        self.login = {"username": self.name, "password": "correct horse"}
        site.node.call("POST", "/register/admin", {**self.login, "role": "DEVELOPER"})

    @contextmanager
    def acting(self) -> Iterator[RunningNode]:
        """The node; this account makes the calls until the end of the context."""
        node = self.site.node
        administrator = node.token
        node.token = node.call("PUT", "/login", self.login, token="").json["token"]
        try:
            yield node
        finally:
            node.token = administrator

    def connected(self) -> MqttClient:
        """Connect a client with a new access key of the account."""
        body = {"name": new_id("key"), "privileges": [{"name": "Event", "perm": "READ_WRITE"}]}
        with self.acting() as node:
            key = node.call("POST", "/account_access_key", body).json["accessKey"]
        client = self.site.client()
        assert client.connect(username=self.name, password=key).code == 0
        return client


def _sender_to(topic: str) -> bytes:
    """Return a module whose handler `publish` sends its payload to a topic."""
    text = topic.encode()
    return SENDER.replace(b'(i32.const 64) "out/readings"', b'(i32.const 512) "%b"' % text).replace(
        b"(i32.const 64) (i32.const 12)", b"(i32.const 512) (i32.const %d)" % len(text)
    )


def test_no_handler_sends_messages_to_the_devices_of_another_account(site: Site) -> None:
    victim, other = _Owner(site), _Owner(site)
    with victim.acting() as node:
        node.create_project("orchard")
        device = node.add_publisher("orchard", "sluice")
        node.deploy(
            "orchard", _sender_to("orchard/sluice/mode"), strategies=strategies(DEFAULT="publish")
        )
    with other.acting() as node:
        node.create_project("intruder")
        publisher = node.add_publisher("intruder", "p")
        node.deploy(
            "intruder", _sender_to("orchard/sluice/mode"), strategies=strategies(DEFAULT="publish")
        )
    with site.client() as sluice:
        sluice.connect(username="sluice", password=device["token"])
        assert sluice.subscribe("orchard/sluice/#") == 1
        answer = site.node.send("intruder", message(publisher, b"open"))
        assert [row["code"] for row in answer.json["results"]] == [-1]
        assert site.node.send("orchard", message(device, b"closed")).status == 201
        assert sluice.receive().payload == b"closed"
        _gets_nothing(sluice)
    with other.acting() as node:
        logged = node.call("GET", "/applet_log/intruder").json["data"]
        assert any("belongs to project orchard of another account" in r["msg"] for r in logged)
        node.call("DELETE", "/project/intruder")
    with victim.acting() as node:
        node.call("DELETE", "/project/orchard")


def test_a_message_that_was_sent_before_its_topic_got_an_owner_does_not_reach_them(
    new_site: Callable[..., Site],
) -> None:
    """The message waits in the outbox while the MQTT process is stopped."""
    site = new_site()
    other, late = _Owner(site), _Owner(site)
    with other.acting() as node:
        node.create_project("intruder")
        publisher = node.add_publisher("intruder", "p")
        node.deploy(
            "intruder", _sender_to("harbour/buoy/mode"), strategies=strategies(DEFAULT="publish")
        )
    pid = parts(site.node)["fb-mqtt:0"]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert site.node.send("intruder", message(publisher, b"dark")).status == 201
        with late.acting() as node:
            node.create_project("harbour")
    finally:
        os.kill(pid, signal.SIGCONT)
    with late.acting() as node:
        buoy = node.add_publisher("harbour", "buoy")

    def refused() -> bool:
        with other.acting() as node:
            sends = node.call("GET", "/event_log/intruder/flow").json["sends"]
        return [each["refused"] for each in sends] == [1]

    until(refused, "the message is refused")
    with site.client() as client:
        client.connect(username="buoy", password=buoy["token"])
        assert client.subscribe("harbour/buoy/#") == 1
        _gets_nothing(client)


def test_the_next_owner_of_a_projects_name_gets_nothing_that_was_retained_before(
    site: Site,
) -> None:
    former, later = _Owner(site), _Owner(site)
    with former.acting() as node:
        node.create_project("dune")
    with former.connected() as client:
        for number in range(3):
            topic = f"dune/gauge/{number}"
            answer = client.publish(topic, b"of the former owner", retain=True)
            assert answer is not None
            assert answer.code < 0x80
    with former.acting() as node:
        node.call("DELETE", "/project/dune")
    with later.acting() as node:
        node.create_project("dune")
    with later.connected() as client:
        assert client.subscribe("dune/#") == 1
        _gets_nothing(client)
        client.publish("dune/gauge/0", b"of the present owner", 0, retain=True)
        assert client.receive().payload == b"of the present owner"

    def retained() -> list[str]:
        rows = site.node.call("GET", "/mqtt/retained").json["data"]
        return [row["topic"] for row in rows if row["topic"].startswith("dune/")]

    until(lambda: retained() == ["dune/gauge/0"], "the others are removed")
    with later.acting() as node:
        node.call("DELETE", "/project/dune")
    until(lambda: retained() == [], "the last one is removed")


@pytest.mark.thorough
def test_messages_retained_for_a_project_are_gone_if_it_was_removed_while_mqtt_was_down(
    new_site: Callable[..., Site],
) -> None:
    site = new_site()
    former, later = _Owner(site), _Owner(site)
    with former.acting() as node:
        node.create_project("dune")
    with former.connected() as client:
        client.publish("dune/gauge/0", b"of the former owner", retain=True)
    pid = parts(site.node)["fb-mqtt:0"]
    os.kill(pid, signal.SIGSTOP)
    with former.acting() as node:
        node.call("DELETE", "/project/dune")
    with later.acting() as node:
        node.create_project("dune")
    os.kill(pid, signal.SIGKILL)
    until(lambda: parts(site.node).get("fb-mqtt:0", pid) != pid, "a new MQTT process runs")
    until(lambda: site.node.call("GET", "/mqtt/retained").status == 200, "it answers")
    with later.connected() as client:
        assert client.subscribe("dune/#") == 1
        _gets_nothing(client)


def test_the_will_of_a_login_that_has_ended_is_not_published(site: Site) -> None:
    owner = _Owner(site)
    with owner.acting() as node:
        node.create_project("cliff")
        lamp, bell = (node.add_publisher("cliff", key) for key in ("lamp", "bell"))

    def leave(publisher: Any, delay_s: int) -> None:
        """Connect with a will, and close the connection without a DISCONNECT."""
        key = publisher["key"]
        will = Will(f"cliff/{key}/gone", b"", 1, True, Properties(will_delay_interval=delay_s))
        login = {"username": key, "password": publisher["token"]}
        with site.kept(new_id(key), will=will, **login):
            pass

    with owner.connected() as reader:
        assert reader.subscribe("cliff/#") == 1
        leave(lamp, 5)  # so that the login certainly ends before
        with owner.acting() as node:
            node.call("POST", f"/publisher/data/{lamp['publisherID']}/token", {})
        leave(bell, 5)
        assert reader.receive().topic == "cliff/bell/gone"


def test_a_connection_ends_with_the_time_of_its_token(new_site: Callable[..., Site]) -> None:
    site = new_site()
    node, path = site.node, f"/publisher/data/{site.publisher['publisherID']}/token"
    ends = datetime.now(UTC) + timedelta(seconds=3)
    token = node.call("POST", path, {"expiresAt": ends.isoformat()}).json["token"]
    with site.client() as client, site.client() as other:
        will = Will("meadow/gauge/gone", b"", 1)
        client.connect(username="gauge", password=token, will=will)
        other.connect(username="valve", password=site.other["token"])
        ended = client.expect(Disconnect)
        assert datetime.now(UTC) >= ends
        assert ended.code == ReasonCode.NOT_AUTHORIZED
        assert ended.properties.reason_string == "the login is not valid any more"
        _gets_nothing(other)


def test_no_end_of_a_login_is_overlooked_when_many_end_at_the_same_time(
    new_site: Callable[..., Site],
) -> None:
    """The rights of connected clients are checked in pieces; meanwhile the registry changes and
    other clients connect."""
    site, number = new_site("--mqtt-logins", "false"), 60
    publishers = [site.node.add_publisher(PROJECT, f"buoy-{each}") for each in range(number)]

    with ExitStack() as opened, ThreadPoolExecutor(8) as threads:
        clients = [opened.enter_context(site.client()) for _ in publishers]

        def connect(publisher: Any, client: MqttClient) -> bool:
            login = {"username": publisher["key"], "password": publisher["token"]}
            return client.connect(**login).code == 0

        def revoke(publisher: Any) -> None:
            site.node.call("POST", f"/publisher/data/{publisher['publisherID']}/token", {})

        half = number // 2
        assert all(threads.map(connect, publishers[:half], clients[:half]))
        connecting = []
        for early, late, client in zip(publishers, publishers[half:], clients[half:], strict=False):
            connecting.append(threads.submit(connect, late, client))
            threads.submit(revoke, early)
            threads.submit(revoke, late)
        accepted = [True] * half + [each.result() for each in connecting]
        for client in compress(clients, accepted):
            assert client.expect(Disconnect).code == ReasonCode.NOT_AUTHORIZED
