"""The adapter of an external broker keeps its promises with a real broker."""

from __future__ import annotations

import asyncio
import logging
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from fieldbrook.gateway.mqtt import paho_source
from fieldbrook.gateway.mqtt.sources import UNACKNOWLEDGED_HIGH, Delivery, Source
from tests.support.brokers import (
    Device,
    Mosquitto,
    numbered,
)
from tests.support.mqtt_bytes import remaining_length
from tests.support.tools import LIMIT_S

PROJECT = frozenset({"p1"})


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path) as started:
        yield started


class Gateway:
    """The receiver of a source: it stores deliveries, and acknowledges them if it is set to."""

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
        """Wait for this number of deliveries."""
        async with asyncio.timeout(LIMIT_S):
            while len(self.deliveries) < count:
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def serving(
    running: Mosquitto, projects: frozenset[str] = PROJECT, *, acknowledge: bool = True
) -> AsyncIterator[tuple[Source, Gateway]]:
    """Run a connected source; give it and its receiver."""
    source, gateway = running.source(), Gateway(acknowledge)
    source.set_topics(projects)
    await source.start(gateway)
    try:
        await connection(source)
        yield source, gateway
    finally:
        await source.stop()


async def connection(source: Source, wanted: bool = True) -> None:
    """Wait until the source is connected, or disconnected."""
    async with asyncio.timeout(LIMIT_S):
        while source.connected != wanted:
            await asyncio.sleep(0.005)


def publish(running: Mosquitto, start: int, end: int) -> None:
    with Device(running.port, "device") as device:
        assert device.publish_all(numbered(["p1"], start, end)) == end - start


def levels(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the levels of the gateway's log lines."""
    ours = [record for record in caplog.records if record.name.startswith("fieldbrook")]
    return [record.levelname for record in ours]


def test_messages_arrive_with_their_exact_bytes_topic_and_qos(running: Mosquitto) -> None:
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


async def test_what_was_acknowledged_does_not_come_again(running: Mosquitto) -> None:
    async with serving(running) as (_, gateway):
        await asyncio.to_thread(publish, running, 0, 500)
        await gateway.receives(500)
    async with serving(running) as (_, gateway):
        await asyncio.to_thread(publish, running, 500, 501)
        await gateway.receives(1)
        assert gateway.numbers == [500]


async def test_unacknowledged_messages_come_again_in_order_before_newer_ones(
    running: Mosquitto,
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


async def test_messages_published_while_no_source_runs_are_kept(running: Mosquitto) -> None:
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


async def test_a_source_that_ends_while_it_is_time_to_ping_ends_without_a_warning(
    running: Mosquitto, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(paho_source, "_TICK_S", 0.0)
    async with serving(running) as (source, _):
        with running.paused():
            stopping = asyncio.create_task(source.stop())
            for _ in range(100):  # turns of the loop, with a time to ping in each
                await asyncio.sleep(0)
        await stopping
    assert levels(caplog) == []


async def test_a_source_connects_again_after_its_broker_was_killed(
    running: Mosquitto, caplog: pytest.LogCaptureFixture
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


async def test_a_source_that_starts_before_its_broker_waits_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stopped = Mosquitto(tmp_path)
    source, gateway = stopped.source(), Gateway(acknowledge=True)
    source.set_topics(PROJECT)
    await source.start(gateway)
    async with asyncio.timeout(LIMIT_S):
        while not caplog.records:  # it has tried
            await asyncio.sleep(0.005)
    assert not source.connected
    try:
        await asyncio.to_thread(stopped.start)
        await connection(source)
        await asyncio.to_thread(publish, stopped, 0, 10)
        await gateway.receives(10)
    finally:
        await source.stop()
        stopped.kill()
    assert levels(caplog) == ["WARNING"]


async def test_acknowledgements_of_an_older_session_are_harmless(running: Mosquitto) -> None:
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


async def test_only_topics_of_served_projects_are_delivered(running: Mosquitto) -> None:
    strange = ["p2", "p2/push/x/y", "p1/pull/x", "p1/x", "p", "p11", "P1"]
    async with serving(running, frozenset({"p1", "p3"})) as (source, gateway):

        def send(last: str) -> None:
            for topic in strange:
                for qos in (0, 1):
                    try:
                        with Device(running.port, "device") as device:
                            device.publish(topic, b"other", qos)
                    except ConnectionError:
                        continue  # a broker refuses some of them
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


async def test_two_thousand_projects_are_served_by_one_session(running: Mosquitto) -> None:
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
    running: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    high = UNACKNOWLEDGED_HIGH // 10
    for module in (paho_source,):
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


def send_long(device: Device, mebibytes: int) -> None:
    """Publish a message of that size, piece by piece."""
    head, piece = b"\x00\x02p1\x00\x07", bytes(1 << 20)
    device.send_raw(b"\x32" + remaining_length(len(head) + mebibytes * len(piece)) + head)
    for _ in range(mebibytes):
        device.send_raw(piece)
    assert device.read() == (0x40, b"\x00\x07")


async def test_of_a_message_without_measure_only_a_bounded_part_is_kept(
    running: Mosquitto,
) -> None:
    async with serving(running) as (_, gateway):
        with Device(running.port, "device") as device:
            tracemalloc.start()
            try:
                sending = asyncio.to_thread(send_long, device, 64)
                await asyncio.gather(sending, gateway.receives(1))
                _, peak_bytes = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            await asyncio.to_thread(device.publish, "p1", b"next")
        await gateway.receives(2)
        long, following = gateway.payloads
        assert 1 << 20 < len(long) < 2 << 20, "longer than any event, so that it is refused"
        assert following == b"next"
        assert peak_bytes < 16 << 20


async def test_a_broker_that_sends_messages_of_qos_2_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 10)
        writer.write(b"\x20\x02\x00\x00")  # CONNACK
        with suppress(OSError):
            for number in range(1, 1 << 16):
                body = b"\x00\x02p1" + number.to_bytes(2, "big") + bytes(1_000)
                writer.write(b"\x34" + bytes([len(body) % 128 | 128, len(body) // 128]) + body)
                await writer.drain()
        writer.close()
        left.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    source, gateway = paho_source.PahoSource("127.0.0.1", port, client_id="test"), Gateway(True)
    async with server:
        await source.start(gateway)
        try:
            async with asyncio.timeout(LIMIT_S):
                await left.wait()
        finally:
            await source.stop()
    assert gateway.deliveries == []
    assert "messages with QoS 2, which nobody has asked for" in caplog.text
