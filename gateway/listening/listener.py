"""Accepts the connections of one port, up to the connection limit of the process.

asyncio's own server accepts connections until the system refuses. Then it writes a hundred
tracebacks and leaves no descriptor for other files.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterator
from functools import partial

from fieldbrook.gateway.listening.connections import Connections, IdleConnection
from fieldbrook.gateway.listening.sockets import refuse

log = logging.getLogger(__name__)

_ACCEPTS_PER_TURN = 64
_PAUSE_S = 0.2
# Clients that all connect at the same time, for example after a restart, are not evicted during
# this time.
_OPENING_S = 2.0


class Opening:
    """The accepted connections that have no protocol yet, by peer, oldest first."""

    def __init__(self) -> None:
        self._peers: dict[str, dict[asyncio.Task[None], float]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, peer: str, task: asyncio.Task[None], since: float) -> None:
        """Add the connection that `task` opens."""
        self._peers.setdefault(peer, {})[task] = since
        self._count += 1

    def discard(self, peer: str, task: asyncio.Task[None]) -> None:
        """Remove a connection, if it is still here."""
        tasks = self._peers.get(peer)
        if tasks and tasks.pop(task, None) is not None:
            self._count -= 1
            if not tasks:
                del self._peers[peer]

    def evictable(self, before: float) -> IdleConnection | None:
        """Return the oldest connection of the peer with the most connections, if it began before a
        time."""
        if not self._peers:
            return None
        peer = max(self._peers, key=lambda each: len(self._peers[each]))
        task, since = next(iter(self._peers[peer].items()))
        return IdleConnection(since, partial(self._end, peer, task)) if since <= before else None

    def idle(self) -> Iterator[IdleConnection]:
        """Return all of these connections."""
        for peer, tasks in self._peers.items():
            for task, since in tasks.items():
                yield IdleConnection(since, partial(self._end, peer, task))

    def _end(self, peer: str, task: asyncio.Task[None]) -> None:
        self.discard(peer, task)
        task.cancel()


def peer_of(host: str) -> str:
    """Return the address under which a client is counted: IPv4, or the /64 network of IPv6."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return address.packed[:8].hex()


class Listener:
    """Accepts connections and gives them to a protocol."""

    def __init__(
        self,
        listening: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        connections: Connections,
        opening_limit: int = _ACCEPTS_PER_TURN,
    ) -> None:
        """Begin to accept. Must be called in the event loop.

        Args:
            listening: a non-blocking socket that listens.
            protocol: creates the protocol of a connection.
            connections: the connections of the process. At their limit, new connections wait
                in the system's queue.
            opening_limit: how many accepted connections may wait for their protocol. At this limit,
                a new connection replaces the oldest one of the peer with the most connections, if
                that one is older than 2 s.
        """
        self.protocol = protocol
        self.loop = asyncio.get_running_loop()
        self._listening = listening
        self._connections = connections
        self._opening_limit = opening_limit
        self._opening = Opening()
        self._closed = self._paused = False
        self.loop.add_reader(listening.fileno(), self._accept)

    @property
    def opening(self) -> int:
        """The number of accepted connections that have no protocol yet."""
        return len(self._opening)

    def idle(self) -> Iterator[IdleConnection]:
        """The accepted connections that have no protocol yet: they wait for their clients."""
        return self._opening.idle()

    def close(self, *, refuses: bool = False) -> None:
        """Stop accepting connections.

        Args:
            refuses: whether the system refuses new connections, too, although other processes
                still have the socket open. Otherwise they wait in the system's queue.
        """
        if not self._closed:
            self._closed = True
            self.loop.remove_reader(self._listening.fileno())
            if refuses:
                refuse(self._listening)
            self._listening.close()

    def _accept(self) -> None:
        for count in range(_ACCEPTS_PER_TURN):
            oldest = None
            if len(self._opening) >= self._opening_limit:
                oldest = self._opening.evictable(self.loop.time() - _OPENING_S)
                if oldest is None:
                    self._pause()
                    return
            if self._connections.is_full:
                # Only in the first pass it is certain that a connection waits. The loop calls again
                # if there are more.
                if count == 0 and not self._connections.evict():
                    self._pause()
                return
            try:
                connection, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # No descriptor or memory is free now; this may change in a moment.
                self._connections.refused(error.strerror or str(error))
                self._pause()
                return
            if self._connections.is_spare(connection.fileno()):
                connection.close()
                self._connections.refused("the reserve of file descriptors is used up")
                self._pause()
                return
            connection.setblocking(False)
            if oldest is not None:
                oldest.evict()
                self._connections.evicted_opening(self._opening_limit)
            peer = peer_of(address[0])
            task = self.loop.create_task(self._open_or_close(connection))
            self._opening.add(peer, task, self.loop.time())
            task.add_done_callback(partial(self._opened, peer, connection))

    def _opened(self, peer: str, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._opening.discard(peer, task)
        if task.cancelled():
            connection.close()

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self.loop.remove_reader(self._listening.fileno())
            self.loop.call_later(_PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._paused = False
        if not self._closed:
            self.loop.add_reader(self._listening.fileno(), self._accept)

    async def _open_or_close(self, connection: socket.socket) -> None:
        try:
            if await self.open(connection):
                return
        except (OSError, TimeoutError) as error:
            log.debug("a connection was not opened: %r", error)
        connection.close()

    async def open(self, connection: socket.socket) -> bool:
        """Attach a connection to a protocol; False means that the caller closes it.

        Raises:
            OSError, TimeoutError: the client has disconnected or is too slow.
        """
        await self.loop.connect_accepted_socket(self.protocol, connection)
        return True
