"""Real MQTT brokers on free loopback ports, and clients for them."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from fieldbrook.gateway.mqtt.paho_source import PahoSource
from tests.support.mqtt_bytes import remaining_length
from tests.support.nodes import RunningNode, until
from tests.support.tools import LIMIT_S, free_port, require_tool

LOOPBACK = "127.0.0.1"
REFUSED = 0x80
_numbers = itertools.count()
_MOSQUITTO = """\
listener {port} 127.0.0.1
allow_anonymous true
set_tcp_nodelay true
persistence true
persistence_location {folder}/
autosave_interval 1
max_inflight_messages 0
max_queued_messages 0
log_type error
user root
"""


class Mosquitto:
    """mosquitto, persistent, with the limits that the documentation recommends.

    After a restart it has the same folder and port.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        self._process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL)
        limit = time.monotonic() + LIMIT_S
        while True:
            try:
                Device(self.port, "probe").close()
                return
            except OSError:
                assert time.monotonic() < limit, f"no broker on port {self.port}"
                time.sleep(0.005)

    def kill(self) -> None:
        """Send SIGKILL, so that the broker cannot write anything more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the broker during the block: it reads and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def command(self) -> list[str]:
        """Return the arguments of the process."""
        config = self.folder / "mosquitto.conf"
        config.write_text(_MOSQUITTO.format(port=self.port, folder=self.folder))
        return [require_tool("mosquitto"), "-c", str(config)]

    def source(self) -> PahoSource:
        """Return a source for this broker; all of them have the same identity."""
        return PahoSource(LOOPBACK, self.port, client_id="fieldbrook-test")


class Device:
    """A blocking MQTT 3.1.1 client. Its client id is unique unless `own_id` is False, and its
    session is clean unless `clean` is False. It waits up to `limit_s` for each answer of the
    broker."""

    def __init__(
        self,
        port: int,
        client_id: str,
        user: str = "",
        password: str = "",
        *,
        limit_s: float = LIMIT_S,
        clean: bool = True,
        own_id: bool = True,
    ) -> None:
        if own_id:
            # A broker may delay or refuse a client id that is used again at once.
            client_id = f"{client_id}-{os.getpid()}-{next(_numbers)}"
        self._socket = socket.create_connection((LOOPBACK, port), limit_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._connect(client_id, user, password, clean)
        except BaseException:
            self.close()
            raise

    def _connect(self, client_id: str, user: str, password: str, clean: bool) -> None:
        flags = (0x02 if clean else 0) | (0xC0 if user else 0)
        fields = [client_id, user, password] if user else [client_id]
        body = b"\x00\x04MQTT\x04" + bytes([flags, 0, 60]) + b"".join(map(_text, fields))
        self._send(0x10, body)
        kind, answer = self.read()
        if kind != 0x20 or answer[1] != 0:
            raise ConnectionRefusedError(f"CONNACK {answer.hex()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect."""
        with contextlib.suppress(OSError):
            self._socket.sendall(b"\xe0\x00")
        self._socket.close()

    def settimeout(self, seconds: float) -> None:
        """Set the time limit of reads."""
        self._socket.settimeout(seconds)

    def publish(self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False) -> None:
        """Send one message; with QoS 1, wait for its acknowledgement."""
        self._socket.sendall(publish_packet(topic, payload, qos, packet_id=1, retain=retain))
        if qos:
            assert self.read()[0] == 0x40

    def begin_qos2(self, topic: str, payload: bytes, packet_id: int) -> None:
        """Send a QoS 2 message, wait for PUBREC, and never release the message.

        Raises:
            ConnectionError: the broker ended the connection instead.
        """
        self._socket.sendall(publish_packet(topic, payload, 2, packet_id))
        assert self.read()[0] == 0x50

    def send_raw(self, packets: bytes) -> None:
        """Send these bytes and read nothing."""
        self._socket.sendall(packets)

    def publish_all(
        self, messages: Iterable[tuple[str, bytes]], window: int = 64, acknowledged: int = 0
    ) -> int:
        """Publish with QoS 1, with up to `window` unacknowledged messages, until all are
        acknowledged or the connection ends; return the number of acknowledged ones."""
        waiting, rest = 0, b""
        packets = (
            publish_packet(topic, payload, 1, packet_id=number % 65_535 + 1)
            for number, (topic, payload) in enumerate(messages)
        )
        try:
            while True:
                burst = list(itertools.islice(packets, window - waiting))
                self._socket.sendall(b"".join(burst))
                waiting += len(burst)
                if not waiting:
                    return acknowledged
                received = self._socket.recv(65_536)
                if not received:
                    return acknowledged
                done, rest = split_pubacks(rest + received)
                waiting -= done
                acknowledged += done
        except OSError:
            return acknowledged

    def subscribe(self, topic_filter: str, qos: int = 0) -> int:
        """Subscribe; return the broker's return code: the granted QoS, or REFUSED."""
        self._send(0x82, b"\x00\x01" + _text(topic_filter) + bytes([qos]))
        kind, answer = self.read()
        assert kind == 0x90
        return answer[2]

    def read(self) -> tuple[int, bytes]:
        """Return the type and the body of the next packet.

        Raises:
            ConnectionError: the broker ended the connection.
        """
        kind = self._exactly(1)[0] & 0xF0
        length, shift = 0, 0
        while True:
            byte = self._exactly(1)[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return kind, self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionResetError("the broker ended the connection")
            data += part
        return data

    def _send(self, kind: int, body: bytes) -> None:
        self._socket.sendall(bytes([kind]) + remaining_length(len(body)) + body)


def publish_packet(
    topic: str, payload: bytes, qos: int, packet_id: int, *, retain: bool = False
) -> bytes:
    """Return a PUBLISH packet."""
    body = _text(topic) + (packet_id.to_bytes(2, "big") if qos else b"") + payload
    return bytes([0x30 | qos << 1 | retain]) + remaining_length(len(body)) + body


def numbered(topics: Sequence[str], start: int, end: int, size: int = 0) -> list[tuple[str, bytes]]:
    """Return messages whose payloads begin with their number; the topics take turns."""
    return [(topics[n % len(topics)], b"%d".ljust(size) % n) for n in range(start, end)]


def split_pubacks(received: bytes) -> tuple[int, bytes]:
    """Return the number of whole PUBACK packets, and the remaining bytes."""
    count = len(received) // 4
    return count, received[4 * count :]


def _text(value: str) -> bytes:
    encoded = value.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def publish(port: int, topic: str, body: bytes, events: int) -> int:
    """Publish with QoS 1 and wait for every PUBACK; return how many arrived."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=f"load-{os.getpid()}")
    client.max_inflight_messages_set(200)
    client.max_queued_messages_set(0)
    acknowledged = threading.Semaphore(0)
    client.on_publish = lambda *_: acknowledged.release()
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        for _ in range(events):
            client.publish(topic, body, qos=1)
        got = 0
        while got < events and acknowledged.acquire(timeout=LIMIT_S):
            got += 1
        return got
    finally:
        client.loop_stop()
        client.disconnect()


class Subscriber:
    """`mosquitto_sub` with the login of the node's administrator."""

    def __init__(self, node: RunningNode, topic: str) -> None:
        require_tool("mosquitto_sub")
        # stdbuf makes it write line by line, although its output is a pipe.
        command = ["stdbuf", "-oL", "mosquitto_sub", "-h", "127.0.0.1", "-p", str(node.mqtt_port)]
        privileges = [{"name": "Event", "perm": "READ_WRITE"}]
        number = next(_numbers)
        body = {"name": f"subscriber {number}", "privileges": privileges}
        key = node.call("POST", "/account_access_key", body).json["accessKey"]
        login = ["-u", "admin", "-P", key]
        session = ["-c", "-i", f"subscriber-{number}"]
        self._process = subprocess.Popen(
            [*command, *login, *session, "-q", "1", "-v", "-d", "-t", topic],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        until(lambda: any("SUBACK" in line for line in self.lines), "the subscription")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.strip())

    def received(self, topic: str) -> list[str]:
        return [line.removeprefix(topic + " ") for line in self.lines if line.startswith(topic)]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
