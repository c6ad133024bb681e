"""The fast path and Tornado on one port, over real connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tornado import httpserver, iostream, web

from fieldbrook.gateway.events.handling import Rest
from fieldbrook.gateway.events.request import NO_META, Meta
from fieldbrook.gateway.http import fast_path
from fieldbrook.gateway.http.fast_path import (
    IDLE_LIMIT_S,
    REQUEST_LIMIT_S,
    EventConnection,
    FastPath,
    header_value,
    render,
)
from fieldbrook.gateway.http.request_head import read_head
from fieldbrook.gateway.replies import Answer, EventReply
from tests.support.tools import LIMIT_S

PATH = "/srv-applet-mgr/v0/event/NftMinter"


class EventReceiver:
    """Answers every event with its own body, when a test releases it."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes]] = []
        self.held: list[Callable[[], None]] = []
        self.hold = False

    def accept(self, project_name: str, body: bytes, answer: Answer, meta: Meta) -> None:
        self.taken.append((project_name, body))
        reply = EventReply(201, body, f"id-{len(self.taken)}")
        if self.hold:
            self.held.append(lambda: answer(reply))
        else:
            answer(reply)


class Elsewhere(web.RequestHandler):
    """Tornado's answer to requests that the fast path hands over."""

    def _echo(self) -> None:
        self.finish(b"tornado:" + self.request.body)

    get = post = put = _echo


class Port:
    """A listening fast path with Tornado behind it."""

    def __init__(self) -> None:
        self.receiver = EventReceiver()

    async def __aenter__(self) -> Port:
        self.tornado = httpserver.HTTPServer(web.Application([(".*", Elsewhere)]))
        self.table = FastPath(self.receiver, 1000, self._hand_over)
        self.server = await asyncio.get_running_loop().create_server(
            self.table.connection, "127.0.0.1", 0
        )
        self.port: int = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.server.close()
        await self.tornado.close_all_connections()
        for connection in list(self.table.connections):
            connection.close_if_expired(float("inf"))

    def _hand_over(self, connection: socket.socket, address: tuple[Any, ...], read: bytes) -> None:
        stream = iostream.IOStream(connection)
        stream._read_buffer += read
        stream._read_buffer_size += len(read)
        self.tornado.handle_stream(stream, address)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


def request(body: bytes = b"{}", extra: str = "", path: str = PATH, method: str = "POST") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{extra}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def response(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    async with asyncio.timeout(LIMIT_S):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return int(lines[0].split()[1]), headers, body


async def test_an_event_is_taken_and_answered_with_its_id() -> None:
    async with Port() as port:
        reader, writer = await port.connect()
        writer.write(request(b'{"a":1}', "Content-Type: text/plain\r\nAccept: */*\r\n"))
        status, headers, body = await response(reader)
        assert (status, body, headers["x-event-id"]) == (201, b'{"a":1}', "id-1")
        assert port.receiver.taken == [("NftMinter", b'{"a":1}')]
        writer.close()


async def test_pipelined_events_cut_anywhere_are_answered_in_order() -> None:
    async with Port() as port:
        reader, writer = await port.connect()
        bodies = [b"%d" % n * (n + 1) for n in range(40)]
        stream = b"".join(request(body) for body in bodies)
        for start in range(0, len(stream), 77):
            writer.write(stream[start : start + 77])
            await writer.drain()
            await asyncio.sleep(0)
        assert [(await response(reader))[2] for _ in bodies] == bodies
        writer.close()


async def test_answers_that_come_late_and_out_of_order_leave_in_order() -> None:
    async with Port() as port:
        port.receiver.hold = True
        reader, writer = await port.connect()
        bodies = [b"%d" % n for n in range(10)]
        writer.write(b"".join(request(body) for body in bodies))
        async with asyncio.timeout(LIMIT_S):
            while len(port.receiver.held) < 10:
                await asyncio.sleep(0.001)
        for answer in reversed(port.receiver.held):
            answer()
        assert [(await response(reader))[2] for _ in bodies] == bodies
        writer.close()


async def test_a_client_that_pipelines_too_much_is_read_only_as_fast_as_it_is_answered() -> None:
    async with Port() as port:
        port.receiver.hold = True
        reader, writer = await port.connect()
        bodies = [b"%d" % n for n in range(100)]
        writer.write(b"".join(request(body) for body in bodies))
        answered = 0
        while answered < 100:
            async with asyncio.timeout(LIMIT_S):
                while not port.receiver.held:
                    await asyncio.sleep(0.001)
            assert len(port.receiver.held) <= 16
            port.receiver.held.pop(0)()
            assert (await response(reader))[2] == bodies[answered]
            answered += 1
        writer.close()


@pytest.mark.parametrize(
    "other",
    [
        request(method="PUT"),
        request(path="/srv-applet-mgr/v0/login"),
        request(path=PATH + "?eventType=X#Y"),
        request(path=PATH + "/more"),
        request(path="/srv-applet-mgr/v0/event/a%20b"),
        request(extra="Origin: http://page\r\n"),
        request(extra="X-Odd: \x7f\r\n"),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\n{}\r\n0\r\n\r\n",
        request(b"x" * 1001),
    ],
)
async def test_any_other_request_is_tornados_with_the_events_before_it_answered_first(
    other: bytes,
) -> None:
    async with Port() as port:
        port.receiver.hold = True
        reader, writer = await port.connect()
        writer.write(request(b"one") + other)
        async with asyncio.timeout(LIMIT_S):
            while not port.receiver.held:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        port.receiver.held.pop()()
        assert (await response(reader))[2] == b"one"
        status, _, body = await response(reader)
        assert status == 400 or body.startswith(b"tornado:")
        assert [body for _, body in port.receiver.taken] == [b"one"]
        writer.close()


def test_the_query_and_the_token_are_read_and_what_changes_is_not_remembered() -> None:
    table = FastPath(EventReceiver(), 1000, lambda *given: None)
    for number in range(3):
        head = (
            f"POST {PATH}?eventType=DA-TA_PU-SH&timestamp=179523322815{number} HTTP/1.1\r\n"
            "Host: x\r\nAuthorization: Bearer w3b_KEY\r\nContent-Length: 110\r\n\r\n"
        )
        found = table.head(head.encode())
        assert found is not None
        assert found.project_name == "NftMinter"
        assert found.meta == Meta("DA-TA_PU-SH", "", f"179523322815{number}", "w3b_KEY")
        assert found.body_length == 110
    assert not table._heads
    assert len(table._fields) == 1
    same = f"POST {PATH}?eventType=X HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n".encode()
    assert table.head(same) is table.head(same)


def test_a_request_with_an_idempotency_key_is_fast_and_pushes_nothing_out_of_memory() -> None:
    table = FastPath(EventReceiver(), 1000, lambda *given: None)
    for number in range(3):
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n"
            f"Idempotency-Key: key-{number}\r\n\r\n"
        )
        found = table.head(head.encode())
        assert found is not None
        assert found.meta == Meta(key=f"key-{number}")
    assert (len(table._heads), len(table._fields)) == (0, 0)
    two = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nIdempotency-Key: a\r\nIdempotency-Key: b\r\n"
    assert read_head(f"{two}Content-Length: 1\r\n\r\n".encode()) is None


