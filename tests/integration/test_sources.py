"""The adapters of both brokers keep the same promises against real brokers."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fieldbrook.gateway.mqtt import embedded_broker, nats_source, paho_source
from fieldbrook.gateway.mqtt.old_broker.nats_wire import Endpoint, NatsConnection
from fieldbrook.gateway.mqtt.sources import UNACKNOWLEDGED_HIGH, Delivery, Source
from tests.support.brokers import (
    LOOPBACK,
    REFUSED,
    Broker,
    Device,
    Embedded,
    Mosquitto,
    numbered,
)
from tests.support.tools import LIMIT_S, free_port

PROJECT = frozenset({"p1"})


@pytest.fixture(params=[Embedded, Mosquitto], ids=["embedded", "mosquitto"])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    with request.param(tmp_path) as started:
        yield started


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Embedded]:
    with Embedded(tmp_path) as started:
        yield started


class Gateway:
    """What stands behind a source: it keeps what arrives, and acknowledges it if told to."""

    def __init__(self, acknowledge: bool) -> None:
        self.deliveries: list[Delivery] = []
        self.acknowledge = acknowledge
        self._changed = asyncio.Event()

    def __call__(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        if self.acknowledge:
            delivery.ack()
        self._changed.set()

    @property
    def payloads(self) -> list[bytes]:
        return [delivery.payload for delivery in self.deliveries]

    @property
    def numbers(self) -> list[int]:
        return [int(payload) for payload in self.payloads]

    async def receives(self, count: int) -> None:
        """Wait for that many deliveries."""
        async with asyncio.timeout(LIMIT_S):
            while len(self.deliveries) < count:
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def serving(
    running: Broker, projects: frozenset[str] = PROJECT, *, acknowledge: bool = True
) -> AsyncIterator[tuple[Source, Gateway]]:
    """A connected source and what it delivers to."""
    source, gateway = running.source(), Gateway(acknowledge)
    source.set_topics(projects)
    await source.start(gateway)
    try:
        await connection(source)
        yield source, gateway
    finally:
        await source.stop()


async def connection(source: Source, wanted: bool = True) -> None:
    """Wait until the source is connected, or is not."""
    async with asyncio.timeout(LIMIT_S):
        while source.connected != wanted:
            await asyncio.sleep(0.005)


def publish(running: Broker, start: int, end: int) -> None:
    with Device(running.port, "device") as device:
        assert device.publish_all(numbered(["p1"], start, end)) == end - start


def levels(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Of what the gateway logged."""
    ours = [record for record in caplog.records if record.name.startswith("fieldbrook")]
    return [record.levelname for record in ours]


def test_messages_arrive_with_their_exact_bytes_topic_and_qos(running: Broker) -> None:
    payloads = [b"", b"{}", bytes(range(256)), b"\r\nMSG p1 1 2\r\n", b"x" * 300_000]
    topics = ["p1", "p1/push/token/DEFAULT", "p1/push/a.b/c", "p1/push/e//f/"]
    sent = [(topic, payload) for topic in topics for payload in payloads]

    async def scenario(qos: int) -> list[Delivery]:
        async with serving(running) as (_, gateway):
            with Device(running.port, "device") as device:
                for topic, payload in sent:
                    await asyncio.to_thread(device.publish, topic, payload, qos)
                await gateway.receives(len(sent))
        return gateway.deliveries

    for qos in (0, 1):
        got = asyncio.run(scenario(qos))
        assert sorted((d.topic, d.payload) for d in got) == sorted(sent)
        assert {d.qos for d in got} == {qos}
        assert len({d.sequence for d in got}) == (len(sent) if qos else 1)
        assert all(bool(d.sequence) == bool(qos) for d in got)
        if qos:
            assert [(d.topic, d.payload) for d in got] == sent


async def test_what_was_acknowledged_does_not_come_again(running: Broker) -> None:
    async with serving(running) as (_, gateway):
        await asyncio.to_thread(publish, running, 0, 500)
        await gateway.receives(500)
    async with serving(running) as (_, gateway):
        await asyncio.to_thread(publish, running, 500, 501)
        await gateway.receives(1)
        assert gateway.numbers == [500]


