"""Fail-over for one request: tries endpoints in turn, and checks the chain id of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fieldbrook.chain.errors import IncompleteAnswerError, MalformedAnswerError, RpcError
from fieldbrook.chain.rpc.answers import quantity
from fieldbrook.chain.rpc.endpoint import Endpoint, Endpoints, OtherChainError, Prefers
from fieldbrook.chain.rpc.refusals import is_verdict, result_of
from fieldbrook.chain.rpc.request import Request
from fieldbrook.chain.rpc.transport import (
    BusyError,
    TooLargeError,
    TransportError,
    WrongAnswerError,
)

_TURNS = 32  # most attempts of one request, including pauses
CHECK_S = 10.0  # a chain id that was checked within this time need not be checked again
# The check of a chain id: attempts while the endpoint limits requests, and the longest wait.
_CHECKS, _CHECK_WAIT_S = 4, 2.0
_MORE_FAILURES = 2  # failures of one request that are allowed beyond one for each endpoint
_BUSY_RANGES = 3  # rate-limit refusals before a smaller range is requested
_SLACK_S = 0.05  # the time limit of the last endpoint ends this much before that of the search


@dataclass(frozen=True, slots=True)
class Answer:
    """A result, the endpoint that returned it, and the request that it answers."""

    result: Any
    endpoint: Endpoint
    request: Request


class Search:
    """Asks one endpoint after the other until one answers.

    Args:
        endpoints: the endpoints of the chain.
        exchange: sends the request.
        urgent: whether a handler waits for the answer.
        last: the endpoint that is asked last, if any.
        prefers: returns whether an endpoint is asked before the others; None if all are equal.

    Attributes:
        refused: the error of the first endpoint that refused the request, if any.
        incomplete: the error of the last incomplete answer, if any.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        exchange: Exchange,
        urgent: bool,
        last: Endpoint | None,
        prefers: Prefers | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._exchange = exchange
        self._urgent = urgent
        self._last = last
        self._prefers = prefers
        self._excluded: set[Endpoint] = set()
        self._failures = self._busy = 0
        self.refused: RpcError | None = None
        self.incomplete: IncompleteAnswerError | None = None

    async def run(self, make: Callable[[Endpoint], Request], ends_at: float) -> Answer | None:
        """Ask endpoints until one answers; return None if none answers before `ends_at`.

        Raises:
            RpcError: the request fails by the rules of the chain.
        """
        for _ in range(_TURNS):
            now = time.monotonic()
            left_s = ends_at - now
            found = self._endpoints.candidates(
                left_s, self._excluded, self._last, urgent=self._urgent, prefers=self._prefers
            )
            if not found or self._failures > len(self._endpoints.all) + _MORE_FAILURES:
                return None
            endpoint = found[0]
            if now < endpoint.paused_until:
                await asyncio.sleep(endpoint.paused_until - now)
                continue
            request = make(endpoint)
            alone = len(found) == 1
            limit_s = self._endpoints.limit_s(endpoint, left_s, urgent=self._urgent, alone=alone)
            try:
                async with asyncio.timeout(left_s + _SLACK_S):
                    result = await self._exchange.ask(endpoint, request, limit_s, self._urgent)
                return Answer(result, endpoint, request)
            except TimeoutError:
                return None
            except TransportError as error:
                self._failed(endpoint, request, error, now)
            except IncompleteAnswerError as error:
                self.incomplete = error
                self._excluded.add(endpoint)
            except RpcError as error:
                self._was_refused(endpoint, request, error)
        return None

    def _failed(
        self, endpoint: Endpoint, request: Request, error: TransportError, began: float
    ) -> None:
        if isinstance(error, BusyError):
            self._endpoints.record_failure(endpoint, error)
            # Some endpoints refuse a large range with a text that reads like a rate limit, such as
            # "the range exceeds your quota".
            self._busy += 1
            if request.shrink is not None and self._busy % _BUSY_RANGES == 0:
                request.shrink("")
            return
        if request.shrink is not None:
            request.shrink("")
            if isinstance(error, TooLargeError):
                return
        self._endpoints.record_failure(endpoint, error, began)
        self._failures += 1

    def _was_refused(self, endpoint: Endpoint, request: Request, error: RpcError) -> None:
        if is_verdict(request.method, error):
            raise error
        if request.shrink is not None:
            request.shrink(error.text)
            return
        self.refused = self.refused or error
        self._excluded.add(endpoint)


