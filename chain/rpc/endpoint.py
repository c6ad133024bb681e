"""One endpoint of a chain: its address, its health, and when it may be asked again."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from fieldbrook.chain.rpc.endpoint_url import public_part
from fieldbrook.chain.rpc.transport import Transport

log = logging.getLogger(__name__)

HEADS_KEPT_S = 60.0  # an older head does not show that another endpoint lags
_PAUSES_S = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # by the number of consecutive failures


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
        self.transport = transport
        self.checked_at = float("-inf")
        self.head = 0
        self.head_at = float("-inf")
        self.failures = 0  # total
        self.consecutive_failures = 0
        self.failed_at = float("-inf")
        self.paused_until = float("-inf")
        self.reason = ""

    def record_failure(
        self, reason: str, *, began: float, now: float, pause_s: float = 0.0
    ) -> None:
        """Record a failure and pause the endpoint, longer after each consecutive failure.

        A request that `began` before the last failure belongs to the same outage and does not
        count as another consecutive failure. `pause_s` is the least pause in seconds.
        """
        self.failures += 1
        self.head_at = float("-inf")
        self.reason = reason
        self.checked_at = float("-inf")
        if began <= self.failed_at:
            self.paused_until = max(self.paused_until, now + pause_s)
            return
        if not self.consecutive_failures:
            log.warning("endpoint %s: %s", self.name, reason)
        self.failed_at = now
        self.consecutive_failures += 1
        step = _PAUSES_S[min(self.consecutive_failures, len(_PAUSES_S) - 1)]
        self.paused_until = now + max(pause_s, step)

    def is_paused(self, now: float) -> bool:
        """Return whether the endpoint is not to be asked yet."""
        return self.paused_until > now

    def record_head(self, number: int, now: float) -> None:
        """Record the number of the endpoint's newest block."""
        self.head, self.head_at = number, now

    def lags(self, endpoints: Iterable[Endpoint], lag_blocks: int, now: float) -> bool:
        """Return whether its head is over `lag_blocks` behind a recent head of another one."""
        if self.head_at == float("-inf"):
            return False
        since = now - HEADS_KEPT_S
        heads = [e.head for e in endpoints if e is not self and e.head_at > since]
        return self.head < max(heads, default=0) - lag_blocks

    def record_success(self) -> None:
        """Record a success."""
        if self.consecutive_failures:
            log.info("endpoint %s: answers again", self.name)
        self.consecutive_failures, self.reason = 0, ""
