"""Tornado's side of a port: it serves the connections that the fast path hands over."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

from tornado import httpserver, web

from fieldbrook.core.settings import Settings
from fieldbrook.gateway.http.request_head import HEAD_LIMIT
from fieldbrook.gateway.http.tornado.bridged_stream import BridgedStream
from fieldbrook.gateway.http.tornado.request_stream import RequestStream
from fieldbrook.gateway.listening.connections import TLS_DESCRIPTORS, IdleConnection
from fieldbrook.gateway.listening.read_turns import ReadTurns
from fieldbrook.gateway.memory_budget import MULTIPART_SLACK


class TornadoServer:
    """Serves connections with an application."""

    def __init__(
        self,
        application: web.Application,
        settings: Settings,
        scheme: str | None,
        turns: ReadTurns,
    ) -> None:
        """Create a server without connections.

        Args:
            application: answers the requests.
            settings: has the limit of uploads.
            scheme: "https" for connections with TLS, else None.
            turns: the read turns that all connections of a process share.
        """
        self._turns = turns
        self._server = httpserver.HTTPServer(
            application,
            max_header_size=HEAD_LIMIT,
            max_body_size=settings.upload_limit_bytes + MULTIPART_SLACK,
            idle_connection_timeout=120,
            body_timeout=60,
            protocol=scheme,
        )

    @property
    def connections(self) -> int:
        """The number of connections."""
        return len(self._server._connections)

    @property
    def descriptors(self) -> int:
        """The number of file descriptors of these connections."""
        return self.connections * (TLS_DESCRIPTORS if self._server.protocol == "https" else 1)

    def idle(self) -> Iterator[IdleConnection]:
        """The idle connections: those that wait for a request or for the client to read."""
        for served in self._server._connections:
            stream = served.stream
            if not isinstance(stream, RequestStream):
                continue
            since = stream.unread_since if stream.writing() else stream.waiting_since
            if since is not None:
                yield IdleConnection(since, stream.evict)

    def take(self, connection: socket.socket, address: tuple[Any, ...], read: bytes) -> None:
        """Serve a connection, from which the bytes `read` have been read already."""
        hand_over(self._server, connection, address, read, self._turns)


def hand_over(
    server: httpserver.HTTPServer,
    connection: socket.socket,
    address: tuple[Any, ...],
    read: bytes,
    turns: ReadTurns | None = None,
) -> None:
    """Give a connection to Tornado, together with the bytes already read from it.

    `turns` is shared by all connections of the process.
    """
    kind = BridgedStream if server.protocol == "https" else RequestStream
    stream = kind(connection, max_buffer_size=64 << 20)
    stream.turns = turns
    # Put the bytes that the fast path has read into Tornado's buffer, as if Tornado had read them.
    stream._read_buffer += read
    stream._read_buffer_size += len(read)
    server.handle_stream(stream, address)
