"""Cron jobs of a project: events that are sent at scheduled times."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from fieldbrook.core.clock import now_ms, rfc3339
from fieldbrook.core.errors import CronJobNotFoundError
from fieldbrook.core.model import DEFAULT_EVENT_TYPE, CronJob
from fieldbrook.gateway.management.framework.binding import Paging, Sfid, Text
from fieldbrook.gateway.management.framework.ownership import own_project, own_row
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.management.framework.views import Json, page_json, times_json
from fieldbrook.gateway.management.openapi import shapes
from fieldbrook.gateway.schedule.cron import parse_schedule


class CreateCronJob(msgspec.Struct, frozen=True, kw_only=True):
    """A cron expression (five fields, or a descriptor such as `@every 10m`) and an event type."""

    expression: Text = msgspec.field(name="cronExpressions")
    event_type: Text = msgspec.field(default=DEFAULT_EVENT_TYPE, name="eventType")


class ListCronJobs(Paging, frozen=True, kw_only=True):
    """Filters: ids and event types."""

    cron_job_ids: list[Sfid] = msgspec.field(default_factory=list, name="cronJobID")
    event_types: list[str] = msgspec.field(default_factory=list, name="eventType")


async def create_cron_job(call: Call[CreateCronJob, None]) -> Annotated[Json, shapes.CronJobReply]:
    """Create a cron job; an absent or empty event type is `DEFAULT`."""
    project = own_project(call)
    expression = " ".join(call.body.expression.split())
    parse_schedule(expression, call.context.cron_zone)
    job = await call.context.registry.call(
        "create_cron_job",
        project_id=project.project_id,
        expression=expression,
        event_type=call.body.event_type or DEFAULT_EVENT_TYPE,
        limit=call.context.cron_jobs_limit,
    )
    return _json(call, job)


async def list_cron_jobs(call: Call[None, ListCronJobs]) -> Annotated[Json, shapes.CronJobPage]:
    """The cron jobs of a project; `nextAt` is the time of the next event of each."""
    query = call.query
    found = [
        job
        for job in call.context.reader.cron_jobs(own_project(call).project_id)
        if (not query.cron_job_ids or job.cron_job_id in query.cron_job_ids)
        and (not query.event_types or job.event_type in query.event_types)
    ]
    return page_json(found, query, lambda job: _json(call, job))


async def get_cron_job(call: Call[None, None]) -> Annotated[Json, shapes.CronJobReply]:
    """One cron job."""
    return _json(call, _own_cron_job(call))


async def remove_cron_job(call: Call[None, None]) -> None:
    """Remove a cron job."""
    job = _own_cron_job(call)
    await call.context.registry.call("remove_cron_job", cron_job_id=job.cron_job_id)


def _own_cron_job(call: Call[Any, Any]) -> CronJob:
    find = call.context.reader.cron_job
    return own_row(call, "cronJobID", find, lambda row_id: CronJobNotFoundError(cron_job=row_id))


def _json(call: Call[Any, Any], job: CronJob) -> Json:
    schedule = parse_schedule(job.expression, call.context.cron_zone, job.created_at)
    next_ms = schedule.after(now_ms())
    return {
        "cronJobID": str(job.cron_job_id),
        "projectID": str(job.project_id),
        "cronExpressions": job.expression,
        "eventType": job.event_type,
        **({} if next_ms is None else {"nextAt": rfc3339(next_ms)}),
        **times_json(job),
    }


_ALL, _DATA = "/cronjob/{projectID}", "/cronjob/data/{cronJobID}"
_ONE = "/cronjob/{projectID}/{cronJobID}"
ROUTES: tuple[Route, ...] = (
    Route("POST", _ALL, "CreateCronJob", create_cron_job),
    Route("GET", _ALL, "ListCronJob", list_cron_jobs),
    Route("GET", _DATA, "GetCronJob", get_cron_job),
    Route("DELETE", _DATA, "RemoveCronJob", remove_cron_job),
    Route("DELETE", _ONE, "RemoveCronJob", remove_cron_job),
)
