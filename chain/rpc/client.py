"""Client of one chain: requests with fail-over between its endpoints.

Endpoints are used in the order of the settings. An endpoint that fails or limits requests is
paused, an endpoint of another chain for longer, and an endpoint whose head lags behind that of
another one is skipped until it has caught up. Only the scheme, host and port of an endpoint's
address are shown, because the rest may contain a key.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fieldbrook.chain.errors import IncompleteAnswerError, MalformedAnswerError, RpcError
from fieldbrook.chain.rpc.answers import quantity, read_header
from fieldbrook.chain.rpc.endpoint import Endpoint, EndpointStatus
from fieldbrook.chain.rpc.endpoint_url import secret_parts
from fieldbrook.chain.rpc.request import (
    INTERNAL,
    METHOD_NOT_FOUND,
    UNSUPPORTED,
    Request,
    refusal,
    unchanged,
)
from fieldbrook.chain.rpc.transport import BusyError, Transport, TransportError, make_transport
from fieldbrook.core.errors import ChainUnavailableError
from fieldbrook.observability import metrics

log = logging.getLogger(__name__)

CALL_LIMIT_S = 10.0
CHECK_S = 10.0
PROBE_S = 15.0
_CONCURRENT = 8
_OTHER_CHAIN_PAUSE_S = 30.0
_SHOWN_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Answer:
    """A result and the endpoint that returned it."""

    result: Any
    endpoint: Endpoint


class _OtherChainError(TransportError):
    """The endpoint belongs to another chain."""


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
        self._secrets = sorted(
            {s for url in urls for s in secret_parts(url)}, key=len, reverse=True
        )
        self._slots = asyncio.Semaphore(_CONCURRENT)
        self._probed_at = float("-inf")
        self._head_source: Endpoint | None = None  # the endpoint that returned the last head
        self._current: Endpoint | None = None  # the endpoint that answers first
        self._changes = 0  # how often `_current` has changed

    async def call(
        self,
        method: str,
        params: list[Any],
        *,
        checked: bool = False,
        limit_s: float | None = None,
        read: Callable[[Any], Any] = unchanged,
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
        answer = await self.answer(method, params, checked=checked, limit_s=limit_s, read=read)
        return answer.result

    async def answer(
        self,
        method: str,
        params: list[Any],
        *,
        checked: bool = False,
        limit_s: float | None = None,
        read: Callable[[Any], Any] = unchanged,
        other_than: Endpoint | None = None,
    ) -> Answer:
        """Do the same as `call`, and also return the endpoint that answered.

        `other_than` asks for a second opinion: that endpoint is asked last, and an endpoint that
        refuses the request is skipped, because it may not know the block yet.

        Raises:
            ChainUnavailableError, IncompleteAnswerError, RpcError: see `call`.
        """
        request = Request(
            method, params, self._limit_s if limit_s is None else limit_s, checked, read
        )
        refused: RpcError | None = None
        incomplete: IncompleteAnswerError | None = None
        changes = self._changes
        endpoints: Iterable[Endpoint] = self._usable()
        if other_than is not None:
            endpoints = sorted(endpoints, key=lambda endpoint: endpoint is other_than)
        for endpoint in endpoints:
            began = time.monotonic()
            try:
                result = await self._ask(endpoint, request)
            except TransportError as error:
                self._record_failure(endpoint, error, began)
            except IncompleteAnswerError as error:
                incomplete = error
            except RpcError as error:
                endpoint_only = error.code in (METHOD_NOT_FOUND, INTERNAL, UNSUPPORTED)
                if other_than is None and not endpoint_only:
                    raise
                refused = error
            else:
                if refused is None and other_than is None:  # else an earlier one works as well
                    self._note_answering(endpoint, changes)
                return Answer(result, endpoint)
        raise incomplete or refused or self._unavailable()

    async def ask_all(self, method: str, params: list[Any]) -> list[Any | RpcError]:
        """Ask all usable endpoints; returns their results and refusals.

        Endpoints that do not answer are left out.
        """
        request = Request(method, params, self._limit_s)
        found: list[Any | RpcError] = []
        for endpoint in self._usable():
            try:
                found.append(await self._ask(endpoint, request))
            except TransportError as error:
                self._record_failure(endpoint, error)
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
                self._record_failure(endpoint, error, began)
            except RpcError as error:
                refused = error
            else:
                if not self._lags(endpoint):
                    self._head_source = endpoint
                    if refused is None:
                        self._note_answering(endpoint, changes)
                    return block
        raise refused or self._unavailable()

    def report_contradiction(self, reason: str) -> None:
        """Mark the endpoint of the last head as failed, because later answers contradict it.

        With only one endpoint this does nothing.
        """
        if self._head_source is not None and len(self._endpoints) > 1:
            self._record_failure(self._head_source, TransportError(reason))

    def report_omission(self, endpoint: Endpoint, reason: str) -> None:
        """Mark an endpoint as failed, because it omitted data that another answer had.

        With only one endpoint this only writes a log line.
        """
        if len(self._endpoints) == 1:
            log.info("endpoint %s: %s", endpoint.name, reason)
        elif not endpoint.is_paused(time.monotonic()):
            self._record_failure(endpoint, TransportError(reason))

    def status(self) -> list[EndpointStatus]:
        """Return the status of all endpoints, in the order of the settings."""
        return [
            EndpointStatus(
                e.name,
                e.head,
                e.failures,
                e.reason or ("its head lags behind other endpoints" if self._lags(e) else ""),
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

    # ---------------------------------------------------------------- choosing an endpoint

    def _usable(self) -> Iterator[Endpoint]:
        """Yield the endpoints that are neither paused nor behind, in the order of the settings."""
        for endpoint in self._endpoints:
            if not endpoint.is_paused(time.monotonic()) and not self._lags(endpoint):
                yield endpoint

    def _lags(self, endpoint: Endpoint) -> bool:
        return endpoint.lags(self._endpoints, self._lag_blocks, time.monotonic())

    def _note_answering(self, endpoint: Endpoint, changes: int) -> None:
        """Count a fail-over when another endpoint than before answers.

        `changes` is `_changes` at the time of the request. An answer that was under way during
        a change is ignored, because it shows the state before the change.
        """
        if endpoint is self._current or changes != self._changes:
            return
        if self._current is not None:
            metrics.add(metrics.CHAIN_FAILOVERS)
            log.info("chain %d: requests go to endpoint %s now", self.chain_id, endpoint.name)
        self._current = endpoint
        self._changes += 1

    def _record_failure(
        self, endpoint: Endpoint, error: TransportError, began: float = float("inf")
    ) -> None:
        pause_s = _OTHER_CHAIN_PAUSE_S if isinstance(error, _OtherChainError) else 0.0
        if isinstance(error, BusyError):
            pause_s = error.retry_after_s
        reason = self.redacted(str(error))
        endpoint.record_failure(reason, began=began, now=time.monotonic(), pause_s=pause_s)

    def _unavailable(self) -> ChainUnavailableError:
        reasons = [f"{s.name}: {s.reason or 'no answer'}" for s in self.status()]
        return ChainUnavailableError(chain=self.chain_id, reason="; ".join(reasons))

    async def _probe_when_due(self) -> None:
        """Ask all endpoints for their heads, so that one that lags is noticed."""
        now = time.monotonic()
        if now - self._probed_at < self._probe_s:
            return
        self._probed_at = now
        asked = [e for e in self._endpoints if not e.is_paused(now)]
        results = await asyncio.gather(*(self._newest(e) for e in asked), return_exceptions=True)
        for endpoint, result in zip(asked, results, strict=True):
            if isinstance(result, TransportError):
                self._record_failure(endpoint, result, now)
            elif isinstance(result, BaseException) and not isinstance(result, RpcError):
                raise result

    # ---------------------------------------------------------------- asking one endpoint

    async def _newest(self, endpoint: Endpoint) -> dict[str, Any]:
        request = Request(
            "eth_getBlockByNumber", ["latest", False], self._limit_s, checked=True, read=_block
        )
        block: dict[str, Any] = await self._ask(endpoint, request)
        endpoint.record_head(int(block["number"], 16), time.monotonic())
        return block

    async def _ask(self, endpoint: Endpoint, request: Request) -> Any:
        """Send a request to one endpoint, check its chain id when due, and read the result."""
        if endpoint.checked_at == float("-inf"):
            await self._check_chain(endpoint, request.limit_s)
        result = await self._send(endpoint, request.method, request.params, request.limit_s)
        if request.checked or time.monotonic() - endpoint.checked_at > CHECK_S:
            await self._check_chain(endpoint, request.limit_s)
        try:
            value = request.read(result)
        except IncompleteAnswerError:
            endpoint.record_success()
            raise
        except MalformedAnswerError as error:
            raise TransportError(f"malformed answer to {request.method}: {error}") from None
        endpoint.record_success()
        return value

    async def _check_chain(self, endpoint: Endpoint, limit_s: float) -> None:
        answer = await self._send(endpoint, "eth_chainId", [], limit_s)
        try:
            chain_id = quantity(answer)
        except MalformedAnswerError:
            raise TransportError("its chain id is not a number") from None
        if chain_id != self.chain_id:
            raise _OtherChainError(f"it belongs to chain {chain_id}, not to {self.chain_id}")
        endpoint.checked_at = time.monotonic()

    async def _send(
        self, endpoint: Endpoint, method: str, params: list[Any], limit_s: float
    ) -> Any:
        async with self._slots:
            try:
                async with asyncio.timeout(limit_s):
                    answer = await endpoint.transport.request(method, params)
            except TimeoutError:
                raise TransportError(f"no answer to {method} within {limit_s:g} s") from None
        error = answer.get("error")
        if error is not None:
            raise refusal(method, error, self.redacted)
        if "result" not in answer:
            raise TransportError("its answer has neither result nor error")
        return answer["result"]


def _block(raw: Any) -> dict[str, Any]:
    """Validate a block and return it unchanged.

    Raises:
        MalformedAnswerError: the value is not a block.
    """
    read_header(raw)
    return dict(raw)
