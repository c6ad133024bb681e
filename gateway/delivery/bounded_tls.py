"""TLS of a connection to a server that may be hostile, with bounded work in each turn of the loop.

OpenSSL reads from a socket until it has data for its caller, and Tornado until nothing is left. A
server can therefore hold the event loop with records that carry one byte, and with records that
carry none, such as changes of its keys (RFC 8446, 4.6.3). Here OpenSSL gets the received bytes in
pieces.
"""

from __future__ import annotations

import errno
import socket
import ssl
from typing import Any, Self

_PIECE_BYTES = 2 << 10
_PIECES_AT_ONCE = 1
_HANDSHAKE_PIECES_AT_ONCE = 8
_BYTES_FOR_DATA = 32
"""So many received bytes may carry one byte of data; the smallest record with data has 23."""
_WITHOUT_DATA_BYTES = 64 << 10
"""A connection may receive so many more: a record of 16 KiB, which is read when it is complete, and
what servers send after the handshake."""


class BoundedTls(ssl.SSLSocket):
    """A socket for Tornado's client, as the `sslsocket_class` of its context; never blocking."""

    _tls: ssl.SSLObject
    _received: ssl.MemoryBIO
    _made: ssl.MemoryBIO
    _unsent: memoryview[int]
    _accepted: int  # bytes that are encrypted, and about which `send` has said nothing yet
    _pieces: int
    _without_data: int

    @classmethod
    def _create(cls, **given: Any) -> Self:
        own: Self = super()._create(**given)  # type: ignore[misc]
        own._received, own._made = ssl.MemoryBIO(), ssl.MemoryBIO()
        own._tls = given["context"].wrap_bio(
            own._received, own._made, server_hostname=given["server_hostname"]
        )
        own._unsent = memoryview(b"")
        own._accepted = own._pieces = own._without_data = 0
        return own

    def do_handshake(self, block: bool = False) -> None:
        """See `ssl.SSLSocket`.

        Raises:
            ssl.SSLError: it failed, or the socket has to be readable or writable first.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._require_sent()
                if self._pieces >= _HANDSHAKE_PIECES_AT_ONCE:
                    self._pieces = 0
                    raise
                self._receive()
                continue
            self._require_sent()
            self._without_data = 0
            return

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        """Read data of one record; 0 at the end of the connection.

        Raises:
            ssl.SSLWantReadError: nothing has arrived, or the rest has to wait for another turn.
            ConnectionAbortedError: the server sends too many records without data.
        """
        while True:
            try:
                # With a buffer it returns the number of bytes.
                size: Any = self._tls.read(nbytes or len(buffer), buffer)
            except ssl.SSLWantReadError:
                self._flush()
                if self._pieces >= _PIECES_AT_ONCE:
                    self._pieces = 0
                    raise
                self._receive()
                if self._without_data > _WITHOUT_DATA_BYTES:
                    reason = "the server sends records without data"
                    raise ConnectionAbortedError(errno.ECONNABORTED, reason) from None
                continue
            except ssl.SSLEOFError:
                return 0
            self._without_data = max(0, self._without_data - _BYTES_FOR_DATA * size)
            return int(size)

    def send(self, data: Any, flags: int = 0) -> int:
        """Send data, all of it or nothing yet.

        Raises:
            ssl.SSLWantWriteError: call it again with the same data when the socket is writable.
        """
        if not self._accepted:
            self._require_sent()
            self._accepted = self._tls.write(data)
        self._require_sent()
        accepted, self._accepted = self._accepted, 0
        return accepted

    def _receive(self) -> None:
        """Take a piece of what the kernel has received."""
        try:
            piece = socket.socket.recv(self, _PIECE_BYTES)
        except BlockingIOError:
            self._pieces = 0
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "nothing has arrived") from None
        if piece:
            self._received.write(piece)
        else:
            self._received.write_eof()
        self._pieces += 1
        self._without_data += len(piece)

    def _flush(self) -> bool:
        """Send what OpenSSL has made; return whether nothing is left."""
        while True:
            if not self._unsent:
                self._unsent = memoryview(self._made.read())
                if not self._unsent:
                    return True
            try:
                sent = socket.socket.send(self, self._unsent)
            except BlockingIOError:
                return False
            self._unsent = self._unsent[sent:]

    def _require_sent(self) -> None:
        if not self._flush():
            raise ssl.SSLWantWriteError(ssl.SSL_ERROR_WANT_WRITE, "the socket is full")
