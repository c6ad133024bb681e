"""The board of health conditions, the clock watch, and the answers of the health routes."""

from __future__ import annotations

import logging

import pytest

from fieldbrook.observability import health
from fieldbrook.observability.health import Board, ClockWatch, Condition, NodeHealth, ProcessHealth


class Time:
    """The wall clock and the monotonic clock of a test."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return int(self.now * 1000) + 1_000_000


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def board(time: Time) -> Board:
    return Board(time.monotonic, time.now_ms, hold_s=5.0)


def test_a_condition_is_logged_once_when_it_is_raised_and_once_when_it_ends(
    board: Board, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        board.raise_("project:1", health.DISK_FULL, "no space")
    board.clear("project:1", health.DISK_FULL)
    time.now = 6
    board.end_cleared()
    assert [record.getMessage() for record in caplog.records] == [
        "project:1: disk_full: the disk is full (no space)",
        "project:1: disk_full has ended after 6 s",
    ]
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_a_condition_that_comes_and_goes_is_one_condition(
    board: Board, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(50):
        board.raise_("http:0", health.HUNG, "silent")
        time.now += 1
        board.clear("http:0", health.HUNG)
        time.now += 3
        board.end_cleared()
    assert len(caplog.records) == 1
    assert [condition.state for condition in board.active] == [health.HUNG]


def test_what_a_part_no_longer_reports_has_ended_and_what_others_saw_of_it_has_not(
    board: Board, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    board.raise_("project:1", health.STUCK_BATCH, "commit takes 9 s")
    board.report("project:1", {health.STORE_FULL: "full", "unheard_of": "x"})
    board.report("project:1", {})
    time.now = 6
    board.end_cleared()
    assert [condition.state for condition in board.active] == [health.STUCK_BATCH]
    assert [condition.state for condition in board.recent] == [health.STORE_FULL]
    assert len(caplog.records) == 3


def test_what_has_ended_is_remembered_within_a_bound(
    board: Board, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(health.RECENT + 50):
        board.raise_(f"project:{number}", health.DOWN, "")
        board.remove(f"project:{number}")
    assert len(board.recent) == health.RECENT
    assert board.recent[0].part == f"project:{health.RECENT + 49}"
    assert caplog.records


def test_a_detail_that_changes_is_shown_and_not_logged_again(
    board: Board, caplog: pytest.LogCaptureFixture
) -> None:
    changed = []
    for detail in ("3 parked", "3 parked", "4 parked"):
        board.changed = False
        board.update(health.OUTBOX, health.PARKED, detail)
        changed.append(board.changed)
    assert changed == [True, False, True]
    assert [condition.detail for condition in board.active] == ["4 parked"]
    assert len(caplog.records) == 1


def test_a_process_reports_only_changes() -> None:
    told: list[dict[str, str]] = []
    process = ProcessHealth(lambda now: told.append(dict(now)))
    for _ in range(10):
        process.raise_(health.DISK_FULL, "no space")
    process.clear(health.STORE_FULL)
    process.clear(health.DISK_FULL, health.STORE_FULL)
    process.clear(health.DISK_FULL)
    assert told == [{health.DISK_FULL: "no space"}, {}]
    assert not process.has_conditions


def test_a_clock_that_goes_back_is_noticed_until_it_has_caught_up() -> None:
    watch = ClockWatch(0.0, 10_000_000)
    assert not watch.is_behind(1.0, 10_001_000)
    assert watch.is_behind(2.0, 10_002_000 - 60_000)
    assert watch.by_ms == 60_000
    assert watch.is_behind(30.0, 9_970_000)
    assert not watch.is_behind(63.0, 10_003_000)


def test_a_clock_put_right_for_good_is_an_end_after_a_while() -> None:
    watch = ClockWatch(0.0, 10**12)
    assert watch.is_behind(1.0, 10**9)
    assert watch.is_behind(ClockWatch.REMEMBERED_S, 10**9 + 599_000)
    assert not watch.is_behind(ClockWatch.REMEMBERED_S + 2, 10**9 + 601_000)
    assert not watch.is_behind(ClockWatch.REMEMBERED_S + 3, 10**9 + 602_000)


@pytest.mark.parametrize("step_ms", [0, 1_999, -3_600_000])
def test_small_steps_back_and_any_step_forward_raise_no_condition(step_ms: int) -> None:
    watch = ClockWatch(0.0, 10_000_000)
    assert not watch.is_behind(1.0, 10_001_000 - step_ms)


def test_a_process_that_was_stopped_saw_no_jump() -> None:
    watch = ClockWatch(0.0, 10_000_000)
    assert not watch.is_behind(900.0, 10_900_000)


def test_a_node_with_many_unhealthy_projects_answers_shortly() -> None:
    conditions = tuple(Condition(f"project:{n}", health.DISK_FULL, "x", 1) for n in range(500))
    shown = health.worst((*conditions, Condition("registry", health.DOWN, "", 1)))
    assert len(shown) == health.SHOWN
    assert shown[0].part == "registry"
    status, body = health.liveness(NodeHealth(tuple(shown), more=500 + 1 - len(shown)))
    assert status == 200
    assert len(body) < 40
    assert body["Projects"] == "480 more conditions are not listed"


def test_liveness_counts_the_unlisted_conditions_when_few_projects_are_listed() -> None:
    listed = tuple(Condition(f"project:{n}", health.DISK_FULL, "x", 1) for n in range(3))
    body = health.liveness(NodeHealth(listed, more=7))[1]
    assert body["Projects"] == "7 more conditions are not listed"
    assert "Projects" not in health.liveness(NodeHealth(listed))[1]


def test_liveness_counts_every_condition_of_an_unlisted_project() -> None:
    conditions = tuple(
        Condition(f"project:{n}", state, "x", 1)
        for n in range(21)
        for state in (health.DISK_FULL, health.STORE_FAILS)
    )
    body = health.liveness(NodeHealth(conditions))[1]
    assert body["Projects"] == "2 more conditions are not listed"


def test_a_silent_supervisor_is_seen_by_the_gateway_itself() -> None:
    condition = NodeHealth(silent_s=11.0, silent_limit_s=10.0)
    assert health.readiness(condition)[0] == 503
    status, body = health.liveness(condition)
    assert (status, body["Node"]) == (200, "hung: the process does not answer")


def test_a_node_that_stops_is_alive_and_not_ready() -> None:
    condition = NodeHealth(draining=True)
    assert health.liveness(condition)[0] == 200
    assert health.readiness(condition) == (503, ["the node is stopping"])
