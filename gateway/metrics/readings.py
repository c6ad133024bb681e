"""Readings of the shared metrics table: totals at one moment, and the rates between two readings.

A reading has running totals; the figures of a chart are the differences of two readings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import add

import msgspec

from fieldbrook.gateway.metrics.processes import GATEWAYS, PROJECTS, REST, Usage
from fieldbrook.gateway.metrics.rings import NOTHING, Rates
from fieldbrook.observability import metrics
from fieldbrook.observability.metrics import Family
from fieldbrook.observability.metrics_table import Table

RATES = ("received", "mqttMessages", "events", "failed", "unmatched", "refused")
"""Figures per second, from counters."""
TIMES = ("eventP50Ms", "eventP99Ms", "commitP50Ms", "commitP99Ms")
"""Quantiles in milliseconds, from histograms; there are none without measurements."""
LEVELS = (
    *("queue", "deadLetters", "outbox", "connections", "loopLagMs", "cpu"),
    *("memoryGateways", "memoryProjects", "memoryRest"),
)
"""Levels: the highest value of each within a step."""
NAMES = (*RATES, *TIMES, *LEVELS)
PROJECT_NAMES = ("events", "failed")
"""The figures of single projects; both are rates."""


def _family(name: str) -> Family:
    return next(family for family in metrics.FAMILIES if family.name == name)


def _columns(family: Family) -> slice:
    return slice(family.first, family.first + family.columns)


_EVENT = _family("fieldbrook_event_duration_seconds")
_COMMIT = _family("fieldbrook_commit_duration_seconds")
_COMMIT_COLUMNS = _columns(_COMMIT)
_FAILED = _columns(_family("fieldbrook_handler_failures"))
_REFUSED = _columns(_family(metrics.REFUSED_NAME))
_QUEUES = (metrics.QUEUE_EVENTS, metrics.EVENTS_IN_FLIGHT, metrics.MQTT_BACKLOG)
_PROJECT_KINDS = frozenset({"project", "projects"})
_AT = {name: at for names in (RATES, LEVELS) for at, name in enumerate(names)}
_EVENTS_AT, _FAILED_AT = _AT["events"], _AT["failed"]
_LETTERS_AT, _OUTBOX_AT = _AT["deadLetters"], _AT["outbox"]


class Reading(msgspec.Struct):
    """Totals since the node's start, and levels at this moment.

    `at` is in Unix seconds. `projects` maps a row of the table to the project that uses it: the
    project's id, its events and its failed runs. Projects without a row of their own take turns in
    one row.
    """

    at: float
    totals: list[float] = msgspec.field(default_factory=lambda: [0.0] * len(RATES))
    events: list[float] = msgspec.field(default_factory=lambda: [0.0] * _EVENT.columns)
    commits: list[float] = msgspec.field(default_factory=lambda: [0.0] * _COMMIT.columns)
    levels: list[float] = msgspec.field(default_factory=lambda: [0.0] * len(LEVELS))
    projects: dict[int, tuple[int, float, float]] = msgspec.field(default_factory=dict)


def read_table(table: Table, at: float) -> tuple[Reading, list[tuple[str, int]]]:
    """Read the table: return totals and levels, and the part and pid of each running process."""
    reading, running = Reading(at), []
    for number, (part, pid, row) in enumerate(table.views()):
        kind, _, name = part.partition(":")
        if kind in _PROJECT_KINDS:
            _add_project(reading, number, name, row)
            continue
        if pid:
            running.append((part, pid))
        _add_part(reading, kind, row)
    return reading, running


def _add_project(reading: Reading, number: int, name: str, row: memoryview[float]) -> None:
    events, failed = row[metrics.PROJECT_EVENTS], sum(row[_FAILED].tolist())
    totals, levels = reading.totals, reading.levels
    totals[_EVENTS_AT] += events
    totals[_FAILED_AT] += failed
    reading.commits = list(map(add, reading.commits, row[_COMMIT_COLUMNS].tolist()))
    levels[_LETTERS_AT] += row[metrics.DEAD_LETTERS]
    levels[_OUTBOX_AT] += row[metrics.OUTBOX_PENDING]
    if name.isdecimal():
        reading.projects[number] = int(name), events, failed


def _add_part(reading: Reading, kind: str, row: memoryview[float]) -> None:
    totals, levels = reading.totals, reading.levels
    received = row[metrics.EVENTS_RECEIVED]
    totals[_AT["received"]] += received
    if kind == "mqtt":
        totals[_AT["mqttMessages"]] += received
    totals[_AT["unmatched"]] += row[metrics.EVENTS_UNMATCHED]
    totals[_AT["refused"]] += sum(row[_REFUSED].tolist())
    reading.events = list(map(add, reading.events, row[_columns(_EVENT)].tolist()))
    levels[_AT["queue"]] += sum(row[column] for column in _QUEUES)
    levels[_LETTERS_AT] += row[metrics.DEAD_LETTERS_STOPPED]
    levels[_AT["connections"]] += row[metrics.HTTP_CONNECTIONS]
    late = _AT["loopLagMs"]
    levels[late] = max(levels[late], row[metrics.LOOP_LAG] * 1e3)


def add_usage(reading: Reading, usage: Usage) -> None:
    """Add the figures of the processes from /proc."""
    reading.levels[_AT["cpu"]] = usage.cpu
    for name, kind in zip(LEVELS[-3:], (GATEWAYS, PROJECTS, REST), strict=True):
        reading.levels[_AT[name]] = usage.memory[kind]


def figures(before: Reading, now: Reading, highest: Sequence[float]) -> list[float]:
    """Return the figures between two readings in the order of `NAMES`; `highest` has the levels."""
    took_s = now.at - before.at
    rates = [
        max(0.0, new - old) / took_s for new, old in zip(now.totals, before.totals, strict=True)
    ]
    times = []
    for family, new, old in (
        (_EVENT, now.events, before.events),
        (_COMMIT, now.commits, before.commits),
    ):
        counts = [max(0.0, b - a) for a, b in zip(old, new, strict=True)][:-1]
        times += [1e3 * quantile(family.bounds, counts, share) for share in (0.5, 0.99)]
    return [*rates, *times, *highest]


def project_counts(before: Reading, now: Reading) -> dict[int, Rates]:
    """Return events and failed runs between two readings by project, for projects that had any.

    A project that has just got a row gets everything that was counted in the row since the earlier
    reading, because the previous project left the row after a long time without events.
    """
    found: dict[int, Rates] = {}
    for number, (project_id, *new) in now.projects.items():
        _, *old = before.projects.get(number, (0, *NOTHING))
        if new != old:
            counts = max(0.0, new[0] - old[0]), max(0.0, new[1] - old[1])
            found[project_id] = added(found.get(project_id, NOTHING), counts)
    return found


def added(one: Rates, other: Rates) -> Rates:
    """Return the sums of two pairs."""
    return one[0] + other[0], one[1] + other[1]


def quantile(bounds: Sequence[float], counts: Sequence[float], share: float) -> float:
    """Return a quantile of a histogram, interpolated within its bucket as Prometheus does.

    Args:
        bounds: the upper bounds of all buckets except the last, which has none.
        counts: the number of values in each bucket.

    Returns:
        The quantile; NaN without values. Values above the last bound count as that bound.
    """
    wanted, below, lower = sum(counts) * share, 0.0, 0.0
    if not wanted:
        return math.nan
    for bound, count in zip((*bounds, bounds[-1]), counts, strict=True):
        if count and below + count >= wanted:
            return lower + (bound - lower) * (wanted - below) / count
        below, lower = below + count, bound
    return lower
