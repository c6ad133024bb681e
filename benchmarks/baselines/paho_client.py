"""A bare paho client that does the work of each message; how many it did is kept in a file.

python -m benchmarks.baselines.paho_client PORT TOPIC FOLDER COUNT
"""

from __future__ import annotations

import mmap
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.baselines.work import TokenError, Work


def main(port: int, topic: str, folder: Path, count_file: Path) -> None:
    """Handle messages until the process is ended."""
    work = Work(folder)
    with count_file.open("r+b") as file:
        cell = mmap.mmap(file.fileno(), 8)

    def on_message(client: mqtt.Client, data: Any, delivery: mqtt.MQTTMessage) -> None:
        with suppress(TokenError):
            cell[:] = work.handle(delivery.payload).to_bytes(8, "little")

    def on_connect(client: mqtt.Client, *_: Any) -> None:
        client.subscribe(topic, qos=1)

    def on_socket_open(client: mqtt.Client, data: Any, sock: Any) -> None:
        # Without it each acknowledgement waits 40 ms for the broker's own.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="baseline")
    client.on_message = on_message
    client.on_connect = on_connect
    client.on_socket_open = on_socket_open
    client.connect("127.0.0.1", port)
    client.loop_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
