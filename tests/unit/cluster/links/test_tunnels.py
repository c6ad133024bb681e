"""Sockets that other hosts can reach, and bytes in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fieldbrook.actors.remote_path import PEERS, remote_path, split_path
from fieldbrook.cluster.links.tunnels import Streams, Tunnels, copy, is_reachable
from fieldbrook.observability import metrics


@pytest.mark.parametrize("socket", ["registry", "http", "w0.3", "w12.1", "wheavy.10"])
def test_workers_and_the_registry_are_reachable(socket: str) -> None:
    assert is_reachable(socket)


@pytest.mark.parametrize(
    "socket",
    [
        *("", ".", "..", "../x", "w0", "w0.", "w.x", ".3", "x0.3", "w0.3/../registry", "w../x.3"),
        *(
            "registry ",
            "registry\0",
            "/etc/passwd",
            "peers",
            "engine",
            "http/..",
            "w0.3\n",
            "w-1.3",
        ),
    ],
)
def test_nothing_else_is_reachable(socket: str) -> None:
    assert not is_reachable(socket)


def test_a_path_on_another_host_says_where_to_connect_and_what_to_send(tmp_path: Path) -> None:
    here, first = split_path(remote_path(tmp_path, "h2", "w0.3"))
    assert (here, first) == (str(tmp_path / PEERS), b"h2 w0.3\n")
    assert split_path(str(tmp_path / "w0.3")) == (str(tmp_path / "w0.3"), b"")


class Two:
    """The tunnels of two hosts in one loop; the connection between them is a Unix socket."""

    def __init__(self, folder: Path) -> None:
        self.here, self.there = folder / "1", folder / "2"
        self._between = folder / "between"
        self.ended = asyncio.Event()

    async def open(self) -> None:
        for path in (self.here, self.there):
            path.mkdir()
        far = Tunnels(self.there, self._nowhere)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            socket = (await reader.readline()).decode().strip()
            await far.accept(socket, (reader, writer))
            self.ended.set()

        self._server = await asyncio.start_unix_server(serve, self._between)
        self.near = Tunnels(self.here, self._dial)
        await self.near.open()

    async def _dial(self, host: str, socket: str) -> Streams:
        if host != "h2":
            raise OSError(f"host {host} is not there")
        streams = await asyncio.open_unix_connection(self._between)
        streams[1].write(f"{socket}\n".encode())
        return streams

    async def _nowhere(self, host: str, socket: str) -> Streams:
        raise OSError(f"{host} {socket}")

    async def connect(self, first: bytes) -> Streams:
        streams = await asyncio.open_unix_connection(self.here / PEERS)
        streams[1].write(first)
        return streams

    def close(self) -> None:
        self.near.close()
        self._server.close()


def run(folder: Path, test: Callable[[Two], Awaitable[None]]) -> None:
    async def inner() -> None:
        two = Two(folder)
        await two.open()
        try:
            async with asyncio.timeout(20):
                await test(two)
        finally:
            two.close()

    asyncio.run(inner())


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


def test_bytes_are_copied_both_ways_until_one_side_ends(tmp_path: Path) -> None:
    async def test(two: Two) -> None:
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _echo(reader, writer)
            ended.set()

        server = await asyncio.start_unix_server(serve, two.there / "w0.3")
        reader, writer = await two.connect(b"h2 w0.3\n")
        sent = bytes(range(256)) * 20_000  # more than all buffers hold
        reading = asyncio.ensure_future(reader.readexactly(len(sent)))
        writer.write(sent)
        assert await reading == sent
        writer.close()
        await ended.wait()
        await two.ended.wait()
        server.close()

    run(tmp_path, test)


def test_the_end_of_the_other_side_ends_this_one(tmp_path: Path) -> None:
    async def test(two: Two) -> None:
        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"last words")
            writer.close()

        server = await asyncio.start_unix_server(serve, two.there / "registry")
        reader, writer = await two.connect(b"h2 registry\n")
        assert await reader.read() == b"last words"
        writer.close()
        server.close()

    run(tmp_path, test)


@pytest.mark.parametrize(
    "first", [b"h2 engine\n", b"h2 ../2/w0.3\n", b"h2 w0.9\n", b"h9 w0.3\n", b"\xff\xff\n", b"\n"]
)
def test_what_cannot_be_reached_is_closed_at_once(
    tmp_path: Path, first: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(two: Two) -> None:
        served: list[object] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            served.append(reader)
            writer.close()

        servers = [
            await asyncio.start_unix_server(serve, two.there / socket)
            for socket in ("engine", "w0.3")
        ]
        reader, writer = await two.connect(first)
        assert await reader.read() == b""
        writer.close()
        assert served == []
        for server in servers:
            server.close()

    run(tmp_path, test)


def test_the_tunnels_to_a_silent_host_end(tmp_path: Path) -> None:
    async def test(two: Two) -> None:
        server = await asyncio.start_unix_server(_echo, two.there / "w0.3")
        reader, writer = await two.connect(b"h2 w0.3\n")
        writer.write(b"x")
        assert await reader.read(1) == b"x"
        two.near.drop("h2")
        assert await reader.read() == b""
        two.near.drop("h2")
        writer.close()
        await two.ended.wait()
        server.close()

    run(tmp_path, test)


def test_a_host_that_stops_waits_until_the_last_bytes_of_its_workers_are_sent(
    tmp_path: Path,
) -> None:
    last = b"x" * 300_000

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.write(last)
        writer.close()

    async def test(two: Two) -> None:
        server = await asyncio.start_unix_server(answer, two.there / "w0.3")
        await two.near.ended()
        reader, writer = await two.connect(b"h2 w0.3\n")
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        assert await reader.read() == last[1:]
        await two.near.ended()
        writer.close()
        server.close()

    run(tmp_path, test)


def test_open_tunnels_and_their_bytes_are_counted(tmp_path: Path) -> None:
    sent, received = metrics.TUNNEL_BYTES["sent"], metrics.TUNNEL_BYTES["received"]

    def counted() -> tuple[float, ...]:
        row = metrics.here.row
        columns = (metrics.TUNNELS, metrics.TUNNELS_OPENED, sent, received)
        return tuple(row[column] for column in columns)

    async def test(two: Two) -> None:
        server = await asyncio.start_unix_server(_echo, two.there / "w0.1")
        before = counted()
        reader, writer = await two.connect(b"h2 w0.1\n")
        writer.write(b"12345")
        assert await reader.readexactly(5) == b"12345"
        # Both ends are in this process: what one sends is received by the other.
        open_now, opened, *copied = (new - old for new, old in zip(counted(), before, strict=True))
        assert (open_now, opened, copied) == (2, 2, [10, 10])
        writer.close()
        await two.ended.wait()
        while metrics.here.row[metrics.TUNNELS] != before[0]:
            await asyncio.sleep(0.01)
        server.close()

    run(tmp_path, test)


def test_both_connections_are_closed_when_copying_is_cancelled(tmp_path: Path) -> None:
    async def inner() -> None:
        accepted: asyncio.Queue[Streams] = asyncio.Queue()
        server = await asyncio.start_unix_server(
            lambda reader, writer: accepted.put_nowait((reader, writer)), tmp_path / "s"
        )
        ends = [await asyncio.open_unix_connection(tmp_path / "s") for _ in range(2)]
        one, other = await accepted.get(), await accepted.get()
        task = asyncio.ensure_future(copy(one, other))
        ends[0][1].write(b"x")
        assert await ends[1][0].read(1) == b"x"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for reader, writer in ends:
            assert await reader.read() == b""
            writer.close()
        server.close()

    asyncio.run(inner())
