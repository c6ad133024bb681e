"""Limits for clients that begin requests and do not end them."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest

from fieldbrook.gateway.events.request import Meta
from fieldbrook.gateway.http.fast_path import FastPath
from fieldbrook.gateway.listening.connections import (
    CONNECTIONS_LIMIT,
    Connections,
    IdleConnection,
    connections_limit,
)
from fieldbrook.gateway.listening.listener import Listener
from fieldbrook.gateway.listening.sockets import bind
from fieldbrook.gateway.management.framework.open_stores import OPEN_LIMIT, open_limit
from fieldbrook.gateway.memory_budget import UNCHARGED_BYTES, Shared, request_budget
from fieldbrook.gateway.replies import EventReply
from fieldbrook.observability import metrics
from tests.support.tools import LIMIT_S

Scenario = Callable[[FastPath, int], Awaitable[None]]
_PATH = "/srv-applet-mgr/v0/event/room"


class EventReceiver:
    """Answers every event at once."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def accept(
        self, project_name: str, body: bytes, answer: Callable[[EventReply], None], meta: Meta
    ) -> None:
        self.bodies.append(body)
        answer(EventReply(201, b"{}", "id"))


class OnePort(NamedTuple):
    """A port without Tornado."""

    listener: Listener
    table: FastPath

    @property
    def connections(self) -> int:
        return self.listener.opening + len(self.table.connections)

    @property
    def descriptors(self) -> int:
        return self.connections

    def idle(self) -> Iterator[IdleConnection]:
        return self.table.idle()


def play(
    scenario: Scenario,
    *,
    budget_bytes: int = 1 << 20,
    share_percent: int = 100,
    connections: int = 100,
) -> EventReceiver:
    receiver = EventReceiver()

    async def main() -> None:
        budget = Shared(budget_bytes, share_percent)
        table = FastPath(receiver, 1 << 20, lambda *_: None, memory_budget=budget)
        allowed = Connections(connections, metrics.HTTP_CONNECTIONS_EVICTED)
        at = bind("127.0.0.1", 0, shared=False)
        listener = Listener(at, table.connection, allowed)
        allowed.ports.append(OnePort(listener, table))
        async with asyncio.timeout(LIMIT_S):
            await scenario(table, at.getsockname()[1])
            while table.connections:
                await asyncio.sleep(0)
        assert table.memory_budget.used == 0
        listener.close()

    asyncio.run(main())
    return receiver


def head(size: int) -> bytes:
    return f"POST {_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode()


async def settled(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def _has(table: FastPath, count: int) -> bool:
    return len(table.connections) == count


def _connections() -> Connections:
    return Connections(connections_limit(tls=False), metrics.HTTP_CONNECTIONS_EVICTED)


def test_a_body_that_comes_in_small_pieces_is_taken_whole() -> None:
    body = bytes(range(256)) * 40

    async def scenario(table: FastPath, port: int) -> None:
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
    async def scenario(table: FastPath, port: int) -> None:
        _, quiet = await asyncio.open_connection("127.0.0.1", port)
        quiet.write(head(100_000) + bytes(UNCHARGED_BYTES + 5_000))
        await settled(lambda: table.memory_budget.used > 5_000)
        reader, greedy = await asyncio.open_connection("127.0.0.1", port)
        greedy.write(head(100_000) + bytes(UNCHARGED_BYTES + 9_000))
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert b"Retry-After: 1" in answer
        reader, good = await asyncio.open_connection("127.0.0.1", port)
        good.write(head(2) + b"ok")
        assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 201 ")
        for writer in (quiet, greedy, good):
            writer.close()

    assert play(scenario, budget_bytes=10_000).bodies == [b"ok"]


def test_a_small_event_whose_head_comes_first_is_taken_however_many_large_ones_are_unfinished() -> (
    None
):
    body = bytes(2_000)

    async def scenario(table: FastPath, port: int) -> None:
        budget = table.memory_budget
        _, quiet = await asyncio.open_connection("127.0.0.1", port)
        quiet.write(head(90_000) + bytes(UNCHARGED_BYTES + budget.limit - len(head(90_000))))
        await settled(lambda: budget.used == budget.limit)
        reader, good = await asyncio.open_connection("127.0.0.1", port)
        for part in (head(2_000), body[:1_000], body[1_000:], head(2_000) + body[:9], body[9:]):
            good.write(part)
            await asyncio.sleep(0.01)
        for _ in range(2):
            assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 201 ")
        for writer in (quiet, good):
            writer.close()

    assert play(scenario, budget_bytes=50_000).bodies == [body, body]


def test_an_address_takes_only_its_share_of_the_room_for_unfinished_requests() -> None:
    async def scenario(table: FastPath, port: int) -> None:
        def connect(address: str) -> Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
            return asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))

        reader, greedy = await connect("127.0.0.2")
        greedy.write(head(100_000) + bytes(UNCHARGED_BYTES + 60_000))
        assert (await reader.read()).startswith(b"HTTP/1.1 429 ")
        _, slow = await connect("127.0.0.2")
        slow.write(head(100_000) + bytes(UNCHARGED_BYTES + 40_000))
        await settled(lambda: table.memory_budget.used > 40_000)
        reader, good = await connect("127.0.0.3")
        good.write(head(30_000) + bytes(29_000))
        await settled(lambda: table.memory_budget.used > 60_000)
        good.write(bytes(1_000))
        assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 201 ")
        for writer in (greedy, slow, good):
            writer.close()

    assert play(scenario, budget_bytes=100_000, share_percent=50).bodies == [bytes(30_000)]


