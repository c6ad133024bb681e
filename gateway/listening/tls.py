"""The listener of a port with TLS: the handshake, and the treatment of plain connections."""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from fieldbrook.gateway.listening.connections import Connections
from fieldbrook.gateway.listening.listener import Listener
from fieldbrook.gateway.listening.read_turns import ReadTurns
from fieldbrook.gateway.listening.tls_reads import CountedObject, TlsConnection

HANDSHAKE_LIMIT_S = 10.0
HANDSHAKES_LIMIT = 512
_SHUTDOWN_LIMIT_S = 5.0
_CLIENT_HELLO = 0x16
# The size of one TLS record. asyncio allocates and clears a buffer of 256 KiB for each connection,
# so a silent connection of any client would use that much memory.
BUFFER_BYTES = 16 << 10


class Plain(Protocol):
    """The treatment of a connection that does not begin with a TLS handshake."""

    async def open(self, connection: socket.socket) -> bool:
        """Handle an accepted connection; return False if the caller must close it.

        The caller limits the time until a protocol has the connection.

        Raises:
            OSError: the client has disconnected.
        """


class TlsListener(Listener):
    """Accepts connections and gives those that speak TLS to a protocol.

    A connection that begins in another way is handled by `Plain`. A connection is closed when
    its handshake, or the head of a plain request that is not served, is not complete after
    `HANDSHAKE_LIMIT_S`. At most `HANDSHAKES_LIMIT` of both, and at most half of the connection
    limit, are open at once. At this limit, a new connection replaces the oldest one of the client
    with the most.
    """

    def __init__(
        self,
        listening: socket.socket,
        context: ssl.SSLContext,
        protocol: Callable[[], asyncio.Protocol],
        connections: Connections,
        plain: Plain,
    ) -> None:
        """Do the same as `Listener`; `context` is the TLS context of the server."""
        sslproto.SSLProtocol.max_size = BUFFER_BYTES
        handshakes = min(HANDSHAKES_LIMIT, max(1, connections.limit // 2))
        super().__init__(listening, protocol, connections, handshakes)
        context.sslobject_class = CountedObject
        self._turns = ReadTurns()
        self._context = context
        self._plain = plain

    async def open(self, connection: socket.socket) -> bool:
        """See `Listener`."""
        async with asyncio.timeout(HANDSHAKE_LIMIT_S):
            first = await self._first_byte(connection)
            if first == _CLIENT_HELLO:
                await self._shake_hands(connection)
                return True
            return first is not None and await self._plain.open(connection)

    async def _shake_hands(self, connection: socket.socket) -> None:
        """Do the same as `loop.connect_accepted_socket` with a context, but with a
        `TlsConnection`."""
        waiter: asyncio.Future[None] = self.loop.create_future()
        limits = HANDSHAKE_LIMIT_S, _SHUTDOWN_LIMIT_S
        tls = TlsConnection(self.protocol, self._context, waiter, self._turns, *limits)
        transport, _ = await self.loop.connect_accepted_socket(lambda: tls, connection)
        try:
            await waiter
        except BaseException:
            transport.abort()
            raise

    async def _first_byte(self, connection: socket.socket) -> int | None:
        """Peek at the first byte; return None if the client ended the connection without sending
        any."""
        while True:
            with suppress(BlockingIOError):
                peeked = connection.recv(1, socket.MSG_PEEK)
                return peeked[0] if peeked else None
            readable: asyncio.Future[None] = self.loop.create_future()
            self.loop.add_reader(connection.fileno(), _set, readable)
            try:
                await readable
            finally:
                self.loop.remove_reader(connection.fileno())


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
