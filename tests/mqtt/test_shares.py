"""No address and no login can use all of a shared limit of MQTT, and a full disk loses nothing.

The clients of these tests have one address. Clients with a login count for the login, so they are
"others".
"""

from __future__ import annotations

import contextlib
import itertools
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.gateway.mqtt.protocol.encoding import encode
from fieldbrook.gateway.mqtt.protocol.packets import (
    VERSION_5,
    VERSION_311,
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
    Will,
)
from fieldbrook.gateway.mqtt.protocol.reason_codes import FAILURE, ReasonCode
from tests.mqtt.conftest import PROJECT, Site
from tests.support.disks import MIB, fill, small_disk
from tests.support.mqtt_client import MqttClient, new_id
from tests.support.nodes import StartNode, until
from tests.support.tools import LIMIT_S

_PAUSE_S = 0.1


def _login(site: Site) -> dict[str, Any]:
    return {"username": "gauge", "password": site.publisher["token"]}


def _from(site: Site, address: str) -> MqttClient:
    """Connect a client from another address of the loopback network."""
    return MqttClient(site.node.mqtt_port, source=address)


@pytest.mark.thorough
def test_an_address_takes_half_of_the_sessions_and_a_login_too(
    new_site: Callable[..., Site],
) -> None:
    site = new_site("--mqtt-session-limit", "20")
    names = [new_id("sessions") for _ in range(10)]
    for name in names:
        site.kept(name).socket.close()
    with site.client() as client:
        assert client.connect().code == ReasonCode.QUOTA_EXCEEDED
    for name in names[:9]:
        site.kept(name, **_login(site)).socket.close()
    with _from(site, "127.0.0.2") as other:
        assert other.connect().code == ReasonCode.SUCCESS
    with site.client() as client:
        assert client.connect(names[0], clean=False, expiry_s=600).session_present
    # After a restart the sessions count for the same address, and for no address after their
    # removal.
    site.node.stop()
    site.node.start()
    with site.client() as client:
        assert client.connect().code == ReasonCode.QUOTA_EXCEEDED
    with site.client() as client:
        client.connect(names[1], clean=True)
    with site.client() as client:
        assert client.connect().code == ReasonCode.SUCCESS


def test_an_address_and_a_login_take_half_of_the_connections(new_site: Callable[..., Site]) -> None:
    site = new_site("--mqtt-connections", "40")
    with contextlib.ExitStack() as opened:
        for _ in range(20):
            client = opened.enter_context(site.client())
            assert client.connect(**_login(site)).code == 0
        with pytest.raises((EOFError, ConnectionError)), site.client() as client:
            client.connect()
        with _from(site, "127.0.0.2") as other:
            assert other.connect(**_login(site)).code == ReasonCode.QUOTA_EXCEEDED
        with _from(site, "127.0.0.2") as other:
            assert other.connect().code == ReasonCode.SUCCESS


@pytest.mark.thorough
def test_an_address_takes_half_of_the_connect_rate(new_site: Callable[..., Site]) -> None:
    site = new_site("--mqtt-connects-per-s", "10")

    def refused() -> bool:
        codes = set()
        for _ in range(12):
            with site.client() as client:
                codes.add(client.connect().code)
        with _from(site, "127.0.0.2") as other:
            assert other.connect().code == ReasonCode.SUCCESS
        return ReasonCode.CONNECTION_RATE_EXCEEDED in codes

    until(refused, "the address has used up its share")


@pytest.mark.thorough
def test_a_login_takes_half_of_the_retained_messages(new_site: Callable[..., Site]) -> None:
    site = new_site("--mqtt-retained-limit", "8", "--mqtt-device-topics", "lake/#")

    def retain(client: MqttClient, topic: str, payload: bytes = b"kept") -> int:
        answer = client.publish(f"lake/{topic}", payload, retain=True)
        assert answer is not None
        return answer.code if answer.code >= FAILURE else 0

    with site.client() as hog:
        hog.connect()
        codes = [retain(hog, f"hog/{number}") for number in range(6)]
        assert codes == [0] * 4 + [ReasonCode.QUOTA_EXCEEDED] * 2
        assert retain(hog, "hog/0", b"changed") == 0
    for number in range(3):  # neither wills nor new connections raise the limit
        with site.client() as hog:
            hog.connect(will=Will(f"lake/will/{number}", b"gone", 1, True))
    site.node.stop()
    site.node.start()
    with site.client() as hog, site.client() as other:
        hog.connect()
        assert retain(hog, "hog/9") == ReasonCode.QUOTA_EXCEEDED
        other.connect(**_login(site))
        assert [retain(other, f"other/{number}") for number in range(4)] == [0] * 4
        assert retain(hog, "hog/0", b"") == 0
        assert retain(hog, "hog/9") == 0


