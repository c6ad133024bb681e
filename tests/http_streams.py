"""Random request streams, sent to the fast path and to Tornado alone, which must agree.

    python -m tests.http_streams --seeds 0-999 [--cases 60]

Each case is a connection with one to six requests, pipelined, as a client, a broken client or an
attacker would send them. The fast path with Tornado behind it must answer the whole stream as
Tornado alone does: the same statuses and bodies in the same order, and the same end of the
connection. A disagreement is printed with its seed and case, and ends the run.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import re
import socket
import sys
import time
from contextlib import suppress
from typing import NamedTuple

from tornado import httpserver, web

from fieldbrook.gateway.events.request import Meta
from fieldbrook.gateway.http.fast_path import FastPath
from fieldbrook.gateway.http.request_head import HEAD_LIMIT
from fieldbrook.gateway.http.tornado.event_handler import meta_of
from fieldbrook.gateway.http.tornado.server import hand_over
from fieldbrook.gateway.replies import Answer, EventReply
from fieldbrook.gateway.request_target import TargetApplication

CASES_PER_SEED = 60
# A slow machine is not a disagreement: a disagreement is checked again with longer limits.
_SILENCES_S = (0.03, 0.3, 2.0)

PATH = "/srv-applet-mgr/v0/event/room"
GOOD_LINE = f"POST {PATH} HTTP/1.1"
LINES = [
    f"POST {PATH} HTTP/1.0",
    f"POST {PATH}?x=1 HTTP/1.1",
    "POST /srv-applet-mgr/v0/event/aid_1_room?eventType=DA-TA_PU-SH&timestamp=17 HTTP/1.1",
    f"POST {PATH}?eventType=A%26B+C&eventType=D&eventID=%C3%a9% HTTP/1.1",
    "POST /api/w3bapp/event/room?authorization=Bearer%20q&=&&timestamp=;\"'<{}> HTTP/1.1",
    f"POST {PATH}?eventType=A#eventID=B HTTP/1.1",
    f"POST {PATH}?eventType=A?eventID=B HTTP/1.1",
    f"POST {PATH}? HTTP/1.1",
    f"POST {PATH}?{'&'.join('a' * 999)} HTTP/1.1",
    f"POST {PATH}?{'&'.join('a' * 1000)} HTTP/1.1",
    f"POST {PATH}?{'&'.join('a' * 1001)} HTTP/1.1",
    f"POST {PATH}?eventType=\xe9 HTTP/1.1",
    f"POST {PATH}?eventType=a b HTTP/1.1",
    "POST /srv-applet-mgr/v0/event/ro%6fm HTTP/1.1",
    "POST /api/w3bapp/event/other HTTP/1.1",
    f"POST http://x{PATH} HTTP/1.1",
    f"POST https://y:1{PATH}?eventType=A HTTP/1.1",
    f"POST http://a@x{PATH} HTTP/1.1",
    f"POST http:{PATH} HTTP/1.1",
    "POST http://x HTTP/1.1",
    "POST room HTTP/1.1",
    f"POST /{PATH} HTTP/1.1",
    "POST /srv-applet-mgr/v0//event/room HTTP/1.1",
    f"POST {PATH}/ HTTP/1.1",
    f"GET {PATH} HTTP/1.1",
    "OPTIONS * HTTP/1.1",
    "POST /elsewhere HTTP/1.1",
    f"POST  {PATH} HTTP/1.1",
    f"POST {PATH}  HTTP/1.1",
    f"POST {PATH} HTTP/1.1 ",
    f"POST\t{PATH} HTTP/1.1",
    f"post {PATH} HTTP/1.1",
    f"POST {PATH} HTTP/1.2",
    f"POST {PATH} HTTP/2.0",
    f"POST {PATH}",
    "",
]
HOSTS = [
    "x",
    "y:80",
    "A.b-c_d:",
    "[::1]:1",
    "::1",
    "a@b",
    "{x}",
    "a b",
    "a\tb",
    "a,b",
    "a/b",
    "a?b",
    "a\\b",
    "a=b",
    "~",
    "%41",
    "%4",
    "x:a",
    ":",
    "\xe9",
    " x ",
    "\tx\t",
    "",
    " ",
]
FIELDS = [
    "Host: y",
    "host: x",
    "Content-Length: {n}",
    "content-length:{n}",
    "Content-Length: \t{n} ",
    "Content-Length: +{n}",
    "Content-Length: -1",
    "Content-Length: 0x{n}",
    "Content-Length: {n}, {n}",
    "Content-Length: 000000000{n}",
    "Content-Length: \xb2",
    "Content-Length:",
    "Content-Length : {n}",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: identity",
    "Connection: keep-alive",
    "Connection: Keep-Alive",
    "Connection: close",
    "Connection: keep-alive, close",
    "Accept: */*",
    "Authorization: Bearer w3b_KEY",
    "Idempotency-Key: 8e03978e",
    'idempotency-key:\t"a b" ',
    "Idempotency-Key:",
    "authorization:bare",
    "Authorization: \xe9",
    "Authorization:",
    "X-Long: " + "a" * 300,
    "X-Longer: " + "a" * (HEAD_LIMIT - 200),
    "X-Too-Long: " + "a" * HEAD_LIMIT,
    "X-High: \xe9",
    "X-Odd: a\x01b",
    "X-Blank:" + " " * 300,
    "X-Blanks:" + " \t" * 150 + "b",
    " folded",
    "No colon here",
    ": no name",
    "Expect: 100-continue",
    "Upgrade: h2c",
]


class Event(web.RequestHandler):
    """The event that a server has parsed: the project, the metadata and the body."""

    def post(self, project: str) -> None:
        meta = meta_of(self.request)
        self.set_status(201)
        self.finish(f"{project}:{tuple(meta)}:".encode() + self.request.body)


class EventReceiver:
    """Returns the same answer for the events of the fast path."""

    def accept(self, project_name: str, body: bytes, answer: Answer, meta: Meta) -> None:
        understood = f"{project_name}:{tuple(meta)}:".encode() + body
        answer(EventReply(201, understood, "id"))


def request(dice: random.Random) -> bytes:
    """One request, good or damaged."""
    body = dice.choice([b"", b"{}", b"x" * 40, b"2\r\n{}\r\n0\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n"])
    length = len(body) if dice.random() < 0.85 else dice.randrange(60)
    line = dice.choice(LINES) if dice.random() < 0.3 else GOOD_LINE
    host = dice.choice(HOSTS) if dice.random() < 0.3 else "x"
    lines = [line, f"Host: {host}", f"Content-Length: {length}"]
    if dice.random() < 0.4:
        lines += dice.choices(FIELDS, k=dice.randrange(4))
    if dice.random() < 0.15:
        del lines[dice.randrange(1, 3)]
    ends = ["\r\n"] * len(lines) + ["\r\n"]
    if dice.random() < 0.1:
        ends[dice.randrange(len(ends))] = dice.choice(["\n", "\r", "\n\n", "\r\n\r\n", "\r\r\n"])
    if dice.random() < 0.04:
        ends = ["\n"] * len(ends)
    head = "".join(map("".join, zip([*lines, ""], ends, strict=True))).replace("{n}", str(length))
    data = bytearray(head.encode("latin-1") + body)
    if dice.random() < 0.1:
        data[dice.randrange(len(data))] = dice.choice(b"\0\r\n :\xff")
    return bytes(data)


def stream(dice: random.Random) -> bytes:
    """Return the data of one connection; the last request asks to close it."""
    requests = [request(dice) for _ in range(dice.randrange(1, 7))]
    if dice.random() < 0.9:
        requests.append(b"GET /end HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    return b"".join(requests)


class Heard(NamedTuple):
    """The answers in order, and whether the server closed the connection."""

    answers: list[tuple[int, bytes]]
    ended: bool


async def hear(port: int, data: bytes, dice: random.Random, silence_s: float) -> Heard:
    """Send `data`, whole or in pieces, and read until the end, or until nothing has come for a
    while, because neither side closes a connection that can still be used."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sending = asyncio.create_task(_send(writer, data, dice))
    received, ended = b"", False
    with suppress(TimeoutError):
        while more := await asyncio.wait_for(reader.read(65536), silence_s):
            received += more
        ended = True
    await sending
    writer.close()
    return Heard(parse(received), ended)