def test_a_stored_result_is_marked_in_the_answer() -> None:
    for repeats in (False, True):
        fresh = render(EventReply(201, b"{}", "e", None, repeats))
        stored = render(EventReply(201, b"{}", "e", None, repeats, "", True))
        assert b"Idempotency-Replayed" not in fresh
        assert stored.replace(b"Idempotency-Replayed: true\r\n", b"") == fresh


async def test_a_client_that_stops_sending_gets_the_answers_it_is_owed() -> None:
    async with Port() as port:
        port.receiver.hold = True
        reader, writer = await port.connect()
        writer.write(request(b"last"))
        writer.write_eof()
        async with asyncio.timeout(LIMIT_S):
            while not port.receiver.held:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        port.receiver.held.pop()()
        assert (await response(reader))[2] == b"last"
        assert await reader.read() == b""
        writer.close()


async def test_a_client_that_pipelines_without_end_is_never_late() -> None:
    async with Port() as port:
        reader, writer = await port.connect()
        whole = request(b"12345")
        half = len(whole) // 2
        writer.write(whole[:half])

        def front() -> EventConnection:
            (only,) = port.table.connections
            return only

        async with asyncio.timeout(LIMIT_S):
            while not port.table.connections or not front()._buffer:
                await asyncio.sleep(0.001)
            began = front()._active_at
            for _ in range(3):
                # The end of one request and the beginning of the next: never an empty buffer.
                writer.write(whole[half:] + whole[:half])
                assert (await response(reader))[0] == 201
                assert front()._buffer == whole[:half]
                assert front()._active_at > began
                port.table.close_expired(began + REQUEST_LIMIT_S + 1e-9)
        assert len(port.table.connections) == 1
        writer.close()


async def test_a_request_that_never_ends_is_closed_with_408_and_an_idle_connection_quietly() -> (
    None
):
    async with Port() as port:
        loop = asyncio.get_running_loop()
        slow_reader, slow = await port.connect()
        idle_reader, idle = await port.connect()
        slow.write(request(b"12345")[:-1])
        async with asyncio.timeout(LIMIT_S):
            while not any(front._buffer for front in port.table.connections):
                await asyncio.sleep(0.001)
        port.table.close_expired(loop.time() + 10)
        assert len(port.table.connections) == 2
        port.table.close_expired(loop.time() + 31)
        assert (await response(slow_reader))[0] == 408
        port.table.close_expired(loop.time() + 121)
        assert await idle_reader.read() == b""
        slow.close()
        idle.close()


@given(st.text(max_size=50))
def test_no_text_from_outside_can_end_a_header(text: str) -> None:
    assert all(0x20 <= byte <= 0x7E for byte in header_value(text))


