"""What each broker and its adapter do, measured against the gate that decided between them.

    python -m benchmarks.broker_gate [messages]

For the embedded broker (read natively), the same with every message forced to the disk,
and mosquitto (read with paho): time to start, one session that serves 2,000 projects,
messages per second to a gateway that acknowledges each, what a killed gateway gets again
and when, and what a killed broker loses of what it had acknowledged to a device.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fieldbrook.gateway.mqtt import embedded_broker
from fieldbrook.gateway.mqtt.sources import Delivery
from tests.support.brokers import (
    LOOPBACK,
    Broker,
    Device,
    Embedded,
    Mosquitto,
    numbered,
    publish_packet,
)

PROJECTS = [f"project_{number}" for number in range(2_000)]
DEVICES = 8
WINDOW = 64
SIZE = 200
LIMIT_S = 60.0


class EmbeddedAlwaysSynced(Embedded):
    """The embedded broker that answers PUBACK when the message is on the disk."""

    def command(self) -> list[str]:
        config = embedded_broker.write_config(
            self.folder, LOOPBACK, self.port, sync_interval="always"
        )
        return [str(embedded_broker.find_program()), "-c", str(config)]


class Gateway:
    """Counts what arrives and acknowledges it."""

    def __init__(self, *, acknowledge: bool = True, qos: int = 1) -> None:
        self.deliveries: list[tuple[float, bytes]] = []
        self._qos = qos
        self._acknowledge = acknowledge

    def __call__(self, delivery: Delivery) -> None:
        if delivery.qos == self._qos:
            self.deliveries.append((time.monotonic(), delivery.payload))
        if self._acknowledge:
            delivery.ack()

    async def receives(self, condition: Callable[[], bool]) -> None:
        """Wait for it to become true, or for the limit."""
        limit = time.monotonic() + LIMIT_S
        while not condition() and time.monotonic() < limit:
            await asyncio.sleep(0.002)

    @property
    def numbers(self) -> list[int]:
        """What the payloads begin with."""
        return [int(payload) for _, payload in self.deliveries]


def in_child(work: Callable[[], object]) -> int:
    """Run it in a process of its own; returns the process id."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def publish(port: int, qos: int, start: int, count: int) -> None:
    """One device's share of a load."""
    messages = numbered(PROJECTS, start, start + count, SIZE)
    with Device(port, f"device{start}") as device:
        if qos:
            device.publish_all(messages, WINDOW)
            return
        for at in range(0, count, WINDOW):
            burst = messages[at : at + WINDOW]
            device.send_raw(b"".join(publish_packet(t, p, 0, 1) for t, p in burst))


async def serve(running: Broker, gateway: Gateway, work: Callable[[], object] | None) -> float:
    """Start a source, then the work; returns the seconds until the source was connected."""
    source = running.source()
    source.set_topics(frozenset(PROJECTS))
    started = time.monotonic()
    await source.start(gateway)
    while not source.connected:
        await asyncio.sleep(0.001)
    connected = time.monotonic() - started
    try:
        if work is not None:
            result = work()
            if asyncio.iscoroutine(result):
                await result
    finally:
        await source.stop()
    return connected


def rate(running: Broker, qos: int, messages: int) -> dict[str, object]:
    """Messages per second from the first to the last that arrived, and CPU seconds."""
    gateway = Gateway(qos=qos)
    share = messages // DEVICES

    async def work() -> None:
        for number in range(DEVICES):
            device = partial(publish, running.port, qos, number * share, share)
            children.append(in_child(device))
        if qos:
            await gateway.receives(lambda: len(gateway.deliveries) >= share * DEVICES)
        else:
            await asyncio.to_thread(lambda: [os.waitpid(pid, 0) for pid in children])
            children.clear()
            arrived = -1
            while arrived != len(gateway.deliveries):
                arrived = len(gateway.deliveries)
                await asyncio.sleep(0.5)

    children: list[int] = []
    before = resource.getrusage(resource.RUSAGE_SELF)
    asyncio.run(serve(running, gateway, work))
    after = resource.getrusage(resource.RUSAGE_SELF)
    for pid in children:
        os.waitpid(pid, 0)
    seconds = gateway.deliveries[-1][0] - gateway.deliveries[0][0]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    got = len(gateway.deliveries)
    return {
        f"qos{qos}_per_s": round(got / seconds),
        f"qos{qos}_arrived": f"{got} of {share * DEVICES}",
        f"qos{qos}_gateway_cpu_s_per_10k": round(cpu / got * 10_000, 3),
    }


