"""TLS in front of the HTTP ports: the handshake, and the way to Tornado for what it serves.

asyncio does the TLS, so the fast front reads and answers as it does without. Tornado wants
a socket: a connection that is handed to it gets a pair of local ones, and `bridge` carries
the bytes between TLS and the pair.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import cast

from fieldbrook.gateway.http.connections import Connections, Quiet
from fieldbrook.gateway.http.listener import Listener
from fieldbrook.gateway.http.request_stream import RequestStream

HANDSHAKE_LIMIT_S = 10.0
HANDSHAKES_LIMIT = 512
_SHUTDOWN_LIMIT_S = 5.0
_LINGER_S = 1.0
_QUIET_S = 0.1
_CLIENT_HELLO = 0x16
_READ_BYTES = 64 << 10
_PLAIN_BODY = b"this port speaks TLS: ask https://\n"
_PLAIN = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_PLAIN_BODY), _PLAIN_BODY)
)


class TlsListener(Listener):
    """Accepts connections, and gives those that speak TLS to a protocol.

    A client that speaks plain HTTP is told so. One that says nothing, or is not done with
    its handshake in time, is closed; only so many may be at it.
    """

    def __init__(
        self,
        listening: socket.socket,
        context: ssl.SSLContext,
        protocol: Callable[[], asyncio.Protocol],
        connections: Connections,
    ) -> None:
        """As `Listener`."""
        handshakes = min(HANDSHAKES_LIMIT, max(1, connections.limit // 2))
        super().__init__(listening, protocol, connections, handshakes)
        self._context = context

    async def open(self, connection: socket.socket) -> bool:
        """See `Listener`."""
        async with asyncio.timeout(HANDSHAKE_LIMIT_S):
            first = await self._first_byte(connection)
            if first == _CLIENT_HELLO:
                await self.loop.connect_accepted_socket(
                    self.protocol,
                    connection,
                    ssl=self._context,
                    ssl_handshake_timeout=HANDSHAKE_LIMIT_S,
                    ssl_shutdown_timeout=_SHUTDOWN_LIMIT_S,
                )
                return True
            if first is not None:
                await self._refuse(connection)
        return False

    async def _first_byte(self, connection: socket.socket) -> int | None:
        """The first byte, left where it is; None when the client ended before one."""
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

    async def _refuse(self, connection: socket.socket) -> None:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                await self.loop.sock_sendall(connection, _PLAIN)
                connection.shutdown(socket.SHUT_WR)
                # What the client still sends is read: else it may lose the answer.
                while await self.loop.sock_recv(connection, _READ_BYTES):
                    pass


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _LocalEnd(socket.socket):
    """The end of a bridge that Tornado has."""

    outside: _Outside | None = None


class BridgedStream(RequestStream):
    """Tornado's stream on the local end of a bridge."""

    def evict(self) -> None:
        """See `RequestStream`."""
        end = self.socket
        if isinstance(end, _LocalEnd) and end.outside is not None:
            end.outside.abort()
        super().evict()

    def close_fd(self) -> None:
        """See `RequestStream`."""
        end = self.socket
        if isinstance(end, _LocalEnd):
            end.outside = None
        super().close_fd()

    def set_nodelay(self, value: bool) -> None:
        """Nothing: a local socket does not wait."""


def bridge(outer: asyncio.Transport) -> socket.socket:
    """A socket that reads what this connection's client sends, and writes to it.

    The connection's reading must be paused; it is resumed here. Closing one end closes the
    other, after what is on its way.
    """
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    outside, inside = _Outside(), _Inside()
    outside.other = inside
    inside.other = outside
    outside.transport = outer
    outer.set_protocol(outside)
    loop = asyncio.get_running_loop()
    # The loop itself holds tasks only weakly.
    task = loop.create_task(_attach(loop, inside, near))
    _attaching.add(task)
    task.add_done_callback(_attaching.discard)
    # Tornado takes a client's address for what it is only on a socket of this family.
    family = socket.AF_INET6 if _is_ipv6(outer) else socket.AF_INET
    end = _LocalEnd(family, socket.SOCK_STREAM, 0, fileno=far.detach())
    end.outside = outside
    return end


def _is_ipv6(outer: asyncio.Transport) -> bool:
    return ":" in str(outer.get_extra_info("peername", ("",))[0])


async def _attach(loop: asyncio.AbstractEventLoop, inside: _Inside, near: socket.socket) -> None:
    await loop.connect_accepted_socket(lambda: inside, near)


_attaching: set[asyncio.Task[None]] = set()


class _Half(asyncio.Protocol):
    """One end of a bridge: what it receives, the other end's transport sends."""

    other: _Half

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._lost = False

    def data_received(self, data: bytes) -> None:
        """From here to the other end."""
        if self.other.transport is not None and not self.other._lost:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        """This end is full: the other reads no more."""
        if self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """This end has room again."""
        if self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """This end is closed, so the other is."""
        self._lost = True
        # The buffers of asyncio's TLS have 256 KiB each: they are not to wait for the collector.
        self.transport = None
        if not self.other._lost:
            self.other.close()

    def close(self) -> None:
        """The other end is closed, so this is to be."""
        if self.transport is not None:
            self.transport.close()


class _Inside(_Half):
    """The end on the local socket."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The local end is there: the client may go on."""
        self.transport = cast(asyncio.Transport, transport)
        outer = self.other.transport
        if self.other._lost or outer is None:
            self.transport.close()
        else:
            outer.resume_reading()


class _Outside(_Half):
    """The client's end."""

    _heard_at = 0.0
    _closes_at = 0.0

    def data_received(self, data: bytes) -> None:
        """From the client; dropped when nobody reads it any more."""
        if self.other._lost:
            self._heard_at = asyncio.get_running_loop().time()
        else:
            super().data_received(data)

    def close(self) -> None:
        """Close when the client has been quiet for a moment: asyncio's TLS ends a connection with
        a reset when data arrives after its end, which takes the last answer from the client."""
        loop = asyncio.get_running_loop()
        _ending.add(self)
        self._heard_at, self._closes_at = loop.time(), loop.time() + _LINGER_S
        if self.transport is not None:
            self.transport.resume_reading()
        loop.call_later(_QUIET_S, self._close_when_quiet)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        _ending.discard(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """End the connection at once."""
        if self.transport is not None:
            self.transport.abort()

    def _close_when_quiet(self) -> None:
        loop = asyncio.get_running_loop()
        if self._lost or self.transport is None:
            return
        if loop.time() >= min(self._heard_at + _QUIET_S, self._closes_at):
            self.transport.close()
        else:
            loop.call_later(_QUIET_S, self._close_when_quiet)


_ending: set[_Outside] = set()


class EndingConnections:
    """The connections over TLS that Tornado has closed and whose clients have not yet, as a port
    of `Connections`."""

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(_ending)

    def quiet(self) -> Iterator[Quiet]:
        """All of them, before any other: they have had their answers."""
        return (Quiet(0.0, each.abort) for each in _ending)
