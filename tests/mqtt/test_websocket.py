"""MQTT over WebSocket: MQTT 3.1.1 and 5.0, section 6."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import AsyncIterator, Callable

import pytest
from tornado import httpclient, websocket

from fieldbrook.gateway.mqtt.protocol.encoding import encode
from fieldbrook.gateway.mqtt.protocol.packets import VERSION_5, Connect, PingReq
from tests.mqtt.conftest import Site
from tests.support.mqtt_client import new_id
from tests.support.nodes import until

PING = encode(VERSION_5, PingReq())
PONG = b"\xd0\x00"


@contextlib.asynccontextmanager
async def _opened(site: Site) -> AsyncIterator[websocket.WebSocketClientConnection]:
    url = f"ws://127.0.0.1:{site.node.http_port}/mqtt"
    opened = await websocket.websocket_connect(url, subprotocols=["other", "mqtt"])
    try:
        assert opened.selected_subprotocol == "mqtt"
        yield opened
    finally:
        opened.close()
        # The socket is closed after the node's answer, unless the node closed it before.
        while opened.close_code is None and await opened.read_message() is not None:
            continue


async def _read(opened: websocket.WebSocketClientConnection, size: int) -> bytes:
    """Read this number of bytes, regardless of their pieces."""
    found = b""
    while len(found) < size:
        message = await opened.read_message()
        assert isinstance(message, bytes)
        found += message
    return found


async def test_packets_and_messages_need_not_be_aligned(site: Site) -> None:
    async with _opened(site) as opened:
        data = encode(VERSION_5, Connect(VERSION_5, new_id())) + PING * 3
        for at in range(len(data)):  # a byte in each message
            await opened.write_message(data[at : at + 1], binary=True)
        start = await _read(opened, 2)
        assert start[0] == 0x20
        rest = start[1] + 2 + 3 * len(PONG) - len(start)
        found = start + await _read(opened, rest)
        assert found.endswith(PONG * 3)
        await opened.write_message(PING * 100, binary=True)  # many packets in a message
        assert await _read(opened, 100 * len(PONG)) == PONG * 100


async def test_only_binary_messages_carry_packets(site: Site) -> None:
    async with _opened(site) as opened:
        await opened.write_message(encode(VERSION_5, Connect(VERSION_5, new_id())), binary=True)
        assert await opened.read_message()
        await opened.write_message("\xc0\x00", binary=False)
        assert await opened.read_message() is None
        assert opened.close_code == 1003


async def test_a_websocket_without_the_subprotocol_is_refused(site: Site) -> None:
    url = f"ws://127.0.0.1:{site.node.http_port}/mqtt"
    try:
        await websocket.websocket_connect(url)
    except httpclient.HTTPClientError as error:
        assert error.code == 400
    else:
        raise AssertionError("the WebSocket was opened")


def _frame(data: bytes, size: int) -> bytes:
    """Return a binary message of `size` bytes, of which only `data` is present."""
    return b"\x82\xff" + struct.pack(">Q", size) + bytes(4) + data  # masked with zeros


def _raw(site: Site, source: str) -> socket.socket:
    """Open a WebSocket whose MQTT client has connected."""
    port = site.node.http_port
    opened = socket.create_connection(("127.0.0.1", port), 30, (source, 0))
    opened.sendall(
        b"GET /mqtt HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n" % port
    )
    assert b" 101 " in opened.recv(4_096)
    data = encode(VERSION_5, Connect(VERSION_5, new_id()))
    opened.sendall(_frame(data, len(data)))
    assert opened.recv(1) == b"\x82"
    opened.recv(4_096)  # CONNACK
    return opened


@pytest.mark.thorough
def test_an_address_takes_half_of_the_room_for_unfinished_messages(
    new_site: Callable[..., Site],
) -> None:
    site, size = new_site(), 1 << 20
    with contextlib.ExitStack() as opened:
        hogs = [opened.enter_context(_raw(site, "127.0.0.1")) for _ in range(40)]
        for hog in hogs:
            with contextlib.suppress(OSError):
                hog.sendall(_frame(bytes(size - 100), size))
        until(lambda: len(select.select(hogs, [], [], 0)[0]) >= 5, "some are closed")
        assert len(select.select(hogs, [], [], 0)[0]) < 12
        other = opened.enter_context(_raw(site, "127.0.0.2"))
        other.sendall(_frame(PING * (size // 2), size))
        assert other.recv(1) == b"\x82"
