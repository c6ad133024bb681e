"""The server's protocol, byte by byte, with a socket in place of the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from fieldbrook.gateway.mqtt.old_broker.nats_wire import Endpoint, NatsConnection, RequestError
from tests.support.tools import LIMIT_S
from tests.support.waiting import until

INFO = b'INFO {"server_id":"x"}\r\n'
Taken = tuple[bytes, bytes, bytes, bytes]

STREAM = (
    b"MSG p1 1 5\r\nhello\r\n"
    b"PING\r\n"
    b"MSG p1.push.\x0b\x0c 1 $JS.ACK.x 0\r\n\r\n"
    b"+OK\r\n"
    b"HMSG p1 1 18 21\r\nNATS/1.0\r\nA: b\r\n\r\nabc\r\n"
    b"HMSG p1 1 reply 12 14\r\nNATS/1.0\r\n\r\n\r\n\r\n"
    b"MSG p2 99 7\r\nnobody!\r\n"
    b"MSG p1 1 13\r\nMSG p1 1 1\r\nx\r\n"
)
TAKEN: list[Taken] = [
    (b"p1", b"", b"", b"hello"),
    (b"p1.push.\x0b\x0c", b"$JS.ACK.x", b"", b""),
    (b"p1", b"", b"NATS/1.0\r\nA: b\r\n\r\n", b"abc"),
    (b"p1", b"reply", b"NATS/1.0\r\n\r\n", b"\r\n"),
    (b"p1", b"", b"", b"MSG p1 1 1\r\nx"),
]


class Server:
    """The server's end of a connection."""

    def __init__(self) -> None:
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter
        self.lost: list[str] = []

    async def line(self) -> bytes:
        """Return the next line from the client."""
        async with asyncio.timeout(LIMIT_S):
            return (await self.reader.readline()).rstrip(b"\r\n")

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)


Serve = Callable[[Server], Awaitable[None]]


async def welcome(server: Server) -> None:
    """Accept a login."""
    server.send(INFO)
    login = await server.line()
    assert login.startswith(b"CONNECT ")
    assert json.loads(login[8:])["user"] == "node"
    assert await server.line() == b"PING"
    server.send(b"PONG\r\n")


@asynccontextmanager
async def connected(serve: Serve = welcome) -> AsyncIterator[tuple[Server, NatsConnection]]:
    """Make an open connection, and the server's end of it."""
    server = Server()
    served: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.reader, server.writer = reader, writer
        await serve(server)
        served.set_result(None)

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    connection = NatsConnection(server.lost.append, lambda: None)
    try:
        await connection.open(Endpoint(f"nats://127.0.0.1:{port}", "node", "s"), "test", LIMIT_S)
        await served
        yield server, connection
    finally:
        connection.close()
        server.writer.close()
        listening.close()


def parsed(pieces: list[bytes]) -> list[Taken]:
    """Return the messages that a connection reads from bytes in these pieces."""

    async def scenario() -> list[Taken]:
        taken: list[Taken] = []
        connection = NatsConnection(lambda _reason: None, lambda: None)
        connection.subscribe("p1", lambda *parts: taken.append(parts))
        for piece in pieces:
            at = 0
            while at < len(piece):
                room = connection.get_buffer(-1)
                part = piece[at : at + len(room)]
                room[: len(part)] = part
                connection.buffer_updated(len(part))
                at += len(part)
        return taken

    return asyncio.run(scenario())


def test_messages_are_the_same_wherever_the_stream_is_cut() -> None:
    assert parsed([STREAM]) == TAKEN
    assert parsed([bytes([byte]) for byte in STREAM]) == TAKEN
    for at in range(len(STREAM)):
        assert parsed([STREAM[:at], STREAM[at:]]) == TAKEN


def test_a_message_larger_than_what_is_read_at_once_arrives_whole() -> None:
    large = bytes(range(256)) * 5_000
    stream = b"MSG p1 1 %d\r\n%s\r\n" % (len(large), large)
    assert parsed([stream + STREAM + stream]) == [
        (b"p1", b"", b"", large),
        *TAKEN,
        (b"p1", b"", b"", large),
    ]


async def test_pings_are_answered_and_asked() -> None:
    async def answer_ping(server: Server) -> None:
        assert await server.line() == b"PING"
        server.send(b"PONG\r\n")

    async with connected() as (server, connection):
        server.send(b"PING\r\n")
        assert await server.line() == b"PONG"
        assert connection.is_alive()
        assert await server.line() == b"PING"
        server.send(b"PONG\r\n")
        await asyncio.gather(connection.flush(LIMIT_S), answer_ping(server))
        assert connection.is_alive()


