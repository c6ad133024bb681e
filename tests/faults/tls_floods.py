"""Measures what a good device notices of clients that send TLS records with little or no data.

    python -m tests.faults.tls_floods [--seconds N] [--connections N] [KIND ...]

After the handshake, connections send prepared records all at once: 600 key updates (`keys`), or a
request in 5,000 records of one byte (`bytes`). Meanwhile a device sends one event after the other,
and another device opens a connection for each event.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

from tests.faults.floods import Times
from tests.support.applets import TALLY
from tests.support.nodes import PREFIX, message, parts, strategies
from tests.support.tls import RawTls, TlsNode

_PATH = f"{PREFIX}/event/room"
_BODY = b"x" * 5_000
_REQUEST = (
    f"POST {_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(_BODY)}\r\n\r\n".encode() + _BODY
)
KINDS: dict[str, Callable[[RawTls], bytes]] = {
    "none": lambda _client: b"",
    "keys": lambda client: client.key_updates(600),
    "bytes": lambda client: client.records(_REQUEST, 1),
}


def _measured(
    node: TlsNode, device: Any, kind: str, connections: int, seconds: float, keys: Path
) -> str:
    body = json.dumps(message(device)).encode()

    def post(connection: http.client.HTTPConnection) -> None:
        connection.request("POST", _PATH, body)
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
        answer.read()

    def post_anew() -> None:
        with closing(node.connection(node.http_port)) as connection:
            post(connection)

    with ExitStack() as opened:
        kept = opened.enter_context(closing(node.connection(node.http_port)))
        clients = [RawTls(node.http_port, node.files, keys) for _ in range(connections)]
        for client in clients:
            opened.enter_context(client.socket)
        made = [KINDS[kind](client) for client in clients]
        until = time.monotonic() + seconds
        measured = [Times(lambda: post(kept), until), Times(post_anew, until)]
        time.sleep(1)
        for client, data in zip(clients, made, strict=True):
            client.socket.setblocking(False)
            with suppress(BlockingIOError, ConnectionError):
                client.socket.send(data)
        return " | ".join(times.columns() for times in measured)


def main(words: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.tls_floods", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--connections", type=int, default=300)
    parser.add_argument("kinds", nargs="*", help="default: all")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="fb") as folder:
        node = TlsNode(Path(folder))
        try:
            node.log_in()
            node.create_project("room")
            node.deploy("room", TALLY, strategies=strategies(DEFAULT="start"))
            device = node.add_publisher("room", "device")
            columns = "event p50 ms | p90 | max | new connection p50 | p90 | max"
            print(f"| sent | {columns} |\n{'|---' * 7}|")
            for kind in given.kinds or KINDS:
                gateway = parts(node)["fb-http:0"]
                measured = _measured(
                    node, device, kind, given.connections, given.seconds, Path(folder) / "keys"
                )
                died = "" if parts(node)["fb-http:0"] == gateway else ", the gateway died"
                print(f"| {kind}{died} | {measured} |", flush=True)
        finally:
            node.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
