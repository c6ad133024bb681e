"""Throttling of clients that guess passwords."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.errors import TooManyAttemptsError, from_wire, to_wire
from fieldbrook.gateway.management.sign_in.throttle import (
    PER_NAME,
    PER_PEER,
    Buckets,
    Rate,
    SignInThrottle,
)


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def failures(throttle: SignInThrottle, name: str, peer: str) -> int:
    """Return how many attempts are allowed before one is refused."""
    for count in range(1_000):
        try:
            throttle.attempt(name, peer)
        except TooManyAttemptsError:
            return count
    raise AssertionError("nothing was refused")


def test_a_name_is_guessed_a_few_times_whatever_the_address() -> None:
    clock = Clock()
    throttle = SignInThrottle(clock)
    for n in range(PER_NAME.burst):
        throttle.attempt("ada", f"10.0.0.{n}")
    with pytest.raises(TooManyAttemptsError) as caught:
        throttle.attempt("ada", "10.0.0.99")
    assert caught.value.retry_after_s == PER_NAME.seconds_each
    clock.now += PER_NAME.seconds_each
    throttle.attempt("ada", "10.0.0.99")
    with pytest.raises(TooManyAttemptsError):
        throttle.attempt("ada", "10.0.0.99")


def test_an_address_guesses_a_few_times_whatever_the_name() -> None:
    throttle = SignInThrottle(Clock())
    for n in range(PER_PEER.burst):
        throttle.attempt(f"user-{n}", "10.0.0.1")
    with pytest.raises(TooManyAttemptsError):
        throttle.attempt("another", "10.0.0.1")
    throttle.attempt("another", "10.0.0.2")


def test_the_addresses_of_one_network_of_ipv6_count_as_one() -> None:
    throttle = SignInThrottle(Clock())
    for n in range(PER_PEER.burst):
        throttle.attempt(f"user-{n}", f"2001:db8::{n:x}")
    with pytest.raises(TooManyAttemptsError):
        throttle.attempt("another", "2001:db8::ffff%eth0")
    throttle.attempt("another", "2001:db8:0:1::1")


def test_clients_of_ipv4_at_a_port_of_both_versions_count_each_for_itself() -> None:
    throttle = SignInThrottle(Clock())
    for n in range(PER_PEER.burst):
        throttle.attempt(f"user-{n}", "::ffff:198.51.100.1")
    with pytest.raises(TooManyAttemptsError):
        throttle.attempt("another", "198.51.100.1")
    throttle.attempt("another", "::ffff:198.51.100.2")


def test_who_knows_the_password_is_never_slowed_down() -> None:
    throttle = SignInThrottle(Clock())
    for _ in range(1_000):
        throttle.attempt("ada", "10.0.0.1")
        throttle.succeeded("ada", "10.0.0.1")


def test_others_failures_do_not_lock_out_an_address_that_logged_in_before() -> None:
    throttle = SignInThrottle(Clock())
    throttle.attempt("ada", "10.0.0.1")
    throttle.succeeded("ada", "10.0.0.1")
    assert failures(throttle, "ada", "10.6.6.6") == PER_NAME.burst
    throttle.attempt("ada", "10.0.0.1")
    assert failures(throttle, "ada", "10.0.0.1") == PER_NAME.burst - 1


def test_memory_is_bounded() -> None:
    buckets = Buckets(Rate(1, 60), Clock(), limit=100)
    for key in range(1_000):
        buckets.take(key)
    assert len(buckets) == 100
    assert buckets.wait_s(999) == 60
    assert buckets.wait_s(0) == 0


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 20)), max_size=60))
def test_never_more_than_the_burst_and_what_time_gave_back(
    steps: list[tuple[bool, float]],
) -> None:
    clock = Clock()
    rate = Rate(burst=5, seconds_each=3)
    buckets = Buckets(rate, clock)
    taken = 0
    for right, seconds in steps:
        clock.now += seconds
        if buckets.wait_s("k") > 0:
            continue
        buckets.take("k")
        taken += 1
        if right:
            buckets.give_back("k")
            taken -= 1
    allowed = rate.burst + (clock.now - 1_000.0) / rate.seconds_each
    assert taken <= allowed + 1e-6


def test_the_error_keeps_its_time_between_processes() -> None:
    error = from_wire(*to_wire(TooManyAttemptsError(wait_s=17)))
    assert (error.retry_after_s, error.status, error.key) == (17, 429, "TooManyAttempts")
