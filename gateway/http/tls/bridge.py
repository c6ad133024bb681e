"""The bridge from TLS connections to Tornado.

asyncio handles TLS, so the fast path works the same with and without TLS. Tornado needs a socket:
a TLS connection that is handed over to Tornado gets a local socket pair, and `bridge` copies the
bytes between the TLS connection and the pair.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import cast

from fieldbrook.gateway.listening.connections import IdleConnection

_LINGER_S = 1.0
_QUIET_S = 0.1


class LocalEnd(socket.socket):
    """The end of a bridge's socket pair that Tornado owns."""

    outside: Outside | None = None


def bridge(outer: asyncio.Transport) -> socket.socket:
    """Connect a TLS transport to a local socket pair and return the end for Tornado.

    The transport's reading must be paused; the bridge resumes it. Closing one end closes the
    other after the bytes in transit.
    """
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    outside, inside = Outside(), _Inside()
    outside.other = inside
    inside.other = outside
    outside.transport = outer
    outer.set_protocol(outside)
    loop = asyncio.get_running_loop()
    # The event loop holds only weak references to tasks.
    task = loop.create_task(_attach(loop, inside, near))
    _attaching.add(task)
    task.add_done_callback(_attaching.discard)
    # Tornado accepts the client's address only on a socket of an Internet family.
    family = socket.AF_INET6 if _is_ipv6(outer) else socket.AF_INET
    end = LocalEnd(family, socket.SOCK_STREAM, 0, fileno=far.detach())
    end.outside = outside
    return end


def _is_ipv6(outer: asyncio.Transport) -> bool:
    return ":" in str(outer.get_extra_info("peername", ("",))[0])


async def _attach(loop: asyncio.AbstractEventLoop, inside: _Inside, near: socket.socket) -> None:
    await loop.connect_accepted_socket(lambda: inside, near)


_attaching: set[asyncio.Task[None]] = set()


class _Half(asyncio.Protocol):
    """One end of a bridge: the other end's transport sends the bytes that this end receives."""

    other: _Half

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._lost = False

    def data_received(self, data: bytes) -> None:
        """Send the bytes to the other end."""
        if self.other.transport is not None and not self.other._lost:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        """Pause reading at the other end, because this end's write buffer is full."""
        if self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Resume reading at the other end."""
        if self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other end, because this one is closed."""
        self._lost = True
        # Drop the reference: the buffers of asyncio's TLS have 256 KiB each and should be freed
        # without the garbage collector.
        self.transport = None
        if not self.other._lost:
            self.other.close()

    def close(self) -> None:
        """Close this end, because the other one is closed."""
        if self.transport is not None:
            self.transport.close()


class _Inside(_Half):
    """The end of a bridge at the local socket."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Resume reading from the client, now that the local end is open."""
        self.transport = cast(asyncio.Transport, transport)
        outer = self.other.transport
        if self.other._lost or outer is None:
            self.transport.close()
        else:
            outer.resume_reading()


class Outside(_Half):
    """The end of a bridge at the client's TLS connection."""

    _heard_at = 0.0
    _closes_at = 0.0

    def data_received(self, data: bytes) -> None:
        """Forward bytes from the client; drop them after Tornado has closed its end."""
        if self.other._lost:
            self._heard_at = asyncio.get_running_loop().time()
        else:
            super().data_received(data)

    def close(self) -> None:
        """Close the connection once the client has been quiet for 0.1 s, or after 1 second.

        asyncio's TLS resets a connection when data arrives after the close, and a reset discards
        an answer that the client has not read yet.
        """
        loop = asyncio.get_running_loop()
        _ending.add(self)
        self._heard_at, self._closes_at = loop.time(), loop.time() + _LINGER_S
        if self.transport is not None:
            self.transport.resume_reading()
        loop.call_later(_QUIET_S, self._close_when_quiet)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the `EndingConnections`, then close the local end."""
        _ending.discard(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection at once."""
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


_ending: set[Outside] = set()


class EndingConnections:
    """The TLS connections that Tornado has closed and the client has not closed yet, as a
    `Port`."""

    @property
    def connections(self) -> int:
        """The number of these connections."""
        return len(_ending)

    @property
    def descriptors(self) -> int:
        """The number of descriptors, one for each connection: the two of its bridge are closed."""
        return len(_ending)

    def idle(self) -> Iterator[IdleConnection]:
        """All of these connections; they are evicted before any other, because they have got their
        answers."""
        return (IdleConnection(0.0, each.abort) for each in _ending)
