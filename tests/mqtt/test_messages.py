"""Ordinary topics: subscriptions, retained messages, sessions, wills, messages of handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from fieldbrook.gateway.mqtt.protocol.packets import (
    VERSION_5,
    VERSION_311,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Will,
)
from fieldbrook.gateway.mqtt.protocol.properties import Properties
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from tests.mqtt.conftest import PROJECT, Site
from tests.support.applets import SENDER
from tests.support.mqtt_client import MqttClient, new_id
from tests.support.nodes import message, strategies, until

BOTH = pytest.mark.parametrize("version", [VERSION_311, VERSION_5])


def _kept(site: Site, client_id: str, version: int = VERSION_5, **more: Any) -> MqttClient:
    client = site.client(version)
    if version == VERSION_5:
        more.setdefault("expiry_s", 600)
    client.connect(client_id, clean=False, **more)
    return client


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.thorough("0-4")
def test_a_message_reaches_its_subscribers_with_the_lower_qos(
    site: Site, version: int, qos: int
) -> None:
    with site.client(version) as reader, site.client(version) as writer:
        reader.connect()
        writer.connect()
        for granted in (0, 1, 2):
            topic = f"lake/{version}/{qos}/{granted}"
            assert reader.subscribe(topic, granted) == granted
            writer.publish(topic, b"hello", qos)
            received = reader.receive()
            assert (received.topic, received.payload) == (topic, b"hello")
            assert (received.qos, received.retain, received.dup) == (
                min(qos, granted),
                False,
                False,
            )


def test_properties_of_a_message_reach_the_subscriber(site: Site) -> None:
    sent = Properties(
        payload_format_indicator=1,
        content_type="text/plain",
        response_topic="lake/answers",
        correlation_data=b"\x00\x01",
        user_properties=(("a", "1"), ("a", "2")),
    )
    with site.client() as reader, site.client() as writer:
        reader.connect()
        writer.connect()
        reader.subscribe("lake/properties", 1, identifier=77)
        reader.subscribe("lake/+", 0, identifier=78)
        writer.send(Publish("lake/properties", b"p", 1, packet_id=1, properties=sent))
        received = reader.receive()
        assert received.qos == 1
        assert set(received.properties.subscription_identifiers) == {77, 78}
        found = received.properties
        for name in ("payload_format_indicator", "content_type", "response_topic"):
            assert getattr(found, name) == getattr(sent, name)
        assert found.correlation_data == sent.correlation_data
        assert found.user_properties == sent.user_properties


def test_options_of_subscriptions(site: Site) -> None:
    with site.client() as one, site.client() as two:
        one.connect()
        two.connect()
        one.subscribe("lake/own", 1, no_local=True)
        two.subscribe("lake/own", 1, retain_as_published=True)
        one.send(Publish("lake/own", b"kept", 1, retain=True, packet_id=1))
        assert one.expect(PubAck).code == ReasonCode.SUCCESS
        received = two.receive()
        assert (received.payload, received.retain) == (b"kept", True)
        # The retained message is sent at each subscription, only at a new one, or never.
        assert one.subscribe("lake/own", 0, retain_handling=2) == 0
        assert one.subscribe("lake/own", 0, retain_handling=1) == 0
        assert one.subscribe("lake/own", 0, retain_handling=0) == 0
        assert one.receive().retain
        two.publish("lake/own", b"", 0, retain=True)
        assert one.receive().payload == b""
        with site.client() as late:
            late.connect()
            late.subscribe("lake/own")
            late.subscribe("lake/mark")
            late.send(Publish("lake/mark", b"nothing before"))
            assert late.receive().topic == "lake/mark"


def test_members_of_a_shared_subscription_take_turns(site: Site) -> None:
    with site.client() as one, site.client() as two, site.client() as writer:
        for client in (one, two, writer):
            client.connect()
        for member in (one, two):
            assert member.subscribe("$share/crew/shared/+", 1) == 1
        for number in range(10):
            writer.publish(f"shared/{number}", b"")
        got = {client: {client.receive().topic for _ in range(5)} for client in (one, two)}
        assert got[one] | got[two] == {f"shared/{number}" for number in range(10)}


@BOTH
def test_messages_wait_for_a_client_that_is_away_also_over_a_crash(
    site: Site, version: int
) -> None:
    client_id = new_id("away")
    with _kept(site, client_id, version) as reader:
        assert reader.subscribe("lake/away/#", 2) == 2
    with site.client() as writer:
        writer.connect()
        for number in range(120):
            answer = writer.publish(f"lake/away/{number}", b"%d" % number, 1 + number % 2)
            assert answer is not None
            assert answer.code == ReasonCode.SUCCESS
    site.kill("fb-mqtt:0")
    until(lambda: _listens(site), "the port is open again")
    with site.client(version) as reader:
        more: dict[str, Any] = {"expiry_s": 600} if version == VERSION_5 else {}
        assert reader.connect(client_id, clean=False, **more).session_present
        found: list[tuple[bytes, int]] = []
        while len(found) < 120:
            packet = reader.read()
            if isinstance(packet, Publish):
                found.append((packet.payload, packet.qos))
                kind = PubAck if packet.qos == 1 else PubRec
                reader.send(kind(packet.packet_id))
            elif isinstance(packet, PubRel):
                reader.send(PubComp(packet.packet_id))
        assert found == [(b"%d" % number, 1 + number % 2) for number in range(120)]
        with site.client() as writer:
            writer.connect()
            writer.publish("lake/away/last", b"last", 0)
        while not isinstance(packet := reader.read(), Publish):
            assert isinstance(packet, PubRel)
            reader.send(PubComp(packet.packet_id))
        assert packet.payload == b"last"


@BOTH
def test_a_message_of_qos_2_reaches_its_subscribers_once_over_crashes(
    site: Site, version: int
) -> None:
    reader_id, writer_id = new_id("once"), new_id("writer")
    topic = f"lake/once/{version}"
    with _kept(site, reader_id, version) as reader:
        assert reader.subscribe(topic, 2) == 2
    sent = Publish(topic, b"first", 2, packet_id=7)
    with _kept(site, writer_id, version) as writer:
        writer.send(sent)
        assert writer.expect(PubRec).packet_id == 7
        site.kill("fb-mqtt:0")
    until(lambda: _listens(site), "the port is open again")
    with _kept(site, writer_id, version) as writer:
        writer.send(replace(sent, dup=True))
        assert writer.expect(PubRec).packet_id == 7
        for _ in range(2):
            writer.send(PubRel(7))
            assert writer.expect(PubComp).packet_id == 7
        site.kill("fb-mqtt:0")
    until(lambda: _listens(site), "the port is open again")
    with _kept(site, writer_id, version) as writer:
        # The first transmission was lost with a connection.
        writer.send(Publish(topic, b"second", 2, dup=True, packet_id=7))
        assert writer.expect(PubRec).packet_id == 7
    with _kept(site, reader_id, version) as reader:
        assert [reader.expect(Publish).payload for _ in range(2)] == [b"first", b"second"]
        with site.client() as other:
            other.connect()
            other.publish(topic, b"last", 0)
        assert reader.expect(Publish).payload == b"last"


def _listens(site: Site) -> bool:
    try:
        with site.client() as client:
            client.connect()
            return True
    except OSError:
        return False


def test_an_unacknowledged_message_comes_again_with_its_packet_id(site: Site) -> None:
    client_id = new_id("twice")
    with _kept(site, client_id) as reader, site.client() as writer:
        writer.connect()
        reader.subscribe("lake/twice/#", 2)
        writer.publish("lake/twice/1", b"one", 1)
        writer.publish("lake/twice/2", b"two", 2)
        first, second = reader.expect(Publish), reader.expect(Publish)
        reader.send(PubRec(second.packet_id))
        assert reader.expect(PubRel).packet_id == second.packet_id
    with _kept(site, client_id) as reader:
        again = reader.expect(Publish)
        assert (again.payload, again.dup, again.packet_id) == (b"one", True, first.packet_id)
        assert reader.expect(PubRel).packet_id == second.packet_id


def test_a_session_ends_when_its_time_is_over(site: Site) -> None:
    client_id = new_id("short")
    with _kept(site, client_id, expiry_s=1) as reader:
        reader.subscribe("lake/short")

    def gone() -> bool:
        with site.client() as client:
            present = client.connect(client_id, clean=False, expiry_s=0).session_present
            return not present

    until(gone, "the session has ended")


def test_another_connection_of_a_client_takes_its_session_over(site: Site) -> None:
    client_id = new_id("same")
    with _kept(site, client_id) as old:
        old.subscribe("lake/same")
        with _kept(site, client_id) as new:
            ended = old.ended()
            assert ended is not None
            assert ended.code == ReasonCode.SESSION_TAKEN_OVER
            with site.client() as writer:
                writer.connect()
                writer.publish("lake/same", b"to the new one")
            assert new.receive().payload == b"to the new one"


def test_clients_of_different_logins_never_share_a_session(site: Site) -> None:
    with _kept(site, "same-id", username="gauge", password=site.publisher["token"]) as own:
        with _kept(site, "same-id") as stranger:
            stranger.publish("lake/nobody", b"")
        own.publish("lake/nobody", b"")  # still connected


def test_a_will_is_published_when_the_connection_breaks_and_not_after_a_disconnect(
    site: Site,
) -> None:
    with site.client() as reader:
        reader.connect()
        reader.subscribe("will/#", 1)
        for graceful in (True, False):
            for version in (VERSION_311, VERSION_5):
                with site.client(version) as dying:
                    dying.connect(will=Will(f"will/{version}/{graceful}", b"gone", 1))
                    if graceful:
                        dying.disconnect()
        topics = {reader.receive().topic for _ in range(2)}
        assert topics == {f"will/{version}/False" for version in (VERSION_311, VERSION_5)}


def test_a_will_with_a_delay_is_not_published_when_the_client_comes_back(site: Site) -> None:
    delayed = Properties(will_delay_interval=1)
    with site.client() as reader:
        reader.connect()
        reader.subscribe("will/delay/#", 1)
        for name, returns in (("back", True), ("lost", False)):
            client_id = new_id(name)
            _kept(
                site, client_id, will=Will(f"will/delay/{name}", b"", 1, False, delayed)
            ).socket.close()
            if returns:
                again = _kept(site, client_id)
        assert reader.receive().topic == "will/delay/lost"
        again.disconnect()


def test_a_will_on_a_projects_topic_is_an_event(site: Site) -> None:
    with site.client() as dying:
        dying.connect(will=Will(PROJECT, site.event(b"last will", "ECHO"), 1))
    until(lambda: site.last() == b"last will", "the will is handled")


@pytest.mark.thorough
def test_messages_of_handlers_reach_a_client_that_was_away(new_site: Callable[..., Site]) -> None:
    site = new_site("--mqtt-device-topics", "out/#")
    node = site.node
    node.create_project("makers")
    node.deploy("makers", SENDER, strategies=strategies(DEFAULT="publish"))
    publisher = node.add_publisher("makers", "m")
    client_id = new_id("away")
    with _kept(site, client_id) as reader:
        reader.subscribe("out/#", 1)
    for number in range(5):
        assert node.send("makers", message(publisher, b"%d" % number)).status == 201
    with _kept(site, client_id) as reader:
        assert [reader.receive().payload for _ in range(5)] == [b"%d" % n for n in range(5)]


def test_owners_write_to_a_publisher_below_its_own_topic(site: Site) -> None:
    body = {"name": "back end", "privileges": [{"name": "Event", "perm": "READ_WRITE"}]}
    key = site.node.call("POST", "/account_access_key", body).json["accessKey"]
    with site.client() as device, site.client() as owner, site.client() as stranger:
        device.connect(username="gauge", password=site.publisher["token"])
        owner.connect(username="admin", password=key)
        stranger.connect(username="valve", password=site.other["token"])
        assert device.subscribe(f"{PROJECT}/gauge/#") == 1
        assert stranger.subscribe(f"{PROJECT}/gauge/#") == ReasonCode.NOT_AUTHORIZED
        assert owner.subscribe(f"{PROJECT}/#") == 1
        refused = stranger.publish(f"{PROJECT}/gauge/open", b"no")
        assert refused is not None
        assert refused.code >= 0x80
        owner.send(Publish(f"{PROJECT}/gauge/open", b"now", 1, packet_id=1))
        received = device.receive()
        assert (received.topic, received.payload) == (f"{PROJECT}/gauge/open", b"now")


@pytest.mark.parametrize(
    ("topic_filter", "code"),
    [
        ("#", ReasonCode.NOT_AUTHORIZED),
        (PROJECT, ReasonCode.NOT_AUTHORIZED),
        (f"{PROJECT}/push/#", ReasonCode.NOT_AUTHORIZED),
        ("+/+", ReasonCode.NOT_AUTHORIZED),
        ("$SYS/#", ReasonCode.NOT_AUTHORIZED),
        ("$share/g/#", ReasonCode.NOT_AUTHORIZED),
        ("lake/" + "x/" * 100, ReasonCode.TOPIC_FILTER_INVALID),
        ("lake/" + "x" * 5_000, ReasonCode.TOPIC_FILTER_INVALID),
        ("lake/+", 1),
        ("ack/gauge", 1),
    ],
)
@BOTH
def test_a_client_without_a_login_subscribes_to_open_topics_alone(
    site: Site, version: int, topic_filter: str, code: int
) -> None:
    with site.client(version) as client:
        client.connect()
        expected = code if version == VERSION_5 or code < 0x80 else 0x80
        assert client.subscribe(topic_filter) == expected


def test_a_revoked_login_ends_the_connection(new_site: Callable[..., Site]) -> None:
    site = new_site()
    with site.client() as client:
        client.connect(username="gauge", password=site.publisher["token"])
        path = f"/publisher/data/{site.publisher['publisherID']}"
        assert site.node.call("DELETE", path).status == 204
        ended = client.ended()
        assert ended is not None
        assert ended.code == ReasonCode.NOT_AUTHORIZED


@pytest.mark.thorough
def test_who_may_connect_is_a_setting(new_site: Callable[..., Site]) -> None:
    site = new_site("--mqtt-anonymous", "false")
    with site.client() as client:
        assert client.connect().code == ReasonCode.NOT_AUTHORIZED
    with site.client(VERSION_311) as client:
        assert (
            client.connect(username="gauge", password="x").code
            == ReasonCode.BAD_USER_NAME_OR_PASSWORD
        )
    with site.client() as client:
        assert client.connect(username="gauge", password=site.publisher["token"]).code == 0


def test_limits_are_reason_codes(new_site: Callable[..., Site]) -> None:
    site = new_site(
        *("--mqtt-device-topics", "lake/#", "--mqtt-subscriptions", "3"),
        *("--mqtt-retained-limit", "2", "--mqtt-queued-messages", "5"),
        *("--mqtt-session-limit", "4", "--body-limit-bytes", "4096"),
        *("--mqtt-share-percent", "100"),
    )
    with site.client() as client, site.client() as writer:
        granted = client.connect(new_id("limits"), clean=False, expiry_s=600)
        assert granted.properties.maximum_packet_size == 4_096 + (16 << 10)
        writer.connect()
        for name in "abc":
            assert client.subscribe(f"lake/{name}", 1) == 1
        assert client.subscribe("lake/d") == ReasonCode.QUOTA_EXCEEDED
        for name, code in (("a", 0), ("b", 0), ("x", ReasonCode.QUOTA_EXCEEDED), ("a", 0)):
            answer = writer.publish(f"lake/{name}", b"kept", retain=True)
            assert answer is not None
            assert answer.code == code, name
        while client.receive().topic != "lake/b":
            continue
        client.receive()
        client.disconnect()
        for _ in range(10):
            writer.publish("lake/c", b"queued")
    with site.client() as third, site.client() as fourth, site.client() as fifth:
        assert third.connect("t3").code == 0
        assert fourth.connect("t4").code == 0
        assert fifth.connect("t5").code in (0, ReasonCode.QUOTA_EXCEEDED)
    until(lambda: "fieldbrook_mqtt_undelivered_total 5" in _metrics(site), "5 were dropped")
    with site.client() as client:
        client.connect()
        client.send_bytes(b"\x30\xff\xff\xff\x7f")
        ended = client.ended()
        assert ended is not None
        assert ended.code == ReasonCode.PACKET_TOO_LARGE


def _metrics(site: Site) -> str:
    return site.node.call("GET", "/metrics").body.decode()


@pytest.mark.thorough
def test_a_node_that_stops_says_so(new_site: Callable[..., Site]) -> None:
    site = new_site()
    with site.client() as client:
        client.connect()
        site.node.stop()
        ended = client.ended()
        assert ended is not None
        assert ended.code == ReasonCode.SERVER_SHUTTING_DOWN


def test_nothing_is_sent_before_the_answer_to_connect(site: Site) -> None:
    client_id = new_id("busy")
    with _kept(site, client_id) as reader, site.client() as writer:
        reader.subscribe("lake/busy", 1)
        writer.connect()
        for number in range(30):
            writer.send(Publish("lake/busy", b"%d" % number, 1, packet_id=number + 1))
            if number % 5 == 0:
                _kept(site, client_id).socket.close()  # CONNACK is the first packet
    with _kept(site, client_id) as reader:
        reader.receive()
