"""Lingering close: waits until the client has read its last answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from contextlib import suppress

from fieldbrook.gateway.listening.connections import IdleConnection

_LINGER_S = 1.0
_LINGERING_LIMIT = 64
_READ_BYTES = 64 << 10


def linger(connection: socket.socket) -> bool:
    """Close a connection when its client has closed it, or after 1 second at the latest.

    Until then, data from the client is read and dropped. If data arrived after a close, the system
    would answer it with a reset, and a reset discards answers that the client has not read yet (RFC
    9112, 9.6).

    Returns:
        False if the connection cannot or need not linger; then the caller closes it.
    """
    if len(_lingering) >= _LINGERING_LIMIT:
        return False
    try:
        connection.shutdown(socket.SHUT_WR)
        ended = _drain(connection)
    except OSError:
        return False
    if ended:
        return False
    loop = asyncio.get_running_loop()
    _lingering[connection] = loop.call_later(_LINGER_S, _end, loop, connection)
    loop.add_reader(connection.fileno(), _read_on, loop, connection)
    return True


_lingering: dict[socket.socket, asyncio.TimerHandle] = {}


class LingeringConnections:
    """The connections that wait until the client closes them, as a `Port`."""

    @property
    def connections(self) -> int:
        """The number of these connections."""
        return len(_lingering)

    @property
    def descriptors(self) -> int:
        """The number of descriptors, one for each connection."""
        return len(_lingering)

    def idle(self) -> Iterable[IdleConnection]:
        """No connection, because all of them end soon by themselves."""
        return ()


def _drain(connection: socket.socket) -> bool:
    """Read and drop up to 64 KiB; return True if the client has ended the connection."""
    with suppress(BlockingIOError):
        return not connection.recv(_READ_BYTES)
    return False


def _read_on(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
    try:
        ended = _drain(connection)
    except OSError:
        ended = True
    if ended:
        _end(loop, connection)


def _end(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
    timer = _lingering.pop(connection, None)
    if timer is not None:
        timer.cancel()
        loop.remove_reader(connection.fileno())
        connection.close()
