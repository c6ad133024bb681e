"""A TCP proxy whose connections can be cut."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self


class Cable:
    """Listens on a port of its own and forwards to `port`, until it is cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._whole = True
        self._ends: set[asyncio.StreamWriter] = set()
        self.refused = 0  # connections that came while the cable was cut

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        self._server.close()
        await self._server.wait_closed()

    @property
    def connected(self) -> int:
        """Return the number of open connections."""
        return len(self._ends) // 2

    def cut(self) -> None:
        """Close every connection, and refuse new ones."""
        self._whole = False
        for end in self._ends:
            end.transport.abort()

    def mend(self) -> None:
        """Accept connections again."""
        self._whole = True

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._whole:
            self.refused += 1
            writer.transport.abort()
            return
        there, further = await asyncio.open_connection("127.0.0.1", self._port)
        ends = {writer, further}
        self._ends |= ends
        try:
            await asyncio.gather(_pass(reader, further), _pass(there, writer))
        finally:
            self._ends -= ends
            for end in ends:
                end.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()
