"""Client of one chain: calls with fail-over between its endpoints.

Endpoints are used in the order of the settings. An endpoint that fails or limits requests is
skipped for a while, an endpoint of another chain for longer, and an endpoint whose head lags
behind that of another one until it has caught up. Only the scheme, host and port of an
endpoint's address are shown, because the rest may contain a key.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from fieldbrook.chain.blocks.logs import quantity, read_header
from fieldbrook.chain.errors import (
    IncompleteAnswerError,
    MalformedAnswerError,
    RpcError,
    TooManyResultsError,
)
from fieldbrook.chain.rpc.transport import BusyError, Transport, TransportError, make_transport
from fieldbrook.core.errors import ChainUnavailableError
from fieldbrook.observability import metrics

log = logging.getLogger(__name__)

CALL_LIMIT_S = 10.0
CHECK_S = 10.0
PROBE_S = 15.0
HEADS_KEPT_S = 60.0
_CONCURRENT = 8
_REST_S = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_FOREIGN_REST_S = 30.0
_SHOWN_CHARACTERS = 300
_TEXT_CHARACTERS = 4_096

_METHOD_NOT_FOUND, _INTERNAL, _UNSUPPORTED, _LIMIT = -32601, -32603, -32004, -32005
_TOO_MANY = re.compile(
    r"more than \d+ (results|logs)|query returned more|too many (results|logs)|block range"
    r"|range (is )?too (large|wide|big)|max(imum)? (block )?range|exceeds? (the )?(max|limit)"
    r"|response size|limit exceeded|query timeout|timed? ?out|too large|wide range|reduce",
    re.IGNORECASE,
)
_TOO_FAST = re.compile(
    r"too many requests|rate.?limit|request limit|capacity|per second", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """The status of one endpoint for administrators. `reason` is empty while it is in use."""

    name: str
    head: int
    failures: int
    reason: str


class Endpoint:
    """One endpoint and its state; times are those of `time.monotonic`."""

    def __init__(self, url: str, transport: Transport) -> None:
        self.name = shown(url)
        self.transport = transport
        self.checked_at = float("-inf")
        self.head = 0
        self.head_at = float("-inf")
        self.failures = 0  # total
        self.in_a_row = 0  # consecutive failures
        self.failed_at = float("-inf")
        self.rests_until = float("-inf")
        self.reason = ""

    def failed(self, began: float, now: float, reason: str, rest_s: float = 0.0) -> None:
        """Record a failure and skip the endpoint for a while, longer after each one in a row.

        A request that `began` before the last failure belongs to the same outage and does not
        count as another failure in a row.
        """
        self.failures += 1
        self.reason = reason
        self.checked_at = float("-inf")
        if began <= self.failed_at:
            self.rests_until = max(self.rests_until, now + rest_s)
            return
        if not self.in_a_row:
            log.warning("endpoint %s: %s", self.name, reason)
        self.failed_at = now
        self.in_a_row += 1
        step = _REST_S[min(self.in_a_row, len(_REST_S) - 1)]
        self.rests_until = now + max(rest_s, step)

    def answered(self) -> None:
        """Record a success."""
        if self.in_a_row:
            log.info("endpoint %s: serves again", self.name)
        self.in_a_row, self.reason = 0, ""


@dataclass(frozen=True, slots=True)
class Answered:
    """A result and the endpoint that returned it."""

    result: Any
    endpoint: Endpoint


def _as_it_is(raw: Any) -> Any:
    return raw


class ChainClient:
    """Calls to one chain.

    Args:
        chain_id: the chain id that every endpoint must report.
        urls: the endpoints' addresses, the preferred one first.
        lag_blocks: how many blocks an endpoint in use may lag behind another one.
        limit_s: time limit of one request to one endpoint.
        probe_s: how often, at most, `head` asks all endpoints for their newest block.
        transport: makes the transport for an address.
    """

    def __init__(
        self,
        chain_id: int,
        urls: Sequence[str],
        *,
        lag_blocks: int = 5,
        limit_s: float = CALL_LIMIT_S,
        probe_s: float = PROBE_S,
        transport: Callable[[str], Transport] = make_transport,
    ) -> None:
        self.chain_id = chain_id
        self._lag_blocks = lag_blocks
        self._limit_s = limit_s
        self._probe_s = probe_s
        self._endpoints = [Endpoint(url, transport(url)) for url in urls]
        self._secrets = sorted({s for url in urls for s in _secrets_of(url)}, key=len, reverse=True)
        self._slots = asyncio.Semaphore(_CONCURRENT)
        self._probed_at = float("-inf")
        self._leading: Endpoint | None = None  # the endpoint that returned the last head
        self._serving: Endpoint | None = None  # the endpoint that is asked first
        self._changes = 0  # how often `_serving` has changed

    async def call(
        self,
        method: str,
        params: list[Any],
        *,
        checked: bool = False,
        limit_s: float | None = None,
        read: Callable[[Any], Any] = _as_it_is,
    ) -> Any:
        """Return the result of a request from the first endpoint that answers it.

        Args:
            method: a method of JSON-RPC, e.g. `eth_getLogs`.
            params: its parameters as JSON values.
            checked: ask for the chain id after the answer, so that no answer of another chain
                is accepted. Without it, the last check may be `CHECK_S` old.
            limit_s: time limit for one endpoint; the client's by default.
            read: converts the result. If it raises MalformedAnswerError the endpoint counts as
                failed, and the next one is asked.

        Raises:
            ChainUnavailableError: no endpoint was usable, or none answered.
            IncompleteAnswerError: `read` raised it for an answer, and no endpoint had another.
            RpcError: an endpoint refused the request; `TooManyResultsError` if its answer would
                be too large.
        """
        answered = await self.answer(method, params, checked=checked, limit_s=limit_s, read=read)
        return answered.result

    async def answer(
        self,
        method: str,
        params: list[Any],
        *,
        checked: bool = False,
        limit_s: float | None = None,
        read: Callable[[Any], Any] = _as_it_is,
        unlike: Endpoint | None = None,
    ) -> Answered:
        """Do the same as `call`, and also return the endpoint that answered.

        `unlike` asks for a second opinion: that endpoint is asked last, and an endpoint that
        refuses the request is skipped, because it may not know the block yet.

        Raises:
            ChainUnavailableError, IncompleteAnswerError, RpcError: see `call`.
        """
        refused: RpcError | None = None
        incomplete: IncompleteAnswerError | None = None
        limit_s = self._limit_s if limit_s is None else limit_s
        changes = self._changes
        endpoints = sorted(self._usable(), key=lambda e: e is unlike) if unlike else self._usable()
        for endpoint in endpoints:
            began = time.monotonic()
            try:
                result = await self._ask(endpoint, method, params, checked, limit_s, read)
            except TransportError as error:
                self._failed(endpoint, error, began)
                continue
            except IncompleteAnswerError as error:
                incomplete = error
                continue
            except RpcError as error:
                others = (_METHOD_NOT_FOUND, _INTERNAL, _UNSUPPORTED)
                if unlike is None and error.code not in others:
                    raise
                refused = error
                continue
            if refused is None and unlike is None:  # else an earlier endpoint serves as well
                self._served(endpoint, changes)
            return Answered(result, endpoint)
        if incomplete is not None:
            raise incomplete
        if refused is not None:
            raise refused
        raise self._unavailable()

    async def each(self, method: str, params: list[Any]) -> list[Any | RpcError]:
        """Ask all usable endpoints; returns their results and refusals.

        Endpoints that do not answer are left out.
        """
        found: list[Any | RpcError] = []
        for endpoint in self._usable():
            try:
                found.append(await self._ask(endpoint, method, params, False, self._limit_s))
            except TransportError as error:
                self._failed(endpoint, error)
            except RpcError as error:
                found.append(error)
        return found

    async def head(self) -> dict[str, Any]:
        """Return the newest block, with its transactions' hashes, from the first usable endpoint.

        Raises:
            ChainUnavailableError, RpcError: see `call`.
        """
        if len(self._endpoints) > 1:
            await self._probe_when_due()
        refused: RpcError | None = None
        changes = self._changes
        for endpoint in self._usable():
            began = time.monotonic()
            try:
                block = await self._newest(endpoint)
            except TransportError as error:
                self._failed(endpoint, error, began)
            except RpcError as error:
                refused = error
            else:
                if not self._lies_behind(endpoint):
                    self._leading = endpoint
                    if refused is None:
                        self._served(endpoint, changes)
                    return block
        if refused is not None:
            raise refused
        raise self._unavailable()

    def doubt(self, reason: str) -> None:
        """Mark the endpoint of the last head as failed, because later answers contradict it.

        With only one endpoint this does nothing.
        """
        if self._leading is not None and len(self._endpoints) > 1:
            self._failed(self._leading, TransportError(reason))

    def left_out(self, endpoint: Endpoint, reason: str) -> None:
        """Mark an endpoint as failed, because it omitted data that another answer had.

        With only one endpoint this only writes a log line.
        """
        if len(self._endpoints) == 1:
            log.info("endpoint %s: %s", endpoint.name, reason)
        elif endpoint.rests_until <= time.monotonic():  # else it is already skipped
            self._failed(endpoint, TransportError(reason))

    def status(self) -> list[EndpointStatus]:
        """Return the status of all endpoints, in the order of the settings."""
        return [
            EndpointStatus(
                e.name,
                e.head,
                e.failures,
                e.reason or ("lies behind" if self._lies_behind(e) else ""),
            )
            for e in self._endpoints
        ]

    def redacted(self, text: str) -> str:
        """Remove secret parts of the endpoints' addresses from a text, and shorten it."""
        for secret in self._secrets:
            text = text.replace(secret, "...")
        return text[:_SHOWN_CHARACTERS]

    async def close(self) -> None:
        """Close all connections."""
        for endpoint in self._endpoints:
            await endpoint.transport.close()

    # ---------------------------------------------------------------- endpoints

    def _usable(self) -> Iterator[Endpoint]:
        for endpoint in self._endpoints:
            resting = endpoint.rests_until > time.monotonic()
            if not resting and not self._lies_behind(endpoint):
                yield endpoint

    def _served(self, endpoint: Endpoint, changes: int) -> None:
        """Count a fail-over when another endpoint than before answers.

        `changes` is `_changes` at the time of the request. An answer that was under way during
        a change is ignored, because it shows the state before the change.
        """
        if endpoint is self._serving or changes != self._changes:
            return
        if self._serving is not None:
            metrics.add(metrics.CHAIN_FAILOVERS)
            log.info("chain %d: endpoint %s is asked now", self.chain_id, endpoint.name)
        self._serving = endpoint
        self._changes += 1

    def _lies_behind(self, endpoint: Endpoint) -> bool:
        if endpoint.head_at == float("-inf"):
            return False
        since = time.monotonic() - HEADS_KEPT_S
        heads = [e.head for e in self._endpoints if e is not endpoint and e.head_at > since]
        return endpoint.head < max(heads, default=0) - self._lag_blocks

    def _failed(
        self, endpoint: Endpoint, error: TransportError, began: float = float("inf")
    ) -> None:
        rest_s = _FOREIGN_REST_S if isinstance(error, _ForeignError) else 0.0
        if isinstance(error, BusyError):
            rest_s = error.retry_after_s
        endpoint.head_at = float("-inf")
        endpoint.failed(began, time.monotonic(), self.redacted(str(error)), rest_s)

    def _unavailable(self) -> ChainUnavailableError:
        reasons = [f"{s.name}: {s.reason or 'no answer'}" for s in self.status()]
        return ChainUnavailableError(chain=self.chain_id, reason="; ".join(reasons))

    async def _ask(
        self,
        endpoint: Endpoint,
        method: str,
        params: list[Any],
        checked: bool,
        limit_s: float,
        read: Callable[[Any], Any] = _as_it_is,
    ) -> Any:
        """Send one request to one endpoint, check its chain id when due, and read the result."""
        if endpoint.checked_at == float("-inf"):
            await self._check(endpoint, limit_s)
        result = await self._request(endpoint, method, params, limit_s)
        if checked or time.monotonic() - endpoint.checked_at > CHECK_S:
            await self._check(endpoint, limit_s)
        try:
            taken = read(result)
        except IncompleteAnswerError:
            endpoint.answered()
            raise
        except MalformedAnswerError as error:
            raise TransportError(f"its answer to {method}: {error}") from None
        endpoint.answered()
        return taken

    async def _check(self, endpoint: Endpoint, limit_s: float) -> None:
        said = await self._request(endpoint, "eth_chainId", [], limit_s)
        try:
            chain_id = quantity(said)
        except MalformedAnswerError:
            raise TransportError("its chain id is no number") from None
        if chain_id != self.chain_id:
            raise _ForeignError(f"it is of the chain {chain_id}, not of {self.chain_id}")
        endpoint.checked_at = time.monotonic()

    async def _newest(self, endpoint: Endpoint) -> dict[str, Any]:
        params, limit_s = ["latest", False], self._limit_s
        block: dict[str, Any] = await self._ask(
            endpoint, "eth_getBlockByNumber", params, True, limit_s, _whole_block
        )
        endpoint.head = int(block["number"], 16)
        endpoint.head_at = time.monotonic()
        return block

    async def _probe_when_due(self) -> None:
        now = time.monotonic()
        if now - self._probed_at < self._probe_s:
            return
        self._probed_at = now
        resting = [e for e in self._endpoints if e.rests_until > now]
        asked = [e for e in self._endpoints if e not in resting]
        results = await asyncio.gather(*(self._newest(e) for e in asked), return_exceptions=True)
        for endpoint, result in zip(asked, results, strict=True):
            if isinstance(result, TransportError):
                self._failed(endpoint, result, now)
            elif isinstance(result, BaseException) and not isinstance(result, RpcError):
                raise result

    async def _request(
        self, endpoint: Endpoint, method: str, params: list[Any], limit_s: float
    ) -> Any:
        async with self._slots:
            try:
                async with asyncio.timeout(limit_s):
                    answer = await endpoint.transport.request(method, params)
            except TimeoutError:
                raise TransportError(f"no answer to {method} within {limit_s:g} s") from None
        error = answer.get("error")
        if error is None:
            if "result" not in answer:
                raise TransportError("its answer has neither result nor error")
            return answer["result"]
        raise self._refusal(method, error)

    def _refusal(self, method: str, error: Any) -> Exception:
        """Convert an `error` of JSON-RPC to an exception: busy, too many results or refused."""
        error = error if isinstance(error, dict) else {"message": str(error)}
        code, text = error.get("code"), self.redacted(str(error.get("message", "")))
        text = text[:_TEXT_CHARACTERS]  # an answer may be 128 MiB large
        code = code if isinstance(code, int) else 0
        if code == 429 or _TOO_FAST.search(text):
            return BusyError(text or "too many requests")
        if method == "eth_getLogs" and (code == _LIMIT or _TOO_MANY.search(text)):
            return TooManyResultsError(code, text, error.get("data"))
        if code == _LIMIT:
            return BusyError(text or "limit exceeded")
        return RpcError(code, text, error.get("data"))


def _whole_block(raw: Any) -> dict[str, Any]:
    """Validate a block and return it unchanged.

    Raises:
        MalformedAnswerError: the value is not a block.
    """
    read_header(raw)
    return dict(raw)


class _ForeignError(TransportError):
    """The endpoint belongs to another chain."""


def shown(url: str) -> str:
    """Return the public part of an endpoint's address: its scheme, host and port."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return f"{parts.scheme}://{host}{port}"


def _secrets_of(url: str) -> Iterator[str]:
    """Yield the parts of an endpoint's address that must not be shown."""
    parts = urlsplit(url)
    yield url
    if parts.query:
        yield parts.query
    if parts.password:
        yield parts.password
    yield from (part for part in parts.path.split("/") if len(part) >= 8)
    yield from (
        value for pair in parts.query.split("&") if len(value := pair.partition("=")[2]) >= 8
    )
