"""Forwards a management request to the host of the cluster that owns its project.

The whole request is sent over a tunnel to that host's HTTP gateway, and its answer to the caller.
The other host authenticates the caller itself. A request is forwarded only once: while hosts
disagree about an owner, the caller gets an error and may try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from tornado.httputil import HTTPHeaders, HTTPServerRequest, parse_response_start_line

from fieldbrook.actors.remote_path import HTTP_SOCKET, remote_path, split_path
from fieldbrook.core.errors import OwnedElsewhereError, UnavailableError

RELAYED = "X-Fieldbrook-Relayed"
"""The header with the name of the host that has forwarded a request."""
HOST = "X-Fieldbrook-Host"
"""The header with the name of the host that has made an answer."""
_HEAD_BYTES = 64 << 10
_PIECE_BYTES = 64 << 10
_CONNECT_S = 3.0
_ANSWER_S = 120.0
_OF_THE_CONNECTION = frozenset(
    ("connection", "content-length", "expect", "host", "keep-alive", "te", "transfer-encoding")
)


class Answering(Protocol):
    """The handler of the caller's request."""

    def set_status(self, status_code: int) -> None: ...
    def clear(self) -> None: ...
    def set_header(self, name: str, value: str) -> None: ...
    def add_header(self, name: str, value: str) -> None: ...
    def write(self, chunk: bytes) -> None: ...
    def flush(self) -> asyncio.Future[None]: ...


class _Head(NamedTuple):
    status: int
    headers: HTTPHeaders


async def relay(
    answering: Answering,
    request: HTTPServerRequest,
    body: bytes,
    error: OwnedElsewhereError,
    run_dir: Path,
) -> None:
    """Forward a request, and send the answer back, piece by piece.

    Args:
        answering: the handler of the request, which has sent nothing yet.
        request: the request.
        body: the body of the request.
        error: contains the host that owns the project.
        run_dir: the folder with the socket to other hosts.

    Raises:
        OwnedElsewhereError: the request was already forwarded to this host.
        UnavailableError: the other host does not answer.
    """
    if RELAYED in request.headers:
        raise error
    host = str(error.details["host"])
    here, first = split_path(remote_path(run_dir, host, HTTP_SOCKET))
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_unix_connection(here, limit=_HEAD_BYTES)
        try:
            writer.write(first + _head(request, len(body)) + body)
            async with asyncio.timeout(_ANSWER_S):
                head = _parse(await reader.readuntil(b"\r\n\r\n"))
            await _answer(answering, head, reader, host)
        finally:
            writer.close()
    except (OSError, ValueError, TimeoutError, EOFError, asyncio.LimitOverrunError) as failed:
        reason = str(failed) or type(failed).__name__
        raise UnavailableError(what=f"host {host} does not answer: {reason}") from failed


def _head(request: HTTPServerRequest, size: int) -> bytes:
    lines = [f"{request.method} {request.uri} HTTP/1.1", f"Host: {request.host}"]
    lines += [
        f"{name}: {value}"
        for name, value in request.headers.get_all()
        if name.lower() not in _OF_THE_CONNECTION
    ]
    lines += [f"{RELAYED}: 1", "Connection: close", f"Content-Length: {size}", "", ""]
    return "\r\n".join(lines).encode("latin-1")


def _parse(data: bytes) -> _Head:
    first, _, rest = data.decode("latin-1").partition("\r\n")
    return _Head(parse_response_start_line(first).code, HTTPHeaders.parse(rest))


async def _answer(
    answering: Answering, head: _Head, reader: asyncio.StreamReader, host: str
) -> None:
    answering.clear()
    answering.set_status(head.status)
    for name, value in head.headers.get_all():
        if name.lower() not in _OF_THE_CONNECTION:
            answering.add_header(name, value)
    answering.set_header(HOST, host)
    chunked = head.headers.get("Transfer-Encoding", "").lower() == "chunked"
    left = _length(head.headers)
    while left is None or left > 0:
        piece = await (_chunk(reader) if chunked else reader.read(_PIECE_BYTES))
        if not piece:
            break
        if left is not None:
            left -= len(piece)
        answering.write(piece)
        await answering.flush()


def _length(headers: Mapping[str, str]) -> int | None:
    text = headers.get("Content-Length", "")
    return int(text) if text.isdecimal() and len(text) < 20 else None


async def _chunk(reader: asyncio.StreamReader) -> bytes:
    """Read one chunk; empty at the end of the body."""
    size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
    if not 0 <= size <= _PIECE_BYTES << 6:
        raise ValueError(f"a chunk of {size} bytes")
    data = await reader.readexactly(size)
    await reader.readexactly(2)
    return data
