"""One request: the search for an endpoint that answers it, and the exchange with each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fieldbrook.chain.errors import IncompleteAnswerError, MalformedAnswerError, RpcError
from fieldbrook.chain.rpc.answers import quantity
from fieldbrook.chain.rpc.endpoint import Endpoint, Endpoints, OtherChainError, Suits
from fieldbrook.chain.rpc.refusals import is_verdict, refusal
from fieldbrook.chain.rpc.request import Request
from fieldbrook.chain.rpc.transport import (
    BusyError,
    TooLargeError,
    TransportError,
    WrongAnswerError,
)

_TURNS = 32  # answers, refusals, smaller ranges and pauses
CHECK_S = 10.0
_CHECKS, _CHECK_WAIT_S = 4, 2.0  # attempts of one check while the endpoint limits requests
_MORE_FAILURES = 2  # of one request, besides one of each endpoint
_BUSY_RANGES = 3  # refusals as too many requests, before a smaller range is requested
_SLACK_S = 0.05  # so that the time limit of the last endpoint ends first


@dataclass(frozen=True, slots=True)
class Answer:
    """A result, the endpoint that returned it, and the request that it answers."""

    result: Any
    endpoint: Endpoint
    request: Request


class Search:
    """Asks one endpoint after the other until one answers.

    Args:
        endpoints: the chain's.
        exchange: sends the request.
        urgent: a handler waits for it.
        last: the endpoint that is asked last, if any.
        suits: says which endpoints are asked first; None if all suit the request.

    Attributes:
        refused: the first refusal, if an endpoint refused the request.
        incomplete: the last incomplete answer, if there was one.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        exchange: Exchange,
        urgent: bool,
        last: Endpoint | None,
        suits: Suits | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._exchange = exchange
        self._urgent = urgent
        self._last = last
        self._suits = suits
        self._excluded: set[Endpoint] = set()
        self._failures = self._busy = 0
        self.refused: RpcError | None = None
        self.incomplete: IncompleteAnswerError | None = None

    async def run(self, make: Callable[[Endpoint], Request], ends_at: float) -> Answer | None:
        """Ask endpoints until one answers; None if none does before `ends_at`.

        Raises:
            RpcError: the verdict of the chain.
        """
        for _ in range(_TURNS):
            now = time.monotonic()
            left_s = ends_at - now
            found = self._endpoints.candidates(
                left_s, self._excluded, self._last, urgent=self._urgent, suits=self._suits
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
            # "The range exceeds your quota" reads like too many requests.
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
    """Sends requests to endpoints, and accepts only answers of endpoints of one chain.

    Args:
        chain_id: the chain id that every endpoint must report.
        redacted: removes secrets from a text.
    """

    def __init__(self, chain_id: int, redacted: Callable[[str], str]) -> None:
        self._chain_id = chain_id
        self._redacted = redacted
        self._checks: dict[tuple[Endpoint, bool], asyncio.Task[None]] = {}  # by urgency

    async def ask(self, endpoint: Endpoint, request: Request, limit_s: float, urgent: bool) -> Any:
        """Send a request to an endpoint and return what `request.read` makes of the result.

        Raises:
            TransportError: there is no usable answer.
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
        """Check the endpoint's chain once for all requests that want it now."""
        key = endpoint, urgent
        check = self._checks.get((endpoint, True)) or self._checks.get(key)
        if check is None:
            check = asyncio.create_task(self.check(endpoint, limit_s, urgent))
            self._checks[key] = check

            def ended(check: asyncio.Task[None]) -> None:
                del self._checks[key]
                if not check.cancelled():
                    check.exception()  # read here, because everybody may have given up waiting

            check.add_done_callback(ended)
        await asyncio.shield(check)

    async def check(self, endpoint: Endpoint, limit_s: float, urgent: bool) -> None:
        """Ask an endpoint for the id of its chain.

        Raises:
            OtherChainError: it is another one.
            TransportError, RpcError: see `ask`.
        """
        for attempts_left in reversed(range(_CHECKS)):
            try:
                answer = await self._send(endpoint, "eth_chainId", [], limit_s, urgent)
                break
            except BusyError:  # the answer that is checked need not be thrown away
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
        error = answer.get("error")
        if error is not None:
            raise refusal(method, error, self._redacted)
        if "result" not in answer:
            raise TransportError("its answer has neither result nor error")
        return answer["result"]