@pytest.mark.thorough
def test_an_address_takes_half_of_the_room_for_incomplete_packets(
    new_site: Callable[..., Site],
) -> None:
    site = new_site()
    packet = encode(VERSION_5, Publish(PROJECT, bytes(1 << 20), 1, packet_id=1))
    with contextlib.ExitStack() as opened:
        hogs = [opened.enter_context(site.client()) for _ in range(40)]
        for hog in hogs:
            hog.connect()
            with contextlib.suppress(ConnectionError):
                hog.send_bytes(packet[:-1])
        with _from(site, "127.0.0.2") as other:
            other.connect()
            other.send_bytes(packet[:-1])
            other.send_bytes(packet[-1:])
            assert other.expect(PubAck).packet_id == 1
        with site.client() as neighbour:  # a small event arrives in spite of the hogs
            neighbour.connect()
            small = encode(VERSION_5, Publish(PROJECT, site.event(), 1, packet_id=1))
            neighbour.send_bytes(small[:-1])
            time.sleep(_PAUSE_S)
            neighbour.send_bytes(small[-1:])
            acknowledged = neighbour.expect(PubAck)
            assert (acknowledged.packet_id, acknowledged.code) == (1, ReasonCode.SUCCESS)
        codes = []
        for hog in hogs:  # clients that are still connected can complete their packets
            with contextlib.suppress(ConnectionError):
                hog.send_bytes(packet[-1:])
            answer = hog.read()
            assert isinstance(answer, PubAck | Disconnect)
            codes.append(answer.code)
        assert ReasonCode.QUOTA_EXCEEDED in codes[30:]
        assert ReasonCode.QUOTA_EXCEEDED not in codes[:30]


def test_a_device_does_not_wait_for_events_that_are_refused_from_its_address(site: Site) -> None:
    with contextlib.ExitStack() as opened:
        device = opened.enter_context(site.client())
        device.connect()
        answer = device.publish(PROJECT, site.event())
        assert answer is not None
        assert answer.code == ReasonCode.SUCCESS
        floods = [opened.enter_context(site.client()) for _ in range(20)]
        refused = encode(VERSION_5, Publish(PROJECT, b"", 0))  # it has no token
        for flood in floods:
            flood.connect()
            flood.send_bytes(refused * 2_000 + encode(VERSION_5, PingReq()))
        for _ in range(3):
            answer = device.publish(PROJECT, site.event())
            assert answer is not None
            assert answer.code == ReasonCode.SUCCESS
        assert not select.select([flood.socket for flood in floods], [], [], 0)[0]
        for flood in floods:
            flood.expect(PingResp)


@pytest.mark.thorough
def test_others_are_served_while_a_login_floods_its_own_subscribers(
    new_site: Callable[..., Site],
) -> None:
    site = new_site()
    with contextlib.ExitStack() as opened:
        for _ in range(100):
            client = opened.enter_context(site.client())
            client.connect(**_login(site))
            client.subscribe(f"{PROJECT}/gauge/#", 0)
        flood, other = (opened.enter_context(site.client()) for _ in range(2))
        flood.connect(**_login(site))
        other.connect()
        message = encode(VERSION_5, Publish(f"{PROJECT}/gauge/x", b"", 0))
        flood.send_bytes(message * 2_000 + encode(VERSION_5, PingReq()))
        for _ in range(5):
            other.send(PingReq())
            other.expect(PingResp)
        assert select.select([flood.socket], [], [], 0)[0] == []  # the flood is not handled yet
        flood.expect(PingResp)


