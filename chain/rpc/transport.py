"""Transports to one endpoint: JSON-RPC over HTTP or over a WebSocket.

This module limits the bytes and the JSON values of answers; `request_queue.py` limits their time.
Error texts never contain the endpoint's address, because it may contain a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Protocol

import aiohttp

from fieldbrook.chain.rpc.retry_after import retry_after_s
from fieldbrook.core.bounded_json import from_json

ANSWER_LIMIT_BYTES = 128 << 20
VALUES_LIMIT = 1 << 21
"""The most JSON values in an answer. A decoded value takes up to 250 bytes, so an answer takes up
to 500 MiB. The limit is enough for 170,000 logs."""
RECEIVED_LIMIT_BYTES = 2 * ANSWER_LIMIT_BYTES
"""The most bytes of all partially received answers of the process."""
_CONNECT_LIMIT_S = 5.0
_MESSAGES_AT_ONCE = 64
"""Messages of a WebSocket that are handled before other work. One read may have 100,000 pings."""
_CLOSE_LIMIT_S = 1.0  # time limit of the closing handshake of a WebSocket
_TOO_LARGE, _TOO_MANY_REQUESTS, _UNAVAILABLE = 413, 429, 503

# These libraries log the addresses of endpoints, which may contain keys.
for _name in ("aiohttp", "web3", "websockets"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


class TransportError(Exception):
    """A request got no usable answer; the text says why."""


class BusyError(TransportError):
    """The endpoint limits requests; `retry_after_s` is the wait that it asks for, 0 if none."""

    def __init__(self, reason: str, retry_after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class WrongAnswerError(TransportError):
    """The endpoint's answer is wrong: it is malformed, or it contradicts other known data."""


class TooLargeError(TransportError):
    """The endpoint refused a request, or its own answer, as too large."""


class BatchRefusedError(Exception):
    """The endpoint refuses a batch of this size, or all batches."""


class Transport(Protocol):
    """A connection to one endpoint."""

    async def request(self, method: str, params: list[Any]) -> dict[str, Any]:
        """Send a request and return the whole answer, an object of JSON-RPC.

        Raises:
            TransportError: no usable answer came.
        """
        ...

    async def close(self) -> None:
        """Close the connection."""


def make_transport(url: str) -> Transport:
    """Make the transport for a URL: a WebSocket for `ws` and `wss`, HTTP otherwise."""
    return WebSocketTransport(url) if url.startswith("ws") else HttpTransport(url)


