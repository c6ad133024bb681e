"""How much a transport reads at once."""

from __future__ import annotations

import asyncio
import socket

from fieldbrook.gateway.listening.reads import READ_BYTES, limit_reads

_ARRIVED = 3 * READ_BYTES


class _Reader(asyncio.Protocol):
    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.is_complete = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        limit_reads(transport)

    def data_received(self, data: bytes) -> None:
        self.sizes.append(len(data))
        if sum(self.sizes) == _ARRIVED:
            self.is_complete.set()


async def test_more_than_the_limit_is_read_in_pieces_of_it() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _ARRIVED)
        theirs.sendall(bytes(_ARRIVED))
        reader = _Reader()
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: reader, sock=ours)
        await reader.is_complete.wait()
        transport.close()
    assert max(reader.sizes) == READ_BYTES
