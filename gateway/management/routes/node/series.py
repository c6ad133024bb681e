"""The time series of the node and its projects, by column, for charts.

Source: ours.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from fieldbrook.core.errors import BadRequestError, FieldError, ProjectNotFoundError
from fieldbrook.core.model import ADMIN, Project
from fieldbrook.gateway.channel import project_name
from fieldbrook.gateway.management.framework.binding import Timestamp
from fieldbrook.gateway.management.framework.ownership import may_project
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.metrics.readings import NAMES, PROJECT_NAMES
from fieldbrook.gateway.metrics.rings import Rates
from fieldbrook.gateway.metrics.series_client import SeriesQuery
from fieldbrook.storage.registry.service import RegistryReader

PROJECTS_SHOWN = 1_000
_SPAN_S = 300.0  # without `begin`
_DIGITS = 3


class ReadSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The figures `name` (all if absent) from `begin` (5 minutes before `end`) to `end` (now).

    `step` in seconds: 1 is kept for 15 minutes, 10 for 3 hours, 60 for 24 hours; absent or 0: the
    finest that reaches back to `begin`. With `project`, the figures are that project's.
    """

    name: list[str] = []
    step: Literal["0", "1", "10", "60"] = "0"
    begin: Timestamp | None = None
    end: Timestamp | None = None
    project: str | None = None


class ProjectRates(msgspec.Struct, frozen=True, kw_only=True):
    """Events and failed handler runs of a project per second, over the last second."""

    events: float
    failed: float


class SeriesReply(msgspec.Struct, frozen=True, kw_only=True):
    """The names, and as many columns and one more: the times in Unix seconds come first.

    A value is null where nothing was measured. `projects` has the latest rates of the caller's
    projects by name, of those that have run; at most 1,000, those with the most events.
    """

    step: int
    names: list[str]
    columns: list[list[float | None]]
    projects: dict[str, ProjectRates]


async def get_series(call: Call[None, ReadSeries]) -> SeriesReply:
    """Figures over time by column: of the node for administrators, of the projects for others.

    Other accounts get the sums over their projects, and only `events` and `failed`. Samples are
    taken once a second and kept in memory; they begin with the node. The figures of a project are
    0 if 200 others had events within the time that is kept, and so are the sums of an account.
    """
    wanted, query = call.query.project, call.query
    whole = wanted is None and call.account.role == ADMIN
    names = _names(query.name, NAMES if whole else PROJECT_NAMES)
    end = time.time() if query.end is None else query.end.timestamp()
    begin = end - _SPAN_S if query.begin is None else query.begin.timestamp()
    if begin >= end:
        raise BadRequestError(FieldError("begin", "must be before end", "query"))
    project = None if wanted is None else _project(call, wanted)
    account_id = None if whole else call.account.account_id
    found = await call.context.series.read(
        SeriesQuery(
            names=names,
            begin=begin,
            end=end,
            step_s=int(query.step),
            project_id=None if project is None else project.project_id,
            account_id=account_id,
        )
    )
    return SeriesReply(
        step=found.step_s,
        names=names,
        columns=[rounded(column) for column in found.columns],
        projects=project_rates(call.context.reader, found.rates, account_id, project),
    )


def project_rates(
    reader: RegistryReader,
    rates: Mapping[int, Rates],
    account_id: int | None,
    only: Project | None = None,
) -> dict[str, ProjectRates]:
    """Return the rates by name: of one project, of the projects of an account, or of all projects.

    If there are more than `PROJECTS_SHOWN`, only those with the most events are returned.
    """
    with reader.snapshot() as registry:
        found = [only] if only else [registry.project(project_id) for project_id in rates]
    own = (each for each in found if each and each.project_id in rates)
    shown = (each for each in own if only or account_id in (None, each.account_id))
    busiest = heapq.nlargest(PROJECTS_SHOWN, shown, key=lambda each: rates[each.project_id])
    return {
        project.name: ProjectRates(
            events=round(rates[project.project_id][0], _DIGITS),
            failed=round(rates[project.project_id][1], _DIGITS),
        )
        for project in busiest
    }


def _names(given: list[str], allowed: Sequence[str]) -> list[str]:
    if unknown := [name for name in given if name not in allowed]:
        reason = f"{unknown[0][:64]!r}: must be one of {', '.join(allowed)}"
        raise BadRequestError(FieldError("name", reason, "query"))
    return list(dict.fromkeys(given)) or list(allowed)


def _project(call: Call[Any, Any], wanted: str) -> Project:
    """Return one of the caller's projects.

    Raises:
        ProjectNotFoundError: there is no project with this name, or another account owns it.
    """
    project = call.context.reader.project_named(project_name(wanted))
    if project is None or not may_project(call, project.project_id):
        raise ProjectNotFoundError(project=wanted)
    return project


def rounded(column: list[float]) -> list[float | None]:
    """Return a column for JSON: NaN becomes null."""
    return [None if math.isnan(number) else round(number, _DIGITS) for number in column]


ROUTES: tuple[Route, ...] = (Route("GET", "/series", "GetSeries", get_series),)