async def test_a_server_that_answers_no_ping_counts_as_dead() -> None:
    async with connected() as (_, connection):
        assert [connection.is_alive() for _ in range(4)] == [True, True, False, False]


async def test_a_refused_login_says_why() -> None:
    async def refuse(server: Server) -> None:
        server.send(INFO)
        await server.line()
        server.send(b"-ERR 'Authorization Violation'\r\n")
        server.writer.close()

    with pytest.raises(ConnectionError, match="Authorization Violation"):
        async with connected(refuse):
            pass


def test_what_is_no_protocol_ends_the_connection() -> None:
    for garbage in (b"HTTP/1.1 400 Bad Request\r\n", b"MSG p1 1 x\r\n", b"a" * 10_000):

        async def scenario(sent: bytes) -> None:
            async with connected() as (server, connection):
                server.send(sent)
                await until(lambda: bool(server.lost))
                assert "invalid NATS protocol" in server.lost[0]
                assert not connection.connected
                with pytest.raises(ConnectionError):
                    await connection.flush(LIMIT_S)

        asyncio.run(scenario(garbage))


def test_requests_are_answered_refused_or_fail_with_the_connection() -> None:
    async def answer(server: Server, head: bytes, body: bytes) -> None:
        subscribed = (await server.line()).split()
        published = (await server.line()).split()
        assert subscribed[1] == published[2]
        assert await server.line() == b'{"a": 1}'
        where, number = subscribed[1].decode(), subscribed[2].decode()
        sizes = f"{len(head)} {len(head) + len(body)}"
        server.send(f"HMSG {where} {number} {sizes}\r\n".encode() + head + body + b"\r\n")

    async def ask(head: bytes, body: bytes) -> object:
        async with connected() as (server, connection):
            asked = connection.ask("$JS.API.X", {"a": 1}, LIMIT_S)
            return (await asyncio.gather(asked, answer(server, head, body)))[0]

    async def lose() -> None:
        async with connected() as (server, connection):
            asked = asyncio.create_task(connection.ask("$JS.API.X", {"a": 1}, LIMIT_S))
            await server.line()
            server.writer.close()
            with pytest.raises(ConnectionError):
                await asked
            with pytest.raises(ConnectionError):
                await connection.ask("$JS.API.X", None, LIMIT_S)
            assert server.lost

    plain = b"NATS/1.0\r\n\r\n"
    assert asyncio.run(ask(plain, b'{"seq": 7}')) == {"seq": 7}
    with pytest.raises(RequestError, match="not found") as refused:
        asyncio.run(ask(plain, b'{"error": {"code": 404, "description": "not found"}}'))
    assert refused.value.code == 404
    with pytest.raises(RequestError, match="nothing answers"):
        asyncio.run(ask(b"NATS/1.0 503\r\n\r\n", b""))
    asyncio.run(lose())


def test_a_pull_returns_what_the_server_has_and_fails_with_what_it_refuses() -> None:
    async def serve(server: Server, messages: int, status: bytes) -> None:
        where, number = (await server.line()).split()[1:]
        published = (await server.line()).split()
        assert published[:3] == [b"PUB", b"$NEXT", where]
        assert json.loads(await server.line()) == {"no_wait": True, "batch": 2}
        for n in range(messages):
            server.send(b"MSG $MQTT.msgs.p %b $JS.ACK.%d 1\r\n%d\r\n" % (number, n, n))
        if status:
            head = b"NATS/1.0 " + status + b"\r\n\r\n"
            sizes = b"%d %d" % (len(head), len(head))
            server.send(b"HMSG %b %b %b\r\n%b\r\n" % (where, number, sizes, head))

    async def pull(messages: int, status: bytes) -> list[bytes]:
        async with connected() as (server, connection):
            pulled = connection.pull("$NEXT", {"no_wait": True}, 2, LIMIT_S)
            found = (await asyncio.gather(pulled, serve(server, messages, status)))[0]
            assert [message.reply for message in found] == [b"$JS.ACK.0", b"$JS.ACK.1"][:messages]
            return [message.body for message in found]

    assert asyncio.run(pull(2, b"")) == [b"0", b"1"]
    assert asyncio.run(pull(1, b"404 No Messages")) == [b"0"]
    assert asyncio.run(pull(0, b"408 Request Timeout")) == []
    assert asyncio.run(pull(1, b"409 Message Size Exceeds MaxBytes")) == [b"0"]
    with pytest.raises(RequestError, match="Consumer Deleted") as refused:
        asyncio.run(pull(1, b"409 Consumer Deleted"))
    assert refused.value.code == 409