class Batches(EventReceiver):
    """Splits each body that begins with `batch` into as many events as it has bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces = 0

    def accept(  # type: ignore[override]  # the other one takes no batches
        self, project_name: str, body: bytes, answer: Answer, meta: Meta
    ) -> Rest | None:
        if not body.startswith(b"batch"):
            super().accept(project_name, body, answer, meta)
            return None
        left = len(body)

        def go_on() -> bool:
            nonlocal left
            self.pieces, left = self.pieces + 1, left - 1
            if not left:
                EventReceiver.accept(self, project_name, body, answer, meta)
            return not left

        return go_on


async def test_an_event_behind_a_long_batch_waits_for_all_of_it_and_others_do_not() -> None:
    async with Port() as port:
        port.table.events = receiver = Batches()
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        other_reader, other = await asyncio.open_connection("127.0.0.1", port.port)
        writer.write(request(b"batch" * 100) + request(b"behind"))
        while not receiver.pieces:
            await asyncio.sleep(0)
        other.write(request(b"other"))
        await other_reader.readuntil(b"other")
        await reader.readuntil(b"behind")
        assert [body for _, body in receiver.taken] == [b"other", b"batch" * 100, b"behind"]
        writer.close()
        other.close()


async def test_few_long_batches_are_taken_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_path, "_BATCHES_AT_ONCE", 2)
    async with Port() as port:
        port.table.events = receiver = Batches()
        opened = [await asyncio.open_connection("127.0.0.1", port.port) for _ in range(6)]
        for number, (_, writer) in enumerate(opened[:5]):
            writer.write(request(b"batch" * 100 + b"%d" % number))
        single = b'{"header"' + b" " * 200
        opened[5][1].write(request(single))
        most = 0
        async with asyncio.timeout(LIMIT_S):
            while len(receiver.taken) < 6:
                most = max(most, port.table.batches[False])
                await asyncio.sleep(0)
        assert most == 2
        assert set(port.table.batches.values()) == {0}
        assert receiver.taken[0][1] == single
        for _, writer in opened:
            writer.close()


async def test_a_long_batch_is_taken_as_a_whole_although_its_client_has_gone() -> None:
    async with Port() as port:
        port.table.events = receiver = Batches()
        _, writer = await asyncio.open_connection("127.0.0.1", port.port)
        writer.write(request(b"batch" * 100))
        while not receiver.pieces:
            await asyncio.sleep(0)
        writer.transport.abort()
        async with asyncio.timeout(LIMIT_S):
            while not receiver.taken:
                await asyncio.sleep(0)
        assert receiver.pieces == 500


class Chatterbox:
    """Answers every event at once with many bytes."""

    def __init__(self, size: int) -> None:
        self.taken = 0
        self._body = b"x" * size

    def accept(self, project_name: str, body: bytes, answer: Answer, meta: Meta = NO_META) -> None:
        self.taken += 1
        answer(EventReply(201, self._body, f"id-{self.taken}"))


async def _deaf_client(port: Port) -> tuple[socket.socket, EventConnection]:
    """Connect a client that sends requests and does not read; return it and its connection when the
    server has stopped reading."""
    client = socket.create_connection(("127.0.0.1", port.port))
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    asking = loop.create_task(loop.sock_sendall(client, request() * 20_000))
    async with asyncio.timeout(LIMIT_S):
        while not any(connection._writing_paused for connection in port.table.connections):
            await asyncio.sleep(0.01)
    asking.cancel()
    (connection,) = port.table.connections
    return client, connection


async def test_a_client_that_reads_no_answers_is_not_listened_to() -> None:
    async with Port() as port:
        port.table.events = receiver = Chatterbox(20_000)
        client, connection = await _deaf_client(port)
        assert connection._transport is not None
        taken = receiver.taken
        assert taken < 20_000
        assert connection._transport.get_write_buffer_size() < 200_000
        for _ in range(20):
            await asyncio.sleep(0)
        assert receiver.taken == taken
        read = 0
        async with asyncio.timeout(LIMIT_S):  # the client reads, so the server reads from it again
            while receiver.taken < taken + 100:
                read += len(await asyncio.get_running_loop().sock_recv(client, 1 << 20))
        assert read
        client.close()


async def test_a_client_that_never_reads_loses_its_connection() -> None:
    async with Port() as port:
        port.table.events = Chatterbox(20_000)
        client, connection = await _deaf_client(port)
        now = asyncio.get_running_loop().time()
        port.table.close_expired(now + IDLE_LIMIT_S / 2)
        await asyncio.sleep(0.01)
        assert connection in port.table.connections
        port.table.close_expired(now + IDLE_LIMIT_S + 1)
        await asyncio.sleep(0.01)
        assert not port.table.connections
        client.close()


async def test_tornado_gets_a_connection_when_the_last_answer_has_left() -> None:
    async with Port() as port:
        port.table.events = Chatterbox(5_000_000)
        client = socket.create_connection(("127.0.0.1", port.port))
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, request() + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        reader, writer = await asyncio.open_connection(sock=client)
        assert (await response(reader))[0] == 201
        assert (await response(reader))[2] == b"tornado:"
        writer.close()
