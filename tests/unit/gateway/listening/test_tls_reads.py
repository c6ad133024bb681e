"""The limit of records on a TLS connection that carry no data."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.gateway.listening.tls_reads import (
    EMPTY_RECORDS,
    EMPTY_RECORDS_PER_S,
    Allowance,
    Records,
)


def test_more_records_without_data_than_the_limit_are_too_many() -> None:
    allowance = Allowance(0.0)
    assert allowance.has(EMPTY_RECORDS, 0.0)
    assert allowance.has(EMPTY_RECORDS, 0.0), "the same ones"
    assert not allowance.has(EMPTY_RECORDS + 1, 0.0)


def test_time_gives_records_without_data_back() -> None:
    allowance = Allowance(0.0)
    assert allowance.has(EMPTY_RECORDS, 0.0)
    assert allowance.has(EMPTY_RECORDS + 10 * EMPTY_RECORDS_PER_S, 10.0)
    assert not allowance.has(EMPTY_RECORDS + 11 * EMPTY_RECORDS_PER_S, 10.0)


def test_time_saves_no_more_than_the_limit() -> None:
    allowance = Allowance(0.0)
    assert not allowance.has(2 * EMPTY_RECORDS, 1_000_000.0)


@given(st.lists(st.binary(max_size=400), max_size=30), st.lists(st.integers(1, 40), min_size=1))
def test_records_end_where_their_heads_say_however_the_bytes_are_cut(
    bodies: list[bytes], sizes: list[int]
) -> None:
    stream = b"".join(b"\x17\x03\x03" + len(body).to_bytes(2) + body for body in bodies)
    records, at, number = Records(), 0, 0
    while at < len(stream):
        size = sizes[number % len(sizes)]
        for end in records.pieces(memoryview(stream)[at : at + size]):
            assert records.ended == _ended(bodies, at + end)
        at, number = at + size, number + 1
    assert records.ended == len(bodies)


def _ended(bodies: list[bytes], at: int) -> int:
    """Return how many records end within the first `at` bytes."""
    ends = itertools.accumulate(5 + len(body) for body in bodies)
    return sum(end <= at for end in ends)


def test_few_records_end_in_each_piece() -> None:
    stream = memoryview(b"\x17\x03\x03\x00\x01a" * 100)
    assert list(Records().pieces(stream)) == [192, 384, 576, 600]
