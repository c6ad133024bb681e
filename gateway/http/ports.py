"""The listening ports: sockets, and the two ways in which one port can serve."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from tornado import httpserver, web

from fieldbrook.core.settings import Settings
from fieldbrook.gateway.events.handling import EventService
from fieldbrook.gateway.http.fast_path import FastPath, make_turns
from fieldbrook.gateway.http.read_turns import ReadTurns
from fieldbrook.gateway.http.request_stream import HEAD_LIMIT, RequestStream
from fieldbrook.gateway.http.tls.bridge import BridgedStream
from fieldbrook.gateway.http.tls.plain import Redirected, Refused, Served
from fieldbrook.gateway.listening.connections import TLS_DESCRIPTORS, Connections, IdleConnection
from fieldbrook.gateway.listening.listener import Listener
from fieldbrook.gateway.listening.tls import Plain, TlsListener
from fieldbrook.gateway.memory_budget import MemoryBudget

MULTIPART_SLACK = 64 << 10
"""Bytes of a multipart body beside the uploaded file."""


class Way(NamedTuple):
    """The fast path and the Tornado server of a port, for plain connections or for TLS."""

    fast_path: FastPath
    server: httpserver.HTTPServer

    @property
    def connections(self) -> int:
        """The number of connections."""
        return len(self.fast_path.connections) + len(self.server._connections)

    @property
    def descriptors(self) -> int:
        """The number of file descriptors of these connections."""
        each = TLS_DESCRIPTORS if self.server.protocol == "https" else 1
        return len(self.fast_path.connections) + each * len(self.server._connections)

    def idle(self) -> Iterator[IdleConnection]:
        """The idle connections: those that wait for a request or for the client to read."""
        yield from self.fast_path.idle()
        for served in self.server._connections:
            stream = served.stream
            if not isinstance(stream, RequestStream):
                continue
            since = stream.unread_since if stream.writing() else stream.waiting_since
            if since is not None:
                yield IdleConnection(since, stream.evict)


class Port(NamedTuple):
    """One listening port: its listener, and its ways for plain connections and for TLS."""

    listener: Listener
    ways: tuple[Way, ...]

    @property
    def connections(self) -> int:
        """The number of connections that are open or being opened."""
        return self.listener.opening + sum(way.connections for way in self.ways)

    @property
    def descriptors(self) -> int:
        """The number of file descriptors of these connections."""
        return self.listener.opening + sum(way.descriptors for way in self.ways)

    def idle(self) -> Iterator[IdleConnection]:
        """The idle connections, those that are being opened included."""
        yield from self.listener.idle()
        for way in self.ways:
            yield from way.idle()


class Ports:
    """Opens the ports of one gateway process, which share its limits."""

    def __init__(
        self,
        settings: Settings,
        events: EventService,
        memory_budget: MemoryBudget,
        connections: Connections,
    ) -> None:
        self._settings = settings
        self._events = events
        self._memory_budget = memory_budget
        self._connections = connections
        self._turns = ReadTurns()
        self._fast_turns = make_turns()

    def open(
        self,
        at: socket.socket,
        application: web.Application,
        context: ssl.SSLContext | None,
        plain: str = "refuse",
    ) -> Port:
        """Listen on a bound socket: the fast path reads first, the application gets the rest.

        Args:
            at: the socket.
            application: what serves the requests that are no plain events.
            context: the TLS context; None for a port without TLS.
            plain: what a port with TLS does with plain requests: "serve", "redirect" or "refuse".
        """
        listener: Listener
        if context is None:
            ways = [self._way(application, None)]
            listener = Listener(at, ways[0].fast_path.connection, self._connections)
        else:
            ways = [self._way(application, "https")]
            protocol = ways[0].fast_path.connection
            handling: Plain = Redirected() if plain == "redirect" else Refused()
            if plain == "serve":
                ways.append(self._way(application, None))
                handling = Served(ways[1].fast_path.connection)
            listener = TlsListener(at, context, protocol, self._connections, handling)
        port = Port(listener, tuple(ways))
        self._connections.ports.append(port)
        return port

    def _way(self, application: web.Application, scheme: str | None) -> Way:
        server = self._tornado(application, scheme)
        fast_path = FastPath(
            self._events,
            self._settings.body_limit_bytes,
            partial(hand_over, server, turns=self._turns),
            memory_budget=self._memory_budget,
            turns=self._fast_turns,
        )
        return Way(fast_path, server)

    def _tornado(self, application: web.Application, scheme: str | None) -> httpserver.HTTPServer:
        return httpserver.HTTPServer(
            application,
            max_header_size=HEAD_LIMIT,
            max_body_size=self._settings.upload_limit_bytes + MULTIPART_SLACK,
            idle_connection_timeout=120,
            body_timeout=60,
            protocol=scheme,
        )


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
