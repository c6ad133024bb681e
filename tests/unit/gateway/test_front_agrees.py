"""The front with Tornado behind it answers whatever is sent as Tornado alone does."""

from __future__ import annotations

import asyncio
import random
import re
import socket
from contextlib import suppress
from typing import Any

import pytest
from tornado import httpserver, iostream, web

from fieldbrook.gateway.front import FrontTable
from fieldbrook.gateway.replies import Answer, EventReply
from fieldbrook.gateway.request import Meta, read_meta

SEEDS = 8
CASES_PER_SEED = 60


class Event(web.RequestHandler):
    """What both are asked for: the project, the meta data and the body that were understood."""

    def post(self, project: str) -> None:
        meta = read_meta(self.request.query, self.request.headers.get("Authorization"))
        self.set_status(201)
        self.finish(f"{project}:{tuple(meta)}:".encode() + self.request.body)


class Taker:
    """The same for the events that the front takes."""

    def take(self, project_name: str, body: bytes, answer: Answer, meta: Meta) -> None:
        understood = f"{project_name}:{tuple(meta)}:".encode() + body
        answer(EventReply(201, understood, "id"))


LINES = [
    "POST /srv-applet-mgr/v0/event/room HTTP/1.1",
    "POST /srv-applet-mgr/v0/event/room HTTP/1.1",
    "POST /srv-applet-mgr/v0/event/room HTTP/1.1",
    "POST /srv-applet-mgr/v0/event/room HTTP/1.0",
    "POST /srv-applet-mgr/v0/event/room?x=1 HTTP/1.1",
    "POST /srv-applet-mgr/v0/event/aid_1_room?eventType=DA-TA_PU-SH&timestamp=17 HTTP/1.1",
    "POST /srv-applet-mgr/v0/event/room?eventType=A%26B+C&eventType=D&eventID=%C3%a9% HTTP/1.1",
    "POST /api/w3bapp/event/room?authorization=Bearer%20q&=&&timestamp=;\"'<{}> HTTP/1.1",
    "POST /srv-applet-mgr/v0/event/room?eventType=A#eventID=B HTTP/1.1",
    "POST /srv-applet-mgr/v0/event/room?eventType=A?eventID=B HTTP/1.1",
    "POST /srv-applet-mgr/v0/event/room? HTTP/1.1",
    "POST /srv-applet-mgr/v0/event/room?eventType=\xe9 HTTP/1.1",
    "POST /srv-applet-mgr/v0/event/room?eventType=a b HTTP/1.1",
    "POST /srv-applet-mgr/v0/event/ro%6fm HTTP/1.1",
    "POST /api/w3bapp/event/other HTTP/1.1",
    "GET /srv-applet-mgr/v0/event/room HTTP/1.1",
    "POST /elsewhere HTTP/1.1",
    "POST  /srv-applet-mgr/v0/event/room HTTP/1.1",
    "post /srv-applet-mgr/v0/event/room HTTP/1.1",
]
HEADERS = [
    "Host: x",
    "Host: x",
    "Host: y",
    "host: x",
    "Content-Length: {n}",
    "Content-Length: {n}",
    "Content-Length: {n}",
    "content-length:{n}",
    "Content-Length: \t{n} ",
    "Content-Length: +{n}",
    "Content-Length: {n}, {n}",
    "Content-Length : {n}",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: identity",
    "Connection: keep-alive",
    "Connection: close",
    "Accept: */*",
    "Authorization: Bearer w3b_KEY",
    "authorization:bare",
    "Authorization: \xe9",
    "Authorization:",
    "X-Long: " + "a" * 300,
    "X-High: \xe9",
    "X-Odd: a\x01b",
    " folded",
    "No colon here",
    "Expect: 100-continue",
]


def request(dice: random.Random) -> bytes:
    """A request as a client, a broken client or an attacker would send it."""
    body = dice.choice([b"", b"{}", b"x" * 40, b"2\r\n{}\r\n0\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n"])
    length = len(body) if dice.random() < 0.8 else dice.randrange(60)
    lines = [dice.choice(LINES), "Host: x", f"Content-Length: {length}"]
    if dice.random() < 0.6:
        lines += dice.choices(HEADERS, k=dice.randrange(4))
    if dice.random() < 0.2:
        del lines[dice.randrange(1, 3)]
    head = "\r\n".join(lines).replace("{n}", str(length))
    data = bytearray(head.encode("latin-1") + b"\r\n\r\n" + body)
    if dice.random() < 0.15:
        data[dice.randrange(len(data))] = dice.choice(b"\0\r\n :\xff")
    return bytes(data)


async def answers(
    port: int, data: bytes, dice: random.Random, silence_s: float
) -> list[tuple[int, bytes]]:
    """What comes back when `data` is sent in pieces, until nothing has come for a while:
    neither side closes a connection that may still be used."""
    received = b""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with suppress(TimeoutError, ConnectionError):
        at = 0
        while at < len(data):
            step = dice.choice([len(data), len(data), 1 + dice.randrange(60)])
            writer.write(data[at : at + step])
            await writer.drain()
            await asyncio.sleep(0)
            at += step
        while more := await asyncio.wait_for(reader.read(65536), silence_s):
            received += more
    writer.close()
    return parse(received)


def parse(data: bytes) -> list[tuple[int, bytes]]:
    """Status and body of each answer; the bodies of error pages are Tornado's own."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        size = int(length[1]) if length else 0
        found.append((status, data[:size] if status == 201 else b""))
        data = data[size:]
    # Whether the refusal that ends a connection is still read depends on the moment.
    while found and found[-1][0] == 400:
        found.pop()
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_is_sent_is_answered_as_by_tornado_alone(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(100)  # Tornado warns of every malformed request

    async def main() -> None:
        path = r"/(?:srv-applet-mgr/v0|api/w3bapp)/event/(\w+)"
        application = web.Application([(path, Event)], log_function=lambda handler: None)
        alone = httpserver.HTTPServer(application)
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        for listening in sockets:
            listening.setblocking(False)
        alone.add_socket(sockets[0])
        behind = httpserver.HTTPServer(application)

        def hand_over(connection: socket.socket, address: tuple[Any, ...], read: bytes) -> None:
            stream = iostream.IOStream(connection)
            stream._read_buffer += read
            stream._read_buffer_size += len(read)
            behind.handle_stream(stream, address)

        table = FrontTable(Taker(), 1 << 20, hand_over)
        loop = asyncio.get_running_loop()
        front = await loop.create_server(table.connection, sock=sockets[1])
        ports = [listening.getsockname()[1] for listening in sockets]
        for case in range(CASES_PER_SEED):
            dice = random.Random(f"{seed}.{case}")
            data = b"".join(request(dice) for _ in range(dice.randrange(1, 4)))
            for silence_s in (0.02, 0.2, 2.0):  # a slow machine is not a disagreement
                expected, got = await asyncio.gather(
                    *(answers(port, data, random.Random(case), silence_s) for port in ports)
                )
                if got == expected:
                    break
            assert got == expected, data
        front.close()
        alone.stop()
        await alone.close_all_connections()
        await behind.close_all_connections()
        for connection in list(table.connections):
            connection.close_if_late(float("inf"))

    asyncio.run(main())
