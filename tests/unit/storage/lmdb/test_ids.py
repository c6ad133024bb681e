"""Identifiers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.errors import StoreError
from fieldbrook.security.tokens import PUBLISHER_TOKEN_LIMIT, issue_publisher_token
from fieldbrook.storage.lmdb.ids import EPOCH_MS, LIMIT, from_key, next_id, to_key

YEAR_MS = 365 * 86_400_000
times = st.integers(min_value=0, max_value=EPOCH_MS + 200 * YEAR_MS)


@given(st.lists(times, min_size=1, max_size=50))
def test_ids_grow_whatever_the_clock_does(clock: list[int]) -> None:
    last = 0
    for now_ms in clock:
        following = next_id(last, now_ms)
        assert last < following < LIMIT
        last = following


def test_more_ids_in_one_millisecond_than_its_sequence_holds_are_still_distinct() -> None:
    last, given = 0, set()
    for _ in range(5_000):
        last = next_id(last, EPOCH_MS + 1_000)
        given.add(last)
    assert len(given) == 5_000


def test_a_clock_before_the_epoch_still_yields_ids() -> None:
    assert next_id(0, 0) == 1


def test_ids_that_are_used_up_are_an_error_and_do_not_wrap() -> None:
    with pytest.raises(StoreError, match="used up"):
        next_id(LIMIT - 1, EPOCH_MS)


@given(st.integers(0, LIMIT - 1), st.integers(0, LIMIT - 1))
def test_keys_sort_as_their_ids_do(one: int, other: int) -> None:
    assert (to_key(one) < to_key(other)) == (one < other)
    assert from_key(to_key(one)) == one


@given(st.integers(EPOCH_MS + YEAR_MS, EPOCH_MS + 60 * YEAR_MS))
def test_the_token_of_a_publisher_fits_the_array_of_the_firmware(now_ms: int) -> None:
    token = issue_publisher_token(b"k" * 32, next_id(0, now_ms))
    assert len(token) <= PUBLISHER_TOKEN_LIMIT
