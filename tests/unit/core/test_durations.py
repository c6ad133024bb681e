"""Durations as Go writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "ms", "printed"),
    [
        ("10m", 600_000, "10m0s"),
        ("1h30m", 5_400_000, "1h30m0s"),
        ("90s", 90_000, "1m30s"),
        ("1.5s", 1_500, "1.5s"),
        (".5h", 1_800_000, "30m0s"),
        ("250ms", 250, "250ms"),
        ("1s1s", 2_000, "2s"),
        ("1us", 0, "0s"),
        ("1500000ns", 1, "1ms"),
        ("24h", 86_400_000, "24h0m0s"),
        ("0", 0, "0s"),
    ],
)
def test_a_duration_is_read_and_printed_as_go_does(text: str, ms: int, printed: str) -> None:
    assert parse_duration(text) == ms
    assert format_duration(ms) == printed


@pytest.mark.parametrize(
    "text", ["", "5", "-5s", "5 s", "m", "1d", "1h-3m", "٣s", ".s", "1s\n", "1s" * 33]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@given(st.integers(0, 10**12))
def test_what_is_printed_reads_back(ms: int) -> None:
    assert parse_duration(format_duration(ms)) == ms