def test_others_are_served_while_a_login_subscribes_to_all_that_it_has_retained(
    new_site: Callable[..., Site],
) -> None:
    site = new_site()
    with site.client() as flood, site.client() as other:
        flood.connect(**_login(site))
        other.connect()
        for number in range(450):
            flood.publish(f"{PROJECT}/gauge/{number}/a/b/c/d/e", b"x", retain=True)
        names = [
            "/".join(chosen)
            for count in range(6)
            for chosen in itertools.product(*(each + "+" for each in "abcde"[:count]))
        ]
        filters = [f"{PROJECT}/gauge/+/{each}/#".replace("//", "/") for each in names]
        flood.send(Subscribe(1, tuple(Subscription(each, 0) for each in filters)), PingReq())
        for _ in range(5):
            other.send(PingReq())
            other.expect(PingResp)
        assert PingResp not in _kinds_so_far(flood)  # the subscriptions are not handled yet
        while not isinstance(flood.read(), PingResp):
            pass


def _kinds_so_far(client: MqttClient) -> set[type[object]]:
    """Return the kinds of the packets that have arrived so far."""
    kinds: set[type[object]] = set()
    client.socket.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            kinds.add(type(client.read()))
    client.socket.settimeout(LIMIT_S)
    return kinds


def test_others_are_served_while_a_stranger_floods_events_that_are_refused(
    site: Site,
) -> None:
    with _from(site, "127.0.0.3") as flood, _from(site, "127.0.0.2") as other:
        flood.connect()
        other.connect()
        refused = encode(VERSION_5, Publish(PROJECT, b"", 0))  # it has no token
        flood.send_bytes(refused * 20_000 + encode(VERSION_5, PingReq()))
        for _ in range(3):
            answer = other.publish(PROJECT, site.event())
            assert answer is not None
            assert answer.code == ReasonCode.SUCCESS
        assert select.select([flood.socket], [], [], 0)[0] == []  # the flood is not handled yet
        flood.expect(PingResp)


@pytest.mark.thorough
def test_an_address_takes_half_of_the_store_with_its_subscriptions(
    new_site: Callable[..., Site],
) -> None:
    site = new_site("--mqtt-store-bytes", str(16 * MIB))
    filters = [Subscription(f"ack/{number}" + "f" * 4_000, 0) for number in range(8)]
    codes: set[int] = set()
    for number in range(300):
        with site.kept(f"hog {number}") as hog:
            hog.send(Subscribe(1, tuple(filters)))
            codes.update(hog.expect(SubAck).codes)
    assert codes == {0, ReasonCode.QUOTA_EXCEEDED}
    will = Will("lake/will", bytes(16_000), 1)
    with site.client() as hog:
        answer = hog.connect(new_id("will"), clean=False, expiry_s=600, will=will)
        assert answer.code == ReasonCode.QUOTA_EXCEEDED
    with site.kept(new_id("device"), **_login(site), will=will) as other:
        other.send(Subscribe(1, tuple(filters)))
        assert set(other.expect(SubAck).codes) == {0}


