"""The size of the next range of blocks."""

from __future__ import annotations

import pytest

from fieldbrook.chain.blocks.ranges import BlockRange, named_size

REFUSED = "limit exceeded"
_NAMED = (1_000, 496)


@pytest.mark.parametrize("limit", [1, 10, 500, 2_000, 10_000])
def test_a_range_finds_the_size_an_endpoint_takes_with_few_refusals(limit: int) -> None:
    window, done, refused = BlockRange(), 0, 0
    for _ in range(400):
        if window.size > limit:
            refused += 1
            window.record_refusal(window.size, REFUSED)
        else:
            done += window.size
            window.record_success(window.size, 0)
    assert done > limit * 400 * 0.45
    assert refused < 60


def test_the_largest_size_is_never_exceeded() -> None:
    window = BlockRange(most=300)
    assert window.size == 300
    for _ in range(100):
        window.record_success(300, 0)
    assert window.size == 300


def test_one_block_is_the_least() -> None:
    window = BlockRange(first=2)
    window.record_refusal(2, REFUSED)
    window.record_refusal(1, REFUSED)
    assert window.size == 1


def test_refusals_of_ranges_that_were_asked_for_together_count_once() -> None:
    window = BlockRange(first=1_000)
    window.record_refusal(1_000, REFUSED)
    window.record_refusal(500, REFUSED)
    for _ in range(8):
        window.record_refusal(1_000, REFUSED)
    assert window.size == 250


def test_a_range_that_is_not_answered_twice_is_made_smaller_and_a_small_one_later() -> None:
    window = BlockRange(first=1_000)
    window.record_refusal(1_000)
    assert window.size == 1_000, "a single failure is no sign of its size"
    window.record_refusal(1_000)
    assert window.size == 500
    proven = BlockRange(first=1_000)
    proven.record_success(1_000, 5_000)
    for _ in range(3):
        proven.record_refusal(1_000)
    assert proven.size == 1_000, "it was answered before"
    proven.record_refusal(1_000)
    assert proven.size == 500
    small = BlockRange(first=10)
    for _ in range(5):
        small.record_refusal(10)
    assert small.size == 10
    small.record_refusal(10)
    assert small.size == 5


@pytest.mark.parametrize("limit", [10, 800, 2_048])
def test_a_size_that_a_refusal_names_is_used_at_once_and_exceeded_seldom(limit: int) -> None:
    window, refused = BlockRange(), 0
    for _ in range(1_000):
        if window.size > limit:
            refused += 1
            window.record_refusal(window.size, f"block range exceeds the limit of {limit}")
            assert window.size == limit
        else:
            window.record_success(window.size, 0)
    assert refused < 10


def test_refusals_that_name_ever_other_sizes_end_in_a_size_of_one() -> None:
    window = BlockRange(first=20_000)
    for _ in range(28):
        window.record_refusal(window.size, f"block range: at most {window.size - 1}")
    assert window.size == 1


@pytest.mark.parametrize(
    ("text", "blocks", "named"),
    [
        ("eth_getLogs is limited to a 10,000 range", 20_000, 10_000),
        ("requested too many blocks from 1 to 3000, maximum is set to 2048", 3_000, 2_048),
        (
            "query returned more than 10000 results. Try with this block range [0x10, 0x1ff].",
            *_NAMED,
        ),
        ("query exceeds max results 20000, retry with the range 16-511", *_NAMED),
        ("up to a 2K block range and no limit on the response size", 5_000, 2_000),
        ("up to a 10 block range. this block range should work: [0x12, 0x1b]", 1_000, 10),
        ("maximum [from, to] blocks distance: 10000", 20_000, 10_000),
        ("block range = 5120, max block range = 5000", 5_120, 5_000),
        ("Try with this block range [0x10, 0x5dc]", 1_000, None),
        ("Try with this block range [0x10, 0x2]", 1_000, None),
        ("query exceeds max block range 5000", 1_000, None),
        ("limit exceeded: 500", 1_000, None),
        ("block range too wide: " + "9" * 10_000, 1_000, None),
        ("", 1_000, None),
    ],
)
def test_the_size_that_a_refusal_names(text: str, blocks: int, named: int | None) -> None:
    assert named_size(text, blocks) == named
