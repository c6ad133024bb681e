"""The size of the next range of blocks."""

from __future__ import annotations

import pytest

from fieldbrook.chain.blocks.ranges import BlockRange


@pytest.mark.parametrize("limit", [1, 10, 500, 2_000, 10_000])
def test_a_range_finds_the_size_an_endpoint_takes_with_few_refusals(limit: int) -> None:
    window, done, refused = BlockRange(), 0, 0
    for _ in range(400):
        if window.size > limit:
            refused += 1
            assert window.record_refusal(window.size)
        else:
            done += window.size
            window.record_success(window.size, 0)
    assert done > limit * 400 * 0.45
    assert refused < 60


def test_one_block_that_is_too_much_cannot_be_split() -> None:
    window = BlockRange(first=1)
    assert not window.record_refusal(1)
    assert window.size == 1
