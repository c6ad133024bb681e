"""Requests to the endpoint that is examined, one after the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from fieldbrook.chain.errors import RpcError
from fieldbrook.chain.rpc.endpoint_url import secret_parts
from fieldbrook.chain.rpc.refusals import result_of
from fieldbrook.chain.rpc.transport import (
    BatchRefusedError,
    BusyError,
    HttpTransport,
    TooLargeError,
    TransportError,
    make_transport,
)

_BUSY_WAITS = 4  # attempts of one request while the endpoint limits requests
_ATTEMPTS = 4  # attempts of one request that gets no answer, e.g. because of a lost connection
_BUSY_WAIT_S, _LONGEST_BUSY_WAIT_S = 1.0, 10.0
_SHOWN_CHARACTERS = 200

_T = TypeVar("_T")

FAILURES = (RpcError, TransportError)
"""The errors that `Probe` raises if there is no result."""


def text_of(error: Exception) -> str:
    """Return the text of an error, without its JSON-RPC code."""
    return error.text if isinstance(error, RpcError) else str(error)


class NoAnswerError(TransportError):
    """The endpoint did not answer within the time limit."""


class Probe:
    """Sends requests to one endpoint, and repeats those that fail.

    Args:
        url: the endpoint's address.
        limit_s: the time limit of a request.

    Attributes:
        latencies_s: the latencies of all answered requests.
        transient_failures: why requests failed, of requests that were answered when repeated.
    """

    def __init__(self, url: str, limit_s: float) -> None:
        self._transport = make_transport(url)
        self._limit_s = limit_s
        self._secrets = sorted(secret_parts(url), key=len, reverse=True)
        self.latencies_s: list[float] = []
        self.transient_failures: list[str] = []

    @property
    def takes_batches(self) -> bool:
        """Whether the node sends batches over the endpoint's protocol, which is true for HTTP
        only."""
        return isinstance(self._transport, HttpTransport)

    async def call(self, method: str, params: Sequence[Any] = ()) -> Any:
        """Return the result of a request.

        If the endpoint limits requests, wait and repeat the request. If no answer comes, e.g.
        because of a lost connection, repeat it at once.

        Raises:
            RpcError: the endpoint refused the request.
            BusyError: the endpoint still limits requests after several waits.
            TransportError: no usable answer came.
        """
        for waits_left in reversed(range(_BUSY_WAITS)):
            try:
                return await self.call_now(method, params)
            except BusyError as error:
                if not waits_left or error.retry_after_s > _LONGEST_BUSY_WAIT_S:
                    raise
                await asyncio.sleep(max(_BUSY_WAIT_S, error.retry_after_s))
        raise AssertionError("the last attempt returns or raises")

    async def call_now(self, method: str, params: Sequence[Any] = ()) -> Any:
        """Do the same as `call`, but raise BusyError at once if the endpoint limits requests.

        Raises:
            RpcError, BusyError, TransportError: see `call`.
        """
        return await self._repeated(lambda: self.call_once(method, params))

    async def call_once(self, method: str, params: Sequence[Any] = ()) -> Any:
        """Return the result of a request that is sent once.

        Raises:
            RpcError, BusyError, TransportError: see `call`.
        """
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._limit_s):
                answer = await self._transport.request(method, list(params))
        except TimeoutError:
            raise NoAnswerError(f"no answer to {method} within {self._limit_s:g} s") from None
        self.latencies_s.append(time.monotonic() - began)
        return result_of(method, answer, self.redacted)

    async def batch(self, size: int) -> bool:
        """Return whether the endpoint answers a batch of so many requests.

        Raises:
            BusyError, TransportError: see `call`.
        """
        return await self._repeated(lambda: self._batch_once(size))

    async def _batch_once(self, size: int) -> bool:
        assert isinstance(self._transport, HttpTransport)
        try:
            async with asyncio.timeout(self._limit_s):
                answers = await self._transport.batch([("eth_chainId", [])] * size)
        except TimeoutError:
            raise NoAnswerError(f"no answer to a batch within {self._limit_s:g} s") from None
        except BatchRefusedError:
            return False
        return all(answer is not None and "result" in answer for answer in answers)

    async def _repeated(self, request: Callable[[], Awaitable[_T]]) -> _T:
        """Repeat a request that gets no answer, because a single failure may be transient."""
        failures: list[str] = []
        while True:
            try:
                result = await request()
            except (BusyError, NoAnswerError, TooLargeError):
                raise
            except TransportError as error:
                failures.append(str(error))
                if len(failures) == _ATTEMPTS:
                    raise
            except RpcError:
                self.transient_failures += failures
                raise
            else:
                self.transient_failures += failures
                return result

    def redacted(self, text: str) -> str:
        """Remove secret parts of the address from a text, and shorten it."""
        for secret in self._secrets:
            text = text.replace(secret, "...")
        return text[:_SHOWN_CHARACTERS]

    async def close(self) -> None:
        """Close the connection."""
        await self._transport.close()
