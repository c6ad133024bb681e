"""The clocks of two hosts, compared with heartbeats that take time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.cluster.clock_difference import ClockDifference, Difference

way = st.floats(0.0, 5.0)


@given(st.floats(-100.0, 100.0), way, way)
def test_the_true_difference_is_within_the_error(ahead_s: float, there: float, back: float) -> None:
    clock = ClockDifference()
    sent_at = 1_000.0
    clock.add(sent_at + ahead_s, sent_at + back, there + back)
    found = clock.best
    assert found is not None
    assert abs(found.seconds - ahead_s) <= found.error_s + 1e-6


def best(*samples: tuple[float, float, float]) -> Difference | None:
    clock = ClockDifference()
    for sample in samples:
        clock.add(*sample)
    return clock.best


def test_the_sample_with_the_shortest_round_trip_counts() -> None:
    assert best() is None
    paused, quick, slow = (100.0, 104.0, 8.0), (200.0, 200.1, 0.2), (300.0, 302.0, 4.0)
    found = best(paused, quick, slow)
    assert found is not None
    assert found.error_s == 0.1


def test_nothing_is_known_of_a_clock_after_a_silence() -> None:
    clock = ClockDifference()
    clock.add(200.0, 200.1, 0.2)
    clock.clear()
    assert clock.best is None


def test_a_long_way_is_not_taken_for_a_wrong_clock() -> None:
    assert not Difference(-4.0, 4.0).exceeds(1.0)
    assert Difference(-4.0, 0.1).exceeds(1.0)
    assert not Difference(0.9, 0.0).exceeds(1.0)