def crash_of_the_gateway(running: Broker) -> dict[str, object]:
    """A gateway is killed with 1,000 messages unacknowledged; 500 newer ones follow."""
    connected = asyncio.run(serve(running, Gateway(), None))

    def dying() -> None:
        gateway = Gateway(acknowledge=False)

        async def work() -> None:
            await gateway.receives(lambda: len(gateway.deliveries) >= 1_000)
            os.kill(os.getpid(), 9)

        asyncio.run(serve(running, gateway, work))

    pid = in_child(dying)
    with Device(running.port, "device") as device:
        device.publish_all(numbered(PROJECTS, 0, 1_000), WINDOW)
        os.waitpid(pid, 0)
        device.publish_all(numbered(PROJECTS, 1_000, 1_500), WINDOW)
    gateway = Gateway()

    async def work() -> None:
        await gateway.receives(lambda: len(gateway.deliveries) >= 1_500)

    started = time.monotonic()
    asyncio.run(serve(running, gateway, work))
    return {
        "session_of_2000_projects_s": round(connected, 3),
        "redelivered_first_s": round(gateway.deliveries[0][0] - started, 3),
        "redelivered_all_s": round(gateway.deliveries[999][0] - started, 3),
        "in_order_before_newer": gateway.numbers == list(range(1_500)),
    }


def crash_of_the_broker(running: Broker) -> dict[str, object]:
    """The broker is killed under load; what it had acknowledged must still arrive."""
    gateway = Gateway()

    async def work() -> None:
        with Device(running.port, "device") as device:
            sending = asyncio.create_task(
                asyncio.to_thread(device.publish_all, numbered(PROJECTS, 0, 1_000_000), WINDOW)
            )
            await asyncio.sleep(1.0)
            running.kill()
            acknowledged.append(await sending)
        started = time.monotonic()
        await asyncio.to_thread(running.start)
        with Device(running.port, "device") as device:
            device.publish(PROJECTS[0], b"1000000", 1)
        await gateway.receives(lambda: gateway.deliveries[-1][1] == b"1000000")
        acknowledged.append(round(time.monotonic() - started, 3))

    acknowledged: list[float] = []
    asyncio.run(serve(running, gateway, work))
    lost = set(range(int(acknowledged[0]))) - set(gateway.numbers)
    return {
        "puback_before_the_kill": acknowledged[0],
        "lost_of_them": len(lost),
        "back_at_work_s": acknowledged[1],
    }


def measure(kind: type[Broker], messages: int) -> dict[str, object]:
    """Every figure of one broker."""
    with tempfile.TemporaryDirectory() as folder:
        running = kind(Path(folder))
        started = time.monotonic()
        with running:
            figures: dict[str, object] = {"start_s": round(time.monotonic() - started, 3)}
            figures |= crash_of_the_gateway(running)
            for qos in (1, 0):
                figures |= rate(running, qos, messages)
            figures |= crash_of_the_broker(running)
        return figures


def main() -> None:
    """Print one JSON object for each broker."""
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 80_000
    for kind in (Embedded, EmbeddedAlwaysSynced, Mosquitto):
        count = messages // 4 if kind is EmbeddedAlwaysSynced else messages
        sys.stdout.write(json.dumps({"broker": kind.__name__} | measure(kind, count), indent=2))
        sys.stdout.write("\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
