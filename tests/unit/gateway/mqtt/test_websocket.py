"""The limit of WebSockets of a process, which one is closed for a new one, and limits of their
messages."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tornado import httpserver, web

from fieldbrook.gateway.http.tornado.server import hand_over
from fieldbrook.gateway.memory_budget import UNCHARGED_BYTES, Shared
from fieldbrook.gateway.mqtt.websocket import PATH, MqttWebSocket, Relays
from tests.support.tools import LIMIT_S

ROOM_BYTES = 2_000
_BINARY, _CONTINUED, _PING, _FINAL = 2, 0, 9, 0x80

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def test_the_quietest_websocket_of_the_peer_with_most_makes_room() -> None:
    relays, dropped = Relays(tls=False, descriptors=64), list[str]()
    assert relays.limit == 8

    def add(name: str) -> None:
        relays.add(name[0], name, lambda: dropped.append(name))

    for name in ("a1", "b1", "b2", "b3", "c1", "b4", "c2", "c3"):
        add(name)
    assert (dropped, relays.descriptors) == ([], 16)
    relays.heard("b", "b1")
    relays.heard("b", "gone")
    relays.heard("d", "gone")
    add("d1")
    assert (dropped, relays.descriptors) == (["b2"], 16)
    relays.discard("b", "b2")
    assert relays.descriptors == 16, "it is not counted any more"
    for name in ("d2", "d3"):
        add(name)
    assert dropped == ["b2", "b3", "c1"]
    for name in ("a1", "b1", "b4", "c2", "c3", "d1", "d2", "d3"):
        relays.discard(name[0], name)
    assert (relays.descriptors, list(relays.idle())) == (0, [])


def test_websockets_leave_half_of_the_descriptors_of_connections_to_requests() -> None:
    for tls in (False, True):
        relays = Relays(tls=tls, descriptors=1_024)
        assert relays.limit is not None
        for number in range(relays.limit):
            relays.add("a", number, lambda: None)
        assert relays.descriptors == 256
        assert relays.connections == 0


class Site:
    """A port with MQTT over WebSocket, and a socket that accepts all data."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.unfinished = Shared(ROOM_BYTES, 100)
        self.relayed = bytearray()
        self.open = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        while data := await reader.read(1 << 16):
            self.relayed += data
        writer.close()
        self.open -= 1

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(
            b"GET %b HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n" % PATH.encode()
        )
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        return reader, writer


@asynccontextmanager
async def _site(folder: Path) -> AsyncIterator[Site]:
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    site = Site(listening.getsockname()[1])
    relays = await asyncio.start_unix_server(site.take, str(folder / "mqtt"))
    arguments = {
        "path": folder / "mqtt",
        "message_limit_bytes": 1 << 20,
        "incomplete": site.unfinished,
        "relays": Relays(tls=False),
    }
    server = httpserver.HTTPServer(web.Application([(PATH, MqttWebSocket, arguments)]))

    async def accept() -> None:
        while True:
            connection, address = await asyncio.get_running_loop().sock_accept(listening)
            connection.setblocking(False)
            hand_over(server, connection, address, b"")

    accepting = asyncio.ensure_future(accept())
    try:
        async with asyncio.timeout(LIMIT_S):
            yield site
    finally:
        accepting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await accepting
        listening.close()
        await server.close_all_connections()
        while site.open:
            await asyncio.sleep(0)
        relays.close()


def _frame(head: int, data: bytes, *, masked: bool = True) -> bytes:
    """Return a short frame, masked with zeros."""
    if not masked:
        return bytes([head, len(data)]) + data
    return struct.pack("BB4x", head, _FINAL | len(data)) + data


async def test_a_message_in_small_pieces_takes_no_more_room_than_one_in_large_pieces(
    tmp_path: Path,
) -> None:
    async with _site(tmp_path) as site:
        good_reader, good = await site.connect()
        reader, hog = await site.connect()
        hog.write(_frame(_BINARY, bytes(100)))
        for _ in range((UNCHARGED_BYTES + ROOM_BYTES) // 100):
            hog.write(_frame(_CONTINUED, bytes(100)))
        assert await reader.read() == b"", "it is closed"
        good.write(_frame(_BINARY, bytes(100)))
        for _ in range(10):
            good.write(_frame(_FINAL | _PING, bytes(100)))
        good.write(_frame(_FINAL | _CONTINUED, b"done"))
        while not site.relayed.endswith(b"done"):
            await asyncio.sleep(0)
        pongs = await good_reader.read(1)
        assert pongs == bytes([_FINAL | 10])
        while site.unfinished.used:
            await asyncio.sleep(0)
        good.close()
        hog.close()


async def test_an_origin_that_is_no_url_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with _site(tmp_path) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(
            b"GET %b HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Protocol: mqtt\r\nOrigin: http://[\r\n\r\n" % PATH.encode()
        )
        assert b" 403 " in await reader.readuntil(b"\r\n")
        writer.close()
    (record,) = caplog.records
    assert record.name == "tornado.access"


async def test_a_client_whose_frames_are_not_masked_is_disconnected(tmp_path: Path) -> None:
    async with _site(tmp_path) as site:
        reader, writer = await site.connect()
        writer.write(_frame(_FINAL | _BINARY, b"hello", masked=False))
        assert await reader.read() == b""
        assert b"hello" not in site.relayed
        writer.close()