class HttpTransport:
    """JSON-RPC over HTTP with persistent connections."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session: aiohttp.ClientSession | None = None
        self._numbers = itertools.count(1)

    async def request(self, method: str, params: list[Any]) -> dict[str, Any]:
        """See `Transport`."""
        return _answer(await self._post(self._body(method, params)))

    async def batch(self, calls: Sequence[tuple[str, list[Any]]]) -> list[dict[str, Any] | None]:
        """Send several requests as one JSON-RPC batch.

        Returns:
            The answer to each request, in the order of `calls`; None if the endpoint left it
            out.

        Raises:
            TransportError: no usable answer came.
            BatchRefusedError: the endpoint does not accept a batch of this size.
        """
        bodies = [self._body(method, params) for method, params in calls]
        answers = await self._post(bodies)
        if isinstance(answers, dict) and answers.get("error") is not None:
            return [answers] * len(calls)
        if not isinstance(answers, list):
            raise BatchRefusedError
        by_number = {
            row["id"]: row
            for row in answers
            if isinstance(row, dict) and isinstance(row.get("id"), int)
        }
        return [by_number.get(body["id"]) for body in bodies]

    def _body(self, method: str, params: list[Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params}

    async def _post(self, body: Any) -> Any:
        """Send a body and return the JSON of the answer."""
        if self._session is None:
            self._session = _session()
        try:
            async with self._session.post(self._url, json=body, allow_redirects=False) as answer:
                status = answer.status
                if 300 <= status < 400:
                    raise TransportError(f"HTTP status {status}: it redirects to another address")
                rest_s = retry_after_s(answer.headers, datetime.now(UTC))
                if status == _TOO_MANY_REQUESTS or (status == _UNAVAILABLE and rest_s):
                    raise BusyError(f"HTTP status {status}: too many requests", rest_s)
                data = await _receiving.read(answer.content)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise TransportError(_reason(error)) from None
        except TooLargeError:
            if isinstance(body, list):
                raise BatchRefusedError from None
            raise
        try:
            return _json(data)
        except TransportError as error:
            del data
            too_large = isinstance(error, TooLargeError)
            if isinstance(body, list) and (too_large or 400 <= status < 500):
                raise BatchRefusedError from None
            if status == _TOO_LARGE:
                raise TooLargeError("HTTP status 413") from None
            if status != HTTPStatus.OK:
                raise TransportError(f"HTTP status {status}") from None
            raise

    async def close(self) -> None:
        """See `Transport`."""
        if self._session is not None:
            await self._session.close()
            self._session = None


class WebSocketTransport:
    """JSON-RPC over a WebSocket. It connects at the first request and again after a failure.

    Args:
        url: the endpoint's address, with `ws` or `wss`.
        notified: called with the parameters of each notification. If it raises TransportError,
            the connection is closed.
        limit_bytes: size limit of a message; a larger one ends the connection.
        ping_s: time between two pings. Without a pong within half of this time, the connection
            ends.
    """

    def __init__(
        self,
        url: str,
        notified: Callable[[Any], None] = lambda _params: None,
        *,
        limit_bytes: int = ANSWER_LIMIT_BYTES,
        ping_s: float = 20.0,
    ) -> None:
        self._url = url
        self._notified = notified
        self._limit_bytes = limit_bytes
        self._ping_s = ping_s
        self._reason = ""
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._reader: asyncio.Task[None] | None = None
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)
        self._connecting = asyncio.Lock()

    async def request(self, method: str, params: list[Any]) -> dict[str, Any]:
        """See `Transport`."""
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        try:
            socket = await self._connected()
            self._pending[number] = answer
            body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            await socket.send_json(body)
            return await answer
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise TransportError(_reason(error)) from None
        finally:
            self._pending.pop(number, None)

    async def ended(self) -> str:
        """Wait until the connection has ended, and return the reason."""
        if self._reader is not None:
            await asyncio.wait([self._reader])
        return self._reason

    async def close(self) -> None:
        """See `Transport`."""
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _connected(self) -> aiohttp.ClientWebSocketResponse:
        async with self._connecting:
            if self._session is None:
                self._session = _session()
            if self._socket is None or self._socket.closed:
                self._socket = await self._session.ws_connect(
                    self._url,
                    max_msg_size=self._limit_bytes,
                    heartbeat=self._ping_s,
                    autoping=False,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_LIMIT_S),
                )
                self._reader = asyncio.create_task(self._read(self._socket))
            return self._socket

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._reason = "the connection ended"
        messages = 0
        try:
            async for message in socket:
                messages += 1
                if not messages % _MESSAGES_AT_ONCE:
                    await asyncio.sleep(0)
                if message.type is aiohttp.WSMsgType.PING:
                    await socket.pong(message.data)
                elif message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                    self._dispatch(_answer(_json(message.data)))
                elif message.type is aiohttp.WSMsgType.ERROR:
                    raise TransportError(self._broken(message.data))
        except TransportError as error:
            self._reason = str(error)
        except (aiohttp.ClientError, OSError) as error:  # while the library answers a ping
            self._reason = _reason(error)
        finally:
            for waiting in self._pending.values():
                if not waiting.done():
                    waiting.set_exception(TransportError(self._reason))
            await socket.close()

    def _broken(self, error: Any) -> str:
        """Describe a protocol error or a missing pong."""
        code = getattr(error, "code", None)
        if code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG:
            return f"it sent a message of more than {self._limit_bytes} bytes"
        return (
            "it does not answer pings"
            if isinstance(error, TimeoutError)
            else "the connection broke"
        )

    def _dispatch(self, message: dict[str, Any]) -> None:
        """Settle the request that a message answers, or pass a notification to `notified`."""
        number = message.get("id")
        if number is None:
            self._notified(message.get("params"))
            return
        waiting = self._pending.get(number) if isinstance(number, int) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(message)


def _session() -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_LIMIT_S)
    # A redirect could send the request, which may contain a key, to another host.
    redirects = aiohttp.TraceConfig()
    redirects.on_request_redirect.append(_refuse_redirect)
    # The default cookie jar would keep any number of cookies that an endpoint sets, and would send
    # them with each request.
    cookies = aiohttp.DummyCookieJar()
    return aiohttp.ClientSession(timeout=timeout, trace_configs=[redirects], cookie_jar=cookies)


async def _refuse_redirect(
    _session: aiohttp.ClientSession,
    _context: object,
    params: aiohttp.TraceRequestRedirectParams,
) -> None:
    params.response.close()
    raise TransportError(f"HTTP status {params.response.status}: it redirects to another address")


class _Receiving:
    """Memory budget for partially received answers, shared by all connections of the process."""

    def __init__(self) -> None:
        self.bytes = 0

    async def read(self, content: aiohttp.StreamReader) -> bytes:
        """Read an answer.

        Raises:
            TooLargeError: the answer is larger than `ANSWER_LIMIT_BYTES`.
            TransportError: all partially received answers exceed `RECEIVED_LIMIT_BYTES`.
        """
        data = bytearray()
        try:
            async for chunk in content.iter_any():
                data += chunk
                self.bytes += len(chunk)
                if len(data) > ANSWER_LIMIT_BYTES:
                    raise TooLargeError(f"its answer has more than {ANSWER_LIMIT_BYTES} bytes")
                if self.bytes > RECEIVED_LIMIT_BYTES:
                    raise TransportError(
                        f"the answers of all endpoints have more than {RECEIVED_LIMIT_BYTES} bytes"
                    )
            return bytes(data)
        finally:
            self.bytes -= len(data)
            data.clear()  # the traceback of an error keeps a reference to it


_receiving = _Receiving()


def _json(data: bytes | str) -> Any:
    error = TransportError("its answer is not JSON")
    if _values(data) > VALUES_LIMIT:
        error = TooLargeError(f"its answer has more than {VALUES_LIMIT} values")
    else:
        with contextlib.suppress(ValueError):
            return from_json(data)
    # The traceback of an error keeps the local variables of its frames in memory. Therefore the
    # answer is deleted, and the decoder's own error, whose frames hold its text, is not raised.
    del data
    raise error


def _values(data: bytes | str) -> int:
    """Return an upper bound of the number of values in a JSON text."""
    if isinstance(data, str):
        return data.count(",") + data.count("[") + data.count("{")
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _answer(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise TransportError("its answer is not a JSON-RPC response")
    return answer


def _reason(error: Exception) -> str:
    """Describe a failure without the library's text, which may contain the address."""
    match error:
        case aiohttp.WSServerHandshakeError():
            return f"HTTP status {error.status} instead of a WebSocket"
        case aiohttp.ClientConnectorDNSError():
            return "its host name is not known"
        case aiohttp.ClientConnectorCertificateError():
            return "its certificate is not valid"
        case aiohttp.ClientConnectorError():
            return error.os_error.strerror or "no connection"
        case TimeoutError():
            return "no connection in time"
        case aiohttp.ServerDisconnectedError():
            return "it closed the connection"
        case aiohttp.ClientPayloadError():
            return "its answer was cut off"
        case _:
            return f"no answer ({type(error).__name__})"
