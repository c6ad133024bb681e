"""Tornado's stream of a client connection: each request head is checked before it is parsed.

Tornado 6.6 closes a connection without an answer when a head is too long, and accepts a bare line
feed as the end of a line. This stream answers 431 to the first and 400 to the second. The second
prevents request smuggling: a server and a proxy that disagree on where a line ends can be made to
disagree on where a request ends. A client that begins with TLS gets an answer at once, so that it
detects the plain HTTP port; otherwise it would wait for a minute.

Source: RFC 9112, 2.2 and 11.2; RFC 6585, 5.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cached_property
from typing import Protocol

from tornado import iostream

from fieldbrook.gateway.http.lingering import linger
from fieldbrook.gateway.http.request_head import HEAD_LIMIT, has_bare_line_feed
from fieldbrook.gateway.http.tornado.frame_reads import FrameReads
from fieldbrook.gateway.listening.read_turns import ReadTurns

_UPGRADED_READS_PER_S = 512  # Tornado makes 2 to 4 reads for a frame of a WebSocket
_HANDSHAKE = b"\x16"  # the first byte of TLS (RFC 8446, 5.1)
# Matches TLS, a complete head, or as many bytes as the limit allows. Later bytes are not examined.
_HEAD = re.compile(
    rb"\A\x16|\A[\x00-\xff]{0,%d}?\r?\n\r?\n|\A[\x00-\xff]{%d}" % (HEAD_LIMIT - 4, HEAD_LIMIT)
)


def _refusal(status: str, reason: str) -> bytes:
    body = f"{reason}\n".encode()
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


_TOO_LARGE = _refusal(
    "431 Request Header Fields Too Large",
    f"the request line and the header fields have more than {HEAD_LIMIT} bytes",
)
_NO_TLS = _refusal("400 Bad Request", "this port speaks HTTP, and not HTTPS")
_BARE_LINE_FEED = _refusal(
    "400 Bad Request", "a line of the request head ends with a bare line feed instead of CR LF"
)


class RequestStream(iostream.IOStream):
    """The stream from which Tornado reads a client's requests."""

    waiting_since: float | None = None
    """The time, in monotonic seconds, since which the node waits for the client: the beginning of
    an incomplete request or, on an idle connection, the end of the last one. None while the client
    waits for an answer of the node."""
    unread_since: float | None = None
    """The time, in monotonic seconds, since which the client has not read all of an answer."""
    upgraded = False
    """Whether this has become a WebSocket, which may be silent without a time limit."""
    may_hold: Callable[[int], bool] | None = None
    """Counts the bytes of an incomplete WebSocket message; returns False if the connection must be
    closed."""
    turns: ReadTurns | None = None
    """The read turns that all connections of a process share."""
    _began = 0.0
    _abrupt = False
    _second = _reads = 0

    @cached_property
    def _frames(self) -> FrameReads:
        return FrameReads()

    async def read_until_regex(self, regex: bytes, max_bytes: int | None = None) -> bytes:
        """Read the next request head; Tornado uses this method for nothing else.

        Raises:
            StreamClosedError: the client has closed the connection, or its head was refused.
        """
        self.waiting_since = self._began = time.monotonic()
        head = await super().read_until_regex(_HEAD.pattern, HEAD_LIMIT)
        if head == _HANDSHAKE:
            await self._refuse(_NO_TLS)
        if not head.endswith((b"\n\r\n", b"\n\n")):
            await self._refuse(_TOO_LARGE)
        if has_bare_line_feed(head):
            await self._refuse(_BARE_LINE_FEED)
        self.waiting_since = None
        if not self._may_go_on():
            await self.turn()
        return head

    def read_bytes(self, num_bytes: int, partial: bool = False) -> Awaitable[bytes]:
        """Read the next bytes of a body, or of a WebSocket.

        Raises:
            StreamClosedError: the client has closed the connection, or sends too many frames.
        """
        if self.upgraded:
            self._count_read()
            held = num_bytes if self._frames.belongs_to_message else 0
            if held and self.may_hold and not self.may_hold(held):
                self.evict()
                raise iostream.StreamClosedError
        self.waiting_since = None if self.upgraded else self._began
        return self._result_of(super().read_bytes(num_bytes, partial))

    def read_until(self, delimiter: bytes, max_bytes: int | None = None) -> Awaitable[bytes]:
        """Read the next line of a chunked body."""
        self.waiting_since = self._began
        return self._result_of(super().read_until(delimiter, max_bytes))

    def _result_of(self, reading: Awaitable[bytes]) -> Awaitable[bytes]:
        """Return the result of a read. If nothing has to be awaited, it is Tornado's own finished
        future.

        Only then Tornado joins small pieces of a body.
        """
        if isinstance(reading, asyncio.Future) and reading.done() and self._may_go_on():
            self._arrived(reading.result())
            return reading
        return self._when_read(reading)

    async def _when_read(self, reading: Awaitable[bytes]) -> bytes:
        data = await reading
        self._arrived(data)
        if not self._may_go_on():
            await self.turn()
        return data

    def _arrived(self, data: bytes) -> None:
        self.waiting_since = None
        if self.upgraded and not self._frames.note(data):
            self.evict()
            raise iostream.StreamClosedError

    def _may_go_on(self) -> bool:
        return self.turns is None or self.turns.may_go_on()

    async def turn(self) -> None:
        """Wait until this connection may continue."""
        if self.turns is not None:
            await self.turns.wait()

    def _count_read(self) -> None:
        """Close a WebSocket whose frames come too fast.

        Tornado handles pings and pieces of messages by itself, so the handler of the WebSocket
        cannot count them. A flood of empty ones would use all the time of the event loop.
        """
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._reads = second, 0
        self._reads += 1
        if self._reads > _UPGRADED_READS_PER_S:
            self.evict()
            raise iostream.StreamClosedError

    def write(self, data: bytes | memoryview) -> asyncio.Future[None]:
        """Send the next bytes of an answer."""
        sent = super().write(data)
        self.unread_since = time.monotonic() if self.writing() else None
        return sent

    def limit_unsent(self, limit_bytes: int) -> None:
        """Limit the bytes that the kernel accepts before it can send them; 0 means the kernel's own
        limit."""
        set_unsent_limit(self.socket, limit_bytes)

    def evict(self) -> None:
        """Close the connection at once, to make room for others."""
        self._abrupt = True
        self.close()

    def close_fd(self) -> None:
        """Close the socket, after lingering if possible; called by Tornado."""
        if self._abrupt or not linger(self.socket):
            super().close_fd()
        else:
            self.socket = None  # type: ignore[assignment]  # as Tornado's own method does

    async def _refuse(self, answer: bytes) -> None:
        await self.write(answer)
        self.close()
        raise iostream.StreamClosedError


class _HasOptions(Protocol):
    def setsockopt(self, level: int, name: int, value: int, /) -> None: ...


def set_unsent_limit(connection: _HasOptions, limit_bytes: int) -> None:
    """See `RequestStream.limit_unsent`."""
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, limit_bytes)
