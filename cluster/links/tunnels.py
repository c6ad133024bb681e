"""Tunnels: connections to Unix sockets of other hosts, over TLS.

A process of this host connects to the local socket `PEERS`, and sends a line with the names of the
other host and of the socket there. Then this module copies all bytes in both directions. Other
hosts can reach only the sockets of workers, of the registry and of the gateways.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from fieldbrook.actors.remote_path import HTTP_SOCKET, MQTT_SOCKET, PEERS
from fieldbrook.cluster.links.lines import LINE_BYTES
from fieldbrook.observability import metrics

log = logging.getLogger(__name__)

REGISTRY = "registry"
_COPY_BYTES = 64 << 10
_LINE_S = 5.0
_BUFFER_BYTES = 1 << 20

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Open = Callable[[str, str], Awaitable[Streams]]
"""Opens a connection to another host. Arguments: the names of the host and of its socket."""


def is_reachable(socket: str) -> bool:
    """Return whether other hosts may connect to the socket with this name."""
    if socket in (REGISTRY, HTTP_SOCKET, MQTT_SOCKET):
        return True
    worker, dot, generation = socket.partition(".")
    return bool(dot) and worker.startswith("w") and worker.isalnum() and generation.isdecimal()


class Tunnels:
    """The tunnels from and to this host.

    Args:
        run_dir: the folder of sockets.
        open_remote: connects to a socket of another host.
    """

    def __init__(self, run_dir: Path, open_remote: Open) -> None:
        self._run_dir, self._open_remote = run_dir, open_remote
        self._by_host: dict[str, set[asyncio.StreamWriter]] = {}
        self._server: asyncio.Server | None = None
        self._open = 0
        self._none_open = asyncio.Event()
        self._none_open.set()

    async def open(self) -> None:
        """Listen for connections of processes on this host."""
        path = self._run_dir / PEERS
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        self._server = await asyncio.start_unix_server(self._connect, path, limit=LINE_BYTES)
        path.chmod(0o600)

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    def drop(self, host: str) -> None:
        """Close all tunnels to a silent host, because a dead host never closes them itself."""
        for writer in self._by_host.pop(host, set()):
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection of a process on this host."""
        try:
            async with asyncio.timeout(_LINE_S):
                line = await reader.readuntil(b"\n")
            host, _, socket = line.decode().strip().partition(" ")
            there = await self._open_remote(host, socket)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            log.info("a tunnel cannot be opened: %s", str(error) or type(error).__name__)
            writer.close()
            return
        tunnels = self._by_host.setdefault(host, set())
        tunnels.add(writer)
        try:
            await self._copy((reader, writer), there)
        finally:
            tunnels.discard(writer)

    async def accept(self, socket: str, there: Streams) -> None:
        """Serve a tunnel that another host has opened to a socket of this host."""
        _, writer = there
        if not is_reachable(socket):
            log.warning("refused a tunnel of another host to the socket %r", socket)
            writer.close()
            return
        try:
            here = await asyncio.open_unix_connection(self._run_dir / socket)
        except OSError as error:
            log.info("a tunnel of another host to the socket %s failed: %s", socket, error)
            writer.close()
            return
        await self._copy(here, there)

    async def _copy(self, here: Streams, there: Streams) -> None:
        self._open += 1
        self._none_open.clear()
        try:
            await copy(here, there)
        finally:
            self._open -= 1
            if not self._open:
                self._none_open.set()

    async def ended(self) -> None:
        """Wait until no tunnel is open, so that the last bytes are sent."""
        await self._none_open.wait()


async def copy(here: Streams, there: Streams) -> None:
    """Copy bytes in both directions until one side ends, then close both.

    Args:
        here: the connection to a process of this host.
        there: the connection to another host.
    """
    for _, writer in (here, there):
        writer.transport.set_write_buffer_limits(high=_BUFFER_BYTES)
    tasks = [
        asyncio.ensure_future(_copy(here[0], there[1], metrics.TUNNEL_BYTES["sent"])),
        asyncio.ensure_future(_copy(there[0], here[1], metrics.TUNNEL_BYTES["received"])),
    ]
    metrics.add(metrics.TUNNELS_OPENED)
    metrics.add(metrics.TUNNELS)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        metrics.add(metrics.TUNNELS, -1)
        for task in tasks:
            task.cancel()
        for _, writer in (here, there):
            writer.close()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, column: int) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_COPY_BYTES):
            metrics.add(column, len(data))
            writer.write(data)
            await writer.drain()
