"""The rate of requests to an endpoint that limits them."""

from __future__ import annotations

import math
from collections import deque

import pytest

from fieldbrook.chain.rpc.pace import Pace


class Endpoint:
    """Answers a number of requests per second, and refuses more; time passes during pauses."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.now = 0.0
        self.answered = self.refused = 0
        self._taken: deque[float] = deque()

    def ask(self, pace: Pace, latency_s: float = 0.01) -> None:
        self.now += pace.wait_s(self.now)
        pace.record_sent(self.now)
        began = self.now
        self.now += latency_s
        while self._taken and self._taken[0] <= self.now - 1.0:
            self._taken.popleft()
        if len(self._taken) < self.rate:
            self._taken.append(self.now)
            self.answered += 1
            pace.record_answer(self.now)
        else:
            self.refused += 1
            pace.record_refusal(self.now, began)


@pytest.mark.parametrize("rate", [1, 5, 10, 25, 80])
def test_an_endpoint_that_limits_requests_is_asked_nearly_as_often_as_it_allows(rate: int) -> None:
    endpoint, pace = Endpoint(rate), Pace()
    while endpoint.now < 120.0:
        endpoint.ask(pace)
    assert endpoint.answered > 0.6 * rate * 120
    assert endpoint.refused < 0.1 * endpoint.answered + 10


def test_a_limit_that_is_raised_is_found() -> None:
    endpoint, pace = Endpoint(5), Pace()
    while endpoint.now < 30.0:
        endpoint.ask(pace)
    endpoint.rate = 60
    while endpoint.now < 60.0:
        endpoint.ask(pace)
    endpoint.answered = 0
    while endpoint.now < 70.0:
        endpoint.ask(pace)
    assert endpoint.answered > 0.5 * 60 * 10


def test_an_endpoint_without_a_limit_is_not_held_up() -> None:
    pace = Pace()
    for _ in range(1_000):
        pace.record_sent(0.0)
        assert pace.wait_s(0.0) == 0.0
        pace.record_answer(0.0)
    assert pace.rate == math.inf


def test_the_time_that_an_endpoint_names_is_waited_for() -> None:
    pace = Pace()
    pace.record_refusal(now=10.0, began=9.0, rest_s=60.0)
    assert pace.wait_s(10.0) == 60.0


def test_requests_that_were_sent_before_a_refusal_make_the_pace_fall_once() -> None:
    pace = Pace()
    for number in range(100):
        pace.record_answer(number / 100)
    pace.record_refusal(now=1.0, began=0.9)
    rate = pace.rate
    for _ in range(7):
        pace.record_refusal(now=1.01, began=0.95)
    assert pace.rate == rate
    assert 60 < rate < 80


def test_each_refusal_in_a_row_is_followed_by_a_longer_rest() -> None:
    pace, now, rests = Pace(), 0.0, []
    for _ in range(8):
        pace.record_refusal(now, began=now)
        rests.append(pace.wait_s(now))
        now += rests[-1]
    assert rests == [0.25, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0, 5.0]
    assert pace.rate == 0.5


@pytest.mark.parametrize("rate", [10, 33, 80])
def test_a_limit_is_found_soon_by_a_process_that_starts_while_it_is_used_up(rate: int) -> None:
    endpoint, pace = Endpoint(rate), Pace()
    endpoint._taken.extend([0.0] * rate)  # requests of an earlier process
    while endpoint.now < 10.0:
        endpoint.ask(pace)
    assert endpoint.answered > 0.3 * rate * 10
    assert endpoint.refused < 0.1 * endpoint.answered + 10
