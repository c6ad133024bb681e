"""When a project writes its store for pages that follow it."""

from __future__ import annotations

import pytest

from fieldbrook.actors.project.live_checkpoints import FEW_ROWS, LONGEST_S, SHARE, LiveCheckpoints


def test_many_rows_are_written_in_a_small_share_of_the_time() -> None:
    checkpoints = LiveCheckpoints()
    assert checkpoints.is_due(10_000, now=100.0)
    checkpoints.wrote(100.0, 100.004)
    again = 100.004 + SHARE * 0.004
    assert not checkpoints.is_due(FEW_ROWS + 1, again - 0.001)
    assert checkpoints.is_due(FEW_ROWS + 1, again + 0.001)


def test_few_rows_never_wait() -> None:
    checkpoints = LiveCheckpoints()
    checkpoints.wrote(100.0, 101.0)
    assert checkpoints.is_due(FEW_ROWS, 101.0)


@pytest.mark.parametrize("took_s", [0.5, 30.0])
def test_rows_wait_for_a_limited_time_however_slow_the_disk_is(took_s: float) -> None:
    checkpoints = LiveCheckpoints()
    checkpoints.wrote(0.0, took_s)
    assert checkpoints.is_due(10_000, took_s + LONGEST_S)
