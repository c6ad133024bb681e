"""Hundreds of connections that send the smallest pieces of everything do not stop a node."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from tests.support.applets import TALLY
from tests.support.nodes import PREFIX, RunningNode, StartNode, message, parts, strategies
from tests.support.tools import LIMIT_S

CONNECTIONS = 300
FLOOD_S = 8.0
# Without the limits, one turn of the event loop takes 5 s and more, and an event needs several
# turns.
LATE_S = 10.0
_WEBSOCKET = (
    b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
_EVENT = f"POST {PREFIX}/event/nosuch HTTP/1.1\r\nHost: x\r\n".encode()
FLOODS = {
    "chunks": (_EVENT + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
    "pings": (_WEBSOCKET, b"\x89\x80\0\0\0\0"),
    "heads": (b"", b"GET /nosuch HTTP/1.1\r\nHost: x\r\n\r\n"),
}


@pytest.fixture(scope="module")
def node(start_module_node: StartNode) -> RunningNode:
    node = start_module_node()
    node.create_project("room")
    node.deploy("room", TALLY, strategies=strategies(DEFAULT="start"))
    return node


@contextmanager
def _flood(node: RunningNode, head: bytes, piece: bytes) -> Iterator[None]:
    """Send as many pieces as the node accepts, over all connections, for some seconds."""
    pieces, ends_at = piece * (32_768 // len(piece)), time.monotonic() + FLOOD_S
    with ExitStack() as opened:
        connections = dict[socket.socket, int]()  # and how many bytes of the pieces each has sent
        for _ in range(CONNECTIONS):
            connection = socket.create_connection(("127.0.0.1", node.http_port), LIMIT_S)
            connections[opened.enter_context(connection)] = 0
            connection.sendall(head)
            connection.setblocking(False)

        def send() -> None:
            while time.monotonic() < ends_at:
                for connection, at in connections.items():
                    with suppress(OSError):
                        sent = connection.send(pieces[at:])
                        connections[connection] = (at + sent) % len(pieces)
                    with suppress(OSError):
                        connection.recv(1 << 16)
                time.sleep(0.01)

        sending = threading.Thread(target=send)
        sending.start()
        yield
        sending.join()


@pytest.mark.thorough("pings", "heads")
@pytest.mark.parametrize("kind", FLOODS)
def test_events_are_answered_while_hundreds_of_connections_send_small_pieces(
    node: RunningNode, kind: str
) -> None:
    gateway, publisher = parts(node)["fb-http:0"], node.add_publisher("room", kind)
    took = []
    with _flood(node, *FLOODS[kind]):
        ends_at = time.monotonic() + FLOOD_S
        while time.monotonic() < ends_at:
            began = time.monotonic()
            connection = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=LIMIT_S)
            connection.request("POST", f"{PREFIX}/event/room", json.dumps(message(publisher)))
            assert connection.getresponse().status == 201
            connection.close()
            took.append(time.monotonic() - began)
    assert max(took) < LATE_S, sorted(took)[-10:]
    assert parts(node)["fb-http:0"] == gateway
