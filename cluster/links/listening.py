"""Accepts the connections of other hosts, and bounds those that have not shaken hands.

A connection takes 300 KiB from its first moment on. asyncio's own server accepts until the system
refuses, so a stranger who connects again and again would take the memory of the machine, or the
descriptors that connections of hosts need.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine

from fieldbrook.cluster.links.lines import LINE_BYTES

log = logging.getLogger(__name__)

STRANGERS = 128
"""Handshakes at a time with clients that have no host's address."""
_BACKLOG = 128
_PAUSE_S = 0.2

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listening:
    """The port for connections between hosts, for one event loop.

    Args:
        context: the server's side of TLS.
        handshake_s: the time for a handshake, in seconds.
        is_host: returns whether this is the address of a host, whose connections have no limit.
        serve: handles a connection that has shaken hands.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        handshake_s: float,
        is_host: Callable[[str], bool],
        serve: Serve,
    ) -> None:
        self._context, self._handshake_s = context, handshake_s
        self._is_host, self._serve = is_host, serve
        self._tasks = set[asyncio.Task[None]]()
        self._strangers = 0

    async def open(self, address: str, port: int) -> None:
        """Listen on all addresses that a name stands for.

        Raises:
            OSError: an address cannot be used.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(address, port, type=socket.SOCK_STREAM)
        for family, name in dict.fromkeys((each[0], each[4][:2]) for each in found):
            listening = socket.create_server((str(name[0]), port), family=family, backlog=_BACKLOG)
            listening.setblocking(False)
            self._begin(self._accept(listening))

    def close(self) -> None:
        """Stop listening, and end the handshakes."""
        for task in self._tasks:
            task.cancel()

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                try:
                    connection, name = await loop.sock_accept(listening)
                except OSError as error:
                    log.warning("cannot accept a connection of another host: %s", error)
                    await asyncio.sleep(_PAUSE_S)
                    continue
                is_stranger = not self._is_host(str(name[0]))
                if is_stranger and self._strangers >= STRANGERS:
                    connection.close()
                    continue
                self._strangers += is_stranger
                task = self._begin(self._shake_hands(connection))
                if is_stranger:
                    task.add_done_callback(self._stranger_left)

    def _stranger_left(self, _: asyncio.Task[None]) -> None:
        self._strangers -= 1

    async def _shake_hands(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LINE_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader, self._serve)
        with contextlib.suppress(OSError):  # the client's fault, or its time is over
            await loop.connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_s,
            )
