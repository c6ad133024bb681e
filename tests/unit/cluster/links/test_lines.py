"""Messages between hosts, and invalid bytes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fieldbrook.cluster.links.lines import LINE_BYTES, LineError, receive, send


def received(data: bytes, *, ends: bool = True, limit_s: float = 5.0) -> list[dict[str, Any]]:
    """Return all messages in some bytes."""

    async def run() -> list[dict[str, Any]]:
        reader = asyncio.StreamReader(limit=LINE_BYTES)
        reader.feed_data(data)
        if ends:
            reader.feed_eof()
        found = []
        while not reader.at_eof():
            found.append(await receive(reader, limit_s))
        return found

    return asyncio.run(run())


def test_messages_arrive_one_by_one() -> None:
    assert received(b'{"a":1}\n{"b":[null,"x"]}\n') == [{"a": 1}, {"b": [None, "x"]}]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{}", "the connection ended"),
        (b"\n", "not JSON"),
        (b"GET / HTTP/1.1\r\n\r\n", "not JSON"),
        (b"\xff\xfe\x00\n", "not JSON"),
        (b"[" * 200_000 + b"\n", "not JSON"),
        (b"[]\n", "not a JSON object"),
        (b"null\n", "not a JSON object"),
        (b"x" * (LINE_BYTES + 1) + b"\n", "more than"),
        (b"x" * (3 * LINE_BYTES), "more than"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(LineError, match=reason):
        received(data)


def test_a_message_that_does_not_end_in_time_is_refused() -> None:
    with pytest.raises(LineError, match="no message came within"):
        received(b'{"a":', ends=False, limit_s=0.0)


def test_the_largest_message_passes() -> None:
    data = b'{"a":"' + b"x" * (LINE_BYTES - 9) + b'"}\n'
    ((key, value),) = received(data)[0].items()
    assert (key, len(value)) == ("a", LINE_BYTES - 9)


def test_what_is_sent_is_received() -> None:
    async def run() -> dict[str, Any]:
        received = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            received.set_result(await receive(reader, 5.0))
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            address = server.sockets[0].getsockname()
            _, writer = await asyncio.open_connection(*address)
            send(writer, {"text": "two\nlines"})
            found: dict[str, Any] = await received
            writer.close()
            await writer.wait_closed()
        return found

    assert asyncio.run(run()) == {"text": "two\nlines"}
