"""The counts of a simulation, and their display."""

from __future__ import annotations

import pytest

from fieldbrook.cli.remote.simulation.display import table
from fieldbrook.cli.remote.simulation.figures import Tally
from fieldbrook.device import Accepted, HandlerResult, Later, Refused


def test_every_event_that_was_sent_is_committed_refused_or_waiting() -> None:
    tally = Tally()
    for _ in range(10):
        tally.sent()
    for _ in range(5):
        tally.committed(Accepted(), 0.010)
    tally.committed(Accepted((HandlerResult("1", -1, "trapped"),)), 0.010)
    tally.refused(Refused(404, "StrategyNotFound"))
    tally.refused(Refused(404, "StrategyNotFound"))
    tally.refused(Refused(401, "InvalidEventToken"))
    tally.has_to_wait(Later("503 ServiceUnavailable"))
    shown = tally.read(2.0)
    assert (shown.sent, shown.committed, shown.waiting, shown.retries) == (10, 6, 1, 1)
    assert shown.failed_handlers == 1
    assert shown.refused == {"StrategyNotFound": 2, "InvalidEventToken": 1}
    assert tally.read(2.0, is_over=True).per_s == 3.0
    assert shown.as_json()["unanswered"] == 1


def test_percentiles_are_right_within_three_percent() -> None:
    tally = Tally()
    for ms in range(1, 1_001):
        tally.committed(Accepted(), ms / 1000)
    shown = tally.read(1.0)
    assert shown.p50_ms == pytest.approx(500, rel=0.03)
    assert shown.p99_ms == pytest.approx(990, rel=0.03)
    assert Tally().read(1.0).p99_ms is None


def test_the_rate_is_that_of_the_last_seconds_while_it_runs() -> None:
    tally = Tally()
    for second in range(20):
        if second < 10:
            for _ in range(100):
                tally.committed(Accepted(), 0.001)
        shown = tally.read(float(second))
    assert shown.per_s == 0.0
    assert tally.read(20.0, is_over=True).per_s == 50.0


def test_reasons_that_a_server_makes_up_do_not_fill_the_memory_or_steer_the_terminal() -> None:
    tally = Tally()
    for number in range(1_000):
        tally.refused(Refused(400, f"\x1b[2J{number}"))
    shown = tally.read(1.0)
    assert len(shown.refused) <= 51
    assert sum(shown.refused.values()) == 1_000
    assert all("\x1b" not in line for line in table(shown, 1.0))