async def test_unacknowledged_messages_come_again_in_order_before_newer_ones(
    running: Broker,
) -> None:
    async with serving(running, acknowledge=False) as (_, gateway):
        await asyncio.to_thread(publish, running, 0, 1500)
        await gateway.receives(1500)
        for delivery in gateway.deliveries:
            if int(delivery.payload) % 3 == 0:
                delivery.ack()
        first = {d.payload: d.sequence for d in gateway.deliveries}
    await asyncio.to_thread(publish, running, 1500, 2000)
    async with serving(running) as (_, gateway):
        await gateway.receives(1500)
        again = [n for n in range(1500) if n % 3]
        assert gateway.numbers == [*again, *range(1500, 2000)]
        for delivery in gateway.deliveries[:1000]:
            assert delivery.may_repeat
            assert delivery.sequence == first[delivery.payload]


async def test_messages_published_while_no_source_runs_are_kept(running: Broker) -> None:
    async with serving(running):
        pass
    await asyncio.to_thread(publish, running, 0, 100)
    async with serving(running) as (_, gateway):
        await gateway.receives(100)
        assert gateway.numbers == list(range(100))


async def test_answers_have_their_turn_while_the_messages_of_a_broker_are_read(
    tmp_path: Path,
) -> None:
    size, count = 200, 20_000
    messages = numbered(["p1"], 0, count, size)
    turns, busiest, seen = 0, 0, 0
    loop = asyncio.get_running_loop()

    def turn() -> None:
        nonlocal turns, busiest, seen
        turns += 1
        busiest, seen = max(busiest, len(gateway.deliveries) - seen), len(gateway.deliveries)
        if seen < count:
            loop.call_soon(turn)

    with Mosquitto(tmp_path) as outside:
        async with serving(outside):
            pass
        with Device(outside.port, "device") as device:
            assert await asyncio.to_thread(device.publish_all, messages) == count
        gateway = Gateway(acknowledge=True)
        loop.call_soon(turn)
        source = outside.source()
        source.set_topics(PROJECT)
        await source.start(gateway)
        await gateway.receives(count)
        await source.stop()
    assert gateway.numbers == list(range(count))
    assert busiest <= (64 << 10) // size + 1
    assert turns >= count // busiest


