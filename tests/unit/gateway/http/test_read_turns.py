"""Turns of the event loop for what clients send to Tornado."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from functools import partial
from typing import Any

from tornado import httpserver, web

from fieldbrook.gateway.events.request import Meta
from fieldbrook.gateway.http.fast_path import FastPath
from fieldbrook.gateway.http.ports import hand_over
from fieldbrook.gateway.http.read_turns import SLICE_S, ReadTurns
from fieldbrook.gateway.replies import Answer, EventReply
from tests.support.tools import LIMIT_S


class Clock:
    """A clock that goes on with each look at it."""

    def __init__(self, step_s: float) -> None:
        self.now, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now


async def test_reads_go_on_until_their_slice_is_used_up_and_again_in_the_next_turn() -> None:
    turns = ReadTurns(clock=Clock(SLICE_S / 10.5))
    for _ in range(3):
        assert [turns.may_go_on() for _ in range(12)] == [True] * 11 + [False]
        await asyncio.sleep(0)


async def test_those_that_wait_go_on_in_their_order_and_some_at_a_time() -> None:
    clock = Clock(0)
    turns, went_on = ReadTurns(clock=clock), list[int]()

    async def read(number: int) -> None:
        if not turns.may_go_on():
            await turns.wait()
        clock.now += SLICE_S
        went_on.append(number)

    tasks = [asyncio.ensure_future(read(number)) for number in range(300)]
    counts = [0]
    while len(went_on) < 299:
        await asyncio.sleep(0)
        counts.append(len(went_on))
        tasks[200].cancel()
    assert went_on == [number for number in range(300) if number != 200]
    steps = [later - earlier for earlier, later in itertools.pairwise(counts)]
    assert max(steps) <= 4, "a few at the beginning"
    assert sum(steps[-100:]) <= 210, "and fewer when they take long"
    assert turns.may_go_on()


async def test_more_go_on_at_once_after_turns_that_were_short() -> None:
    turns, went_on = ReadTurns(clock=Clock(SLICE_S / 1_000)), list[int]()
    for number in range(1_000):
        turns.call(partial(went_on.append, number))
    counts = []
    while len(went_on) < 1_000:
        await asyncio.sleep(0)
        counts.append(len(went_on))
    assert went_on == list(range(1_000))
    steps = [later - earlier for earlier, later in itertools.pairwise(counts)]
    assert steps[0] < steps[1] < steps[2] <= max(steps) == 64


class Sums(web.RequestHandler):
    """Answers with the size of the body."""

    def post(self) -> None:
        """Answer a request."""
        self.finish(str(len(self.request.body)))


async def _send(port: int, chunks: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    writer.write(b"1\r\na\r\n" * chunks + b"0\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    body = await reader.readexactly(size)
    writer.close()
    return body


async def test_bodies_in_the_smallest_pieces_leave_the_loop_to_others() -> None:
    """All of them have come as a whole, and Tornado alone would read 256 pieces of each at once."""
    turns = ReadTurns(clock=Clock(SLICE_S / 100))
    server = httpserver.HTTPServer(web.Application([("/", Sums)]))
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    loop, read = asyncio.get_running_loop(), list[int]()

    async def accept() -> None:
        while True:
            connection, address = await loop.sock_accept(listening)
            connection.setblocking(False)
            hand_over(server, connection, address, b"", turns)

    def count(may_go_on: Any = turns.may_go_on) -> bool:
        read[-1] += 1
        return bool(may_go_on())

    async def tick() -> None:
        while True:
            read.append(0)
            await asyncio.sleep(0)

    turns.may_go_on = count  # type: ignore[method-assign]  # counts the reads of each turn
    accepting, ticking = asyncio.ensure_future(accept()), asyncio.ensure_future(tick())
    async with asyncio.timeout(LIMIT_S):
        bodies = await asyncio.gather(*(_send(listening.getsockname()[1], 200) for _ in range(20)))
    for task in (accepting, ticking):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert bodies == [b"200"] * 20
    assert sum(read) > 20 * 3 * 200
    assert max(read) < 300
    await server.close_all_connections()
    listening.close()


class Refusing:
    """Refuses events at once, and counts those of each turn of the loop."""

    def __init__(self, clock: Clock) -> None:
        self.counts = [0]
        self._clock = clock

    def accept(self, project_name: str, body: bytes, answer: Answer, meta: Meta) -> None:
        self._clock.now += SLICE_S / 20
        self.counts[-1] += 1
        answer(EventReply(404, body, "id"))


async def test_events_of_many_connections_leave_the_loop_to_others() -> None:
    clock, loop = Clock(0), asyncio.get_running_loop()
    events, turns = Refusing(clock), ReadTurns(clock=clock)
    table = FastPath(events, 1_000, lambda *_: None, turns=turns)
    server = await loop.create_server(table.connection, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    request = b"POST /srv-applet-mgr/v0/event/p HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n%d"

    async def send(number: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"".join(request % (at % 10) for at in range(number, number + 50)))
        writer.write_eof()
        answered = await reader.read()
        writer.close()
        return bytes(answer[-1] for answer in answered.split(b"HTTP/1.1 404")[1:])

    async def tick() -> None:
        while True:
            events.counts.append(0)
            await asyncio.sleep(0)

    ticking = asyncio.ensure_future(tick())
    async with asyncio.timeout(LIMIT_S):
        answers = await asyncio.gather(*(send(number) for number in range(100)))
    ticking.cancel()
    server.close()
    assert answers == [bytes(48 + at % 10 for at in range(n, n + 50)) for n in range(100)]
    # 20 of connections that have not waited, and 20 of others, of which the last has 16 at once.
    assert max(events.counts) <= 20 + 20 + 15
    assert sum(events.counts) == 5_000
    assert not table.connections