async def _send(writer: asyncio.StreamWriter, data: bytes, dice: random.Random) -> None:
    whole = dice.random() < 0.5
    at = 0
    while at < len(data):
        step = len(data) if whole else dice.choice([1 + dice.randrange(60), 4_000])
        writer.write(data[at : at + step])
        await writer.drain()
        await asyncio.sleep(0)
        at += step


def parse(data: bytes) -> list[tuple[int, bytes]]:
    """Return status and body of each answer, without the bodies of Tornado's own error pages."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        size = int(length[1]) if length else 0
        found.append((status, data[:size] if status == 201 else b""))
        data = data[size:]
    return found


class Pair:
    """Two ports: the fast path with Tornado behind it, and Tornado alone."""

    async def __aenter__(self) -> Pair:
        path = r"/(?:srv-applet-mgr/v0|api/w3bapp)/event/(\w+)"
        application = TargetApplication([(path, Event)], log_function=lambda handler: None)
        self._servers = [httpserver.HTTPServer(application) for _ in range(2)]
        alone, behind = self._servers

        def to_tornado(connection: socket.socket, address: tuple[object, ...], read: bytes) -> None:
            hand_over(behind, connection, address, read)

        self._table = FastPath(EventReceiver(), 1 << 20, to_tornado)
        loop = asyncio.get_running_loop()
        self._front = await loop.create_server(self._table.connection, "127.0.0.1", 0)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.setblocking(False)
        self._accepting = loop.create_task(self._accept(alone))
        self.ports = [
            listening.getsockname()[1] for listening in (self._listening, *self._front.sockets)
        ]
        return self

    async def _accept(self, alone: httpserver.HTTPServer) -> None:
        while True:
            accepted = await asyncio.get_running_loop().sock_accept(self._listening)
            hand_over(alone, *accepted, b"")

    async def __aexit__(self, *exc: object) -> None:
        self._accepting.cancel()
        self._listening.close()
        self._front.close()
        for server in self._servers:
            await server.close_all_connections()
        for connection in list(self._table.connections):
            connection.close_if_expired(float("inf"))

    async def disagreement(self, seed: int, case: int) -> str:
        """Return both results of one case if they differ; empty if they agree."""
        data = stream(random.Random(f"{seed}.{case}"))
        for silence_s in _SILENCES_S:
            alone, front = await asyncio.gather(
                *(hear(port, data, random.Random(case), silence_s) for port in self.ports)
            )
            if front == alone:
                return ""
        return f"seed {seed}, case {case}: {data!r}\nTornado alone: {alone}\nfront: {front}"


async def disagreements(seed: int, cases: int = CASES_PER_SEED) -> list[str]:
    """Return the cases of a seed in which the fast path and Tornado differ."""
    async with Pair() as pair:
        found = [await pair.disagreement(seed, case) for case in range(cases)]
    return [each for each in found if each]


def main() -> int:
    """Run the seeds; return 1 after a disagreement."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", default="0-99")
    parser.add_argument("--cases", type=int, default=CASES_PER_SEED)
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    logging.disable()  # Tornado warns of every malformed request
    began, count = time.monotonic(), 0
    for seed in range(int(first), int(last or first) + 1):
        found = asyncio.run(disagreements(seed, given.cases))
        count += given.cases
        if found:
            sys.stdout.write("\n".join(found) + "\n")
            return 1
    seconds = time.monotonic() - began
    sys.stdout.write(f"{count} streams in {seconds:.0f} s: the fast path and Tornado agree\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
