"""The board of troubles, the clock that went back, and what is answered of them."""

from __future__ import annotations

import logging

import pytest

from fieldbrook.observability import health
from fieldbrook.observability.health import Board, ClockWatch, Condition, Reporter, Trouble


class Time:
    """Both clocks of a test."""

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


def test_a_trouble_is_logged_once_when_it_begins_and_once_when_it_ends(
    board: Board, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        board.begin("project:1", health.DISK_FULL, "no space")
    board.end("project:1", health.DISK_FULL)
    time.now = 6
    board.settle()
    assert [record.getMessage() for record in caplog.records] == [
        "project:1: disk_full: the disk is full (no space)",
        "project:1: disk_full has ended after 6 s",
    ]
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_a_trouble_that_comes_and_goes_is_one_trouble(
    board: Board, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(50):
        board.begin("http:0", health.HUNG, "silent")
        time.now += 1
        board.end("http:0", health.HUNG)
        time.now += 3
        board.settle()
    assert len(caplog.records) == 1
    assert [trouble.state for trouble in board.active] == [health.HUNG]


def test_what_a_part_no_longer_reports_has_ended_and_what_others_saw_of_it_has_not(
    board: Board, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    board.begin("project:1", health.STUCK_BATCH, "commit takes 9 s")
    board.report("project:1", {health.STORE_FULL: "full", "unheard_of": "x"})
    board.report("project:1", {})
    time.now = 6
    board.settle()
    assert [trouble.state for trouble in board.active] == [health.STUCK_BATCH]
    assert [trouble.state for trouble in board.recent] == [health.STORE_FULL]
    assert len(caplog.records) == 3


def test_what_has_ended_is_remembered_within_a_bound(
    board: Board, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(health.RECENT + 50):
        board.begin(f"project:{number}", health.DOWN, "")
        board.forget(f"project:{number}")
    assert len(board.recent) == health.RECENT
    assert board.recent[0].part == f"project:{health.RECENT + 49}"
    assert caplog.records


def test_a_detail_that_changes_is_shown_and_not_logged_again(
    board: Board, caplog: pytest.LogCaptureFixture
) -> None:
    changed = []
    for detail in ("3 parked", "3 parked", "4 parked"):
        board.changed = False
        board.renew(health.OUTBOX, health.PARKED, detail)
        changed.append(board.changed)
    assert changed == [True, False, True]
    assert [trouble.detail for trouble in board.active] == ["4 parked"]
    assert len(caplog.records) == 1


def test_a_reporter_tells_changes_alone() -> None:
    told: list[dict[str, str]] = []
    reporter = Reporter(lambda now: told.append(dict(now)))
    for _ in range(10):
        reporter.begin(health.DISK_FULL, "no space")
    reporter.end(health.STORE_FULL)
    reporter.end(health.DISK_FULL, health.STORE_FULL)
    reporter.end(health.DISK_FULL)
    assert told == [{health.DISK_FULL: "no space"}, {}]
    assert not reporter.troubled


def test_a_clock_that_goes_back_is_noticed_until_it_has_caught_up() -> None:
    watch = ClockWatch(0.0, 10_000_000)
    assert not watch.look(1.0, 10_001_000)
    assert watch.look(2.0, 10_002_000 - 60_000)
    assert watch.by_ms == 60_000
    assert watch.look(30.0, 9_970_000)
    assert not watch.look(63.0, 10_003_000)


def test_a_clock_put_right_for_good_is_an_end_after_a_while() -> None:
    watch = ClockWatch(0.0, 10**12)
    assert watch.look(1.0, 10**9)
    assert watch.look(ClockWatch.REMEMBERED_S, 10**9 + 599_000)
    assert not watch.look(ClockWatch.REMEMBERED_S + 2, 10**9 + 601_000)
    assert not watch.look(ClockWatch.REMEMBERED_S + 3, 10**9 + 602_000)


@pytest.mark.parametrize("step_ms", [0, 1_999, -3_600_000])
def test_small_steps_back_and_any_step_forward_are_no_trouble(step_ms: int) -> None:
    watch = ClockWatch(0.0, 10_000_000)
    assert not watch.look(1.0, 10_001_000 - step_ms)


def test_a_process_that_was_stopped_saw_no_jump() -> None:
    watch = ClockWatch(0.0, 10_000_000)
    assert not watch.look(900.0, 10_900_000)


def test_a_node_with_many_troubled_projects_answers_shortly() -> None:
    troubles = tuple(Trouble(f"project:{n}", health.DISK_FULL, "x", 1) for n in range(500))
    shown = health.worst((*troubles, Trouble("registry", health.DOWN, "", 1)))
    assert len(shown) == health.SHOWN
    assert shown[0].part == "registry"
    status, body = health.liveness(Condition(tuple(shown), more=500 + 1 - len(shown)))
    assert status == 200
    assert len(body) < 40
    assert body["Projects"] == "480 more have troubles"


def test_a_silent_supervisor_is_seen_by_the_gateway_itself() -> None:
    condition = Condition(silent_s=11.0, silent_limit_s=10.0)
    assert health.readiness(condition)[0] == 503
    status, body = health.liveness(condition)
    assert (status, body["Node"]) == (200, "hung: does not answer")


def test_a_node_that_stops_is_alive_and_not_ready() -> None:
    condition = Condition(draining=True)
    assert health.liveness(condition)[0] == 200
    assert health.readiness(condition) == (503, ["the node is stopping"])
