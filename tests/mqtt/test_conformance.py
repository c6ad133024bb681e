"""The statements of both standards about a server, one by one: docs/reference/mqtt-conformance.md.

Events and other behaviour of this server are tested in the other files of this folder.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from fieldbrook.gateway.mqtt.protocol.packets import (
    VERSION_5,
    VERSION_311,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Will,
)
from fieldbrook.gateway.mqtt.protocol.properties import Properties
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from tests.mqtt.conftest import Site
from tests.support.mqtt_client import MqttClient, new_id
from tests.support.nodes import until

BOTH = pytest.mark.parametrize("version", [VERSION_311, VERSION_5])
EXPIRY_S = 600


def _client(site: Site, version: int = VERSION_5, **options: Any) -> MqttClient:
    client = site.client(version)
    client.connect(**options)
    return client


def _kept(site: Site, client_id: str, version: int = VERSION_5, **more: Any) -> MqttClient:
    if version == VERSION_5:
        more.setdefault("expiry_s", EXPIRY_S)
    return _client(site, version, client_id=client_id, clean=False, **more)


def _is_ended_with(client: MqttClient, code: ReasonCode) -> None:
    """Check that the server closes the connection; over MQTT 5 the last packet is a DISCONNECT with
    the reason."""
    disconnect = client.ended()
    if client.version == VERSION_5:
        assert disconnect is not None
        assert disconnect.code == code
    else:
        assert disconnect is None


def _nothing_waits(client: MqttClient) -> None:
    """Check that nothing arrives before the answer to a PINGREQ."""
    client.send(PingReq())
    assert isinstance(client.read(), PingResp)


# ---------------------------------------------------------------- CONNECT and CONNACK


@BOTH
def test_the_first_answer_is_one_connack(site: Site, version: int) -> None:
    with site.client(version) as client:
        answer = client.connect()
        assert (answer.code, answer.session_present) == (ReasonCode.SUCCESS, False)
        assert answer.properties.response_information is None
        assert answer.properties.authentication_method is None
        _nothing_waits(client)


@BOTH
def test_a_second_connect_ends_the_connection(site: Site, version: int) -> None:
    with _client(site, version) as client:
        client.send(Connect(version, new_id()))
        _is_ended_with(client, ReasonCode.PROTOCOL_ERROR)


@BOTH
def test_another_first_packet_ends_the_connection_without_an_answer(
    site: Site, version: int
) -> None:
    for packet in (PingReq(), Publish("lake/first", b""), Disconnect()):
        with site.client(version) as client:
            client.send(packet, Connect(version, new_id()))
            assert client.socket.recv(100) == b""


@pytest.mark.parametrize(
    ("connect", "answer"),
    [
        (b"\x10\x0c\x00\x04MQTT\x03\x02\x00\x00\x00\x00", b"\x20\x02\x00\x01"),
        (b"\x10\x0d\x00\x04MQTT\x06\x02\x00\x00\x00\x00\x00", b"\x84"),
        (b"\x10\x0c\x00\x04HTTP\x04\x02\x00\x00\x00\x00", b""),  # another protocol
        (b"\x10\x0c\x00\x04MQTT\x04\x03\x00\x00\x00\x00", b""),  # the reserved flag
        (b"\x10\x0d\x00\x04MQTT\x05\x03\x00\x00\x00\x00\x00", b"\x81"),
        (b"\x10\x0c\x00\x04MQTT\x04\x00\x00\x00\x00\x00", b"\x20\x02\x00\x02"),  # no client id
        (b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x00\x00\x02\xff\xff", b""),  # not UTF-8
    ],
)
def test_a_connect_that_breaks_the_rules_ends_the_connection(
    site: Site, connect: bytes, answer: bytes
) -> None:
    with site.client() as client:
        client.send_bytes(connect + b"\xc0\x00")
        received = b""
        while data := client.socket.recv(1_000):
            received += data
        if len(answer) == 1:  # a CONNACK of MQTT 5, without a session
            assert received[0] == 0x20
            assert received[2:4] == b"\x00" + answer
        else:
            assert received == answer


@BOTH
def test_a_refused_client_identifier_is_answered_and_nothing_more_is_handled(
    site: Site, version: int
) -> None:
    with site.client(version) as client, _client(site) as reader:
        reader.subscribe("lake/refused")
        refused = Connect(version, "x" * 257)
        client.send(refused, Publish("lake/refused", b""))
        answer = client.expect(ConnAck)
        assert answer.code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
        assert not answer.session_present
        assert client.ended() is None
        _nothing_waits(reader)


@BOTH
def test_clients_without_an_identifier_get_one_each(site: Site, version: int) -> None:
    with site.client(version) as one, site.client(version) as two:
        found = [client.connect("").properties.assigned_client_identifier for client in (one, two)]
        if version == VERSION_5:
            assert all(found)
            assert found[0] != found[1]
        _nothing_waits(one)
        _nothing_waits(two)


@BOTH
def test_a_session_is_found_by_its_client_identifier_until_a_clean_start(
    site: Site, version: int
) -> None:
    client_id = new_id()

    def present(name: str = client_id, *, clean: bool = False) -> bool:
        expiry_s = None if clean or version == VERSION_311 else EXPIRY_S
        with site.client(version) as client:
            found = client.connect(name, clean=clean, expiry_s=expiry_s).session_present
            client.subscribe("lake/session")
            client.disconnect()
            return found

    assert not present()
    assert present()
    assert not present(new_id())
    assert not present(clean=True)
    assert not present()


@BOTH
def test_a_client_that_connects_again_takes_over(site: Site, version: int) -> None:
    client_id = new_id()
    old = _client(site, version, client_id=client_id)
    with old, _client(site, version, client_id=client_id) as new:
        _is_ended_with(old, ReasonCode.SESSION_TAKEN_OVER)
        _nothing_waits(new)


def test_a_silent_client_is_disconnected_after_one_and_a_half_keep_alive_periods(
    site: Site,
) -> None:
    clients = [site.client(version) for version in (VERSION_311, VERSION_5)]
    before = time.monotonic()
    for client in clients:
        assert client.connect(keep_alive_s=1).properties.server_keep_alive is None
    for client in clients:
        _is_ended_with(client, ReasonCode.KEEP_ALIVE_TIMEOUT)
        assert time.monotonic() - before > 1.4
        client.socket.close()
    with site.client() as client:
        assert client.connect(keep_alive_s=0).properties.server_keep_alive == 3_600


def test_extended_authentication_is_refused(site: Site) -> None:
    with site.client() as client:
        answer = client.connect(authentication_method="SCRAM-SHA-1")
        assert answer.code == ReasonCode.BAD_AUTHENTICATION_METHOD
        assert client.ended() is None
    with _client(site) as client:
        method = Properties(authentication_method="SCRAM-SHA-1")
        client.send(Auth(ReasonCode.RE_AUTHENTICATE, method))
        _is_ended_with(client, ReasonCode.PROTOCOL_ERROR)


# ---------------------------------------------------------------- last wills


@BOTH
def test_a_will_is_published_as_it_was_given_and_once(site: Site, version: int) -> None:
    pairs = (("b", "2"), ("a", "1"), ("b", "1"))
    properties = Properties(user_properties=pairs, content_type="text/plain")
    with _client(site) as reader:
        assert reader.subscribe(f"will/{version}/+", 2, retain_as_published=True) == 2
        for qos, retain in ((0, False), (1, True), (2, False)):
            will = Will(f"will/{version}/{qos}", b"gone", qos, retain)
            if version == VERSION_5:
                will = Will(will.topic, will.payload, qos, retain, properties)
            _client(site, version, will=will).socket.close()
            received = reader.receive()
            assert (received.topic, received.qos) == (will.topic, qos)
            assert received.retain is retain
            if version == VERSION_5:
                assert received.properties.user_properties == pairs
                assert received.properties.content_type == "text/plain"
        with _client(site, version) as unwilling:
            _nothing_waits(unwilling)
        with _client(site) as late:
            late.subscribe(f"will/{version}/+", 2)
            assert late.receive().topic == f"will/{version}/1"
            _nothing_waits(late)
        _nothing_waits(reader)


def test_a_disconnect_may_ask_for_the_will(site: Site) -> None:
    with _client(site) as reader:
        reader.subscribe("will/asked", 1)
        for code in (ReasonCode.NORMAL_DISCONNECTION, ReasonCode.DISCONNECT_WITH_WILL_MESSAGE):
            with _client(site, will=Will("will/asked", str(code.value).encode(), 1)) as client:
                client.send(Disconnect(code))
                assert client.ended() is None
        assert reader.receive().payload == b"4"


def test_a_will_does_not_wait_longer_than_its_session(site: Site) -> None:
    delayed = Properties(will_delay_interval=1_000)
    with _client(site) as reader:
        reader.subscribe("will/session", 1)
        _client(site, will=Will("will/session", b"", 1, False, delayed)).socket.close()
        assert reader.receive().topic == "will/session"


# ---------------------------------------------------------------- retained messages


@BOTH
def test_retained_messages_are_kept_replaced_and_removed(site: Site, version: int) -> None:
    base = f"lake/retained/{version}"
    with _client(site, version) as writer, _client(site, version) as established:
        established.subscribe(f"{base}/+", 2)

        def publish(topic: str, payload: bytes, qos: int, *, retain: bool = True) -> None:
            writer.publish(f"{base}/{topic}", payload, qos, retain=retain)
            received = established.receive()
            assert (received.payload, received.qos, received.retain) == (payload, qos, False)

        def kept() -> set[tuple[str, bytes, int]]:
            with _client(site, version) as reader:
                reader.subscribe(f"{base}/+", 2)
                reader.send(Publish(f"{base}/end", b"", 0))
                found = set()
                while (message := reader.expect(Publish)).topic != f"{base}/end":
                    assert message.retain
                    found.add((message.topic[len(base) + 1 :], message.payload, message.qos))
                established.receive()
                return found

        publish("a", b"1", 1)
        publish("a", b"2", 2)
        publish("b", b"1", 1)
        publish("b", b"not kept", 1, retain=False)
        publish("b", b"", 1, retain=False)
        assert kept() == {("a", b"2", 2), ("b", b"1", 1)}
        publish("a", b"0", 0)
        publish("b", b"", 1)
        assert kept() == {("a", b"0", 0)}
        publish("a", b"", 1)
        assert kept() == set()


@BOTH
def test_the_same_filter_replaces_a_subscription_and_brings_retained_messages_again(
    site: Site, version: int
) -> None:
    topic = f"lake/replaced/{version}"
    with _client(site, version) as client:
        client.publish(topic, b"kept", 1, retain=True)
        for qos in (1, 0, 1):
            assert client.subscribe(topic, qos) == qos
            received = client.receive()
            assert (received.payload, received.retain, received.qos) == (b"kept", True, qos)
        client.send(Publish(topic, b"new"))
        assert client.receive().payload == b"new"
        _nothing_waits(client)


# ---------------------------------------------------------------- SUBSCRIBE and UNSUBSCRIBE


def _subscribe(client: MqttClient, packet_id: int, *wanted: tuple[str, int]) -> Sequence[int]:
    filters = tuple(Subscription(topic_filter, qos) for topic_filter, qos in wanted)
    client.send(Subscribe(packet_id, filters))
    answer = client.expect(SubAck)
    assert answer.packet_id == packet_id
    return answer.codes


@BOTH
def test_each_filter_of_a_packet_has_its_answer_in_order(site: Site, version: int) -> None:
    refused = ReasonCode.NOT_AUTHORIZED if version == VERSION_5 else 0x80
    with _client(site, version) as client:
        wanted = ("lake/1", 1), ("closed/#", 1), ("lake/2", 2), ("lake/0", 0), ("lake/+/x", 0)
        assert list(_subscribe(client, 0xFFFF, *wanted)) == [1, refused, 2, 0, 0]
        client.send(Unsubscribe(77, ("lake/2", "lake/none", "lake/+", "lake/0")))
        answer = client.expect(UnsubAck)
        assert answer.packet_id == 77
        none = ReasonCode.NO_SUBSCRIPTION_EXISTED
        assert list(answer.codes) == ([0, none, none, 0] if version == VERSION_5 else [])
        client.send(Unsubscribe(78, ("lake/none",)))
        assert client.expect(UnsubAck).packet_id == 78
        # Exactly two subscriptions are left.
        for topic in ("lake/0", "lake/1", "lake/2", "lake/2/x", "lake/3"):
            client.send(Publish(topic, b""))
        assert [client.receive().topic for _ in range(2)] == ["lake/1", "lake/2/x"]
        _nothing_waits(client)


@BOTH
def test_a_delivery_that_has_begun_is_completed_after_unsubscribe(site: Site, version: int) -> None:
    topic = f"lake/begun/{version}"
    with _client(site, version) as reader, _client(site, version) as writer:
        reader.subscribe(topic, 2)
        writer.publish(topic, b"1", 2)
        message = reader.expect(Publish)
        reader.send(Unsubscribe(1, (topic,)))
        reader.expect(UnsubAck)
        reader.send(PubRec(message.packet_id))
        assert reader.expect(PubRel).packet_id == message.packet_id
        reader.send(PubComp(message.packet_id))
        writer.publish(topic, b"2", 2)
        _nothing_waits(reader)


@BOTH
def test_messages_come_to_the_sessions_with_matching_subscriptions_only(
    site: Site, version: int
) -> None:
    expected = {
        "lake/m/+": {"lake/m/a", "lake/m/", "lake/m/A"},
        "lake/m/#": {"lake/m", "lake/m/a", "lake/m/", "lake/m/A", "lake/m/a/b", "lake/m//b"},
        "lake/m/a": {"lake/m/a"},
        "lake/m/+/b": {"lake/m/a/b", "lake/m//b"},
        "+/m/a": set[str](),  # not for this client
    }
    topics = ["lake/m", "lake/m/a", "lake/m/", "lake/m/A", "lake/m/a/b", "lake/m//b", "lake/n"]
    readers = {topic_filter: _client(site, version) for topic_filter in expected}
    for topic_filter, reader in readers.items():
        reader.subscribe(topic_filter, 1)
    with _client(site, version) as writer:
        for topic in topics:
            writer.publish(topic, b"")
    for topic_filter, reader in readers.items():
        wanted = expected[topic_filter]
        assert [reader.receive().topic for _ in wanted] == [t for t in topics if t in wanted]
        _nothing_waits(reader)
        reader.socket.close()


@BOTH
def test_overlapping_subscriptions_bring_one_message_with_the_highest_qos(
    site: Site, version: int
) -> None:
    with _client(site, version) as reader, _client(site, version) as writer:
        for number, (topic_filter, qos) in enumerate(
            (("lake/over/#", 1), ("lake/over/+", 2), ("lake/over/lap", 0)), 1
        ):
            more = {"identifier": number} if version == VERSION_5 else {}
            assert reader.subscribe(topic_filter, qos, **more) == qos
        writer.publish("lake/over/lap", b"", 2)
        received = reader.receive()
        assert received.qos == 2
        if version == VERSION_5:
            assert set(received.properties.subscription_identifiers) == {1, 2, 3}
        _nothing_waits(reader)


def test_a_shared_subscription_brings_a_copy_of_its_own_with_its_own_qos(site: Site) -> None:
    with _client(site) as reader, _client(site) as writer:
        assert reader.subscribe("$share/own/lake/copy", 1, identifier=5) == 1
        assert reader.subscribe("lake/copy", 2, identifier=6) == 2
        writer.publish("lake/copy", b"", 2)
        copies = [reader.receive(), reader.receive()]
        assert {(each.qos, each.properties.subscription_identifiers) for each in copies} == {
            (1, (5,)),
            (2, (6,)),
        }
        writer.publish("lake/copy", b"", 0, retain=True)
        reader.receive()
        reader.receive()
        assert reader.subscribe("$share/other/lake/copy", 1) == 1  # without retained messages
        _nothing_waits(reader)


def test_a_shared_message_stays_with_the_client_that_got_it(site: Site) -> None:
    members = [_client(site) for _ in range(2)]
    for member in members:
        member.subscribe("$share/stay/shared/stay", 2)
    with _client(site) as writer:
        for number in range(3):  # completed, refused, left by a session that ends
            writer.publish("shared/stay", b"%d" % number, 2)
    got: dict[bytes, MqttClient] = {}
    for member, count in zip(members, (1, 2), strict=True):
        messages: list[Publish] = []
        member.send(PingReq())
        while isinstance(packet := member.read(), Publish):
            messages.append(packet)
        for message in messages:
            got[message.payload] = member
            if message.payload == b"0":
                member.send(PubRec(message.packet_id))
                assert member.expect(PubRel).packet_id == message.packet_id
                member.send(PubComp(message.packet_id))
            elif message.payload == b"1":
                member.send(PubRec(message.packet_id, ReasonCode.QUOTA_EXCEEDED))
        assert 1 <= len(messages) <= 2, count
    assert set(got) == {b"0", b"1", b"2"}
    leaving = got[b"2"]
    leaving.disconnect()
    for member in members:
        if member is not leaving:
            _nothing_waits(member)
            member.socket.close()


# ---------------------------------------------------------------- messages to clients


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_of_a_client_come_in_their_order_with_identifiers_of_their_own(
    site: Site, version: int, qos: int
) -> None:
    topic, count = f"lake/order/{version}/{qos}", 60
    with _client(site, version) as reader, _client(site, version) as writer:
        reader.subscribe(topic, qos)
        for number in range(count):
            # DUP of the sender is not passed on to the subscriber.
            writer.publish(topic, b"%d" % number, qos, dup=qos > 0)
        messages: list[Publish] = []
        while len(messages) < count:
            packet = reader.read()
            if isinstance(packet, PubRel):
                reader.send(PubComp(packet.packet_id))
                continue
            assert isinstance(packet, Publish)
            messages.append(packet)
            if qos == 2:
                reader.send(PubRec(packet.packet_id))
        assert [each.payload for each in messages] == [b"%d" % n for n in range(count)]
        assert not any(each.dup or each.retain for each in messages)
        identifiers = {each.packet_id for each in messages}
        assert identifiers == {0} if not qos else len(identifiers - {0}) == count
        if qos == 1:
            reader.send(*(PubAck(each.packet_id) for each in messages))


@BOTH
def test_only_a_new_connection_repeats_what_is_unacknowledged(site: Site, version: int) -> None:
    client_id, topic = new_id(), f"lake/repeat/{version}"
    with _kept(site, client_id, version) as reader, _client(site) as writer:
        reader.subscribe(topic, 2)
        for number, qos in enumerate((1, 2, 2, 1)):
            writer.publish(topic, b"%d" % number, qos)
        one, two, three, four = (reader.expect(Publish) for _ in range(4))
        reader.send(PubRec(two.packet_id))
        assert reader.expect(PubRel).packet_id == two.packet_id
        reader.send(PubRec(two.packet_id))  # repeated, and answered again
        assert reader.expect(PubRel).packet_id == two.packet_id
        if version == VERSION_5:  # refusals are acknowledgements
            refused = ReasonCode.QUOTA_EXCEEDED
            reader.send(PubRec(three.packet_id, refused), PubAck(four.packet_id, refused))
        else:
            reader.send(PubAck(four.packet_id), PubRec(three.packet_id))
            assert reader.expect(PubRel).packet_id == three.packet_id
            reader.send(PubComp(three.packet_id))
        _nothing_waits(reader)
    with _kept(site, client_id, version) as reader:
        again = reader.expect(Publish)
        assert (again.packet_id, again.payload, again.dup) == (one.packet_id, b"0", True)
        assert reader.expect(PubRel).packet_id == two.packet_id
        _nothing_waits(reader)
        reader.send(PubAck(one.packet_id), PubComp(two.packet_id))
        _nothing_waits(reader)
    with _kept(site, client_id, version) as reader:
        _nothing_waits(reader)


def test_no_more_messages_than_the_receive_maximum_are_unacknowledged(site: Site) -> None:
    with _client(site, receive_maximum=2) as reader, _client(site) as writer:
        reader.subscribe("lake/window", 2)
        for number in range(5):
            writer.publish("lake/window", b"%d" % number, 1 + number % 2)
        one, two = reader.expect(Publish), reader.expect(Publish)
        writer.publish("lake/window", b"at once", 0)
        assert reader.expect(Publish).payload == b"at once"
        assert reader.subscribe("lake/other") == 1  # other packets are handled meanwhile
        _nothing_waits(reader)
        reader.send(PubRec(two.packet_id))
        reader.expect(PubRel)
        _nothing_waits(reader)  # not complete
        reader.send(PubComp(two.packet_id))
        assert reader.expect(Publish).payload == b"2"
        reader.send(PubAck(one.packet_id))
        assert reader.expect(Publish).payload == b"3"
        _nothing_waits(reader)


def _refused(client: MqttClient, qos: int) -> PubAck | PubRec:
    """Return the answer to a message on a topic that the client may not use."""
    client.send(Publish("nowhere/to/go", b"", qos, packet_id=5))
    return client.expect(PubAck) if qos == 1 else client.expect(PubRec)


def test_no_packet_exceeds_the_clients_maximum_packet_size(site: Site) -> None:
    client_id, limit = new_id(), 60
    with _kept(site, client_id, maximum_packet_size=limit) as client, _client(site) as writer:
        client.subscribe("lake/small", 2)
        for qos in (0, 1, 2):
            writer.publish("lake/small", b"x" * limit, qos)
        writer.publish("lake/small", b"fits", 1)
        assert client.receive().payload == b"fits"
        for qos in (1, 2):
            answer = _refused(client, qos)
            assert answer.code == ReasonCode.NOT_AUTHORIZED
            assert answer.properties.reason_string is None  # it would not fit
        with _kept(site, client_id):  # the message that was too large does not arrive here either
            disconnect = client.ended()
            assert disconnect is not None
            assert disconnect.code == ReasonCode.SESSION_TAKEN_OVER
    with _kept(site, client_id) as client:
        _nothing_waits(client)
    with site.client() as client:
        refusal = client.connect("x" * 300, maximum_packet_size=12)
        assert refusal.code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
        assert refusal.properties.reason_string is None
    with site.client() as client:  # not even a CONNACK fits
        client.send(Connect(VERSION_5, new_id(), properties=Properties(maximum_packet_size=5)))
        assert client.socket.recv(100) == b""
    with _client(site, maximum_packet_size=40) as client:  # SUBACK does not fit
        client.send(Subscribe(1, tuple(Subscription(f"lake/{n}") for n in range(40))))
        disconnect = client.ended()
        assert disconnect is not None
        assert disconnect.code == ReasonCode.PACKET_TOO_LARGE
        assert disconnect.properties.reason_string is None


def test_the_answers_of_a_client_that_wants_no_reasons_have_none(site: Site) -> None:
    with _client(site, request_problem_information=False) as client:
        for qos in (1, 2):
            assert _refused(client, qos).properties.reason_string is None
        client.send(Subscribe(1, (Subscription("closed/#"),)))
        assert client.expect(SubAck).properties.reason_string is None
    with _client(site) as client:
        assert _refused(client, 1).properties.reason_string


def test_the_server_sends_no_topic_aliases(site: Site) -> None:
    with _client(site) as none, _client(site, topic_alias_maximum=5) as some:
        for reader in (none, some):
            reader.subscribe("lake/alias")
        for _ in range(3):
            none.send(Publish("lake/alias", b""))
            for reader in (none, some):
                message = reader.receive()
                assert (message.topic, message.properties.topic_alias) == ("lake/alias", None)


def test_an_expired_message_is_not_delivered_and_others_come_with_the_time_left(
    site: Site,
) -> None:
    client_id = new_id()
    with _kept(site, client_id) as reader:
        reader.subscribe("lake/expiry", 2)
        with _client(site) as writer:
            writer.publish("lake/expiry", b"begun", 2, message_expiry_interval=1)
            writer.publish("lake/expiry", b"begun, too", 1, message_expiry_interval=100)
        begun = reader.expect(Publish)
        reader.expect(Publish)
    with _client(site) as writer:
        for payload, expiry_s in ((b"short", 1), (b"long", 100)):
            writer.publish("lake/expiry", payload, 2, message_expiry_interval=expiry_s)
        writer.publish("lake/expiry", b"for ever", 2)
    expired_at = time.time() + 2.1
    until(lambda: time.time() > expired_at, "the first ones have expired")
    with _kept(site, client_id) as reader:
        messages = [reader.expect(Publish) for _ in range(4)]
        assert [each.payload for each in messages] == [
            b"begun",
            b"begun, too",
            b"long",
            b"for ever",
        ]
        assert (messages[0].packet_id, messages[0].dup) == (begun.packet_id, True)
        left = messages[2].properties.message_expiry_interval
        assert left is not None
        assert 1 <= left <= 98
        assert messages[3].properties.message_expiry_interval is None
        reader.send(PubRec(begun.packet_id))
        assert reader.expect(PubRel).packet_id == begun.packet_id


# ---------------------------------------------------------------- messages from clients


@BOTH
def test_a_message_of_qos_2_is_delivered_once_until_it_is_released(
    site: Site, version: int
) -> None:
    topic = f"lake/once/{version}"
    with _client(site, version) as writer, _client(site, version) as reader:
        reader.subscribe(topic, 0)
        for repetitions in (3, 1):
            for _ in range(repetitions):
                writer.send(Publish(topic, b"", 2, dup=True, packet_id=3))
                assert writer.expect(PubRec).packet_id == 3
            writer.send(PubRel(3))
            assert writer.expect(PubComp).packet_id == 3
        assert [reader.receive().topic for _ in range(2)] == [topic] * 2
        _nothing_waits(reader)


@BOTH
def test_an_acknowledged_packet_identifier_stands_for_a_new_message(
    site: Site, version: int
) -> None:
    topic = f"lake/again/{version}"
    with _client(site, version) as writer, _client(site, version) as reader:
        reader.subscribe(topic, 0)
        for dup in (False, True):
            writer.send(Publish(topic, b"", 1, dup=dup, packet_id=3))
            assert writer.expect(PubAck).packet_id == 3
        assert [reader.receive().topic for _ in range(2)] == [topic] * 2
        if version == VERSION_5:  # so does a refused one of QoS 2
            writer.send(Publish("nowhere/to/go", b"", 2, packet_id=3))
            assert writer.expect(PubRec).code == ReasonCode.NOT_AUTHORIZED
            writer.send(Publish(topic, b"new", 2, packet_id=3))
            assert writer.expect(PubRec).code == ReasonCode.SUCCESS
            assert reader.receive().payload == b"new"


@BOTH
def test_acknowledgements_of_unknown_packet_identifiers_are_answered(
    site: Site, version: int
) -> None:
    with _client(site, version) as client:
        client.send(PubAck(5), PubComp(5))
        _nothing_waits(client)
        code = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if version == VERSION_5 else 0
        client.send(PubRec(5))
        assert client.expect(PubRel) == PubRel(5, ReasonCode(code))
        client.send(PubRel(5))
        assert client.expect(PubComp) == PubComp(5, ReasonCode(code))


def test_topic_aliases_are_accepted_up_to_the_maximum_and_end_with_the_connection(
    site: Site,
) -> None:
    client_id = new_id()
    with site.client() as client:
        maximum = client.connect(client_id, expiry_s=EXPIRY_S).properties.topic_alias_maximum
        assert maximum is not None
        client.subscribe("lake/alias/+", 1)

        def send(topic: str, alias: int) -> None:
            client.send(Publish(topic, b"", properties=Properties(topic_alias=alias)))

        for alias in range(1, maximum + 1):
            send(f"lake/alias/{alias}", alias)
            assert client.receive().topic == f"lake/alias/{alias}"
        send("", 3)
        assert client.receive().topic == "lake/alias/3"
        send("lake/alias/other", 3)
        assert client.receive().topic == "lake/alias/other"
        send("", 3)
        assert client.receive().topic == "lake/alias/other"
        send("lake/alias/many", maximum + 1)
        _is_ended_with(client, ReasonCode.TOPIC_ALIAS_INVALID)
    with _kept(site, client_id) as client:
        client.send(Publish("", b"", properties=Properties(topic_alias=3)))
        _is_ended_with(client, ReasonCode.TOPIC_ALIAS_INVALID)


# ---------------------------------------------------------------- DISCONNECT and sessions


@BOTH
def test_a_malformed_packet_ends_the_connection(site: Site, version: int) -> None:
    for data in (b"\x62\x01\x00", b"\x60\x02\x00\x01", b"\x36\x03\x00\x01a", b"\xf1\x00"):
        with _client(site, version) as client:
            client.send_bytes(data)
            last = client.ended()
            if version == VERSION_5:
                assert last is not None
                assert last.code in (ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR)
            else:
                assert last is None


def test_a_disconnect_changes_the_session_expiry(site: Site) -> None:
    client_id = new_id()
    with _kept(site, client_id) as client:
        client.disconnect(session_expiry_interval=0)
    with site.client() as client:
        assert not client.connect(client_id, clean=False, expiry_s=1).session_present
        client.disconnect(session_expiry_interval=EXPIRY_S)
    with site.client() as client:
        assert client.connect(client_id, clean=False, expiry_s=0).session_present
        client.send(Disconnect(properties=Properties(session_expiry_interval=5)))
        _is_ended_with(client, ReasonCode.PROTOCOL_ERROR)
    with site.client() as client:
        assert not client.connect(client_id, clean=False, expiry_s=0).session_present


def test_a_session_that_is_not_kept_further_has_its_messages_and_ends(site: Site) -> None:
    client_id = new_id()
    with _kept(site, client_id) as reader:
        reader.subscribe("lake/last", 1)
    with _client(site) as writer:
        writer.publish("lake/last", b"waits")
    with site.client() as reader:
        answer = reader.connect(client_id, clean=False, expiry_s=0)
        assert answer.session_present
        assert answer.properties.session_expiry_interval is None
        assert reader.receive().payload == b"waits"
    site.kill("fb-mqtt:0")  # and nothing of it is left on disk

    def is_present() -> bool | None:
        try:
            with site.client() as client:
                return client.connect(client_id, clean=False, expiry_s=0).session_present
        except OSError:
            return None

    until(lambda: is_present() is not None, "the port is open again")
    assert is_present() is False
