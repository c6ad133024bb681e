"""What clients that begin and do not end may cost."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from fieldbrook.gateway.front import FrontTable
from fieldbrook.gateway.replies import EventReply
from fieldbrook.gateway.request import Meta
from fieldbrook.gateway.room import CONNECTIONS_LIMIT, Room, connections_limit, room_for
from tests.tools import LIMIT_S

Scenario = Callable[[FrontTable, int], Awaitable[None]]
_PATH = "/srv-applet-mgr/v0/event/room"


class Taker:
    """Answers every event at once."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def take(
        self, project_name: str, body: bytes, answer: Callable[[EventReply], None], meta: Meta
    ) -> None:
        self.bodies.append(body)
        answer(EventReply(201, b"{}", "id"))


def play(scenario: Scenario, *, room: int = 1 << 20, connections: int = 100) -> Taker:
    taker = Taker()

    async def main() -> None:
        table = FrontTable(
            taker, 1 << 20, lambda *_: None, room=Room(room), connections_limit=connections
        )
        loop = asyncio.get_running_loop()
        server = await loop.create_server(table.connection, "127.0.0.1", 0)
        async with asyncio.timeout(LIMIT_S):
            await scenario(table, server.sockets[0].getsockname()[1])
            while table.connections:
                await asyncio.sleep(0)
        assert table.room.held == 0
        server.close()

    asyncio.run(main())
    return taker


def head(size: int) -> bytes:
    return f"POST {_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode()


async def settled(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def _has(table: FrontTable, count: int) -> bool:
    return len(table.connections) == count


def test_a_body_that_comes_in_small_pieces_is_taken_whole() -> None:
    body = bytes(range(256)) * 40

    async def scenario(table: FrontTable, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        sent = head(len(body)) + body + head(2) + b"ok"
        for start in range(0, len(sent), 97):
            writer.write(sent[start : start + 97])
            await writer.drain()
            await asyncio.sleep(0)
        for _ in range(2):
            await reader.readuntil(b"{}")
        writer.close()

    assert play(scenario).bodies == [body, b"ok"]


def test_without_room_the_client_that_sends_more_is_sent_away_and_others_go_on() -> None:
    async def scenario(table: FrontTable, port: int) -> None:
        _, quiet = await asyncio.open_connection("127.0.0.1", port)
        quiet.write(head(100_000) + bytes(5_000))
        await settled(lambda: table.room.held > 5_000)
        reader, greedy = await asyncio.open_connection("127.0.0.1", port)
        greedy.write(head(100_000) + bytes(9_000))
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert b"Retry-After: 1" in answer
        reader, good = await asyncio.open_connection("127.0.0.1", port)
        good.write(head(2) + b"ok")
        assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 201 ")
        for writer in (quiet, greedy, good):
            writer.close()

    assert play(scenario, room=10_000).bodies == [b"ok"]


def test_the_connection_that_is_quiet_the_longest_makes_room_for_a_new_one() -> None:
    async def scenario(table: FrontTable, port: int) -> None:
        opened = []
        for number in range(10):
            opened.append(await asyncio.open_connection("127.0.0.1", port))
            await settled(partial(_has, table, number + 1))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head(2) + b"ok")
        assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 201 ")
        assert await opened[0][0].read() == b""
        opened[1][1].write(head(2) + b"me")
        assert (await opened[1][0].readuntil(b"{}")).startswith(b"HTTP/1.1 201 ")
        for each in (*opened, (reader, writer)):
            each[1].close()

    assert play(scenario, connections=10).bodies == [b"ok", b"me"]


def test_room_follows_the_largest_request_and_connections_the_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert room_for(1).limit == 64 << 20
    assert room_for(256 << 20).limit == 1 << 30
    for soft, limit in ((1_024, 512), (1 << 20, CONNECTIONS_LIMIT), (4, 16)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert connections_limit() == limit