# ---------------------------------------------------------------- a store or a disk that is full


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The small disk of the node that the test starts."""
    with small_disk(tmp_path / "n", 192 * MIB) as mounted:
        yield mounted


def _add_until_refused(client: MqttClient, topic: str, size: int) -> None:
    """Publish to a queue until the store refuses a message."""
    while True:
        answer = client.publish(topic, bytes(size))
        assert answer is not None
        if answer.code == ReasonCode.QUOTA_EXCEEDED:
            return
        assert answer.code == ReasonCode.SUCCESS


@pytest.mark.timeout(120)
@pytest.mark.thorough
def test_a_release_waits_on_a_full_disk_and_is_completed_when_there_is_room(
    disk: Path, start_node: StartNode
) -> None:
    site = Site(start_node("--mqtt-device-topics", "lake/#", "--mqtt-queued-bytes", str(1 << 28)))
    with site.kept(new_id("queue")) as reader:
        reader.subscribe("lake/queue", 1)
    with site.kept(new_id("device")) as device, site.client() as writer:
        writer.connect()
        before = site.count()
        device.send(Publish(PROJECT, site.event(), 2, packet_id=7))
        assert device.expect(PubRec).code == ReasonCode.SUCCESS
        filler = fill(disk)
        for size in (200_000, 20_000, 2_000):
            _add_until_refused(writer, "lake/queue", size)
        device.send(PubRel(7), PubRel(7))
        for _ in range(3):
            device.send(PingReq())
            device.expect(PingResp)  # and neither PUBCOMP nor DISCONNECT
        filler.unlink()
        assert device.expect(PubComp).code == ReasonCode.SUCCESS
        assert device.expect(PubComp).code == ReasonCode.SUCCESS
        device.send(Publish(PROJECT, site.event(), 2, packet_id=7))
        assert device.expect(PubRec).code == ReasonCode.SUCCESS
        assert site.count() == before + 2


@pytest.mark.thorough
def test_a_client_whose_session_cannot_be_stored_is_told_so_and_disconnected(
    disk: Path, start_node: StartNode
) -> None:
    site = Site(start_node("--mqtt-device-topics", "lake/#", "--mqtt-queued-bytes", str(1 << 28)))
    with site.kept(new_id("queue")) as reader:
        reader.subscribe("lake/queue", 1)
    with site.client() as writer:
        writer.connect()
        filler = fill(disk)
        for size in (200_000, 20_000, 2_000):
            _add_until_refused(writer, "lake/queue", size)
    kept: dict[str, Any] = {"clean": False, "will": Will("lake/will", bytes(16_000))}
    for version in (VERSION_311, VERSION_5):
        expiry_s = 600 if version == VERSION_5 else None
        with site.client(version) as client:
            code = client.connect("no-room", **kept, expiry_s=expiry_s).code
            assert code == ReasonCode.SERVER_UNAVAILABLE
            assert client.socket.recv(1) == b""
    filler.unlink()

    def connects() -> bool:
        with site.client() as client:
            return client.connect("room", **kept, expiry_s=600).code == ReasonCode.SUCCESS

    until(connects, "sessions are stored again")


@pytest.mark.thorough
def test_a_message_that_was_refused_by_a_full_store_is_not_known_after_a_crash(
    new_site: Callable[..., Site],
) -> None:
    site = new_site(
        *("--mqtt-device-topics", "lake/#", "--mqtt-share-percent", "100"),
        *("--mqtt-store-bytes", str(16 * MIB), "--mqtt-queued-bytes", str(1 << 28)),
    )
    device_id, reader_id = new_id("device"), new_id("reader")
    with site.kept(reader_id) as reader:
        reader.subscribe("lake/queue", 1)
    with site.kept(device_id) as device:
        with site.client() as writer:
            writer.connect()
            _add_until_refused(writer, "lake/queue", 100_000)
        # Both are written at once: the message does not fit, the session with its receipt does.
        device.send(
            Publish("lake/queue", bytes(200_000), 2, packet_id=5),
            Subscribe(6, (Subscription("lake/own", 1),)),
        )
        codes = {}
        for _ in range(2):
            answer = device.read()
            assert isinstance(answer, PubRec | SubAck)
            codes[type(answer)] = answer.code if isinstance(answer, PubRec) else answer.codes[0]
        assert codes == {PubRec: ReasonCode.QUOTA_EXCEEDED, SubAck: 1}
        site.kill("fb-mqtt:0")
    until(lambda: _listens(site), "the port is open again")
    with site.client() as reader:
        assert reader.connect(reader_id, clean=False, expiry_s=600).session_present
        with site.kept(device_id) as device:
            for _ in range(20):  # makes room
                reader.receive()
            device.send(Publish("lake/queue", b"another", 2, packet_id=5))
            assert device.expect(PubRec).code == ReasonCode.SUCCESS
            while (message := reader.receive()).payload != b"another":
                assert len(message.payload) == 100_000


def _listens(site: Site) -> bool:
    try:
        with site.client() as client:
            return client.connect().code == ReasonCode.SUCCESS
    except OSError:
        return False
