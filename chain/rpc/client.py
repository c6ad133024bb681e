"""Client of one chain: JSON-RPC requests with fail-over between the chain's endpoints.

The client prefers endpoints in the order of the settings. It pauses an endpoint that fails, and
pauses an endpoint of another chain for longer. It skips an endpoint whose head lags behind the
head of another endpoint, until that endpoint has caught up. It sends requests to a rate-limited
endpoint as fast as that endpoint allows. Requests that would wait long are sent to another
endpoint. Logs and errors show only the scheme, host and port of an endpoint's address, because the
rest may contain a key.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from fieldbrook.chain.errors import RpcError
from fieldbrook.chain.rpc.answers import Header, read_header
from fieldbrook.chain.rpc.endpoint import (
    Endpoint,
    Endpoints,
    EndpointStatus,
    OtherChainError,
    Prefers,
)
from fieldbrook.chain.rpc.endpoint_url import secret_parts
from fieldbrook.chain.rpc.request import Request, proves_nothing, unchanged
from fieldbrook.chain.rpc.search import Answer, Exchange, Search
from fieldbrook.chain.rpc.transport import (
    Transport,
    TransportError,
    WrongAnswerError,
    make_transport,
)
from fieldbrook.core.errors import ChainUnavailableError
from fieldbrook.observability import metrics

log = logging.getLogger(__name__)

CALL_LIMIT_S = 10.0
PROBE_S = 60.0
_PATIENCE_S = 30.0  # time limit of a request for which no handler waits
_CONFIRMATIONS = 4  # attempts to read an endpoint's chain id
_SHOWN_CHARACTERS = 300


class ChainClient:
    """Calls to one chain.

    Args:
        chain_id: the chain id that every endpoint must report.
        urls: the endpoints' addresses, the preferred one first.
        lag_blocks: how many blocks an endpoint in use may lag behind another one.
        limit_s: time limit of one request to one endpoint.
        probe_s: shortest time between two calls of `head` that ask all endpoints for their newest
            block.
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
        self._limit_s = limit_s
        self._probe_s = probe_s
        self._endpoints = Endpoints(
            [Endpoint(url, transport(url)) for url in urls], lag_blocks, limit_s, self.redacted
        )
        self._exchange = Exchange(chain_id, self.redacted)
        self._secrets = sorted(
            {s for url in urls for s in secret_parts(url)}, key=len, reverse=True
        )
        self._probed_at = float("-inf")
        self._head_source: Endpoint | None = None  # the endpoint that returned the last head
        self._current: Endpoint | None = None  # the endpoint that answers first
        self._changes = 0  # how often `_current` has changed

    async def call(
        self,
        method: str,
        params: list[Any],
        *,
        proves: Callable[[Any], bool | None] | None = None,
        within_s: float | None = None,
        read: Callable[[Any], Any] = unchanged,
    ) -> Any:
        """Return the result of a request from the first endpoint that answers it.

        Args:
            method: a method of JSON-RPC, e.g. `eth_getLogs`.
            params: its parameters as JSON values.
            proves: see `Request`.
            within_s: how long a waiting handler waits; None if no handler waits. A handler's
                request is sent before others, and each endpoint gets only part of the time, so
                that another one can be asked.
            read: converts the result. If it raises MalformedAnswerError, the endpoint counts as
                failed, and the next one is asked.

        Raises:
            ChainUnavailableError: no endpoint was usable, or none answered in time.
            IncompleteAnswerError: `read` raised it, and no endpoint gave a complete answer.
            RpcError: the request fails by the rules of the chain, or every endpoint refused it.
        """
        request = Request(method, params, read, proves)
        answer = await self.answer(lambda _: request, within_s=within_s)
        return answer.result

    async def answer(
        self,
        make: Callable[[Endpoint], Request],
        *,
        within_s: float | None = None,
        other_than: Endpoint | None = None,
        prefers: Prefers | None = None,
    ) -> Answer:
        """Do the same as `call`, and also return the endpoint that answered.

        Args:
            make: makes the request for an endpoint.
            within_s: see `call`.
            other_than: the endpoint that is asked last, because the caller wants a second
                opinion on its answer.
            prefers: returns whether an endpoint is asked before the others.

        Raises:
            ChainUnavailableError, IncompleteAnswerError, RpcError: see `call`.
        """
        patience_s = _PATIENCE_S if within_s is None else within_s
        search = Search(self._endpoints, self._exchange, within_s is not None, other_than, prefers)
        changes = self._changes
        answer = await search.run(make, time.monotonic() + patience_s)
        if answer is None:
            raise search.incomplete or search.refused or self._unavailable()
        # After a refusal or for a second opinion, the preferred endpoint may still work.
        if search.refused is None and other_than is None:
            self._note_answering(answer.endpoint, changes)
        return answer

    async def confirm(self, endpoint: Endpoint) -> None:
        """Check an endpoint's chain id, after answers that do not prove their chain.

        Raises:
            ChainUnavailableError: the endpoint belongs to another chain, or did not answer.
        """
        for _ in range(_CONFIRMATIONS):
            began = time.monotonic()
            try:
                await self._exchange.check(endpoint, self._limit_s, urgent=False)
            except TransportError as error:
                self._endpoints.record_failure(endpoint, error, began)
                if isinstance(error, OtherChainError):
                    break
            except RpcError:
                break
            else:
                return
        raise self._unavailable()

    async def ask_all(self, method: str, params: list[Any]) -> list[Any | RpcError]:
        """Send a request to all usable endpoints.

        Returns:
            The result or the refusal of each endpoint, without endpoints that did not answer.
        """
        request = Request(method, params)
        found: list[Any | RpcError] = []
        for endpoint in self._endpoints.usable():
            try:
                found.append(await self._exchange.ask(endpoint, request, self._limit_s, False))
            except TransportError as error:
                self._endpoints.record_failure(endpoint, error)
            except RpcError as error:
                found.append(error)
        return found

    async def head(self, proves: Callable[[Header], bool | None] = proves_nothing) -> Header:
        """Return the newest block from the first usable endpoint.

        Args:
            proves: see `Request`.

        Raises:
            ChainUnavailableError, RpcError: see `call`.
        """
        await self._probe_when_due()
        for _ in self._endpoints.all:
            answer = await self.answer(lambda _: _newest(proves))
            header: Header = answer.result
            answer.endpoint.record_head(header.number, time.monotonic())
            if not self._endpoints.lags(answer.endpoint):
                self._head_source = answer.endpoint
                return header
        raise self._unavailable()

    def candidates(self) -> list[Endpoint]:
        """Return the endpoints that a request would try now, in this order."""
        return self._endpoints.candidates(_PATIENCE_S, (), None)

    def has_other_than(self, endpoint: Endpoint) -> bool:
        """Return whether another endpoint is usable now."""
        return any(other is not endpoint for other in self._endpoints.usable())

    def report_contradiction(self, reason: str) -> None:
        """Mark the endpoint of the last head as failed, because later answers contradict it.

        With only one endpoint this does nothing.
        """
        if self._head_source is not None and len(self._endpoints.all) > 1:
            self._endpoints.record_failure(self._head_source, WrongAnswerError(reason))

    def report_omission(self, endpoint: Endpoint, reason: str) -> None:
        """Mark an endpoint as failed, because it omitted data that another answer had.

        With only one endpoint this only writes a log line.
        """
        if len(self._endpoints.all) == 1:
            log.info("endpoint %s: %s", endpoint.name, reason)
        elif not endpoint.is_paused(time.monotonic()):
            self._endpoints.record_failure(endpoint, WrongAnswerError(reason))

    def status(self) -> list[EndpointStatus]:
        """Return the status of all endpoints, in the order of the settings."""
        return self._endpoints.status()

    def redacted(self, text: str) -> str:
        """Remove secret parts of the endpoints' addresses from a text, and shorten it."""
        for secret in self._secrets:
            text = text.replace(secret, "...")
        return text[:_SHOWN_CHARACTERS]

    async def close(self) -> None:
        """Close all connections."""
        for endpoint in self._endpoints.all:
            await endpoint.queue.close()

    def _note_answering(self, endpoint: Endpoint, changes: int) -> None:
        """Count a fail-over when the answer comes from another endpoint than the last answer.

        `changes` is the value of `_changes` when the request was sent. If another request has
        caused a fail-over since then, this answer shows an earlier state and is ignored.
        """
        if endpoint is self._current or changes != self._changes:
            return
        if self._current is not None:
            metrics.add(metrics.CHAIN_FAILOVERS)
            log.info("chain %d: failed over to endpoint %s", self.chain_id, endpoint.name)
        self._current = endpoint
        self._changes += 1

    def _unavailable(self) -> ChainUnavailableError:
        reasons = [f"{s.name}: {s.reason or 'no answer'}" for s in self.status()]
        return ChainUnavailableError(chain=self.chain_id, reason="; ".join(reasons))

    async def _probe_when_due(self) -> None:
        """Ask all endpoints for their heads every `probe_s`, to detect endpoints that lag."""
        now = time.monotonic()
        if len(self._endpoints.all) == 1 or now - self._probed_at < self._probe_s:
            return
        self._probed_at = now
        asked = [e for e in self._endpoints.all if not e.is_paused(now)]
        request = _newest(proves_nothing)
        asking = (self._exchange.ask(e, request, self._limit_s, False) for e in asked)
        results = await asyncio.gather(*asking, return_exceptions=True)
        for endpoint, result in zip(asked, results, strict=True):
            if isinstance(result, Header):
                endpoint.record_head(result.number, time.monotonic())
            elif isinstance(result, TransportError):
                self._endpoints.record_failure(endpoint, result, now)
            elif isinstance(result, BaseException) and not isinstance(result, RpcError):
                raise result


def _newest(proves: Callable[[Header], bool | None]) -> Request:
    params = ["latest", False]
    return Request("eth_getBlockByNumber", params, read_header, proves)
