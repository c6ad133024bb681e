"""Connections of other hosts are accepted, even with many strangers that do not complete the TLS
handshake."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

from fieldbrook.cluster.links.lines import receive, send
from fieldbrook.cluster.links.listening import STRANGERS, Listening
from tests.support.tls import make_files
from tests.support.tools import free_port

_HOST, _STRANGER = "127.0.0.2", "127.0.0.3"  # addresses from which clients connect
_LONG_S = 60.0


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.closing(writer):
        send(writer, {"heard": await receive(reader, _LONG_S)})
        await writer.drain()


def test_silent_strangers_keep_no_host_away_and_are_bounded(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.certificate, files.key)
    client = ssl.create_default_context(cafile=str(files.ca))

    async def ask(port: int, source: str) -> object:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client, local_addr=(source, 0)
        )
        with contextlib.closing(writer):
            send(writer, {"a": 1})
            return await receive(reader, _LONG_S)

    async def scenario() -> None:
        port = free_port()
        listening = Listening(server, _LONG_S, lambda address: address == _HOST, answer)
        await listening.open("127.0.0.1", port)
        assert await ask(port, _STRANGER) == {"heard": {"a": 1}}
        silent = [
            await asyncio.open_connection("127.0.0.1", port, local_addr=(_STRANGER, 0))
            for _ in range(STRANGERS)
        ]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(_STRANGER, 0))
        with contextlib.closing(writer):
            assert await reader.read() == b""  # it was closed at once
        assert await ask(port, _HOST) == {"heard": {"a": 1}}
        for _, held in silent:
            held.close()
        while True:  # until the node has noticed it
            with contextlib.suppress(OSError):
                assert await ask(port, _STRANGER) == {"heard": {"a": 1}}
                break
        listening.close()

    asyncio.run(asyncio.wait_for(scenario(), _LONG_S))
