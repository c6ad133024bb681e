"""Events over MQTT: PUBACK and PUBREC mean committed, and a refusal has a reason."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
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
)
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from tests.mqtt.conftest import BARE, PROJECT, Site
from tests.support.mqtt_client import MqttClient, new_id
from tests.support.nodes import until, worker_of

BOTH = pytest.mark.parametrize("version", [VERSION_311, VERSION_5])


@BOTH
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.thorough("1-4")
def test_an_acknowledged_event_is_committed(site: Site, version: int, qos: int) -> None:
    payload = f"{version} {qos}".encode()
    with site.client(version) as client:
        client.connect()
        answer = client.publish(PROJECT, site.event(payload, "ECHO"), qos)
        assert answer is not None
        assert answer.code == ReasonCode.SUCCESS
        assert site.last() == payload


def test_an_event_of_qos_0_is_handled(site: Site) -> None:
    with site.client() as client:
        client.connect()
        client.publish(PROJECT, site.event(b"qos 0", "ECHO"), 0)
        until(lambda: site.last() == b"qos 0", "it is handled")


@BOTH
def test_acknowledgements_come_in_the_order_of_the_messages(site: Site, version: int) -> None:
    with site.client(version) as client:
        client.connect()
        before = site.count()
        ids = range(1, 65)
        client.send(*(Publish(PROJECT, site.event(), 1, packet_id=number) for number in ids))
        assert [client.expect(PubAck).packet_id for _ in ids] == list(ids)
        assert site.count() == before + len(ids)


@BOTH
def test_messages_beyond_the_window_wait(site: Site, version: int) -> None:
    events = [Publish(PROJECT, site.event(), 1, packet_id=number) for number in range(1, 301)]
    with site.client(version) as client:
        assert client.connect().properties.receive_maximum == (64 if version == VERSION_5 else None)
        client.send(*events)
        assert [client.expect(PubAck).packet_id for _ in events] == list(range(1, 301))


def test_a_client_that_releases_nothing_is_disconnected(site: Site) -> None:
    with site.client() as client:
        client.connect()
        for number in range(1, 1_026):
            client.send(Publish(PROJECT, site.event(), 2, packet_id=number))
        ended = client.ended()
        assert ended is not None
        assert ended.code == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


def _broken(site: Site, **header: str) -> bytes:
    sent = json.loads(site.event())
    sent["header"] |= header
    return json.dumps(sent).encode()


@pytest.mark.parametrize(
    ("topic", "change", "code", "reason"),
    [
        ("nowhere", {}, ReasonCode.TOPIC_NAME_INVALID, "ProjectNotFound"),
        ("nowhere", {"token": ""}, ReasonCode.TOPIC_NAME_INVALID, "ProjectNotFound"),
        ("nowhere", None, ReasonCode.TOPIC_NAME_INVALID, "ProjectNotFound"),
        ("nowhere/push/t/T", {}, ReasonCode.NOT_AUTHORIZED, "oken"),
        (f"{PROJECT}/other", {}, ReasonCode.NOT_AUTHORIZED, "the topic must be"),
        (PROJECT, {"token": "wrong"}, ReasonCode.NOT_AUTHORIZED, "oken"),
        (PROJECT, {"pub_id": "nobody"}, ReasonCode.NOT_AUTHORIZED, "nobody"),
        (BARE, {}, ReasonCode.NO_MATCHING_SUBSCRIBERS, "no strategy"),
        (PROJECT, None, ReasonCode.PAYLOAD_FORMAT_INVALID, "neither a JSON message"),
    ],
)
def test_a_refused_event_has_its_reason(
    site: Site, topic: str, change: dict[str, str] | None, code: ReasonCode, reason: str
) -> None:
    if topic == BARE:
        change = {"pub_id": "quiet", "token": site.bare["token"]}
    payload = b"\xff not JSON" if change is None else _broken(site, **change)
    for version in (VERSION_311, VERSION_5):
        with site.client(version) as client:
            client.connect()
            answer = client.publish(topic, payload)
            assert isinstance(answer, PubAck)
            if version == VERSION_5:
                assert answer.code == code
                assert reason in (answer.properties.reason_string or "")
            else:
                assert answer.code == ReasonCode.SUCCESS
    with site.client() as client:
        client.connect(request_problem_information=False)
        answer = client.publish(topic, payload)
        assert answer is not None
        assert (answer.code, answer.properties.reason_string) == (code, None)


def test_a_refused_event_is_in_the_history_of_refusals(site: Site) -> None:
    with site.client() as client:
        client.connect()
        client.publish(PROJECT, _broken(site, pub_id="stranger"), 2)

    def recorded() -> bool:
        rows = site.node.call("GET", "/refused_event?limit=1000").json["data"]
        return any(row["publisher"] == "stranger" for row in rows)

    until(recorded, "the refusal can be found")


def test_a_message_of_qos_2_runs_once_until_it_is_released(site: Site) -> None:
    with site.client() as client:
        client.connect()
        before = site.count()
        again = Publish(PROJECT, site.event(), 2, packet_id=7)
        client.send(again, Publish(PROJECT, site.event(), 2, dup=True, packet_id=9))
        assert {client.expect(PubRec).packet_id for _ in range(2)} == {7, 9}
        client.send(Publish(again.topic, again.payload, 2, dup=True, packet_id=7))
        assert client.expect(PubRec).packet_id == 7
        client.send(PubRel(7))
        assert client.expect(PubComp).code == ReasonCode.SUCCESS
        client.send(PubRel(7))
        assert client.expect(PubComp).code == ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        assert site.count() == before + 2
        client.send(again)
        assert client.expect(PubRec).packet_id == 7
        assert site.count() == before + 3


def _kept(site: Site, client_id: str, version: int = VERSION_5) -> MqttClient:
    client = site.client(version)
    more: dict[str, Any] = {"expiry_s": 600} if version == VERSION_5 else {}
    client.connect(client_id, clean=False, **more)
    return client


@BOTH
@pytest.mark.parametrize("qos", [1, 2])
def test_an_event_that_is_sent_again_after_a_reconnection_runs_once(
    site: Site, version: int, qos: int
) -> None:
    client_id = new_id("again")
    before = site.count()
    sent = Publish(PROJECT, site.event(b"x"), qos, packet_id=5)
    with _kept(site, client_id, version) as client:
        client.send(sent)
        client.read()
    repeated = Publish(sent.topic, sent.payload, qos, dup=True, packet_id=5)
    with _kept(site, client_id, version) as client:
        client.send(repeated)
        client.read()
    assert site.count() == before + 1
    with _kept(site, client_id, version) as client:
        if qos == 2:
            client.send(PubRel(5))
            client.expect(PubComp)
        client.send(sent)  # without DUP: another message with the same packet id
        client.read()
    assert site.count() == before + 2


@pytest.mark.parametrize("qos", [1, 2])
def test_an_event_that_is_sent_again_after_a_crash_of_the_gateway_runs_once(
    site: Site, qos: int
) -> None:
    client_id = new_id("crash")
    before = site.count()
    sent = Publish(PROJECT, site.event(b"crash"), qos, packet_id=6)
    with _kept(site, client_id) as client:
        client.send(sent)
        client.read()
        site.kill("fb-mqtt:0")
    until(lambda: _present(site, client_id), "the session is there again")
    with _kept(site, client_id) as client:
        client.send(Publish(sent.topic, sent.payload, qos, dup=True, packet_id=6))
        client.read()
        assert site.count() == before + 1
        client.send(Publish(PROJECT, site.event(b"other"), qos, dup=True, packet_id=8))
        client.read()
        assert site.count() == before + 2


@BOTH
@pytest.mark.thorough("5")
def test_an_event_with_a_released_packet_id_runs_though_it_is_like_the_last_one(
    site: Site, version: int
) -> None:
    client_id = new_id("released")
    before = site.count()
    sent = Publish(PROJECT, site.event(b"equal"), 2, packet_id=9)
    for number in range(3):
        with _kept(site, client_id, version) as client:
            # The first transmission was lost with a connection, except for the first event.
            client.send(replace(sent, dup=number > 0))
            assert client.expect(PubRec).packet_id == 9
            assert site.count() == before + number + 1
            client.send(PubRel(9))
            assert client.expect(PubComp).packet_id == 9
            site.kill("fb-mqtt:0")
        until(lambda: _present(site, client_id), "the session is there again")


def _present(site: Site, client_id: str) -> bool:
    try:
        with site.client() as client:
            return client.connect(client_id, clean=False, expiry_s=600).session_present
    except OSError:
        return False


@pytest.mark.thorough
def test_a_node_that_cannot_take_an_event_keeps_it_until_it_can(
    new_site: Callable[..., Site],
) -> None:
    site = new_site()
    with site.client() as client:
        client.connect()
        client.publish(PROJECT, site.event(), packet_id=100)
        before = site.count()
        worker = worker_of(site.node)
        assert worker
        os.kill(worker, signal.SIGKILL)
        events = [Publish(PROJECT, site.event(), 1, packet_id=number) for number in range(1, 11)]
        client.send(*events)
        assert [client.expect(PubAck).packet_id for _ in events] == list(range(1, 11))
        assert site.count() == before + 10


@contextlib.contextmanager
def _held(site: Site) -> Iterator[None]:
    """Let no event be handled until the end of the context."""
    with site.client() as client:
        client.connect()
        client.publish(PROJECT, site.event(b"", "ECHO"))  # now the project runs
    worker = worker_of(site.node)
    assert worker
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_client_that_has_forgotten_its_session_uses_its_packet_ids_again(
    site: Site, qos: int
) -> None:
    client_id, before = new_id("forgetful"), site.count()
    with _held(site):
        with _kept(site, client_id) as first:
            first.send(Publish(PROJECT, site.event(b"before"), qos, packet_id=1))
        second = _kept(site, client_id)
        second.send(Publish(PROJECT, site.event(b"after"), qos, packet_id=1))
    with second:
        kind: type[PubAck | PubRec] = PubAck if qos == 1 else PubRec
        assert second.expect(kind).packet_id == 1
        assert site.count() == before + 2


@pytest.mark.parametrize("qos", [1, 2])
def test_an_event_that_is_handled_for_an_earlier_connection_is_acknowledged_on_the_new_one(
    site: Site, qos: int
) -> None:
    client_id, before = new_id("moved"), site.count()
    sent = Publish(PROJECT, site.event(b"moved"), qos, packet_id=1)
    with _held(site):
        first = _kept(site, client_id)
        first.send(sent)
        second = _kept(site, client_id)
        second.send(replace(sent, dup=True), replace(sent, packet_id=2))
    with first, second:
        kind: type[PubAck | PubRec] = PubAck if qos == 1 else PubRec
        assert [second.expect(kind).packet_id for _ in range(2)] == [1, 2]
        assert site.count() == before + 2


def test_who_takes_over_a_session_without_a_login_reads_no_reply_to_its_events(site: Site) -> None:
    client_id, topic = new_id("nobody"), f"{PROJECT}/push/{site.publisher['token']}/ECHO"
    with _held(site):
        with _kept(site, client_id) as device:
            device.send(Publish(topic, b"reply", 1, packet_id=1))
        other = _kept(site, client_id)
        assert other.subscribe("ack/#") == 1
    with other, site.client() as writer:
        writer.connect()
        writer.publish(PROJECT, site.event(), 1)  # handled after the other one
        writer.publish(topic, b"another", 1)
        other.send(Publish("lake/marker", b"", 1, packet_id=9))
        assert other.expect(PubAck).packet_id == 9  # and no reply before it


def test_members_of_a_group_that_may_not_read_replies_take_none_from_others(site: Site) -> None:
    with site.client() as own, site.client() as stranger, site.client() as device:
        own.connect(username="gauge", password=site.publisher["token"])
        stranger.connect()
        device.connect()
        for client in (own, stranger):
            assert client.subscribe("$share/readers/ack/#") == 1
        for _ in range(4):
            topic = f"{PROJECT}/push/{site.publisher['token']}/ECHO"
            device.publish(topic, b"", 1)
        for _ in range(4):
            assert own.receive().topic == "ack/gauge"


@pytest.mark.thorough
def test_a_right_that_was_taken_away_ends_the_subscriptions_of_a_session_that_was_away(
    new_site: Callable[..., Site],
) -> None:
    site = new_site("--mqtt-device-topics", "lake/#, open/#")
    client_id = new_id("stays")
    with _kept(site, client_id) as client:
        assert client.subscribe("open/#") == 1
        assert client.subscribe("lake/#") == 1
    site.node.stop()
    site.node.set_flags("--mqtt-device-topics", "lake/#")
    site.node.start()
    with _kept(site, client_id) as client, site.client() as owner:
        body = {"name": "back end", "privileges": [{"name": "Event", "perm": "READ_WRITE"}]}
        key = site.node.call("POST", "/account_access_key", body).json["accessKey"]
        owner.connect(username="admin", password=key)
        owner.publish("open/secret", b"secret", 1)
        owner.publish("lake/news", b"news", 1)
        assert client.receive().topic == "lake/news"


def test_a_login_stands_in_for_the_token_in_the_message(site: Site) -> None:
    payload = {"header": {"event_type": "ECHO"}, "payload": "bG9naW4="}
    for username in ("gauge", f"{PROJECT}/gauge", site.publisher["publisherID"]):
        with site.client() as client:
            client.connect(username=username, password=site.publisher["token"])
            answer = client.publish(PROJECT, json.dumps(payload).encode())
            assert answer is not None
            assert answer.code == ReasonCode.SUCCESS, answer
            answer = client.publish(f"{PROJECT}/push//ECHO", b"by its login")
            assert answer is not None
            assert answer.code == ReasonCode.SUCCESS, answer
            assert site.last() == b"by its login"
            # Another publisher's name with its own login.
            named = {"header": {"event_type": "ECHO", "pub_id": "valve"}, "payload": ""}
            answer = client.publish(PROJECT, json.dumps(named).encode())
            assert answer is not None
            assert answer.code == ReasonCode.NOT_AUTHORIZED
    with site.client() as client:
        client.connect()
        answer = client.publish(PROJECT, json.dumps(payload).encode())
        assert answer is not None
        assert answer.code == ReasonCode.PAYLOAD_FORMAT_INVALID


def test_replies_are_read_by_their_publisher_alone(site: Site) -> None:
    with site.client() as own, site.client() as same, site.client() as stranger:
        own.connect(username="gauge", password=site.publisher["token"])
        same.connect()
        stranger.connect()
        for client in (own, same, stranger):
            assert client.subscribe("ack/#") == 1
        topic = f"{PROJECT}/push/{site.publisher['token']}/ECHO"
        same.send(Publish(topic, b"reply", 1, packet_id=100))
        found = [same.read(), same.read()]
        assert {type(each) for each in found} == {PubAck, Publish}
        received = own.receive()
        assert received.topic == "ack/gauge"
        assert json.loads(received.payload)["publisherKey"] == "gauge"
        stranger.send(Publish("lake/marker", b"", 1, packet_id=1))
        assert stranger.expect(PubAck).packet_id == 1  # and no reply before it
