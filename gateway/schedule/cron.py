"""Cron schedules: parses expressions and computes due times, without I/O.

An expression has five fields (minute, hour, day of month, month, day of week) as Debian's
cron reads them, or is a descriptor: `@hourly`, `@daily`, `@midnight`, `@weekly`,
`@monthly`, `@yearly`, `@annually`, or `@every` and a duration of at least a second. A prefix
`CRON_TZ=ZONE` or `TZ=ZONE`, followed by a space, sets the time zone of the hours and days.
Times are Unix milliseconds.

Source: interface document, 5.7. Why cronsim: docs/decisions.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from typing import Protocol

import msgspec
from cronsim import CronSim, CronSimError

from fieldbrook.core.clock import zone_of
from fieldbrook.core.durations import parse_duration
from fieldbrook.core.errors import InvalidCronExpressionsError
from fieldbrook.core.model import NAME_LIMIT

LATE_MS = 60_000  # a tick with a longer delay is skipped
CLOCK_JUMP_MS = 300_000  # if the clock is set back by at most this, no tick repeats
_EVERY = "@every "
_ZONE_PREFIXES = ("CRON_TZ=", "TZ=")
_EVERY_MIN_MS, _EVERY_MAX_MS = 1_000, 366 * 86_400_000
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Schedule(Protocol):
    """The due times of one job."""

    def after(self, time_ms: int) -> int | None:
        """Return the first due time strictly after `time_ms`; None when there is none."""


class Fields(msgspec.Struct, frozen=True):
    """Five fields, read in a time zone."""

    expression: str
    zone: tzinfo

    def after(self, time_ms: int) -> int | None:
        """See `Schedule`."""
        # cronsim continues from the given second, so the fraction of a second is cut off.
        moment = datetime.fromtimestamp(time_ms // 1_000, self.zone)
        try:
            return round(next(CronSim(self.expression, moment)).timestamp() * 1_000)
        except (StopIteration, OverflowError):
            return None


class Every(msgspec.Struct, frozen=True):
    """A fixed interval, counted from the creation of the job."""

    interval_ms: int
    origin_ms: int

    def after(self, time_ms: int) -> int | None:
        """See `Schedule`."""
        passed = (time_ms - self.origin_ms) // self.interval_ms
        return self.origin_ms + (passed + 1) * self.interval_ms


def parse_schedule(expression: str, zone: tzinfo = UTC, origin_ms: int = 0) -> Schedule:
    """Parse a cron expression.

    Args:
        expression: see the module's docstring.
        zone: the time zone of the hours and days, unless the expression names another.
        origin_ms: the time from which `@every` counts; its fraction of a second is cut off.

    Raises:
        InvalidCronExpressionsError: the expression is malformed, or is never due.
    """
    if len(expression) > NAME_LIMIT:
        reason = f"longer than {NAME_LIMIT} characters"
        raise InvalidCronExpressionsError(expression=expression[:40], reason=reason)
    text, zone = _without_zone(expression.strip(), zone)
    if text.startswith(_EVERY):
        return _every(text, origin_ms - origin_ms % 1_000)
    if text.startswith("@") and text not in _DESCRIPTORS:
        known = ", ".join([*sorted(_DESCRIPTORS), "@every DURATION"])
        raise InvalidCronExpressionsError(
            expression=text, reason=f"the known descriptors are {known}"
        )
    # A question mark has the same meaning as a star.
    fields = _DESCRIPTORS.get(text, text).replace("?", "*")
    count = len(fields.split())
    if count != 5:
        raise InvalidCronExpressionsError(expression=text, reason=f"{count} fields instead of 5")
    try:
        CronSim(fields, datetime.now(zone))
    except CronSimError as error:
        raise InvalidCronExpressionsError(expression=text, reason=str(error)) from None
    except (AssertionError, TypeError):  # cronsim 2.8 raises these for mixtures such as `1L/2`
        reason = "Bad day-of-week"
        raise InvalidCronExpressionsError(expression=text, reason=reason) from None
    schedule = Fields(fields, zone)
    if schedule.after(0) is None:
        raise InvalidCronExpressionsError(expression=text, reason="no date matches")
    return schedule


def _without_zone(text: str, zone: tzinfo) -> tuple[str, tzinfo]:
    """Split off a prefix `CRON_TZ=ZONE` or `TZ=ZONE`; return the expression and its zone."""
    head, _, rest = text.partition(" ")
    prefix = next((prefix for prefix in _ZONE_PREFIXES if head.startswith(prefix)), None)
    if prefix is None:
        return text, zone
    name = head.removeprefix(prefix)
    if name == "Local":  # the original's name for the time zone of the node
        return rest.strip(), zone
    try:
        return rest.strip(), zone_of(name or "UTC")
    except ValueError as error:
        reason = f"the time zone {name!r} {error}"
        raise InvalidCronExpressionsError(expression=text, reason=reason) from None


def _every(text: str, origin_ms: int) -> Every:
    try:
        interval_ms = parse_duration(text.removeprefix(_EVERY).strip())
    except ValueError as error:
        raise InvalidCronExpressionsError(expression=text, reason=str(error)) from None
    if not _EVERY_MIN_MS <= interval_ms <= _EVERY_MAX_MS:
        reason = "must be between 1s and 8784h"
        raise InvalidCronExpressionsError(expression=text, reason=reason)
    return Every(interval_ms, origin_ms)


def coming(schedule: Schedule, time_ms: int, count: int) -> list[int]:
    """Return the first `count` due times after `time_ms`; fewer when there are no more."""
    times: list[int] = []
    while len(times) < count:
        due_ms = schedule.after(times[-1] if times else time_ms)
        if due_ms is None:
            break
        times.append(due_ms)
    return times


class Tick(msgspec.Struct, frozen=True):
    """One due time of a job."""

    job_id: int
    due_ms: int


class _Entry(msgspec.Struct):
    schedule: Schedule
    due_ms: int | None
    fired_ms: int = -1


class Plan:
    """The next due time of each job.

    A tick that is more than a minute late is skipped, and the job continues with its next due
    time. When the clock is set back by up to five minutes, no tick repeats. When it is set back
    further, the new time is used and ticks can repeat.
    """

    def __init__(self, now_ms: int) -> None:
        self._entries: dict[int, _Entry] = {}
        self._seen_ms = now_ms

    def replace(self, schedules: Iterable[tuple[int, Schedule]], now_ms: int) -> None:
        """Replace the jobs; a job whose schedule is unchanged keeps its next due time."""
        old = self._entries
        self._entries = {}
        for job_id, schedule in schedules:
            entry = old.get(job_id)
            if entry is None or entry.schedule != schedule:
                entry = _Entry(schedule, schedule.after(now_ms))
            self._entries[job_id] = entry

    def pop_due(self, now_ms: int) -> list[Tick]:
        """Return the ticks that are due, at most one per job, and advance the due times."""
        if now_ms < self._seen_ms:
            self._rewind(now_ms)
        self._seen_ms = now_ms
        ticks = []
        for job_id, entry in self._entries.items():
            due_ms = entry.due_ms
            if due_ms is None or due_ms > now_ms:
                continue
            if now_ms - due_ms <= LATE_MS:
                ticks.append(Tick(job_id, due_ms))
                entry.fired_ms = due_ms
            entry.due_ms = entry.schedule.after(now_ms)
        return ticks

    def next_ms(self) -> int | None:
        """Return the earliest due time of all jobs; None when there is none."""
        return min((e.due_ms for e in self._entries.values() if e.due_ms is not None), default=None)

    def _rewind(self, now_ms: int) -> None:
        is_real_change = self._seen_ms - now_ms > CLOCK_JUMP_MS
        for entry in self._entries.values():
            since = now_ms if is_real_change else max(now_ms, entry.fired_ms)
            entry.due_ms = entry.schedule.after(since)
