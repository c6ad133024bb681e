"""The endpoints of a chain: health, pauses after failures, and the order in which to ask them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from fieldbrook.chain.rpc.endpoint_url import public_part
from fieldbrook.chain.rpc.request_queue import RequestQueue
from fieldbrook.chain.rpc.transport import BusyError, Transport, TransportError, WrongAnswerError
from fieldbrook.observability import metrics

log = logging.getLogger(__name__)

HEADS_KEPT_S = 60.0  # an older head does not show that another endpoint lags
_LONG_WAIT_S = 0.4  # a request that would wait longer goes to another endpoint, if there is one
_PAUSE_WAITED_S = 2.0  # a request waits for the end of a pause only if it is no longer than this
_WARNED_FAILURES = 3  # consecutive failures before the first warning
_OTHER_CHAIN_PAUSE_S = 30.0
_LEAST_LIMIT_S, _LEAST_URGENT_LIMIT_S = 2.0, 0.7
_LIMIT_IN_MEDIANS = 4  # time limit as a multiple of the median latency, if another endpoint exists
_PAUSES_S = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # by the number of consecutive failures
_ALONE_PAUSES_S = (0.0, 0.1, 0.2)  # the first pauses if the chain has only one endpoint


class OtherChainError(TransportError):
    """The endpoint belongs to another chain."""


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
        self.name = public_part(url)
        self.queue = RequestQueue(transport)
        self.checked_at = float("-inf")
        self.head = 0
        self.head_at = float("-inf")
        self.failures = 0  # total
        self.consecutive_failures = 0
        self.failed_at = float("-inf")
        self.paused_until = float("-inf")
        self.reason = ""

    def record_failure(
        self, error: TransportError, reason: str, *, began: float, now: float, alone: bool = False
    ) -> None:
        """Record a failure and pause the endpoint, longer after each consecutive failure.

        Args:
            error: the failure.
            reason: its text without secrets.
            began: when the request was sent. A request that was sent before the last failure
                failed in the same outage, so it does not count as another consecutive failure.
            now: the time of the failure.
            alone: whether this is the chain's only endpoint; its pauses are shorter.
        """
        self.failures += 1
        self.head_at = float("-inf")
        self.reason = reason
        self.checked_at = float("-inf")
        if isinstance(error, OtherChainError):
            self.paused_until = now + _OTHER_CHAIN_PAUSE_S
        if began <= self.failed_at:
            return
        self.failed_at = now
        self.consecutive_failures += 1
        pauses_s = (*_ALONE_PAUSES_S, *_PAUSES_S[1:]) if alone else _PAUSES_S
        pause_s = pauses_s[min(self.consecutive_failures, len(pauses_s) - 1)]
        self.paused_until = max(self.paused_until, now + pause_s)
        # Single requests fail on a normal network, but a wrong answer has no harmless cause.
        warned = 1 if isinstance(error, WrongAnswerError | OtherChainError) else _WARNED_FAILURES
        level = logging.WARNING if self.consecutive_failures == warned else logging.INFO
        log.log(level, "endpoint %s: %s", self.name, reason)

    def record_busy(self, reason: str, now: float) -> None:
        """Record that the endpoint limits requests. Its queue already waits as long as asked."""
        if self.queue.pace.wait_s(now) > _LONG_WAIT_S and not self.reason:
            self.reason = reason
            log.warning("endpoint %s: %s", self.name, reason)

    def wait_s(self, now: float, *, urgent: bool = False) -> float:
        """Estimate how long a request would wait for the end of a pause or for its turn."""
        return max(self.paused_until - now, self.queue.wait_s(now, urgent=urgent))

    def is_paused(self, now: float) -> bool:
        """Return whether new requests should not go to the endpoint yet."""
        return self.paused_until > now or self.queue.wait_s(now) > _LONG_WAIT_S

    def record_head(self, number: int, now: float) -> None:
        """Record the number of the endpoint's newest block."""
        self.head, self.head_at = number, now

    def lags(self, endpoints: Iterable[Endpoint], lag_blocks: int, now: float) -> bool:
        """Return whether a recent head of another endpoint is over `lag_blocks` blocks higher."""
        if self.head_at == float("-inf"):
            return False
        since = now - HEADS_KEPT_S
        heads = [e.head for e in endpoints if e is not self and e.head_at > since]
        return self.head < max(heads, default=0) - lag_blocks

    def record_success(self) -> None:
        """Record an answer: end the series of consecutive failures."""
        if self.consecutive_failures >= _WARNED_FAILURES:
            log.info("endpoint %s answers again", self.name)
        self.consecutive_failures, self.reason = 0, ""


