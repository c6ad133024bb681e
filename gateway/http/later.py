"""A server that is created after its port is open; the first connections wait for it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple, Protocol

from fieldbrook.gateway.listening.connections import TLS_DESCRIPTORS, IdleConnection, Port


class Server(Port, Protocol):
    """A server for the connections that the fast path hands over."""

    def take(self, connection: socket.socket, address: tuple[Any, ...], read: bytes) -> None:
        """Serve a connection, of which `read` has been read already."""


class _Waiting(NamedTuple):
    """A waiting connection; `since` is when it began to wait, in monotonic seconds."""

    connection: socket.socket
    address: tuple[Any, ...]
    read: bytes
    since: float


class LaterServer:
    """Passes connections to a server as soon as the server exists.

    Attributes:
        scheme: "https" for connections with TLS, else None.
    """

    def __init__(self, scheme: str | None) -> None:
        self.scheme = scheme
        self._server: Server | None = None
        self._waiting: list[_Waiting] = []

    def begin(self, server: Server) -> None:
        """Pass all waiting and later connections to this server."""
        self._server = server
        loop = asyncio.get_running_loop()
        waiting, self._waiting = self._waiting, []
        for each in waiting:  # separate calls: a connection that fails must not affect the others
            loop.call_soon(server.take, each.connection, each.address, each.read)

    def take(self, connection: socket.socket, address: tuple[Any, ...], read: bytes) -> None:
        """Serve a connection, of which `read` has been read already, now or later."""
        if self._server is None:
            self._waiting.append(_Waiting(connection, address, read, time.monotonic()))
        else:
            self._server.take(connection, address, read)

    @property
    def connections(self) -> int:
        """The number of connections."""
        return len(self._waiting) if self._server is None else self._server.connections

    @property
    def descriptors(self) -> int:
        """The number of file descriptors of these connections."""
        if self._server is None:
            return len(self._waiting) * (TLS_DESCRIPTORS if self.scheme == "https" else 1)
        return self._server.descriptors

    def idle(self) -> Iterable[IdleConnection]:
        """The connections that may be closed, including those that wait for the server."""
        if self._server is None:
            return (IdleConnection(each.since, partial(self._drop, each)) for each in self._waiting)
        return self._server.idle()

    def _drop(self, waiting: _Waiting) -> None:
        self._waiting.remove(waiting)
        waiting.connection.close()
