"""Turns of the event loop for data that clients send to Tornado."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from tornado import httpserver, web

from fieldbrook.gateway.events.request import Meta
from fieldbrook.gateway.http.fast_path import FastPath, Turns
from fieldbrook.gateway.http.tornado.server import hand_over
from fieldbrook.gateway.listening.read_turns import SLICE_S, ReadTurns
from fieldbrook.gateway.replies import Answer, EventReply
from tests.support.tools import LIMIT_S


class Clock:
    """A clock that advances at each read."""

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


async def test_a_single_connection_that_waits_again_and_again_has_one_turn_in_an_iteration() -> (
    None
):
    turns, iterations = ReadTurns(clock=Clock(0)), list[int]()
    now = 0

    def go_on() -> None:
        iterations.append(now)
        turns.call(go_on)

    turns.call(go_on)
    for now in range(8):  # noqa: B007 - `go_on` reads it
        await asyncio.sleep(0)
    assert iterations == list(range(8))


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
    """All bodies have arrived completely, and Tornado alone would read 256 pieces of each at
    once."""
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


async def test_some_that_wait_go_on_in_each_turn_however_long_turns_take() -> None:
    clock = Clock(0)
    turns, went_on = ReadTurns(clock=clock, fewest=3), list[int]()
    for number in range(100):
        turns.call(partial(went_on.append, number))
    counts = [0]
    while len(went_on) < 99:
        await asyncio.sleep(0)
        clock.now += 100 * SLICE_S
        counts.append(len(went_on))
    steps = [later - earlier for earlier, later in itertools.pairwise(counts)]
    assert steps[:3] == [8, 4, 3]
    assert set(steps[3:]) == {3}


GOOD = "good"


class Refusing:
    """Refuses events at once, and counts those of each turn of the loop.

    Events of the project `GOOD` are answered in the next turn, like by a worker.
    """

    def __init__(self, clock: Clock) -> None:
        self.counts = [0]
        self._clock = clock

    @property
    def count(self) -> int:
        """Return how many events were refused."""
        return sum(self.counts)

    def accept(self, project_name: str, body: bytes, answer: Answer, meta: Meta) -> None:
        if project_name == GOOD:
            asyncio.get_running_loop().call_soon(answer, EventReply(201, body, "id"))
            return
        self._clock.now += SLICE_S / 20
        self.counts[-1] += 1
        answer(EventReply(404, body, "id"))

    async def tick(self) -> None:
        """Start a new count in each turn of the loop."""
        while True:
            self.counts.append(0)
            await asyncio.sleep(0)


def _request(project: str, body: bytes) -> bytes:
    head = (
        f"POST /srv-applet-mgr/v0/event/{project} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n"
    )
    return head.encode() + body


@contextlib.asynccontextmanager
async def _listening(turns: Turns, events: Refusing) -> AsyncIterator[int]:
    """Run a fast path whose loop counts its turns; give its port."""
    table = FastPath(events, 1_000, lambda *_: None, turns=turns)
    server = await asyncio.get_running_loop().create_server(table.connection, "127.0.0.1", 0)
    ticking = asyncio.ensure_future(events.tick())
    try:
        async with asyncio.timeout(LIMIT_S):
            yield server.sockets[0].getsockname()[1]
            while table.connections:
                await asyncio.sleep(0)
    finally:
        ticking.cancel()
        server.close()


async def test_events_of_many_connections_leave_the_loop_to_others() -> None:
    clock = Clock(0)
    events = Refusing(clock)
    turns = Turns(ReadTurns(clock=clock), ReadTurns(clock=clock))

    async def send(port: int, number: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        bodies = [b"%d" % (at % 10) for at in range(number, number + 50)]
        writer.write(b"".join(_request("p", body) for body in bodies))
        writer.write_eof()
        answered = await reader.read()
        writer.close()
        return bytes(answer[-1] for answer in answered.split(b"HTTP/1.1 404")[1:])

    async with _listening(turns, events) as port:
        answers = await asyncio.gather(*(send(port, number) for number in range(100)))
    assert answers == [bytes(48 + at % 10 for at in range(n, n + 50)) for n in range(100)]
    # 20 events of connections that have not waited, and 20 of others, of which the last has 4 at
    # once.
    assert max(events.counts) <= 20 + 20 + 3
    assert events.count == 5_000


@pytest.mark.parametrize("keeps", [True, False], ids=["kept connection", "new connections"])
async def test_an_accepted_event_does_not_wait_for_connections_whose_events_are_refused(
    keeps: bool,
) -> None:
    """The other connections have sent 16 events each, and send as many again when all are
    answered."""
    clock = Clock(0)
    events, refused_meanwhile = Refusing(clock), list[int]()
    turns = Turns(ReadTurns(clock=clock), ReadTurns(SLICE_S / 2, clock))
    has_ended = asyncio.Event()

    async def flood(port: int) -> None:
        while not has_ended.is_set():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            while not has_ended.is_set():
                writer.write(_request("p", b"x") * 16)
                for _ in range(16):
                    await reader.readuntil(b"\r\n\r\nx")
                if not keeps:
                    break
            writer.close()

    async def send(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(20):
            before = events.count
            writer.write(_request(GOOD, b"x"))
            assert b" 201 " in await reader.readuntil(b"\r\n\r\nx")
            refused_meanwhile.append(events.count - before)
        writer.close()
        has_ended.set()

    async with _listening(turns, events) as port:
        flooding = [asyncio.ensure_future(flood(port)) for _ in range(100)]
        while events.count < 2 * 16 * len(flooding):
            await asyncio.sleep(0)
        await send(port)
        await asyncio.gather(*flooding)
    # The first event of its connection waits with them; later ones wait for none of the 100.
    assert max(refused_meanwhile[1:]) < 100