Prefers = Callable[[Endpoint], bool]
"""Returns whether an endpoint is preferred for a request. Preferred endpoints are asked before all
others, also before those with a shorter queue."""


class Endpoints:
    """The endpoints of one chain.

    Args:
        endpoints: the preferred one first.
        lag_blocks: how many blocks an endpoint in use may lag behind another one.
        limit_s: the longest time limit of a request.
        redacted: removes secrets from a text.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        lag_blocks: int,
        limit_s: float,
        redacted: Callable[[str], str],
    ) -> None:
        self.all = list(endpoints)
        self._lag_blocks = lag_blocks
        self._limit_s = limit_s
        self._redacted = redacted

    def usable(self) -> list[Endpoint]:
        """Return the endpoints that are neither paused nor behind, in the order of the settings."""
        now = time.monotonic()
        return [e for e in self.all if not e.is_paused(now) and not self.lags(e)]

    def candidates(
        self,
        left_s: float,
        excluded: Collection[Endpoint],
        last: Endpoint | None,
        *,
        urgent: bool = False,
        prefers: Prefers | None = None,
    ) -> list[Endpoint]:
        """Return the endpoints that can answer within `left_s`, in the order to ask them.

        Args:
            left_s: the time that is left for the request.
            excluded: endpoints that are not asked again for this request.
            last: the endpoint that is asked after all others, if any.
            urgent: whether a handler waits for the request.
            prefers: returns whether an endpoint is preferred; None if all are equal.
        """
        now = time.monotonic()

        def rank(endpoint: Endpoint) -> tuple[bool, bool, float]:
            wait_s = endpoint.wait_s(now, urgent=urgent)
            not_preferred = prefers is not None and not prefers(endpoint)
            return endpoint is last, not_preferred, wait_s if wait_s > _LONG_WAIT_S else 0.0

        found = [
            e
            for e in self.all
            if e not in excluded
            and not self.lags(e)
            and e.paused_until - now <= _PAUSE_WAITED_S
            and e.wait_s(now, urgent=urgent) < left_s
        ]
        return sorted(found, key=rank)

    def limit_s(self, endpoint: Endpoint, left_s: float, *, urgent: bool, alone: bool) -> float:
        """Return the time limit of a request to an endpoint, in seconds.

        If no other endpoint could be asked (`alone`), the endpoint gets all the time. Otherwise
        it gets a multiple of its median latency. For a handler's request (`urgent`) it gets at
        most half of the time that is left, so that another endpoint can be asked.
        """
        usual_s = _LIMIT_IN_MEDIANS * endpoint.queue.latency_s
        if urgent and (alone or not usual_s):
            return left_s if alone else left_s / 2
        if urgent:
            return max(_LEAST_URGENT_LIMIT_S, min(usual_s, left_s / 2))
        return self._limit_s if alone else min(self._limit_s, max(_LEAST_LIMIT_S, usual_s))

    def lags(self, endpoint: Endpoint) -> bool:
        """Return whether an endpoint's head is too far behind the head of another endpoint."""
        return endpoint.lags(self.all, self._lag_blocks, time.monotonic())

    def record_failure(
        self, endpoint: Endpoint, error: TransportError, began: float = float("inf")
    ) -> None:
        """Record that an endpoint gave no usable answer, or limits requests."""
        reason, now = self._redacted(str(error)), time.monotonic()
        if isinstance(error, BusyError):
            endpoint.record_busy(reason, now)
            return
        if isinstance(error, WrongAnswerError | OtherChainError):
            metrics.add(metrics.CHAIN_WRONG_ANSWERS)
        alone = len(self.all) == 1
        endpoint.record_failure(error, reason, began=began, now=now, alone=alone)

    def status(self) -> list[EndpointStatus]:
        """Return the status of all endpoints, in the order of the settings."""
        return [
            EndpointStatus(
                e.name,
                e.head,
                e.failures,
                e.reason or ("its head lags behind other endpoints" if self.lags(e) else ""),
            )
            for e in self.all
        ]
