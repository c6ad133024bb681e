"""The listening ports: their sockets, and the servers for plain and for TLS connections."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from typing import NamedTuple

from fieldbrook.core.settings import Settings
from fieldbrook.gateway.events.handling import EventService
from fieldbrook.gateway.http.fast_path import FastPath, make_turns
from fieldbrook.gateway.http.later import LaterServer
from fieldbrook.gateway.http.tls.plain import Redirected, Refused, Served
from fieldbrook.gateway.listening.connections import Connections, IdleConnection
from fieldbrook.gateway.listening.listener import Listener
from fieldbrook.gateway.listening.proxies import Proxies
from fieldbrook.gateway.listening.tls import Plain, TlsListener
from fieldbrook.gateway.memory_budget import Shared


class Way(NamedTuple):
    """A port's fast path and the server to which it hands over, for plain connections or for
    TLS."""

    fast_path: FastPath
    server: LaterServer

    @property
    def connections(self) -> int:
        """The number of connections."""
        return len(self.fast_path.connections) + self.server.connections

    @property
    def descriptors(self) -> int:
        """The number of file descriptors of these connections."""
        return len(self.fast_path.connections) + self.server.descriptors

    def idle(self) -> Iterator[IdleConnection]:
        """The idle connections: those that wait for a request or for the client to read."""
        yield from self.fast_path.idle()
        yield from self.server.idle()


class Port(NamedTuple):
    """One listening port: its listener, and a `Way` each for plain connections and for TLS."""

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
        """The idle connections, including those that are being opened."""
        yield from self.listener.idle()
        for way in self.ways:
            yield from way.idle()


class Ports:
    """Opens the ports of one gateway process, which share its limits."""

    def __init__(
        self,
        settings: Settings,
        events: EventService,
        memory_budget: Shared,
        connections: Connections,
    ) -> None:
        self._settings = settings
        self._events = events
        self._memory_budget = memory_budget
        self._connections = connections
        self._turns = make_turns()
        self._proxies = Proxies(settings.trusted_proxies)

    def open(
        self, at: socket.socket, context: ssl.SSLContext | None, plain: str = "refuse"
    ) -> Port:
        """Listen on a bound socket: the fast path reads first, the servers get the rest.

        Args:
            at: the socket.
            context: the TLS context; None for a port without TLS.
            plain: how a port with TLS treats plain requests: "serve", "redirect" or "refuse".
        """
        listener: Listener
        if context is None:
            ways = [self._way(None)]
            listener = Listener(at, ways[0].fast_path.connection, self._connections)
        else:
            ways = [self._way("https")]
            protocol = ways[0].fast_path.connection
            handling: Plain = Redirected() if plain == "redirect" else Refused()
            if plain == "serve":
                ways.append(self._way(None))
                handling = Served(ways[1].fast_path.connection)
            listener = TlsListener(at, context, protocol, self._connections, handling)
        port = Port(listener, tuple(ways))
        self._connections.ports.append(port)
        return port

    def _way(self, scheme: str | None) -> Way:
        server = LaterServer(scheme)
        fast_path = FastPath(
            self._events,
            self._settings.body_limit_bytes,
            server.take,
            memory_budget=self._memory_budget,
            turns=self._turns,
            proxies=self._proxies,
        )
        return Way(fast_path, server)
