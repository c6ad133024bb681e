"""When cron jobs are due, with a clock that tests set."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.errors import InvalidCronExpressionsError
from fieldbrook.gateway.schedule.cron import CLOCK_JUMP_MS, LATE_MS, Plan, Tick, parse_schedule

MINUTE = 60_000
NOON = int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()) * 1000


def at(ms: int | None) -> str:
    assert ms is not None
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


@pytest.mark.parametrize(
    ("expression", "following"),
    [
        ("* * * * *", "2026-11-21 12:01:00"),
        ("*/3 * * * *", "2026-11-21 12:03:00"),
        ("0 12 * * *", "2026-11-22 12:00:00"),
        ("30 4 1 jan ?", "2027-01-01 04:30:00"),
        ("0 0 29 2 *", "2028-02-29 00:00:00"),
        ("0 9 * * MON-FRI", "2026-11-23 09:00:00"),
        ("@hourly", "2026-11-21 13:00:00"),
        ("@daily", "2026-11-22 00:00:00"),
        ("@weekly", "2026-11-22 00:00:00"),
        ("@monthly", "2026-12-01 00:00:00"),
        ("@yearly", "2027-01-01 00:00:00"),
        ("@every 90s", "2026-11-21 12:01:30"),
    ],
)
def test_a_schedule_knows_its_next_time(expression: str, following: str) -> None:
    assert at(parse_schedule(expression, origin_ms=NOON).after(NOON)) == following


def test_the_next_time_lies_strictly_after_any_part_of_a_second() -> None:
    every_minute = parse_schedule("* * * * *")
    assert every_minute.after(NOON - 1) == NOON
    assert every_minute.after(NOON + 1) == NOON + MINUTE
    every = parse_schedule("@every 1s", origin_ms=NOON + 400)
    assert every.after(NOON + 999) == NOON + 1_000


def test_hours_are_those_of_the_zone_and_a_skipped_hour_is_made_up_for() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert at(parse_schedule("0 9 * * *", berlin).after(NOON)) == "2026-11-22 08:00:00"
    spring = int(datetime(2027, 3, 27, 12, tzinfo=UTC).timestamp()) * 1000
    assert at(parse_schedule("30 2 * * *", berlin).after(spring)) == "2027-03-28 01:00:00"


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "* * * *",
        "0 * * * * *",
        "60 * * * *",
        "* * 0 * *",
        "* * 31 2 *",
        "*/0 * * * *",
        "5-1 * * * *",
        "a b c d e",
        "* * * * 1L/2",
        "@fortnightly",
        "@every",
        "@every 3",
        "@every 999ms",
        "@every 9000h",
        "@every -3s",
    ],
)
def test_an_expression_that_is_none_is_refused_with_its_reason(expression: str) -> None:
    with pytest.raises(InvalidCronExpressionsError) as caught:
        parse_schedule(expression)
    assert caught.value.code == 400_999_005
    assert caught.value.desc.startswith(f"cron expression {expression.strip()}: ")


@pytest.mark.parametrize(
    ("expression", "following"),
    [
        ("CRON_TZ=Asia/Tokyo 0 0 1 1 *", "2026-12-31 15:00:00"),
        ("TZ=Asia/Tokyo 30 9 * * *", "2026-11-22 00:30:00"),
        ("TZ=Asia/Tokyo   @daily", "2026-11-21 15:00:00"),
        ("CRON_TZ=UTC 0 13 * * *", "2026-11-21 13:00:00"),
        ("TZ= 0 13 * * *", "2026-11-21 13:00:00"),
        ("TZ=Local 0 13 * * *", "2026-11-21 18:00:00"),
        ("TZ=Asia/Tokyo @every 1h", "2026-11-21 13:00:00"),
    ],
)
def test_an_expression_may_name_its_time_zone(expression: str, following: str) -> None:
    zone = ZoneInfo("America/New_York")
    assert at(parse_schedule(expression, zone, NOON).after(NOON)) == following


@pytest.mark.parametrize("name", ["Mars/Base", "Asia", "../etc/passwd", "/etc/localtime", "x" * 99])
def test_a_time_zone_that_is_not_known_is_named(name: str) -> None:
    with pytest.raises(InvalidCronExpressionsError) as caught:
        parse_schedule(f"CRON_TZ={name} * * * * *")
    assert f"the time zone '{name}' must be UTC or a zone this machine knows" in caught.value.desc


FIELD = st.text("0123456789*,-/#LW?JANMO", max_size=6)


@given(st.lists(FIELD, min_size=5, max_size=5).map(" ".join))
def test_no_expression_fails_in_another_way(expression: str) -> None:
    try:
        following = parse_schedule(expression).after(NOON)
    except InvalidCronExpressionsError:
        return
    assert following is None or (following > NOON and following % MINUTE == 0)


def plan(*expressions: str, now_ms: int = NOON) -> Plan:
    made = Plan(now_ms)
    made.replace([(n, parse_schedule(e)) for n, e in enumerate(expressions, 1)], now_ms)
    return made


def test_a_job_is_due_at_its_time_and_once() -> None:
    jobs = plan("* * * * *", "*/2 * * * *")
    assert jobs.next_ms() == NOON + MINUTE
    assert jobs.pop_due(NOON + MINUTE - 1) == []
    assert jobs.pop_due(NOON + MINUTE) == [Tick(1, NOON + MINUTE)]
    assert jobs.pop_due(NOON + MINUTE) == []
    two = NOON + 2 * MINUTE
    assert jobs.pop_due(two + 5) == [Tick(1, two), Tick(2, two)]


def test_a_tick_missed_by_more_than_a_minute_is_skipped() -> None:
    jobs = plan("* * * * *", "@every 1s")
    late = NOON + 10 * MINUTE + 30_000
    # After a long pause there are no missed ticks and no late one, only the next regular tick.
    assert jobs.pop_due(late) == []
    assert jobs.pop_due(late + 1_000) == [Tick(2, late + 1_000)]
    assert jobs.pop_due(NOON + 11 * MINUTE) == [
        Tick(1, NOON + 11 * MINUTE),
        Tick(2, late + 2_000),
    ]


def test_a_tick_up_to_a_minute_late_still_runs_once() -> None:
    jobs = plan("0 * * * *")
    hour = NOON + 60 * MINUTE
    assert jobs.pop_due(hour + LATE_MS) == [Tick(1, hour)]
    assert jobs.pop_due(hour + LATE_MS + 1) == []


def test_a_clock_put_back_a_little_repeats_no_tick() -> None:
    jobs = plan("* * * * *")
    assert len(jobs.pop_due(NOON + MINUTE)) == 1
    assert jobs.pop_due(NOON + MINUTE - CLOCK_JUMP_MS) == []
    assert jobs.pop_due(NOON + MINUTE) == []
    assert jobs.pop_due(NOON + 2 * MINUTE) == [Tick(1, NOON + 2 * MINUTE)]


def test_a_clock_put_back_far_is_believed() -> None:
    day = 1_440 * MINUTE
    jobs = plan("* * * * *", now_ms=NOON + day)
    assert len(jobs.pop_due(NOON + day + MINUTE)) == 1
    assert jobs.pop_due(NOON) == []
    assert jobs.pop_due(NOON + MINUTE) == [Tick(1, NOON + MINUTE)]


def test_a_clock_put_forward_makes_nothing_due_but_what_comes_after() -> None:
    jobs = plan("0 0 * * *")
    tomorrow = NOON + 2 * 1_440 * MINUTE
    assert jobs.pop_due(tomorrow) == []
    assert jobs.next_ms() == tomorrow + 720 * MINUTE


def test_a_change_of_other_jobs_leaves_a_job_its_time() -> None:
    jobs = plan("*/10 * * * *")
    one = parse_schedule("*/10 * * * *")
    # A due job is not lost if the jobs are read again at this moment.
    jobs.replace([(1, one), (2, parse_schedule("* * * * *"))], NOON + 10 * MINUTE)
    assert jobs.pop_due(NOON + 10 * MINUTE) == [Tick(1, NOON + 10 * MINUTE)]
    jobs.replace([], NOON + 11 * MINUTE)
    assert jobs.next_ms() is None
    assert jobs.pop_due(NOON + 20 * MINUTE) == []


@given(
    st.lists(st.integers(-20 * MINUTE, 20 * MINUTE), max_size=40),
    st.sampled_from(["* * * * *", "*/7 * * * *", "@every 45s"]),
)
def test_however_the_clock_moves_a_tick_is_of_its_schedule_and_not_long_past(
    moves: list[int], expression: str
) -> None:
    schedule = parse_schedule(expression)
    jobs, now = plan(expression), NOON
    for move in moves:
        now += move
        for tick in jobs.pop_due(now):
            assert now - LATE_MS <= tick.due_ms <= now
            assert schedule.after(tick.due_ms - 1) == tick.due_ms
        following = jobs.next_ms()
        assert following is not None
        assert following > now
