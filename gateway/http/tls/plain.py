"""Plain HTTP on a port with TLS: it is served, redirected to https, or refused."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from fieldbrook.core.host_port import read_host_port
from fieldbrook.gateway.http.request_head import HEAD_LIMIT, has_bare_line_feed

_LINGER_S = 1.0
_READ_BYTES = 64 << 10
_REFUSED_BODY = b"this port requires TLS: use https://\n"
_REFUSED = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_REFUSED_BODY), _REFUSED_BODY)
)
_REDIRECT = (
    b"HTTP/1.1 308 Permanent Redirect\r\nLocation: %b\r\nCache-Control: no-store\r\n"
    b"Connection: close\r\nContent-Length: 0\r\n\r\n"
)


class Served:
    """The connection gets a protocol, as on a port without TLS."""

    def __init__(self, protocol: Callable[[], asyncio.Protocol]) -> None:
        self._protocol = protocol

    async def open(self, connection: socket.socket) -> bool:
        """See `listening.tls.Plain`."""
        await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)
        return True


class Refused:
    """The answer is 400 with a text that names https."""

    async def open(self, connection: socket.socket) -> bool:
        """See `listening.tls.Plain`."""
        await _answer(connection, _REFUSED)
        return False


class Redirected:
    """GET and HEAD are redirected to the same address with https, all else is refused.

    A redirected POST would have sent its body in the clear before, and would do so again.
    """

    async def open(self, connection: socket.socket) -> bool:
        """See `listening.tls.Plain`."""
        location = https_location(await _read_head(connection))
        await _answer(connection, _REFUSED if location is None else _REDIRECT % location)
        return False


def https_location(head: bytes) -> bytes | None:
    """Return the https address for a plain request.

    Args:
        head: a request's head with its empty line; the result for any other text is None.

    Returns:
        `https://` with the request's host, path and query; None unless the request is a GET or HEAD
        with exactly one `Host` and a target that begins with one slash.
    """
    if not head.endswith(b"\r\n\r\n") or has_bare_line_feed(head):
        return None
    first, *fields = head[:-4].split(b"\r\n")
    method, _, rest = first.partition(b" ")
    target, _, version = rest.partition(b" ")
    if method not in (b"GET", b"HEAD") or version not in (b"HTTP/1.1", b"HTTP/1.0"):
        return None
    if not target.startswith(b"/") or target.startswith(b"//") or not _is_visible(target):
        return None
    pairs = (field.partition(b":") for field in fields)
    hosts = [value.strip(b" \t") for name, _, value in pairs if name.lower() == b"host"]
    if len(hosts) != 1 or read_host_port(hosts[0].decode("latin-1")) is None:
        return None
    return b"https://" + hosts[0] + target


def _is_visible(text: bytes) -> bool:
    """Return whether all bytes are visible ASCII characters."""
    return text.isascii() and text.decode().isprintable() and b" " not in text


async def _read_head(connection: socket.socket) -> bytes:
    """Read until the empty line. The result is incomplete if the client ends the connection, or at
    `HEAD_LIMIT` bytes."""
    loop, head = asyncio.get_running_loop(), bytearray()
    while len(head) < HEAD_LIMIT:
        # Search the last bytes again, because the empty line may be split between two reads.
        begin = max(0, len(head) - 3)
        part = await loop.sock_recv(connection, HEAD_LIMIT - len(head))
        head += part
        end = head.find(b"\r\n\r\n", begin)
        if end >= 0:
            return bytes(head[: end + 4])
        if not part:
            break
    return bytes(head)


async def _answer(connection: socket.socket, answer: bytes) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_LINGER_S):
            await loop.sock_sendall(connection, answer)
            connection.shutdown(socket.SHUT_WR)
            # Data that the client still sends is read; otherwise it may lose the answer.
            while await loop.sock_recv(connection, _READ_BYTES):
                pass
