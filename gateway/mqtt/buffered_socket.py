"""A buffered, non-blocking socket for paho, connected by the event loop, with or without TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl

_DISCONNECT = b"\xe0\x00"
_READ_BYTES = 64 << 10
_RECEIVE_BUFFER_BYTES = 1 << 20
_WANTS = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class BufferedSocket:
    """A socket with buffers, which turn paho's many small system calls into few large ones.

    paho reads the first byte of a packet, then the length byte by byte, then the body, and it
    sends each packet alone. Without the buffers the rate of messages is at most half as high.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._in = b""
        self._at = 0
        self._has_ended = False
        self._out = bytearray()

    def fill(self) -> bool:
        """Read at most 64 KiB of received bytes into the buffer, which must be empty.

        Returns:
            Whether the TLS layer has more bytes, for which the event loop gets no read event: a
            read returns only one TLS record.

        Raises:
            OSError: the connection is lost.
        """
        try:
            self._in, self._at = self._sock.recv(_READ_BYTES), 0
        except (BlockingIOError, *_WANTS):
            return False
        self._has_ended = not self._in
        return isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0

    def recv(self, size: int) -> bytes:
        """Take bytes from the buffer; b"" at the end of the connection.

        Raises:
            BlockingIOError: the buffer is empty. `fill` fills it. If `recv` did, paho would read
                without a pause for as long as the broker sends.
        """
        if self._at >= len(self._in) and not self._has_ended:
            raise BlockingIOError
        part = self._in[self._at : self._at + size]
        self._at += len(part)
        return part

    def pending(self) -> int:
        """The number of received bytes in the buffer."""
        return len(self._in) - self._at

    def send(self, data: bytes | bytearray) -> int:
        """Buffer the bytes until `flush`."""
        self._out += data
        return len(data)

    @property
    def unsent(self) -> int:
        """The number of bytes that wait for `flush`."""
        return len(self._out)

    def flush(self) -> bool:
        """Write the buffered bytes; return False if the socket did not accept all of them."""
        while self._out:
            try:
                sent = self._sock.send(self._out)
            except (BlockingIOError, *_WANTS):
                return False
            del self._out[:sent]
        return True

    async def finish(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write the buffered bytes and a DISCONNECT, then wait until the broker closes the
        connection.

        Raises:
            OSError: the connection is lost.
        """
        self._out += _DISCONNECT
        while not self.flush():
            await _ready(loop, self._sock, writing=True)
        self._sock.shutdown(socket.SHUT_WR)
        while True:
            try:
                if not self._sock.recv(_READ_BYTES):
                    return
            except (BlockingIOError, *_WANTS):
                await _ready(loop, self._sock, writing=False)

    def setblocking(self, flag: bool) -> None:
        """As that of a socket."""
        self._sock.setblocking(flag)

    def fileno(self) -> int:
        """As that of a socket."""
        return self._sock.fileno()

    def close(self) -> None:
        """As that of a socket."""
        self._sock.close()


async def open_socket(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """Connect to the first address of a host that accepts.

    Raises:
        OSError: no address accepts a connection.
    """
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            # Without TCP_NODELAY every PUBACK waits 43 ms for the peer's delayed acknowledgement.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure


async def start_tls(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, context: ssl.SSLContext, host: str
) -> ssl.SSLSocket:
    """Do the TLS handshake; close the connection when it fails.

    Raises:
        OSError: the broker does not speak TLS, or its certificate is not trusted.
    """
    wrapped = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    try:
        while True:
            try:
                wrapped.do_handshake()
            except ssl.SSLWantReadError:
                await _ready(loop, wrapped, writing=False)
            except ssl.SSLWantWriteError:
                await _ready(loop, wrapped, writing=True)
            else:
                return wrapped
    except BaseException:
        wrapped.close()
        raise


async def _ready(loop: asyncio.AbstractEventLoop, sock: socket.socket, *, writing: bool) -> None:
    """Wait until a socket is writable or, with `writing` False, readable."""
    descriptor = sock.fileno()
    add, remove = (
        (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
    )
    ready: asyncio.Future[None] = loop.create_future()

    def is_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    add(descriptor, is_ready)
    try:
        await ready
    finally:
        remove(descriptor)