class Exchange:
    """Sends requests to endpoints, and accepts answers only from endpoints of the right chain.

    Args:
        chain_id: the chain id that every endpoint must report.
        redacted: removes secrets from a text.
    """

    def __init__(self, chain_id: int, redacted: Callable[[str], str]) -> None:
        self._chain_id = chain_id
        self._redacted = redacted
        self._checks: dict[tuple[Endpoint, bool], asyncio.Task[None]] = {}  # by urgency

    async def ask(self, endpoint: Endpoint, request: Request, limit_s: float, urgent: bool) -> Any:
        """Send a request to an endpoint and return the result, converted by `request.read`.

        Raises:
            TransportError: no usable answer came.
            BusyError: the endpoint limits requests.
            RpcError: the endpoint refuses the request.
            IncompleteAnswerError: `request.read` raised it.
        """
        stale = time.monotonic() - endpoint.checked_at > CHECK_S
        result: Any
        sending = self._send(endpoint, request.method, request.params, limit_s, urgent)
        if stale and request.proves is None:
            checking = self._shared_check(endpoint, limit_s, urgent)
            check, result = await asyncio.gather(checking, sending, return_exceptions=True)
            if isinstance(check, BaseException):
                raise check
            if isinstance(result, BaseException):
                raise result
        else:
            result = await sending
        try:
            value = request.read(result)
        except IncompleteAnswerError:
            endpoint.record_success()
            raise
        except MalformedAnswerError as error:
            raise WrongAnswerError(f"malformed answer to {request.method}: {error}") from None
        proof = None if request.proves is None else request.proves(value)
        if proof:
            endpoint.checked_at = time.monotonic()
        elif proof is False:
            await self.check(endpoint, limit_s, urgent)
        endpoint.record_success()
        return value

    async def _shared_check(self, endpoint: Endpoint, limit_s: float, urgent: bool) -> None:
        """Check the endpoint's chain id once for all requests that need the check now."""
        key = endpoint, urgent
        check = self._checks.get((endpoint, True)) or self._checks.get(key)
        if check is None:
            check = asyncio.create_task(self.check(endpoint, limit_s, urgent))
            self._checks[key] = check

            def ended(check: asyncio.Task[None]) -> None:
                del self._checks[key]
                if not check.cancelled():
                    # Retrieve the error: asyncio logs it if all waiting requests were cancelled.
                    check.exception()

            check.add_done_callback(ended)
        await asyncio.shield(check)

    async def check(self, endpoint: Endpoint, limit_s: float, urgent: bool) -> None:
        """Ask an endpoint for its chain id, and compare it.

        Raises:
            OtherChainError: the endpoint belongs to another chain.
            TransportError, RpcError: see `ask`.
        """
        for attempts_left in reversed(range(_CHECKS)):
            try:
                answer = await self._send(endpoint, "eth_chainId", [], limit_s, urgent)
                break
            except BusyError:  # retry here, so that the answer under check is not lost
                wait_s = endpoint.queue.pace.wait_s(time.monotonic())
                if not attempts_left or wait_s > _CHECK_WAIT_S:
                    raise
        try:
            chain_id = quantity(answer)
        except MalformedAnswerError:
            raise TransportError("its chain id is not a number") from None
        if chain_id != self._chain_id:
            raise OtherChainError(f"it belongs to chain {chain_id}, not to {self._chain_id}")
        endpoint.checked_at = time.monotonic()

    async def _send(
        self, endpoint: Endpoint, method: str, params: list[Any], limit_s: float, urgent: bool
    ) -> Any:
        answer = await endpoint.queue.send(method, params, limit_s, urgent=urgent)
        return result_of(method, answer, self._redacted)
