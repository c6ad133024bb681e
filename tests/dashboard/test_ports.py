"""How port 3000 handles http and https, names that are not the node's, and other ports."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nodes import PREFIX, Answer, RunningNode
from tests.support.tls import TlsNode
from tests.support.tools import LIMIT_S

AUTHORITY = Path("secrets", "localhost-ca.pem")


@pytest.fixture(scope="module")
def redirecting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsNode]:
    """A node with a certificate, whose dashboard behaves like on an address other than the
    loopback."""
    running = TlsNode(tmp_path_factory.mktemp("redirecting"), "--dashboard-plain", "redirect")
    yield running
    running.stop()


def ask(
    port: int,
    path: str,
    method: str = "GET",
    *,
    host: str | None = None,
    name: str = "127.0.0.1",
    ca: Path | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """Send one request with its path unchanged, over TLS if an authority is given."""
    connection = http.client.HTTPConnection(name, port, timeout=LIMIT_S)
    if ca is not None:
        context = ssl.create_default_context(cafile=ca)
        connection = http.client.HTTPSConnection(name, port, timeout=LIMIT_S, context=context)
    try:
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host or f"{name}:{port}")
        connection.putheader("Content-Length", "0")
        for header, value in (headers or {}).items():
            connection.putheader(header, value)
        connection.endheaders()
        reply = connection.getresponse()
        return Answer(reply.status, dict(reply.getheaders()), reply.read())
    finally:
        connection.close()


def exchange(port: int, sent: bytes) -> bytes:
    """Return the complete answer to these bytes on a plain connection."""
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(1 << 16):
                received += part
        return received


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_a_node_without_a_certificate_has_https_on_its_own_machine_beside_http(
    node: RunningNode, name: str
) -> None:
    secure = ask(node.dashboard_port, "/", name=name, ca=node.data / AUTHORITY)
    plain = ask(node.dashboard_port, "/", name=name)
    assert (secure.status, plain.status) == (200, 200)
    assert secure.body == plain.body
    assert "Strict-Transport-Security" not in secure.headers


def test_the_event_port_stays_plain_without_a_certificate(node: RunningNode) -> None:
    answer = exchange(node.http_port, b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.thorough
def test_the_loopback_keeps_http_beside_https_with_a_certificate(tmp_path: Path) -> None:
    node = TlsNode(tmp_path)
    try:
        port = node.dashboard_port
        assert ask(port, "/").status == 200
        assert ask(port, "/", ca=node.files.ca).status == 200
        assert ask(port, "/srv-applet-mgr/v0/project").status == 401
        assert ask(node.http_port, "/version").status == 400
    finally:
        node.stop()


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.thorough("GET")
def test_elsewhere_plain_pages_are_sent_on_to_https(redirecting: TlsNode, method: str) -> None:
    port = redirecting.dashboard_port
    for path in ("/", "/projects/room/events?type=A%20B&failed=1", "/docs/"):
        answer = ask(port, path, method, host=f"localhost:{port}")
        assert (answer.status, answer.body) == (308, b"")
        assert answer.headers["Location"] == f"https://localhost:{port}{path}"
        assert answer.headers["Cache-Control"] == "no-store"
    assert ask(port, "/", name="localhost", ca=redirecting.files.ca).status == 200


@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
        b"GET //evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost",
        b"GET /" + b"a" * 20_000,
        b"\x00\x01\x02",
    ],
)
def test_what_is_no_sane_page_request_is_told_to_use_https(
    redirecting: TlsNode, head: bytes
) -> None:
    received = exchange(redirecting.dashboard_port, head)
    assert received.startswith(b"HTTP/1.1 400 "), received
    assert b"https://" in received
    assert b"Location" not in received


def test_the_event_port_never_redirects(redirecting: TlsNode) -> None:
    assert ask(redirecting.http_port, "/").status == 400


@pytest.mark.parametrize(
    "path", ["/", "/setup", "/projects/room", "/ui/000000000000/app.js", "/nowhere", "/version"]
)
def test_a_foreign_name_for_the_node_shows_no_page(node: RunningNode, path: str) -> None:
    foreign = ask(node.dashboard_port, path, host="evil.example:3000")
    own = ask(node.dashboard_port, path, host="127.0.0.1:3000")
    if path in ("/nowhere", "/version"):
        assert foreign.status == own.status
    else:
        assert own.status in (200, 404)
        assert foreign.status == 421
        assert b"dashboard_hosts" in foreign.body


@pytest.mark.parametrize("path", [f"{PREFIX}/stream", f"{PREFIX}/str%65am"])
def test_a_foreign_name_opens_no_stream_of_the_dashboard(node: RunningNode, path: str) -> None:
    for headers in ({}, {"Upgrade": "websocket", "Connection": "Upgrade"}):
        query = f"{path}?topic=health&authorization={node.token}"
        foreign = ask(node.dashboard_port, query, host="evil.example:3000", headers=headers)
        assert foreign.status == 421
        assert b"dashboard_hosts" in foreign.body
        # Programs reach the other port by any name.
        assert (
            ask(node.http_port, f"{path}?topic=none", host="evil.example", headers=headers).status
            != 421
        )
        own = ask(node.dashboard_port, f"{path}?topic=none", host="localhost:3000", headers=headers)
        assert own.status in (400, 401, 426)


@pytest.mark.thorough
def test_names_of_the_setting_and_addresses_show_the_page(tmp_path: Path) -> None:
    flags = (
        "--dashboard-hosts",
        "node.example, *.farm.example",
        "--public-url",
        "https://farm.example",
    )
    node = RunningNode(tmp_path / "data", *flags)
    try:
        for host, status in (
            ("node.example:3000", 200),
            ("a.farm.example", 200),
            ("localhost", 200),
            ("192.0.2.1:3000", 200),
            ("[::1]:3000", 200),
            ("farm.example", 200),
            ("b.a.farm.example", 421),
            ("evil.example", 421),
        ):
            assert ask(node.dashboard_port, "/", host=host).status == status, host
    finally:
        node.stop()


def test_the_interface_is_open_to_any_origin_and_never_with_credentials(node: RunningNode) -> None:
    answer = node.call("GET", "/version", headers={"Origin": "https://studio.example"})
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert "Access-Control-Allow-Credentials" not in answer.headers
