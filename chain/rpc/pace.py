"""The request rate of one endpoint: rises while the endpoint answers, and falls when the endpoint
refuses requests as too many.

Endpoints do not announce their limits. They refuse requests above the limit with status 429 or an
error in JSON-RPC, sometimes with the time to wait. After a refusal, the rate falls to a fraction of
the rate that was answered before (multiplicative decrease). It rises with each answer (additive
increase): slowly up to the refused rate, and faster beyond it.

Few answers in the second before a refusal do not prove a low limit: the process may have just
started, or may have paused after another refusal, while the endpoint still counts earlier requests.
One refusal therefore reduces the rate to no less than about a third, and further refusals that
follow at once do not reduce it again.
"""

from __future__ import annotations

import math
from collections import deque

_DECREASE = 0.7
# Requests per second, for each answer: up to the pace that was refused, beyond it, and while
# nothing is known of the limit.
_RISE, _RISE_BEYOND, _RISE_UNKNOWN = 0.04, 0.25, 0.7
_FIRST_RATE, _LEAST_RATE = 5.0, 0.5
_FREE_RATE = 500.0  # from here on the endpoint counts as one without a limit
_RESTS_S = (0.25, 0.5, 1.0, 2.0, 5.0)  # by the number of consecutive refusals
_SAME_REFUSALS = 3  # so many in a row are one: the endpoint counts by the second
_SEEN_S = 1.0
_UNKNOWN = 0.0


class Pace:
    """How often one endpoint may be asked; times are seconds of a monotonic clock.

    Attributes:
        rate: requests per second; infinite until the endpoint refuses one.
    """

    def __init__(self) -> None:
        self.rate = math.inf
        self._refused_rate = math.inf
        self._next = -math.inf
        self._refused_at = -math.inf
        self._refusals = 0  # consecutive
        self._answers: deque[float] = deque()  # times of the answers in the last second

    def wait_s(self, now: float) -> float:
        """Return how long to wait before the next request."""
        return max(0.0, self._next - now)

    def take(self, now: float, requests: int = 1) -> None:
        """Record that requests are sent now."""
        self._next = max(now, self._next) + requests / self.rate

    def record_answer(self, now: float) -> None:
        """Record an answered request."""
        self._refusals = 0
        self._answers.append(now)
        while self._answers[0] < now - _SEEN_S:
            self._answers.popleft()
        if self.rate < math.inf:
            self.rate += self._rise()
            self.rate = self.rate if self.rate < _FREE_RATE else math.inf

    def record_refusal(self, now: float, began: float, rest_s: float = 0.0) -> None:
        """Record a request that the endpoint refused because there were too many.

        Args:
            now: the time of the refusal.
            began: when the request was sent. Requests that were sent before the last refusal
                arrived belong to it, and do not make the pace fall again.
            rest_s: the time that the endpoint asks to wait.
        """
        if began >= self._refused_at:
            if not 0 < self._refusals < _SAME_REFUSALS:
                self._fall(now)
            self._refused_at = now
            rest_s = max(rest_s, _RESTS_S[min(self._refusals, len(_RESTS_S) - 1)])
            self._refusals += 1
        self._next = max(self._next, now + rest_s)

    def _fall(self, now: float) -> None:
        while self._answers and self._answers[0] < now - _SEEN_S:
            self._answers.popleft()
        seen, first = len(self._answers), self.rate == math.inf
        guess = _FIRST_RATE if first else self.rate / 2
        refused_rate = max(_LEAST_RATE, min(self.rate, max(seen, guess)))
        self.rate = max(_LEAST_RATE, _DECREASE * refused_rate)
        self._refused_rate = _UNKNOWN if first and seen < guess else refused_rate

    def _rise(self) -> float:
        if self._refused_rate == _UNKNOWN:
            return _RISE_UNKNOWN
        return _RISE_BEYOND if self.rate >= self._refused_rate else _RISE
