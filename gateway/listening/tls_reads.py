"""Limits the cost of TLS records with no data, or with little data.

A client may change its keys at any time (RFC 8446, 4.6.3). Each change is a record of 27 bytes, for
which OpenSSL computes 40 µs and makes an answer of 27 bytes. The answer stays in memory if the
client does not read. A record may also carry a single byte of data.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import sslproto
from collections.abc import Callable, Iterator
from typing import Any, cast

from fieldbrook.gateway.listening.read_turns import ReadTurns

SPARSE_READ_BYTES = 2 << 10
"""The size of one read if the bytes of a connection contain little data, and after the
handshake."""
EMPTY_RECORDS = 16
"""How many records without data a connection may send at once. After the handshake, clients send
such records only to change their keys, after millions of other records."""
EMPTY_RECORDS_PER_S = 1
_AT_ONCE = 32  # records that are decrypted before their data is counted
_DENSE_SHARE = 4  # a connection is dense if at least 1/4 of its bytes is data
_RECENT_BYTES = 64 << 10
_HEAD_BYTES = 5


class Records:
    """Finds the ends of records in the bytes of a connection (RFC 8446, 5.1)."""

    def __init__(self) -> None:
        self.ended = 0
        self._head = b""  # the received part of an incomplete record head
        self._left = 0  # missing bytes of the current record

    def pieces(self, data: memoryview) -> Iterator[int]:
        """Divide the next bytes of the connection into pieces, so that few records end in each
        piece.

        `ended` counts the records up to the end of the current piece.

        Returns:
            The end of each piece.
        """
        at, end, divided = 0, len(data), self.ended + _AT_ONCE
        while at < end:
            if self._left or self._head or end - at < _HEAD_BYTES:
                at = self._go_on(data, at, end)
            else:
                length = data[at + 3] << 8 | data[at + 4]
                at += _HEAD_BYTES
                part = min(length, end - at)
                at += part
                self._left = length - part
                self.ended += not self._left
            if at == end or self.ended >= divided:
                divided = self.ended + _AT_ONCE
                yield at

    def _go_on(self, data: memoryview, at: int, end: int) -> int:
        """Continue in the current record, or in an incomplete head; return the position after
        it."""
        if self._left:
            part = min(self._left, end - at)
            self._left -= part
        else:
            part = min(_HEAD_BYTES - len(self._head), end - at)
            self._head += data[at : at + part]
            if len(self._head) == _HEAD_BYTES:
                self._left = int.from_bytes(self._head[3:])
                self._head = b""
        self.ended += not (self._left or self._head)
        return at + part


class Allowance:
    """Counts records without data against a limit that is partly restored over time.

    Args:
        now: the time in seconds.
    """

    def __init__(self, now: float) -> None:
        self._empty = 0
        self._free: float = EMPTY_RECORDS
        self._at = now

    def has(self, empty: int, now: float) -> bool:
        """Return whether the connection may have sent `empty` records without data up to now."""
        self._free += (now - self._at) * EMPTY_RECORDS_PER_S
        self._free = min(self._free, EMPTY_RECORDS) - max(0, empty - self._empty)
        self._empty, self._at = max(empty, self._empty), now
        return self._free >= 0


class CountedObject(ssl.SSLObject):
    """An SSL object that counts the data that is read, and the records with data."""

    data = records = 0

    def read(self, len: int = 1024, buffer: Any = None) -> Any:  # noqa: A002
        """See `ssl.SSLObject`; returns the data of one record, or of the rest of a record."""
        got: Any = super().read(len, buffer)
        self.data += got if buffer is not None else got.__len__()
        self.records += not self.pending()
        return got


class TlsConnection(sslproto.SSLProtocol):
    """The TLS of an accepted connection, which is aborted when its client sends too many records
    without data. Its context must make objects of the type `CountedObject`."""

    def __init__(
        self,
        protocol: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
        waiter: asyncio.Future[None],
        turns: ReadTurns,
        handshake_limit_s: float,
        shutdown_limit_s: float,
    ) -> None:
        """Make the TLS for a connection whose data goes to a protocol.

        Args:
            protocol: creates the protocol.
            context: the TLS context of the server.
            waiter: ends with the handshake.
            turns: the read turns of connections whose bytes contain little data.
            handshake_limit_s: how long the handshake may take.
            shutdown_limit_s: how long the end of the connection may take.
        """
        loop = asyncio.get_running_loop()
        super().__init__(
            *(loop, protocol(), context, waiter),
            server_side=True,
            ssl_handshake_timeout=cast(Any, handshake_limit_s),
            ssl_shutdown_timeout=shutdown_limit_s,
        )
        own: Any = self  # attributes that typeshed does not declare
        # Bytes that wait while the protocol does not read are decrypted in one piece later.
        own._set_read_buffer_limits(high=SPARSE_READ_BYTES, low=0)
        self._turns, self._held = turns, b""
        self._records, self._allowance = Records(), Allowance(loop.time())
        self._in_handshake = 0  # records
        self._recent = self._recent_data = self._counted_data = 0

    def get_buffer(self, n: int) -> memoryview:
        """See `asyncio.BufferedProtocol`; reads are small until the bytes contain enough data."""
        view: memoryview = super().get_buffer(n)
        return view if self._is_dense else view[:SPARSE_READ_BYTES]

    @property
    def _is_dense(self) -> bool:
        return self._recent_data * _DENSE_SHARE > self._recent

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`; bytes that may contain little data wait for a turn."""
        own: Any = self
        is_handshake = own._state is sslproto.SSLProtocolState.DO_HANDSHAKE
        if is_handshake or self._is_dense or self._turns.may_go_on():
            self._decrypt(nbytes)
            return
        self._held = bytes(own._ssl_buffer_view[:nbytes])
        own._transport.pause_reading()
        self._turns.call(self._go_on)

    def _go_on(self) -> None:
        own: Any = self
        held, self._held = self._held, b""
        if own._transport is None or own._transport.is_closing():
            return
        own._ssl_buffer_view[: len(held)] = held
        self._decrypt(len(held))
        if own._transport is not None and not own._ssl_reading_paused:
            own._transport.resume_reading()

    def _decrypt(self, nbytes: int) -> None:
        own: Any = self
        view: memoryview = own._ssl_buffer_view
        begin = 0
        for end in self._records.pieces(view[:nbytes]):
            if begin:
                view[: end - begin] = view[begin:end]
            self._take(end - begin)
            if own._transport is None or own._transport.is_closing():
                return
            begin = end

    def _take(self, nbytes: int) -> None:
        """Decrypt a piece of the read bytes, which is at the beginning of the buffer."""
        own: Any = self
        was_wrapped = own._state is not sslproto.SSLProtocolState.DO_HANDSHAKE
        super().buffer_updated(nbytes)
        if not was_wrapped:
            self._in_handshake = self._records.ended
            return
        tls: CountedObject = own._sslobj
        self._note_density(nbytes, tls.data)
        if own._incoming.pending:  # not decrypted yet, because the protocol does not read
            return
        empty = self._records.ended - self._in_handshake - tls.records
        if not self._allowance.has(empty, self._loop.time()):
            own._transport.abort()

    def _note_density(self, received: int, data: int) -> None:
        if self._recent >= _RECENT_BYTES:
            self._recent, self._recent_data = self._recent // 2, self._recent_data // 2
        self._recent += received
        self._recent_data += data - self._counted_data
        self._counted_data = data
