"""Delivery of handlers' messages to a broker with limits of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fieldbrook.gateway.delivery import mqtt_publisher as module
from fieldbrook.gateway.delivery.mqtt_publisher import Publisher
from fieldbrook.gateway.delivery.outbox import MessageRefusedError
from tests.support.brokers import LOOPBACK, Mosquitto
from tests.support.tools import LIMIT_S

CONNECT, PUBLISH, TOPIC = 0x10, 0x30, "out"


class Narrow(Mosquitto):
    """A broker that closes the connection of a client after a packet that is too large."""

    def command(self) -> list[str]:
        arguments = super().command()
        config = Path(arguments[-1])
        config.write_text(config.read_text() + "max_packet_size 2000\n")
        return arguments


def test_a_message_that_is_too_large_for_the_broker_jams_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_LONGEST_DELAY_S", 1)

    async def scenario(port: int) -> None:
        publisher = Publisher(LOOPBACK, port, "test-out", None, None)
        try:
            sent = [publisher.publish("out", b"x" * 10) for _ in range(5)]
            large = publisher.publish("out/large", b"x" * 5_000)
            sent += [publisher.publish("out", b"y" * 10) for _ in range(5)]
            async with asyncio.timeout(LIMIT_S):
                await asyncio.gather(*sent)
                while True:  # deliveries of other messages distinguish this from a broken broker
                    pulse = publisher.publish("out", b"z")
                    done, _ = await asyncio.wait({asyncio.ensure_future(large)}, timeout=0.5)
                    await pulse
                    if done:
                        break
            with pytest.raises(MessageRefusedError, match="5000 bytes"):
                await large
        finally:
            await asyncio.to_thread(publisher.close)

    with Narrow(tmp_path) as broker:
        asyncio.run(scenario(broker.port))
    assert "at which the broker closes the connection" in caplog.text


async def test_messages_keep_their_order_while_a_broker_hesitates_to_accept_the_connection() -> (
    None
):
    asked, accepts, numbers = asyncio.Event(), asyncio.Event(), []

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await packet(reader))[0] == CONNECT
        asked.set()
        await accepts.wait()
        writer.write(b"\x20\x02\x00\x00")
        while True:
            kind, body = await packet(reader)
            if kind & 0xF0 != PUBLISH:
                break
            numbers.append(int(body[len(TOPIC) + 4 :]))
            writer.write(b"\x40\x02" + body[len(TOPIC) + 2 :][:2])
        writer.close()

    server = await asyncio.start_server(broker, LOOPBACK)
    port = server.sockets[0].getsockname()[1]
    publisher = Publisher(LOOPBACK, port, "test-out", None, None)
    try:
        sent = [publisher.publish(TOPIC, b"%d" % number) for number in range(5)]
        async with asyncio.timeout(LIMIT_S):
            await asked.wait()
            never = asyncio.ensure_future(publisher.publish("no/+/topic", b""))
            sent += [publisher.publish(TOPIC, b"%d" % number) for number in range(5, 10)]
            accepts.set()
            with pytest.raises(ValueError, match="topic"):
                await never
            sent += [publisher.publish(TOPIC, b"%d" % number) for number in range(10, 15)]
            await asyncio.gather(*sent)
    finally:
        await asyncio.to_thread(publisher.close)
        server.close()
    assert numbers == list(range(15))


async def packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return a packet shorter than 128 bytes, from its first byte and its body."""
    kind, size = await reader.readexactly(2)
    return kind, await reader.readexactly(size)


def test_a_broker_that_accepts_no_message_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_FAILURES_LIMIT", 1)

    async def scenario(port: int) -> None:
        publisher = Publisher(LOOPBACK, port, "test-out", None, None)
        try:
            sent = [publisher.publish("out", b"x" * 5_000) for _ in range(3)]
            await asyncio.sleep(5)
            assert not any(asyncio.ensure_future(each).done() for each in sent)
        finally:
            await asyncio.to_thread(publisher.close)

    with Narrow(tmp_path) as broker:
        asyncio.run(scenario(broker.port))
    assert "is dropped" not in caplog.text
