"""Answers of endpoints that are too large or too many, on real connections."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from fieldbrook.chain.rpc import transport
from fieldbrook.chain.rpc.transport import (
    HttpTransport,
    TooLargeError,
    TransportError,
    WebSocketTransport,
)


class Endpoint(BaseHTTPRequestHandler):
    """Answers each request with `body`, and sets a new cookie each time."""

    body = b'{"jsonrpc":"2.0","id":1,"result":"0x1"}'
    cookies: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.cookies.append(self.headers.get("Cookie", ""))
        self.send_response(200)
        self.send_header("Set-Cookie", f"c{len(self.cookies)}={'x' * 1_000}")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[tuple[str, type[Endpoint]]]:
    class Own(Endpoint):
        cookies: list[str] = []  # noqa: RUF012 - of this server alone

    server = ThreadingHTTPServer(("127.0.0.1", 0), Own)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # The cookie jar never keeps cookies of IP addresses, but those of names.
    yield f"http://localhost:{server.server_port}", Own
    server.shutdown()
    server.server_close()


async def test_cookies_of_an_endpoint_are_not_kept(endpoint: tuple[str, type[Endpoint]]) -> None:
    url, server = endpoint
    client = HttpTransport(url)
    for _ in range(3):
        assert (await client.request("eth_chainId", []))["result"] == "0x1"
    await client.close()
    assert server.cookies == [""] * 3


@pytest.mark.parametrize("value", [b"[],", b"{},", b"0,"])
async def test_an_answer_of_too_many_values_is_not_read(
    endpoint: tuple[str, type[Endpoint]], monkeypatch: pytest.MonkeyPatch, value: bytes
) -> None:
    monkeypatch.setattr(transport, "VALUES_LIMIT", 1_000)
    url, server = endpoint
    client = HttpTransport(url)
    for count, is_read in ((400, True), (1_001, False)):
        server.body = b'{"id":1,"result":[%b0]}' % (value * count)
        if is_read:
            assert len((await client.request("eth_getLogs", []))["result"]) == count + 1
        else:
            with pytest.raises(TooLargeError, match="more than 1000 values"):
                await client.request("eth_getLogs", [])
    await client.close()


async def test_answers_that_are_together_too_large_end_and_later_ones_are_read(
    endpoint: tuple[str, type[Endpoint]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, server = endpoint
    client = HttpTransport(url)
    monkeypatch.setattr(transport, "RECEIVED_LIMIT_BYTES", 1_000)
    server.body = b'{"id":1,"result":"%b"}' % (b"0" * 2_000)
    found = await asyncio.gather(
        *(client.request("eth_call", []) for _ in range(3)), return_exceptions=True
    )
    assert [str(each) for each in found] == [
        "the answers of all endpoints have more than 1000 bytes"
    ] * 3
    assert all(isinstance(each, TransportError) for each in found)
    server.body = Endpoint.body
    assert (await client.request("eth_chainId", []))["result"] == "0x1"
    await client.close()


_PING, _PINGS = b"\x89\x00", 50_000
_ANSWER = b'{"id":1,"result":"0x1"}'
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3


async def _send_pings(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Open a WebSocket, send pings, then the answer to a request, and read what comes."""
    key = re.search(rb"Sec-WebSocket-Key: (\S+)", await reader.readuntil(b"\r\n\r\n"))
    assert key is not None
    accepted = base64.b64encode(hashlib.sha1(key[1] + _GUID).digest())  # noqa: S324
    head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    writer.write(head + b"Sec-WebSocket-Accept: " + accepted + b"\r\n\r\n")
    await reader.read(1)
    writer.write(_PING * _PINGS + b"\x81" + bytes([len(_ANSWER)]) + _ANSWER)
    while await reader.read(1 << 16):
        pass
    writer.close()


async def test_other_work_goes_on_while_an_endpoint_sends_pings() -> None:
    server = await asyncio.start_server(_send_pings, "127.0.0.1", 0)
    client = WebSocketTransport(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    asked = asyncio.create_task(client.request("eth_chainId", []))
    turns = 0
    while not asked.done():
        await asyncio.sleep(0)
        turns += 1
    assert (await asked)["result"] == "0x1"
    assert turns > _PINGS // transport._MESSAGES_AT_ONCE
    await client.close()
    server.close()
