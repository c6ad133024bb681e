"""Measures what a good device notices of a stranger's flood over MQTT.

    python -m tests.faults.mqtt_floods [--seconds N] [--connections N] [KIND ...]

A process sends messages over connections from one address: each sends DEPTH of them at once, reads
all acknowledgements, and begins again (`token`: events with a wrong token, `project`: of an unknown
project, `members`: objects of a megabyte with 70,000 members, `accepted`: of another project). With
`login` each connects with a wrong password, is refused, and connects again. Meanwhile devices send
one event after the other: one from the same address, one from another, and one that connects anew
for each event.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fieldbrook.gateway.mqtt.protocol.encoding import encode
from fieldbrook.gateway.mqtt.protocol.packets import VERSION_311, Connect, Publish
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from tests.faults.floods import Times
from tests.support.applets import TALLY
from tests.support.mqtt_client import MqttClient, new_id
from tests.support.nodes import RunningNode, message, strategies

DEPTHS = (1, 16, 60)
_ACKNOWLEDGEMENT_BYTES = 4  # of MQTT 3.1.1
_CONNACK_BYTES = 4


class Flood(NamedTuple):
    """The messages of one process."""

    port: int
    topic: str
    payload: bytes
    depth: int
    connections: int
    seconds: float


def run(flood: Flood) -> int:
    """Send a flood; return the number of answers."""
    return asyncio.run(_run(flood))


async def _run(flood: Flood) -> int:
    send = _send if flood.depth else _log_in
    ends_at = time.monotonic() + flood.seconds
    return sum(
        await asyncio.gather(*(send(flood, each, ends_at) for each in range(flood.connections)))
    )


async def _send(flood: Flood, number: int, ends_at: float) -> int:
    answered = 0
    packets = b"".join(
        encode(VERSION_311, Publish(flood.topic, flood.payload, 1, packet_id=each))
        for each in range(1, flood.depth + 1)
    )
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(flood.seconds):
            reader, writer = await asyncio.open_connection("127.0.0.1", flood.port)
            writer.write(encode(VERSION_311, Connect(VERSION_311, f"flood-{number}", True, 0)))
            await reader.readexactly(_CONNACK_BYTES)
            while time.monotonic() < ends_at:
                writer.write(packets)
                await reader.readexactly(flood.depth * _ACKNOWLEDGEMENT_BYTES)
                answered += flood.depth
            writer.close()
    return answered


async def _log_in(flood: Flood, number: int, ends_at: float) -> int:
    answered = 0
    packet = Connect(VERSION_311, f"flood-{number}", True, 0, "admin", b"w3b_" + b"x" * 40)
    with suppress(TimeoutError):
        async with asyncio.timeout(flood.seconds):
            while time.monotonic() < ends_at:
                with suppress(OSError):
                    reader, writer = await asyncio.open_connection("127.0.0.1", flood.port)
                    writer.write(encode(VERSION_311, packet))
                    answered += bool(await reader.read())
                    writer.close()
    return answered


def kinds(node: RunningNode) -> dict[str, tuple[str, bytes]]:
    """Return the topic and the payload of each kind of message."""
    stranger = node.add_publisher("other", "stranger")
    wrong = message(stranger, b"x" * 40)
    wrong["header"]["token"] = "wrong"
    good = json.dumps(message(stranger, b"x" * 40)).encode()
    return {
        "accepted": ("other", good),
        "token": ("other", json.dumps(wrong).encode()),
        "project": ("nosuch", good),
        "members": ("other", json.dumps({f"k{number}": 1 for number in range(70_000)}).encode()),
    }


def _measured(node: RunningNode, device: dict[str, Any], seconds: float) -> str:
    body = json.dumps(message(device)).encode()

    def publish(client: MqttClient) -> None:
        answer = client.publish("room", body)
        assert answer is not None
        assert answer.code == ReasonCode.SUCCESS

    def publish_anew() -> None:
        with MqttClient(node.mqtt_port, source="127.0.0.3") as client:
            client.connect()
            publish(client)

    with (
        MqttClient(node.mqtt_port) as near,
        MqttClient(node.mqtt_port, source="127.0.0.2") as far,
    ):
        for client in (near, far):
            client.connect(new_id("device"))
        until = time.monotonic() + seconds
        measured = [
            Times(lambda: publish(near), until),
            Times(lambda: publish(far), until),
            Times(publish_anew, until),
        ]
        return " | ".join(times.columns() for times in measured)


def main(words: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.mqtt_floods", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each flood")
    parser.add_argument("--connections", type=int, default=120)
    parser.add_argument("--depth", type=int, action="append", help=f"default: {DEPTHS}")
    parser.add_argument("kinds", nargs="*", help="default: all")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="fb") as folder:
        node = RunningNode(Path(folder) / "data", "--mqtt-logins", "false")
        try:
            node.log_in()
            for project in ("room", "other"):
                node.create_project(project)
                node.deploy(project, TALLY, strategies=strategies(DEFAULT="start"))
            device = node.add_publisher("room", "device")
            each = ("same address p50 ms", "p90", "max")
            columns = [*each, "another p50", *each[1:], "new connection p50", *each[1:]]
            print(f"| flood | at once | answers/s | {' | '.join(columns)} |")
            print("|---" * (3 + len(columns)) + "|")
            print(f"| none | | | {_measured(node, device, given.seconds)} |", flush=True)
            floods = [
                (kind, depth, *topic_and_payload)
                for kind, topic_and_payload in kinds(node).items()
                for depth in given.depth or DEPTHS
            ]
            for kind, depth, topic, payload in [*floods, ("login", 0, "", b"")]:
                if given.kinds and kind not in given.kinds:
                    continue
                flood = Flood(
                    node.mqtt_port, topic, payload, depth, given.connections, given.seconds + 1
                )
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    answers = pool.apply_async(run, [flood])
                    time.sleep(1)
                    measured = _measured(node, device, given.seconds)
                    rate = answers.get() / flood.seconds
                print(f"| {kind} | {depth or ''} | {rate:.0f} | {measured} |", flush=True)
                time.sleep(1)
        finally:
            node.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
