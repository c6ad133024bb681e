"""Bounds on what goes on at the same time."""

from __future__ import annotations

import pytest

from fieldbrook.errors import TooManyRequestsError
from fieldbrook.gateway.management.workers import FOLLOWERS_LIMIT, Seats, Workers


def test_a_seat_is_free_again_when_its_block_ends_however_it_does() -> None:
    seats = Seats("followers", 1)
    for _ in range(3):
        with pytest.raises(KeyError), seats.taken():
            with pytest.raises(TooManyRequestsError, match="1 followers"), seats.taken():
                pytest.fail("there is but one")
            raise KeyError


def test_a_gateway_has_so_many_followers_and_no_more() -> None:
    seats = Workers().followers
    held = [seats.taken() for _ in range(FOLLOWERS_LIMIT)]
    for one in held:
        one.__enter__()
    with pytest.raises(TooManyRequestsError), seats.taken():
        pytest.fail("all are taken")
    for one in held:
        one.__exit__(None, None, None)
    with seats.taken():
        assert True
