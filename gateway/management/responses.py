"""Send the result of a route's function: JSON, text, a file, or a stream of events."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tornado import iostream

from fieldbrook.core.errors import NodeError, ResourceNotFoundError
from fieldbrook.gateway import replies
from fieldbrook.gateway.management.framework import warnings
from fieldbrook.gateway.management.framework.route import Download, NoContent, PlainText, Stream
from fieldbrook.gateway.management.framework.workers import Workers

if TYPE_CHECKING:
    from fieldbrook.gateway.management.management_handler import ManagementHandler

log = logging.getLogger(__name__)

_COUNTED_BYTES = 64 << 10  # longer answers count until they are read
_DOWNLOAD_PIECE_BYTES = 64 << 10
_DOWNLOAD_PIECE_LIMIT_S = 30.0
_DOWNLOAD_UNSENT_BYTES = 128 << 10
_UNSAFE_IN_FILENAMES = re.compile(r"[^A-Za-z0-9._-]")


@runtime_checkable
class _ClientStream(Protocol):
    """The methods that the gateway's stream of a client connection adds to Tornado's stream."""

    def limit_unsent(self, limit_bytes: int) -> None:
        """Limit the bytes that the kernel accepts before it can send them; 0 means the kernel's own
        limit."""

    def evict(self) -> None:
        """Close the connection at once."""


async def respond(handler: ManagementHandler, result: object, workers: Workers) -> None:
    """Answer a request with the result of its route; see `Route.handler`.

    Raises:
        ResourceNotFoundError: the file of a download does not exist.
        TooManyRequestsError: too many streams or downloads are open, or too many long answers wait.
    """
    if result is None or isinstance(result, NoContent):
        for value in warnings.header_values(result.warnings) if result else ():
            handler.add_header("Warning", value)
        handler.set_status(204)
        handler.finish()
    elif isinstance(result, Download):
        try:
            with workers.downloads.hold_for(result.account):
                await _send_file(handler, result)
        finally:
            if result.temporary:
                result.path.unlink(missing_ok=True)
    elif isinstance(result, Stream):
        with workers.followers.hold_for(result.account):
            await _send_events(handler, result)
    elif isinstance(result, PlainText):
        handler.answer(200, replies.TEXT_TYPE, result.text.encode())
    else:
        sending = _send_json(handler, result, workers)
        del result  # a client may take a minute to read the answer
        await sending


async def _send_json(handler: ManagementHandler, result: object, workers: Workers) -> None:
    """Send a JSON answer; a long answer counts for the account until its client has read it.

    A value of 8 MiB may have 48 MiB in an answer, and a client with hundreds of connections may
    leave all of them unread.
    """
    status = 201 if handler.request.method == "POST" else 200
    run = partial(workers.searches.run, handler.account_id)
    body = await replies.to_long_json(result, run)
    if len(body) <= _COUNTED_BYTES:
        handler.answer(status, replies.JSON_TYPE, body)
        return
    del result
    with workers.answers.hold(handler.account_id, len(body)):
        handler.answer(status, replies.JSON_TYPE, body)
        del body  # the connection has its own copy
        with suppress(iostream.StreamClosedError):  # the client has gone away
            await handler.sent


async def _send_file(handler: ManagementHandler, download: Download) -> None:
    """Send a file in pieces of 64 KiB, each after the socket has accepted the last one.

    A download is ended if its client does not read a piece within 30 s, if the rights of its caller
    end, or if the token expires, because a client that reads slowly may take days.
    """
    run = partial(asyncio.get_running_loop().run_in_executor, None)
    try:
        file = await run(download.path.open, "rb")
    except FileNotFoundError:
        raise ResourceNotFoundError(resource=download.path.stem) from None
    if download.temporary:
        download.path.unlink(missing_ok=True)
    connection: Any = handler.request.connection
    stream: iostream.IOStream = connection.stream
    if isinstance(stream, _ClientStream):
        # Otherwise the kernel buffers megabytes, and a slow client seems to read nothing meanwhile.
        stream.limit_unsent(_DOWNLOAD_UNSENT_BYTES)
    filename = _UNSAFE_IN_FILENAMES.sub("_", download.filename) or "module.wasm"
    handler.set_header("Content-Disposition", f"attachment; filename={filename}")
    handler.set_header("Content-Type", "text/plain")
    try:
        left = os.fstat(file.fileno()).st_size
        handler.set_header("Content-Length", str(left))
        while left > 0 and (piece := await run(file.read, _DOWNLOAD_PIECE_BYTES)):
            handler.require_caller(unexpired=True)
            left -= len(piece)
            handler.write(piece)
            if left > 0:
                await _taken(handler.flush())
        # The last piece is sent with the end of the request. So a client with the whole file may
        # disconnect, and the node may stop, without unfinished work of this request.
        await _taken(handler.finish())
    except iostream.StreamClosedError:
        return  # the client has gone away
    except (TimeoutError, NodeError) as error:
        reason = error if isinstance(error, NodeError) else "the client does not read"
        log.debug("%s: %s", handler.request.path, reason)
        if isinstance(stream, _ClientStream):
            stream.evict()
        else:
            stream.close()
    finally:
        file.close()
        if isinstance(stream, _ClientStream) and not stream.closed():
            stream.limit_unsent(0)


async def _taken(sent: asyncio.Future[None]) -> None:
    """Wait until the socket has accepted all bytes.

    Raises:
        StreamClosedError: the client has disconnected.
        TimeoutError: the client does not read.
    """
    if not sent.done():
        async with asyncio.timeout(_DOWNLOAD_PIECE_LIMIT_S):
            await sent


async def _send_events(handler: ManagementHandler, stream: Stream) -> None:
    handler.set_header("Content-Type", "text/event-stream; charset=utf-8")
    try:
        await handler.flush()
        async for chunk in stream.chunks:
            if handler.client_gone:
                break
            if chunk:
                handler.write(chunk)
                await handler.flush()
        handler.finish()
    except iostream.StreamClosedError:
        return  # the client closed the stream
    except NodeError as error:
        # The status line has been sent already, so the error can only be reported by ending the
        # answer.
        log.warning("%s %s: %s", handler.request.method, handler.request.path, error)
        handler.finish()
    finally:
        await stream.chunks.aclose()
