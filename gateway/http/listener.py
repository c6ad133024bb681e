"""Accepts the connections of one port, up to the connection limit of the process.

asyncio's own server accepts until the system refuses. It then writes a hundred tracebacks and
leaves no descriptor for other files.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from fieldbrook.gateway.http.connections import Connections

log = logging.getLogger(__name__)

_ACCEPTS_PER_TURN = 64
_PAUSE_S = 0.2


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
            opening_limit: how many accepted connections may wait for their protocol.
        """
        self.protocol = protocol
        self.loop = asyncio.get_running_loop()
        self._listening = listening
        self._connections = connections
        self._opening_limit = opening_limit
        self._opening: set[asyncio.Task[None]] = set()
        self._closed = self._paused = False
        self.loop.add_reader(listening.fileno(), self._accept)

    @property
    def opening(self) -> int:
        """The number of accepted connections that have no protocol yet."""
        return len(self._opening)

    def close(self) -> None:
        """Accept no more."""
        if not self._closed:
            self._closed = True
            self.loop.remove_reader(self._listening.fileno())
            self._listening.close()

    def _accept(self) -> None:
        for count in range(_ACCEPTS_PER_TURN):
            if len(self._opening) >= self._opening_limit:
                self._pause()
                return
            if self._connections.is_full:
                # Only the first pass is sure that a connection waits. The loop calls again when
                # there are more.
                if count == 0 and not self._connections.evict():
                    self._pause()
                return
            try:
                connection, _ = self._listening.accept()
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
            task = self.loop.create_task(self._open_or_close(connection))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

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
            OSError, TimeoutError: the client is gone or too slow.
        """
        await self.loop.connect_accepted_socket(self.protocol, connection)
        return True
