"""Hostile clients: the memory of the MQTT server stays bounded, and others are served meanwhile.

The long form of two tests, 10,000 silent connections and ten minutes of random bytes:

    SILENT=10000 RANDOM_S=600 python -m pytest --timeout 1200 \
        tests/mqtt/test_hostile.py::test_connections_that_say_nothing \
        tests/mqtt/test_hostile.py::test_random_bytes
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldbrook.gateway.mqtt.protocol.encoding import encode
from fieldbrook.gateway.mqtt.protocol.packets import (
    VERSION_5,
    VERSION_311,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
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
    Unsubscribe,
    Will,
)
from fieldbrook.gateway.mqtt.protocol.properties import ITEMS_LIMIT, Properties
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from fieldbrook.gateway.mqtt.sessions.limits import UNRELEASED
from tests.mqtt.conftest import PROJECT, Site
from tests.support.mqtt_client import MqttClient, new_id
from tests.support.nodes import StartNode, parts, until
from tests.support.tools import LIMIT_S

GROWTH_BYTES = 64 << 20
ANSWER_LIMIT_S = 10.0
"""How long the acknowledgement of an event may take meanwhile, on a machine that is busy."""
SILENT = int(os.environ.get("SILENT", "2000"))
RANDOM_S = float(os.environ.get("RANDOM_S", "5"))


@pytest.fixture(scope="module")
def site(start_module_node: StartNode) -> Site:
    return Site(
        start_module_node(
            *("--mqtt-device-topics", "lake/#"),
            *("--mqtt-retained-limit", "200", "--mqtt-session-limit", "400"),
            *("--mqtt-queued-messages", "50", "--mqtt-queued-bytes", "65536"),
            *("--mqtt-subscriptions", "20", "--mqtt-connects-per-s", "100000"),
            *("--mqtt-store-bytes", str(64 << 20)),
        )
    )


def _memory(site: Site) -> int:
    """Return the memory of the MQTT server alone, in bytes."""
    text = Path(f"/proc/{parts(site.node)['fb-mqtt:0']}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB$", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) << 10


class _GoodDevice(threading.Thread):
    """Sends one event after the other and records the time of the slowest answer."""

    def __init__(self, site: Site) -> None:
        super().__init__(daemon=True)
        self._client = site.client()
        self._client.connect()
        self._event = site.event(b"good")
        self._stopped = threading.Event()
        self.slowest_s = 0.0
        self.answered = 0

    def run(self) -> None:
        while not self._stopped.is_set():
            before = time.monotonic()
            answer = self._client.publish(PROJECT, self._event)
            assert answer is not None
            assert answer.code == ReasonCode.SUCCESS
            self.slowest_s = max(self.slowest_s, time.monotonic() - before)
            self.answered += 1

    def stop(self) -> None:
        self._stopped.set()
        self.join(LIMIT_S)
        self._client.socket.close()


@contextlib.contextmanager
def _others_are_served(site: Site) -> Iterator[None]:
    """Check that a good device's events are answered, and that the memory does not grow beyond its
    bound."""
    device, before, process = _GoodDevice(site), _memory(site), parts(site.node)["fb-mqtt:0"]
    device.start()
    try:
        yield
        seen = device.answered
        until(lambda: device.answered > seen + 2, "the good device is answered")
        grown = _memory(site) - before
    finally:
        device.stop()
    assert not device.is_alive()
    assert device.slowest_s < ANSWER_LIMIT_S
    assert grown < GROWTH_BYTES, f"{grown >> 20} MiB"
    assert parts(site.node)["fb-mqtt:0"] == process


def _until_closed(client: MqttClient) -> None:
    """Return when the server has closed the connection."""
    with contextlib.suppress(ConnectionError):
        while client.socket.recv(65_536):
            continue


PACKETS: list[Packet] = [
    Publish("lake/cut", b"payload", 2, packet_id=3, properties=Properties(topic_alias=1)),
    Publish("lake/cut", b"payload", 1, packet_id=4, properties=Properties(content_type="a")),
    PubAck(3),
    PubRec(3),
    PubRel(3),
    Subscribe(5, (Subscription("lake/cut", 2), Subscription("lake/+", 1))),
    Unsubscribe(6, ("lake/cut", "lake/+")),
    PingReq(),
]


@pytest.mark.parametrize("version", [VERSION_311, VERSION_5])
@pytest.mark.thorough("4")
def test_packets_that_are_cut_at_every_byte(site: Site, version: int) -> None:
    will = Will("lake/will", b"gone", 1, False)
    connect = encode(
        version, Connect(version, "", username="u", password=b"p", will=will, keep_alive_s=9)
    )
    accepted = encode(version, Connect(version, ""))
    with _others_are_served(site):
        for start, packet in [
            (b"", connect),
            *((accepted, encode(version, packet)) for packet in PACKETS),
        ]:
            for at, has_more in itertools.product(range(len(packet)), (False, True)):
                with site.client(version) as client:
                    client.send_bytes(start + packet[:at])
                    if has_more:  # the rest belongs to another packet
                        client.send_bytes(packet[at + 1 :] + bytes(300))
                        _until_closed(client)
            with site.client(version) as client:  # a byte at a time
                client.send_bytes(start)
                for at in range(len(packet)):
                    client.send_bytes(packet[at : at + 1])
                client.read()
                if start:
                    client.send(PingReq())


def test_random_bytes(site: Site) -> None:
    numbers = random.Random(5)
    accepted = [encode(version, Connect(version, "")) for version in (VERSION_311, VERSION_5)]
    known = [encode(VERSION_5, packet) for packet in PACKETS]
    with _others_are_served(site):
        end = time.monotonic() + RANDOM_S
        while time.monotonic() < end:
            with site.client() as client, contextlib.suppress(ConnectionError):
                client.send_bytes(numbers.choice([b"", *accepted]))
                for _ in range(20):
                    piece = bytearray(numbers.choice([*known, numbers.randbytes(40)]))
                    piece[numbers.randrange(len(piece))] = numbers.randrange(256)
                    client.send_bytes(bytes(piece))


@pytest.mark.thorough
def test_connections_that_say_nothing(site: Site) -> None:
    with _others_are_served(site), contextlib.ExitStack() as opened:
        silent = []
        for number in range(SILENT):  # from several addresses, each of which has its share
            source = f"127.0.1.{1 + number % 8}"
            silent.append(opened.enter_context(MqttClient(site.node.mqtt_port, source=source)))
        with site.client() as late:  # a new client is served, too
            late.connect()
            assert late.publish(PROJECT, site.event()) is not None
        for client in silent:
            assert client.socket.recv(1) == b""  # closed by the server


@pytest.mark.parametrize("version", [VERSION_311, VERSION_5])
def test_floods_of_connects_with_names_as_long_as_they_can_be(site: Site, version: int) -> None:
    longest = "n" * 65_535
    will = Will("lake/will", bytes(16_000), 1)
    with _others_are_served(site):
        for number in range(400):
            with site.client(version) as client:
                client_id, password = f"long-{number % 50}", longest.encode()
                if number % 2:
                    client_id, password = f"{number:06}{longest[:-6]}", b""
                client.send(Connect(version, client_id, False, 0, longest, password, will))
                if number % 4 > 1:
                    continue  # it disconnects without reading the answer
                refused = client.expect(ConnAck).code != ReasonCode.SUCCESS
                assert refused == bool(number % 2)
        for number in range(50):
            with site.client(version) as client:
                client.connect(f"long-{number}")


def test_bursts_of_releases_and_subscriptions_of_a_session_with_a_long_record(site: Site) -> None:
    long = [Subscription(f"ack/{number}/{'y' * 1_600}", 1) for number in range(20)]
    with _others_are_served(site), site.client() as client:
        will = Will("lake/will", bytes(16_000))
        client.connect("long-record", clean=False, expiry_s=60, will=will)
        client.send(Subscribe(1, tuple(long)))
        client.expect(SubAck)
        client.send_bytes(encode(VERSION_5, PubRel(77)) * 20_000)
        for _ in range(20_000):
            assert client.expect(PubComp).code == ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        ids = range(1, 1_001)
        sent = [Publish("lake/burst", b"", 2, packet_id=number) for number in ids]
        client.send(*sent)
        for number in ids:
            assert client.expect(PubRec).packet_id == number
        client.send(*[PubRel(number) for number in ids])
        for number in ids:
            assert client.expect(PubComp).packet_id == number
        client.send_bytes(encode(VERSION_5, Subscribe(2, (long[0],))) * 500)
        for _ in range(500):
            client.expect(SubAck)
    with site.client() as client:
        client.connect("long-record")


def test_filters_that_are_repeated_or_deep_cost_little(site: Site) -> None:
    with _others_are_served(site), site.client() as client:
        client.connect()
        for number in range(50):
            client.publish(f"lake/repeated/{number}", b"kept", retain=True)
        client.send(Subscribe(1, (Subscription("lake/repeated/#", 0),) * 1_000))
        codes = client.expect(SubAck).codes
        assert set(codes[:20]) == {0}
        assert set(codes[20:]) == {ReasonCode.QUOTA_EXCEEDED}
        for _ in range(50):  # each retained message once
            client.receive()
        for number in range(16):
            code = client.subscribe(f"lake/{number}" + "/d" * 62, 0)
            assert code == (0 if number < 15 else ReasonCode.QUOTA_EXCEEDED)
    with site.client() as client:
        client.connect()
        for number in range(50):
            client.publish(f"lake/repeated/{number}", b"", retain=True)


@pytest.mark.parametrize("version", [VERSION_311, VERSION_5])
def test_a_flood_of_small_packets_is_answered_and_so_are_others(site: Site, version: int) -> None:
    """One read returns tens of thousands of packets, which take several turns of the loop."""
    with _others_are_served(site), site.client(version) as client:
        client.connect()
        pings = encode(version, PingReq()) * 20_000
        event = Publish(PROJECT, site.event(b"between"), 1, packet_id=1)
        wanted = Subscribe(2, (Subscription("lake/flood", 0),))
        counted = site.count()
        sending = threading.Thread(
            target=client.send_bytes,
            args=(
                b"".join([pings, encode(version, event), pings, encode(version, wanted), pings]),
            ),
        )
        sending.start()
        found = Counter(type(client.read()) for _ in range(60_002))
        sending.join(LIMIT_S)
        assert found == {PingResp: 60_000, PubAck: 1, SubAck: 1}
        until(lambda: site.count() > counted, "the event is handled")
        client.publish("lake/flood", b"after", 0)
        assert client.receive().payload == b"after"


def test_topics_with_long_tokens_leave_nothing_behind(site: Site) -> None:
    before = _memory(site)
    with _others_are_served(site), site.client() as client:
        client.connect()
        for number in range(4_000):
            client.publish(f"{PROJECT}/push/{'x' * 3_900}{number}/T", b"", 0)
        client.publish(PROJECT, site.event(b"behind"))
        assert _memory(site) - before < 16 << 20


def test_more_user_properties_than_a_packet_may_have_end_the_connection(site: Site) -> None:
    many = Properties(user_properties=(("", ""),) * (ITEMS_LIMIT + 1))
    with _others_are_served(site), site.client() as client:
        client.connect()
        client.send(Publish("lake/many", b"", 1, packet_id=1, properties=many))
        assert client.expect(Disconnect).code == ReasonCode.QUOTA_EXCEEDED


def test_clients_that_read_nothing(site: Site) -> None:
    with _others_are_served(site), contextlib.ExitStack() as opened, site.client() as writer:
        writer.connect()
        for number in range(20):
            deaf = opened.enter_context(site.client())
            deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.connect(new_id("deaf"), clean=number % 2 == 0, expiry_s=60)
            deaf.subscribe("lake/deaf", number % 3)
        for _ in range(200):
            writer.send(Publish("lake/deaf", bytes(60_000)))
            writer.publish("lake/deaf", bytes(1_000), 1)
        chatty = opened.enter_context(site.client())
        chatty.connect()
        chatty.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):  # the server stops reading, too
            while True:
                chatty.send_bytes(encode(VERSION_5, PingReq()) * 50_000)


def test_many_clients_that_read_nothing_leave_little_unread_together(site: Site) -> None:
    with contextlib.ExitStack() as opened, _others_are_served(site), site.client() as writer:
        writer.connect()
        for _ in range(80):
            deaf = opened.enter_context(site.client())
            deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.connect()
            deaf.subscribe("lake/unread", 0)
        for _ in range(10):
            writer.send(Publish("lake/unread", bytes(900_000)))
            writer.send(PingReq())
            writer.expect(PingResp)


def test_clients_that_acknowledge_nothing_take_no_more_than_their_share(site: Site) -> None:
    with contextlib.ExitStack() as opened, _others_are_served(site), site.client() as writer:
        writer.connect()
        for number in range(40):
            client = opened.enter_context(site.client())
            client.connect(receive_maximum=1_000)
            client.subscribe(f"lake/unacknowledged/{number}", 1)
            reader = threading.Thread(target=_until_closed, args=(client,))
            reader.start()
            opened.callback(reader.join, LIMIT_S)
            opened.callback(client.socket.shutdown, socket.SHUT_RDWR)
            for _ in range(50):
                writer.publish(f"lake/unacknowledged/{number}", bytes(60_000), 1)


def test_floods_of_retained_messages_and_subscriptions(site: Site) -> None:
    with _others_are_served(site), site.client() as client:
        client.connect()
        codes = []
        for number in range(1_000):
            answer = client.publish(f"lake/kept/{number}", bytes(10_000), retain=True)
            assert answer is not None
            codes.append(answer.code)
        assert codes.count(ReasonCode.QUOTA_EXCEEDED) >= 900
        for number in range(2_000):
            code = client.subscribe(f"lake/{number}/+/#", 0)
            assert code == (0 if number < 20 else ReasonCode.QUOTA_EXCEEDED)
        for number in range(1_000):
            client.publish(f"lake/kept/{number}", b"", retain=True)


def _release_nothing(client: MqttClient, first: int = 1) -> int:
    """Send messages of QoS 2 from a packet id on without PUBREL; return how many the server
    received before it closed the connection."""
    for packet_id in range(first, 0x10000):
        client.send(Publish("lake/qos2", bytes(1_000), 2, packet_id=packet_id))
        try:
            answer = client.read()
        except EOFError:
            answer = None
        if isinstance(answer, PubRec):
            continue
        if client.version == VERSION_5:
            assert isinstance(answer, Disconnect)
            assert answer.code == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
        else:
            assert answer is None
        return packet_id - first
    raise AssertionError("the server received everything")


@pytest.mark.parametrize("version", [VERSION_311, VERSION_5])
def test_floods_of_messages_that_are_never_released(site: Site, version: int) -> None:
    with _others_are_served(site):
        for number in range(4):
            name = f"flood-{number}"
            with site.client(version) as client:
                client.connect(name, clean=False, expiry_s=60)
                assert _release_nothing(client) == UNRELEASED
            # The limit is per session: another connection does not raise it.
            with site.client(version) as client:
                assert client.connect(name, clean=False, expiry_s=60).session_present
                assert _release_nothing(client, UNRELEASED + 1) == 0
            with site.client(version) as client:
                client.connect(name, clean=False, expiry_s=60)
                assert client.publish("lake/qos1", b"", 1) is not None
                client.send(PubRel(1))
                assert client.expect(PubComp).code == ReasonCode.SUCCESS
                assert _release_nothing(client, UNRELEASED + 1) == 1
            with site.client(version) as client:
                client.connect(name, clean=True)


def test_floods_of_sessions_and_queued_messages(site: Site) -> None:
    with _others_are_served(site):
        refused = 0
        for number in range(400):
            with site.client() as client:
                code = client.connect(f"session-{number}", clean=False, expiry_s=60).code
                assert code in (ReasonCode.SUCCESS, ReasonCode.QUOTA_EXCEEDED)
                refused += code != ReasonCode.SUCCESS
                if not refused:
                    client.subscribe("lake/queued", 1)
        assert refused >= 200
        # Each message is added to the queues of all sessions.
        with MqttClient(site.node.mqtt_port) as writer:
            taken = writer.connect("session-0", clean=False, expiry_s=60)
            assert taken.session_present
            writer.socket.settimeout(LIMIT_S)
            for number in range(100):
                writer.send(Publish("lake/queued", bytes(5_000), 1, packet_id=number % 50 + 1))
                while not isinstance(writer.read(), PubAck):
                    continue
        for number in range(400):
            with site.client() as client:
                client.connect(f"session-{number}", clean=True)


def test_a_storm_of_clients_that_take_over_from_each_other(site: Site) -> None:
    def storm() -> None:
        for _ in range(400):
            with site.client() as client:
                client.send(Connect(VERSION_5, "storm", False, properties=kept))
                # The client sends no DISCONNECT: the server gets a reset.
                client.socket.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )

    kept = Properties(session_expiry_interval=60)
    with _others_are_served(site):
        storms = [threading.Thread(target=storm) for _ in range(4)]
        for each in storms:
            each.start()
        for each in storms:
            each.join()
        with site.client() as client:
            assert client.connect("storm", clean=False, expiry_s=0).code == ReasonCode.SUCCESS