def test_the_connection_that_is_quiet_the_longest_makes_room_for_a_new_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(table: FastPath, port: int) -> None:
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
    (record,) = caplog.records
    assert "10 connections are open, the limit is 10" in record.getMessage()


def test_a_flood_of_connections_never_has_more_than_the_limit_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    most = 0

    async def scenario(table: FastPath, port: int) -> None:
        nonlocal most
        opened = []
        for _ in range(300):
            opened.append(asyncio.create_task(asyncio.open_connection("127.0.0.1", port)))
            await asyncio.sleep(0)
            most = max(most, len(table.connections))
        await asyncio.wait(opened)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head(2) + b"ok")
        assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 201 ")
        most = max(most, len(table.connections))
        for _, each in (*(task.result() for task in opened), (reader, writer)):
            each.close()

    assert play(scenario, connections=20).bodies == [b"ok"]
    assert 0 < most <= 20
    assert len(caplog.records) == 1


def test_when_every_connection_waits_for_an_answer_others_wait_for_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(table: FastPath, port: int) -> None:
        answers: list[Callable[[EventReply], None]] = []
        taken = table.events.accept
        table.events.accept = (  # type: ignore[method-assign]
            lambda project_name, body, answer, meta: answers.append(answer)
        )
        busy = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        for _, writer in busy:
            writer.write(head(2) + b"ok")
        await settled(lambda: len(answers) == 5)
        late_reader, late = await asyncio.open_connection("127.0.0.1", port)
        late.write(head(2) + b"me")
        await settled(lambda: caplog.records)
        assert len(table.connections) == 5
        table.events.accept = taken  # type: ignore[method-assign]
        for answer in answers:
            answer(EventReply(201, b"{}", "id"))
        for reader, _ in busy:
            assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 201 ")
        assert (await late_reader.readuntil(b"{}")).startswith(b"HTTP/1.1 201 ")
        for _, writer in (*busy, (late_reader, late)):
            writer.close()

    assert play(scenario, connections=5).bodies == [b"me"]
    assert "new connections wait" in caplog.records[0].getMessage()


def test_connections_leave_the_last_descriptors_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files: list[IO[str]] = []

    async def scenario(table: FastPath, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        assert not table.connections
        writer.close()
        for each in files:
            each.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head(2) + b"ok")
        assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 201 ")
        writer.close()

    soft = 400
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    while not files or files[-1].fileno() < soft:
        files.append(Path("/dev/null").open())  # noqa: SIM115 - closed by the scenario
    assert play(scenario).bodies == [b"ok"]
    assert "the reserve of file descriptors is used up" in caplog.records[0].getMessage()


def test_room_follows_the_largest_request_and_connections_the_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert request_budget(1).limit == 64 << 20
    assert request_budget(256 << 20).limit == 1 << 30
    for soft, limit, over_tls, stores in (
        (1_024, 512, 170, OPEN_LIMIT),
        (200, 100, 33, 12),
        (1 << 20, CONNECTIONS_LIMIT, CONNECTIONS_LIMIT, OPEN_LIMIT),
        (4, 16, 16, 4),
        (resource.RLIM_INFINITY, CONNECTIONS_LIMIT, CONNECTIONS_LIMIT, OPEN_LIMIT),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert connections_limit(tls=False) == limit
        assert connections_limit(tls=True) == over_tls
        assert open_limit() == stores


def test_the_start_says_how_many_connections_there_may_be_and_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, 1_024))
    _connections().announce()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 20, 1 << 20))
    _connections().announce()
    few, many = caplog.records
    assert few.levelname == "WARNING"
    assert "up to 512 connections" in few.getMessage()
    assert "1024 files" in few.getMessage()
    assert many.levelname == "INFO"
    assert "up to 4096 connections" in many.getMessage()


def test_thousands_of_requests_that_are_answered_at_once_leave_turns_to_other_clients() -> None:
    async def scenario(_table: FastPath, port: int) -> None:
        flood, other = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        count = 2_000
        for (_, writer), body, times in ((flood, b"1", count), (other, b"2", 1)):
            head = f"POST {_PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n"
            writer.write((head.encode() + body) * times)
        for (reader, writer), times in ((flood, count), (other, 1)):
            for _ in range(times):
                await reader.readuntil(b"\r\n\r\n{}")
            writer.close()

    bodies = play(scenario).bodies
    assert bodies.count(b"1") == 2_000
    assert bodies.index(b"2") < 2_000 // 4
