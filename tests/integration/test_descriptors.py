"""More connections than the limit of open files: stores and projects keep their files."""

from __future__ import annotations

import json
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support import applets
from tests.support.nodes import PREFIX, RunningNode, message, parts, strategies, until
from tests.support.tls import TlsNode

LIMIT = 200
ALLOWED = LIMIT // 2
ALLOWED_OVER_TLS = LIMIT // 2 // 3
FLOOD = 450
_LIMITED = (
    "import os, resource, sys; "
    f"resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT})); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class FewFiles(RunningNode):
    prefix = (sys.executable, "-c", _LIMITED)


class FewFilesOverTls(TlsNode):
    prefix = (sys.executable, "-c", _LIMITED)


@contextmanager
def flood(port: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Open many connections that send something and stay open."""
    with ExitStack() as stack:
        opened = []
        for _ in range(FLOOD):
            connection = stack.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
            opened.append(connection)
        if sent:
            for connection in opened:
                try:
                    connection.send(sent)
                except OSError:
                    continue  # the node has closed it, or has not accepted it yet
        yield opened


def files_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _flooded(node: RunningNode, sent: bytes, still_works: Callable[[], None]) -> None:
    pid = parts(node)["fb-http:0"]
    seen = len(node.log)
    with flood(node.http_port, sent):
        until(lambda: "is the limit" in node.log or files_of(pid) > ALLOWED, "the gateway is full")
        for _ in range(5):
            still_works()
            assert files_of(pid) < LIMIT - 16
    still_works()
    assert parts(node)["fb-http:0"] == pid
    added = [line for line in node.log[seen:].splitlines() if "INFO" not in line]
    assert len(added) <= 2, added
    assert "Traceback" not in node.log


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    made = FewFiles(tmp_path_factory.mktemp("few") / "node")
    yield made
    made.stop()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /version HTT",
        b"POST /version HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1",
        f"PUT {PREFIX}/login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n9".encode(),
        f"POST {PREFIX}/event/room HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1".encode(),
        b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /srv-applet-mgr HTTP/1.1\r\nHost: x\r\n\r\n" * 40,
    ],
    ids=[
        "silent",
        "half a head",
        "half a body",
        "half a chunk",
        "half an event",
        "whole",
        "unread",
    ],
)
@pytest.mark.thorough("unread")
def test_more_connections_than_files_take_nothing_from_others_and_are_logged_once(
    node: RunningNode, sent: bytes
) -> None:
    if not node.token:
        node.log_in()
        node.create_project("room")
        node.deploy("room", applets.TALLY, "tally", strategies=strategies(START="start"))
        node.publisher = node.add_publisher("room", "device-1")  # type: ignore[attr-defined]
    event = json.dumps(message(node.publisher, b"hi", "START"))  # type: ignore[attr-defined]

    def still_works() -> None:
        assert node.call("GET", "/version").status == 200
        assert node.call("POST", "/event/room", event.encode(), token="").status == 201
        assert node.call("GET", "/project").status == 200

    _flooded(node, sent, still_works)


def test_websockets_of_mqtt_take_no_files_from_others(node: RunningNode) -> None:
    """Each WebSocket has two descriptors, and stays open while its client is silent."""
    gateway = parts(node)["fb-http:0"]
    before = files_of(gateway)
    with ExitStack() as stack:
        for number in range(2 * LIMIT):
            source = f"127.0.0.{2 + number % 8}"
            opened = socket.create_connection(("127.0.0.1", node.http_port), 10, (source, 0))
            stack.enter_context(opened)
            opened.sendall(
                b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
                b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
            )
            assert opened.recv(1024).startswith(b"HTTP/1.1 101 ")
            client = b"\0\x04c%03d" % number
            packet = b"\x10%c\0\x04MQTT\4\2\0\x3c%s" % (10 + len(client), client)
            opened.sendall(b"\x82%c\0\0\0\0%s" % (0x80 | len(packet), packet))
        for _ in range(5):
            assert node.call("GET", "/version").status == 200
        until(lambda: files_of(gateway) < before + LIMIT // 4 + 8, "the others are closed")
        with flood(node.http_port, b""):
            until(lambda: files_of(gateway) > before + LIMIT // 4 + 8, "others are let in")
            for _ in range(5):
                assert node.call("GET", "/version").status == 200
                assert files_of(gateway) < LIMIT - 16
    assert parts(node)["fb-http:0"] == gateway


def test_the_start_says_how_many_connections_the_limit_of_files_allows(node: RunningNode) -> None:
    assert f"accepts up to {ALLOWED} connections at once" in node.log
    assert f"a process may have {LIMIT} files open" in node.log
    figures = node.call("GET", "/metrics").body.decode().splitlines()
    assert f"fieldbrook_http_connections_limit {ALLOWED}.0" in figures
    (evicted,) = (
        each for each in figures if each.startswith("fieldbrook_http_connections_evicted")
    )
    assert float(evicted.split()[1]) >= 0


@pytest.mark.thorough
def test_more_handshakes_than_files_harm_nobody(tmp_path: Path) -> None:
    node = FewFilesOverTls(tmp_path)
    try:
        assert f"accepts up to {ALLOWED_OVER_TLS} connections at once" in node.log

        def still_works() -> None:
            assert node.call("GET", "/version").status == 200

        pid = parts(node)["fb-http:0"]
        context = ssl.create_default_context(cafile=node.files.ca)
        with ExitStack() as stack:
            for _ in range(3 * ALLOWED_OVER_TLS):
                plain = socket.create_connection(("127.0.0.1", node.http_port), 10)
                wrapped = context.wrap_socket(plain, server_hostname="localhost")
                stack.enter_context(wrapped)
                wrapped.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
                assert wrapped.recv(64).startswith(b"HTTP/1.1 200 ")
            still_works()
            assert files_of(pid) < LIMIT - 16
        still_works()
        assert parts(node)["fb-http:0"] == pid
        assert "Traceback" not in node.log
    finally:
        node.stop()
