"""Messages of handlers on their way to a broker with limits of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fieldbrook.gateway import publisher as module
from fieldbrook.gateway.outbox import MessageRefusedError
from fieldbrook.gateway.publisher import Publisher
from tests.integration.brokers import LOOPBACK, Mosquitto

_LIMIT_S = 60.0


class Narrow(Mosquitto):
    """A broker that ends the connection of a client whose packet is too large."""

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
            async with asyncio.timeout(_LIMIT_S):
                await asyncio.gather(*sent)
                while True:  # somebody else's messages are what tells it from a broken broker
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
    assert "given up" in caplog.text


def test_a_broker_that_takes_nothing_costs_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_FRUITLESS", 1)

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
    assert "given up" not in caplog.text
