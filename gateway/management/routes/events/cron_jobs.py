"""Cron jobs of a project: events that are sent at scheduled times."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.clock import now_ms, rfc3339
from fieldbrook.core.errors import CronJobNotFoundError
from fieldbrook.core.model import DEFAULT_EVENT_TYPE, CronJob
from fieldbrook.gateway.management.framework.answers import Page, page, times
from fieldbrook.gateway.management.framework.binding import Paging, Sfid, Text, json_key
from fieldbrook.gateway.management.framework.ownership import own_project, own_row
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.schedule.cron import coming, parse_schedule

_COMING = 5


class CreateCronJob(msgspec.Struct, frozen=True, kw_only=True):
    """A cron expression (five fields, or a descriptor such as `@every 10m`) and an event type."""

    expression: Text = msgspec.field(name="cronExpressions")
    event_type: Text = msgspec.field(default=DEFAULT_EVENT_TYPE, name="eventType")


class ListCronJobs(Paging, frozen=True, kw_only=True):
    """Filters: ids and event types."""

    cron_job_ids: list[Sfid] = msgspec.field(default_factory=list, name="cronJobID")
    event_types: list[str] = msgspec.field(default_factory=list, name="eventType")


class NextTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The cron expression to try."""

    expression: Text = msgspec.field(name="cronExpressions")


class CronJobReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """A cron job. `nextAt` is the time of its next event, `next` the next five; RFC 3339."""

    cron_job_id: str
    project_id: str
    cron_expressions: str
    event_type: str
    next_at: str | UnsetType = UNSET
    next: list[str]
    created_at: str
    updated_at: str


class CronJobPage(Page[CronJobReply], frozen=True):
    """A page of cron jobs; `total` counts all matching ones."""


class NextTimesReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """The expression without needless blanks, and its next five times, RFC 3339."""

    cron_expressions: str
    next: list[str]


async def create_cron_job(call: Call[CreateCronJob, None]) -> CronJobReply:
    """Create a cron job; an absent or empty event type is `DEFAULT`."""
    project = own_project(call)
    expression = _without_blanks(call.body.expression)
    parse_schedule(expression, call.context.cron_zone)
    job = await call.context.registry.call(
        "create_cron_job",
        project_id=project.project_id,
        expression=expression,
        event_type=call.body.event_type or DEFAULT_EVENT_TYPE,
        limit=call.context.cron_jobs_limit,
    )
    return _reply(call, job)


async def list_cron_jobs(call: Call[None, ListCronJobs]) -> CronJobPage:
    """The cron jobs of a project; `next` are the next five times of each."""
    query = call.query
    found = [
        job
        for job in call.context.reader.cron_jobs(own_project(call).project_id)
        if (not query.cron_job_ids or job.cron_job_id in query.cron_job_ids)
        and (not query.event_types or job.event_type in query.event_types)
    ]
    # The next times of an expression may be years away.
    data = await call.search(lambda: [_reply(call, job) for job in page(found, query)])
    return CronJobPage(data, len(found))


async def next_times(call: Call[None, NextTimes]) -> NextTimesReply:
    """The next five times of a cron expression, for a job that would be created now."""
    own_project(call)
    expression = _without_blanks(call.query.expression)
    return NextTimesReply(cron_expressions=expression, next=_coming(call, expression, now_ms()))


async def get_cron_job(call: Call[None, None]) -> CronJobReply:
    """One cron job."""
    return _reply(call, _own_cron_job(call))


async def remove_cron_job(call: Call[None, None]) -> None:
    """Remove a cron job."""
    job = _own_cron_job(call)
    await call.context.registry.call("remove_cron_job", cron_job_id=job.cron_job_id)


def _without_blanks(expression: str) -> str:
    return " ".join(expression.split())


def _own_cron_job(call: Call[Any, Any]) -> CronJob:
    find = call.context.reader.cron_job
    return own_row(call, "cronJobID", find, lambda row_id: CronJobNotFoundError(cron_job=row_id))


def _reply(call: Call[Any, Any], job: CronJob) -> CronJobReply:
    coming_times = _coming(call, job.expression, job.created_at)
    return CronJobReply(
        cron_job_id=str(job.cron_job_id),
        project_id=str(job.project_id),
        cron_expressions=job.expression,
        event_type=job.event_type,
        next_at=coming_times[0] if coming_times else UNSET,
        next=coming_times,
        **times(job),
    )


def _coming(call: Call[Any, Any], expression: str, origin_ms: int) -> list[str]:
    schedule = parse_schedule(expression, call.context.cron_zone, origin_ms)
    return [rfc3339(due_ms) for due_ms in coming(schedule, now_ms(), _COMING)]


_ALL, _DATA = "/cronjob/{projectID}", "/cronjob/data/{cronJobID}"
_ONE = "/cronjob/{projectID}/{cronJobID}"
ROUTES: tuple[Route, ...] = (
    Route("POST", _ALL, "CreateCronJob", create_cron_job),
    Route("GET", _ALL, "ListCronJob", list_cron_jobs),
    Route("GET", f"{_ALL}/next", "ListNextTimes", next_times),
    Route("GET", _DATA, "GetCronJob", get_cron_job),
    Route("DELETE", _DATA, "RemoveCronJob", remove_cron_job),
    Route("DELETE", _ONE, "RemoveCronJob", remove_cron_job),
)
