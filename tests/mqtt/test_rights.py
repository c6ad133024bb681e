"""Who gets what waits in queues, is retained, or is published below `ack/`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fieldbrook.gateway.mqtt.protocol.packets import PingReq, PingResp, PubAck, Publish
from tests.mqtt.conftest import PROJECT, Site
from tests.support.applets import SENDER
from tests.support.mqtt_client import MqttClient, new_id
from tests.support.nodes import message, strategies

OTHER = "moor"


def _kept(site: Site, client_id: str, **more: Any) -> MqttClient:
    client = site.client()
    client.connect(client_id, clean=False, expiry_s=600, **more)
    return client


def _owner(site: Site) -> MqttClient:
    """An administrator."""
    body = {"name": new_id("key"), "privileges": [{"name": "Event", "perm": "READ_WRITE"}]}
    key = site.node.call("POST", "/account_access_key", body).json["accessKey"]
    client = site.client()
    assert client.connect(username="admin", password=key).code == 0
    return client


def _gets_nothing(client: MqttClient) -> None:
    """What was sent to a client before would come before the answer."""
    client.send(PingReq())
    client.expect(PingResp)


def _event_topic(publisher: Any) -> str:
    return f"{PROJECT}/push/{publisher['token']}/ECHO"


@pytest.mark.parametrize("qos", [1, 2])
def test_what_waits_for_a_client_without_the_right_any_more_is_dropped(
    new_site: Callable[..., Site], qos: int
) -> None:
    site = new_site("--mqtt-device-topics", "lake/#, open/#")
    client_id = new_id("away")
    with _kept(site, client_id) as client:
        client.subscribe("open/#", qos)
        client.subscribe("lake/#", qos)
    with _owner(site) as owner:
        for number in range(120):  # more than one page of the store
            owner.publish(f"open/{number}", b"secret", qos)
        owner.publish("lake/news", b"news", qos)
    site.node.stop()
    site.node.set_flags("--mqtt-device-topics", "lake/#")
    site.node.start()
    with _kept(site, client_id) as client:
        assert client.receive().topic == "lake/news"
        _gets_nothing(client)
        assert site.node.call("GET", f"/mqtt/session/{client_id}").json["queued"] == 0


def test_replies_that_wait_in_a_session_without_a_login_go_to_nobody_else(site: Site) -> None:
    client_id = new_id("nobody")
    with _kept(site, client_id) as device:
        device.subscribe("ack/#")
        device.subscribe("lake/after")
        device.send(Publish(_event_topic(site.publisher), b"", 1, packet_id=1))
        found = [device.read(), device.read()]
        assert {type(each) for each in found} == {PubAck, Publish}  # not acknowledged
    with site.client() as writer:
        writer.connect()
        writer.publish("lake/after", b"")
    with _kept(site, client_id) as thief:
        assert thief.receive().topic == "lake/after"
        _gets_nothing(thief)
        assert site.node.call("GET", f"/mqtt/session/{client_id}").json["queued"] == 0


def test_replies_that_wait_for_a_publisher_are_there_when_it_logs_in_again(site: Site) -> None:
    client_id = new_id("login")
    login = {"username": "gauge", "password": site.publisher["token"]}
    with _kept(site, client_id, **login) as own:
        own.subscribe("ack/#")
    with site.client() as device:
        device.connect()
        device.publish(_event_topic(site.publisher), b"")
        device.publish(_event_topic(site.other), b"")
    with _kept(site, client_id, **login) as own:
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
