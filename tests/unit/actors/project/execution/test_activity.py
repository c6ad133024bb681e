"""The activity that a project reports."""

from __future__ import annotations

import time

import pytest

from fieldbrook.actors.project.execution.activity import STATEMENT, Activity


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def test_a_handler_that_waits_for_a_statement_is_not_hung(clock: Clock) -> None:
    activity = Activity()
    activity.busy_since = clock.now
    clock.now += 4
    assert activity.current() == (4, "", 0)
    activity.begin_statement()
    clock.now += 9
    assert activity.current() == (0, STATEMENT, 9)
    assert activity.since == 100, "to others it is one step, which may be slow"
    activity.end_statement()
    clock.now += 1
    assert activity.current() == (5, "", 0)
    activity.begin_statement()
    clock.now += 2
    activity.end_statement()
    assert activity.current() == (5, "", 0)


def test_the_next_run_begins_without_the_statements_of_the_last_one(clock: Clock) -> None:
    activity = Activity()
    activity.busy_since = clock.now
    activity.begin_statement()
    clock.now += 9
    activity.end_statement()
    activity.enter("commit")
    clock.now += 1
    assert activity.current() == (0, "commit", 1)
    activity.enter("")
    activity.busy_since = clock.now
    clock.now += 3
    assert activity.current() == (3, "", 0)
    activity.begin_statement()
    activity.end_statement()
    clock.now += 1
    assert activity.current() == (4, "", 0)