async def test_a_source_connects_again_after_its_broker_was_killed(
    running: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fieldbrook.gateway")
    async with serving(running) as (source, gateway):
        await asyncio.to_thread(running.kill)
        await connection(source, False)
        await asyncio.to_thread(running.start)
        await connection(source)
        await asyncio.to_thread(publish, running, 0, 10)
        await gateway.receives(10)
    assert levels(caplog) == ["INFO", "WARNING", "INFO"]


def test_a_source_that_starts_before_its_broker_waits_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(stopped: Broker) -> None:
        source, gateway = stopped.source(), Gateway(acknowledge=True)
        source.set_topics(PROJECT)
        await source.start(gateway)
        await asyncio.sleep(0.05)
        assert not source.connected
        try:
            await asyncio.to_thread(stopped.start)
            await connection(source)
            await asyncio.to_thread(publish, stopped, 0, 10)
            await gateway.receives(10)
        finally:
            await source.stop()
            stopped.kill()

    for kind in (Embedded, Mosquitto):
        (tmp_path / kind.__name__).mkdir()
        asyncio.run(scenario(kind(tmp_path / kind.__name__)))
    assert levels(caplog) == ["WARNING", "WARNING"]


async def test_the_embedded_broker_loses_nothing_it_acknowledged_when_it_is_killed(
    embedded: Embedded, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(embedded) as (_, gateway):
        with Device(embedded.port, "device") as device:
            sending = asyncio.create_task(
                asyncio.to_thread(device.publish_all, numbered(["p1"], 0, 200_000))
            )
            await gateway.receives(2_000)
            await asyncio.to_thread(embedded.kill)
            acknowledged = await sending
        assert 1_000 < acknowledged < 200_000
        await asyncio.to_thread(embedded.start)
        await asyncio.to_thread(publish, embedded, 999_999, 1_000_000)
        async with asyncio.timeout(LIMIT_S):
            while gateway.deliveries[-1].payload != b"999999":
                await asyncio.sleep(0.01)
        assert set(range(acknowledged)) <= set(gateway.numbers)
    async with serving(embedded) as (_, gateway):
        await asyncio.to_thread(publish, embedded, 7, 8)
        await gateway.receives(1)
        assert gateway.numbers == [7]
    assert levels(caplog) == ["WARNING"]


async def test_a_message_in_work_is_not_handed_over_again_when_the_embedded_broker_comes_back(
    embedded: Embedded, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(embedded, acknowledge=False) as (source, gateway):
        await asyncio.to_thread(publish, embedded, 0, 30)
        await gateway.receives(30)
        await asyncio.to_thread(embedded.kill)
        await connection(source, False)
        for delivery in gateway.deliveries[:10]:
            delivery.ack()
        await asyncio.to_thread(embedded.start)
        await connection(source)
        for delivery in gateway.deliveries[10:20]:
            delivery.ack()
        await asyncio.to_thread(publish, embedded, 30, 31)
        await gateway.receives(31)
        assert gateway.numbers == list(range(31))
    async with serving(embedded) as (_, gateway):
        await gateway.receives(11)
        assert gateway.numbers == list(range(20, 31))
    assert levels(caplog) == ["WARNING"]


async def test_acknowledgements_of_an_older_session_are_harmless(running: Broker) -> None:
    async with serving(running, acknowledge=False) as (_, gateway):
        await asyncio.to_thread(publish, running, 0, 10)
        await gateway.receives(10)
        old = gateway.deliveries
    for delivery in old:
        delivery.ack()
        delivery.ack()
    async with serving(running) as (_, gateway):
        await gateway.receives(10)
        assert gateway.numbers == list(range(10))


async def test_only_topics_of_served_projects_are_delivered(running: Broker) -> None:
    strange = ["p2", "p2/push/x/y", "p1/pull/x", "p1/x", "p", "p11", "P1"]
    async with serving(running, frozenset({"p1", "p3"})) as (source, gateway):

        def send(last: str) -> None:
            for topic in strange:
                for qos in (0, 1):
                    try:
                        with Device(running.port, "device") as device:
                            device.publish(topic, b"other", qos)
                    except ConnectionError:
                        continue  # the embedded broker refuses some of them
            with Device(running.port, "device") as device:
                device.publish(last, b"mine", 1)

        await asyncio.to_thread(send, "p1")
        await gateway.receives(1)
        source.set_topics(frozenset({"p2"}))
        await connection(source)
        await asyncio.to_thread(send, "p2/push/last")
        await gateway.receives(6)
    topics = [delivery.topic for delivery in gateway.deliveries]
    assert topics[0] == "p1"
    assert sorted(topics[1:5]) == ["p2", "p2", "p2/push/x/y", "p2/push/x/y"]
    assert topics[5:] == ["p2/push/last"]


async def test_no_character_of_a_topic_keeps_the_embedded_broker_from_the_others(
    embedded: Embedded,
) -> None:
    strange = [*map(chr, range(1, 33)), "\x7f", "\x85", "\u2028", "\ufeff", "\r\nPING\r\n"]
    async with serving(embedded) as (source, gateway):

        def send() -> None:
            for letter in strange:
                for qos in (0, 1):
                    try:
                        with Device(embedded.port, "device") as device:
                            device.publish(f"p1/push/a{letter}b/c", b"odd", qos)
                    except ConnectionError:
                        continue  # the broker refuses some of them
            with Device(embedded.port, "device") as device:
                device.publish("p1", b"last", 1)

        await asyncio.to_thread(send)
        async with asyncio.timeout(LIMIT_S):
            while b"last" not in gateway.payloads:
                await asyncio.sleep(0.01)
        assert source.connected
    topics = {d.topic.partition("/push/a")[2].removesuffix("b/c") for d in gateway.deliveries}
    assert topics - {""} <= set(strange)
    assert "\x0b" in topics


async def test_two_thousand_projects_are_served_by_one_session(running: Broker) -> None:
    projects = [f"project_{number}" for number in range(2_000)]
    topics = [*projects, *(f"{project}/push/t/e" for project in projects)]
    async with serving(running, frozenset(projects)) as (_, gateway):
        with Device(running.port, "device") as device:
            messages = [(topic, topic.encode()) for topic in topics]
            await asyncio.to_thread(device.publish_all, messages)
        await gateway.receives(len(topics))
        assert [d.topic for d in gateway.deliveries] == topics
        assert gateway.payloads == [topic.encode() for topic in topics]


async def test_a_gateway_that_acknowledges_nothing_is_not_flooded_and_gets_all_when_it_does(
    running: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    high = UNACKNOWLEDGED_HIGH // 10
    for module in (nats_source, paho_source):
        monkeypatch.setattr(module, "UNACKNOWLEDGED_HIGH", high)
        monkeypatch.setattr(module, "UNACKNOWLEDGED_LOW", high // 2)
    count = 3 * high
    async with serving(running, acknowledge=False) as (_, gateway):
        sending = asyncio.create_task(asyncio.to_thread(publish, running, 0, count))
        await gateway.receives(high)
        await sending
        await asyncio.sleep(0.2)
        assert len(gateway.deliveries) == high
        gateway.acknowledge = True
        for delivery in list(gateway.deliveries):
            delivery.ack()
        await gateway.receives(count)
        assert gateway.numbers == list(range(count))


def test_an_anonymous_device_can_neither_listen_in_nor_publish_elsewhere(
    embedded: Embedded,
) -> None:
    for topic_filter in ("p1", "#", "+", "p1/push/#", "$SYS/#", "$MQTT/#", "/#", "+/x"):
        for qos in (0, 1):
            with Device(embedded.port, "device") as device:
                assert device.subscribe(topic_filter, qos) == REFUSED, topic_filter
    with Device(embedded.port, "other") as listener:
        assert listener.subscribe("ack/listener") == 0
        for topic in ("ack/listener", "a/b", "$SYS/x", "$JS/API/STREAM/LIST", "$MQTT/msgs/p1"):
            with Device(embedded.port, "device") as device, pytest.raises(ConnectionError):
                device.publish(topic, b"forged", 0)
                device.publish(topic, b"forged", 1)
                device.publish("p1", b"the broker has cut the connection", 1)
                raise ConnectionError  # it took the message and delivers it to nobody
        endpoint = embedded_broker.read_endpoint(embedded.folder)
        with Device(embedded.port, "node", endpoint.user, endpoint.password) as node:
            node.publish("ack/listener", b"genuine", 1)
        kind, body = listener.read()
        assert kind == 0x30
        assert body.endswith(b"genuine")


def test_the_nodes_port_of_the_embedded_broker_is_local_and_demands_its_credentials(
    embedded: Embedded,
) -> None:
    endpoint = embedded_broker.read_endpoint(embedded.folder)
    assert endpoint.url.startswith(f"nats://{LOOPBACK}:")

    async def scenario(user: str, password: str) -> None:
        connection = NatsConnection(lambda _reason: None, lambda: None)
        with pytest.raises(ConnectionError, match=r"(?i)authorization"):
            await connection.open(Endpoint(endpoint.url, user, password), "thief", LIMIT_S)
        connection.close()

    for user, password in (("", ""), ("node", "wrong"), ("device", "")):
        asyncio.run(scenario(user, password))
    for secret in ("secrets/broker.key", "broker/nats.conf"):
        assert stat.S_IMODE((embedded.folder / secret).stat().st_mode) == 0o600


def test_the_embedded_broker_uses_half_of_the_cores_unless_it_is_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(name: str) -> str:
        (tmp_path / name).mkdir()
        with Embedded(tmp_path / name) as started:
            words = Path(f"/proc/{started.pid}/environ").read_text().split("\0")
        return dict(word.partition("=")[::2] for word in words)["GOMAXPROCS"]

    monkeypatch.delenv("GOMAXPROCS", raising=False)
    assert int(told("half")) == max(1, len(os.sched_getaffinity(0)) // 2)
    monkeypatch.setenv("GOMAXPROCS", "7")
    assert told("seven") == "7"


def test_a_wrong_password_over_mqtt_is_refused(embedded: Embedded) -> None:
    with pytest.raises(ConnectionRefusedError):
        Device(embedded.port, "thief", "node", "wrong")


def test_an_embedded_broker_whose_port_is_taken_says_so_and_ends(tmp_path: Path) -> None:
    second = Embedded(tmp_path)
    with socket.create_server((LOOPBACK, second.port)):
        ended = subprocess.run(second.command(), capture_output=True, timeout=LIMIT_S, check=False)
    assert ended.returncode == embedded_broker.CANNOT_START
    assert f"port {second.port}" in ended.stderr.decode()


def test_the_embedded_broker_keeps_its_password_over_restarts(tmp_path: Path) -> None:
    port = free_port()
    first = embedded_broker.write_config(tmp_path, LOOPBACK, port).read_text()
    again = embedded_broker.write_config(tmp_path, LOOPBACK, port).read_text()
    key = (tmp_path / "secrets" / "broker.key").read_bytes().hex()
    assert key in first
    assert key in again


def test_an_embedded_broker_that_always_syncs_acknowledges_what_is_on_the_disk(
    tmp_path: Path,
) -> None:
    strict = Embedded(tmp_path)
    strict.settings = strict.settings.model_copy(update={"mqtt_sync": "always"})
    with strict, Device(strict.port, "d") as device:
        assert device.publish_all(numbered(["p"], 0, 50)) == 50
    assert 'sync_interval: "always"' in (tmp_path / "broker" / "nats.conf").read_text()
