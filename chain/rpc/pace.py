"""Rate control for one endpoint: additive increase and multiplicative decrease (AIMD).

Endpoints do not announce their rate limits. They refuse requests above the limit with HTTP status
429 or a JSON-RPC error, sometimes with the time to wait. After a refusal, the rate falls to a
fraction of the rate that the endpoint answered before. It rises with each answer: slowly up to the
refused rate, and faster beyond it.

Few answers in the second before a refusal do not prove a low limit. The process may have just
started, or may have paused after another refusal, while the endpoint still counts earlier requests.
Therefore one refusal never reduces the rate below about a third. Further refusals that follow at
once do not reduce it again.
"""

from __future__ import annotations

import math
from collections import deque

_DECREASE = 0.7
# How much each answer raises the rate, in requests per second: up to the refused rate, beyond it,
# and while the limit is unknown.
_RISE, _RISE_BEYOND, _RISE_UNKNOWN = 0.04, 0.25, 0.7
_FIRST_RATE, _LEAST_RATE = 5.0, 0.5
_FREE_RATE = 500.0  # at this rate the endpoint counts as one without a limit
_RESTS_S = (0.25, 0.5, 1.0, 2.0, 5.0)  # by the number of consecutive refusals
# Endpoints count requests per second, so one excess causes several refusals in a row. This number
# of consecutive refusals reduces the rate only once.
_SAME_REFUSALS = 3
_WINDOW_S = 1.0  # the time over which answers are counted
_UNKNOWN = 0.0


class Pace:
    """The request rate of one endpoint. All times are seconds of a monotonic clock.

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

    def record_sent(self, now: float, requests: int = 1) -> None:
        """Record that so many requests are sent now."""
        self._next = max(now, self._next) + requests / self.rate

    def record_answer(self, now: float) -> None:
        """Record an answered request."""
        self._refusals = 0
        self._answers.append(now)
        while self._answers[0] < now - _WINDOW_S:
            self._answers.popleft()
        if self.rate < math.inf:
            self.rate += self._rise()
            self.rate = self.rate if self.rate < _FREE_RATE else math.inf

    def record_refusal(self, now: float, began: float, rest_s: float = 0.0) -> None:
        """Record a refusal because of too many requests.

        Args:
            now: the time of the refusal.
            began: when the request was sent. If it was sent before the last refusal arrived,
                it exceeded the limit together with that request, and does not reduce the rate
                again.
            rest_s: the time that the endpoint asks to wait; 0 if it names none.
        """
        if began >= self._refused_at:
            if not 0 < self._refusals < _SAME_REFUSALS:
                self._fall(now)
            self._refused_at = now
            rest_s = max(rest_s, _RESTS_S[min(self._refusals, len(_RESTS_S) - 1)])
            self._refusals += 1
        self._next = max(self._next, now + rest_s)

    def _fall(self, now: float) -> None:
        while self._answers and self._answers[0] < now - _WINDOW_S:
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
