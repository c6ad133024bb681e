"""Connections that arrive before their server is created."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tornado import web

from fieldbrook.core.settings import Settings
from fieldbrook.gateway.events.request import Meta
from fieldbrook.gateway.http.fast_path import FastPath
from fieldbrook.gateway.http.later import LaterServer
from fieldbrook.gateway.http.tornado.server import TornadoServer
from fieldbrook.gateway.listening.connections import TLS_DESCRIPTORS
from fieldbrook.gateway.listening.read_turns import ReadTurns
from fieldbrook.gateway.replies import Answer, EventReply
from tests.support.tools import LIMIT_S

REQUEST = b"PUT /answer HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody"


class Echo(web.RequestHandler):
    """Answers with the body of the request."""

    def put(self) -> None:
        self.finish(self.request.body)


class Events:
    """Accepts every event."""

    def accept(self, project_name: str, body: bytes, answer: Answer, meta: Meta) -> None:
        answer(EventReply(201, b"accepted", "id"))


class Port:
    """A port whose server is created later."""

    def __init__(self) -> None:
        self.later = LaterServer(None)
        self._fast_path = FastPath(Events(), 1 << 20, self.later.take)

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._fast_path.connection, "127.0.0.1", 0)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._server.sockets[0].getsockname()
        return host, port

    async def request(self, data: bytes = REQUEST) -> bytes:
        """Send a request; return the answer until the connection ends."""
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(data)
        try:
            return await asyncio.wait_for(reader.read(), LIMIT_S)
        finally:
            writer.close()

    async def holds(self, count: int) -> None:
        """Wait until this number of connections waits."""
        async with asyncio.timeout(LIMIT_S):
            while self.later.connections != count:
                await asyncio.sleep(0.001)

    def begin(self) -> None:
        application = web.Application([("/answer", Echo)])
        self.later.begin(TornadoServer(application, Settings(), None, ReadTurns()))

    async def close(self) -> None:
        """Stop listening, and wait until the connections that clients have closed have ended."""
        self._server.close()
        async with asyncio.timeout(LIMIT_S):
            while self.later.connections or self._fast_path.connections:
                await asyncio.sleep(0.001)


@asynccontextmanager
async def opened() -> AsyncIterator[Port]:
    port = Port()
    await port.open()
    try:
        yield port
    finally:
        await port.close()


async def test_a_request_waits_for_its_server_and_is_answered_by_it() -> None:
    async with opened() as port:
        answer = asyncio.create_task(port.request())
        await port.holds(1)
        assert port.later.descriptors == 1
        port.begin()
        assert (await answer).endswith(b"\r\n\r\nbody")


async def test_a_later_request_does_not_wait() -> None:
    async with opened() as port:
        port.begin()
        assert (await port.request()).endswith(b"\r\n\r\nbody")


async def test_an_event_needs_no_server() -> None:
    async with opened() as port:
        event = (
            b"POST /srv-applet-mgr/v0/event/room HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
        )
        answer = asyncio.create_task(port.request(event + REQUEST))
        await port.holds(1)  # the second request waits, after the first was answered
        port.begin()
        assert (await answer).count(b"accepted") == 1


async def test_connections_that_wait_can_make_room_for_others() -> None:
    async with opened() as port:
        gone = asyncio.create_task(port.request())
        await port.holds(1)
        waiting = asyncio.create_task(port.request())
        await port.holds(2)
        min(port.later.idle(), key=lambda each: each.since).evict()
        assert await gone == b""
        assert port.later.connections == 1
        port.begin()
        assert (await waiting).endswith(b"\r\n\r\nbody")


async def test_a_client_that_goes_away_while_its_request_waits_harms_no_other() -> None:
    async with opened() as port:
        gone, waiting = (asyncio.create_task(port.request()) for _ in range(2))
        await port.holds(2)
        gone.cancel()
        port.begin()
        assert (await waiting).endswith(b"\r\n\r\nbody")


async def test_a_client_that_resets_its_connection_meanwhile_harms_no_other() -> None:
    async with opened() as port:
        with socket.create_connection(port.address) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(REQUEST)
            await port.holds(1)
        waiting = asyncio.create_task(port.request())
        await port.holds(2)
        port.begin()
        assert (await waiting).endswith(b"\r\n\r\nbody")


def test_a_connection_with_tls_that_waits_has_three_descriptors() -> None:
    later = LaterServer("https")
    one, other = socket.socketpair()
    later.take(one, ("127.0.0.1", 1), b"")
    assert later.descriptors == TLS_DESCRIPTORS
    for each in later.idle():
        each.evict()
    with other:
        assert other.recv(1) == b""
