"""Commands on cron jobs: `cron`."""

from __future__ import annotations

import click

from fieldbrook.cli.client import items
from fieldbrook.cli.console import current
from fieldbrook.cli.options import CommandGroup, event_type_option, ids_argument, project_argument
from fieldbrook.cli.output import show_done, show_fields, show_rows
from fieldbrook.cli.remote.lookup import ALL, open_project_by_id
from fieldbrook.cli.text import counted

_COLUMNS = {
    "cronExpressions": "EXPRESSION",
    "eventType": "EVENT TYPE",
    "nextAt": "NEXT",
    "cronJobID": "ID",
}


@click.group(cls=CommandGroup)
def cron() -> None:
    """Manage cron jobs, which send events at fixed times."""


@cron.command("add")
@project_argument
@click.argument("expression")
@event_type_option
def cron_add(project: str, expression: str, event_type: str) -> None:
    """Send an event at the times of a cron expression.

    The expression has five fields (minute, hour, day of month, month, day of week), or is
    @hourly, @daily, @weekly, @monthly, @yearly or e.g. "@every 10m". A prefix sets the time
    zone: "CRON_TZ=Asia/Tokyo 0 9 * * *".
    """
    client, project_id = open_project_by_id(project)
    body = {"cronExpressions": expression, "eventType": event_type}
    made = client.call("POST", ["cronjob", project_id], body=body)
    show_fields(made, {"cronJobID": "cron job", "eventType": "event type", "nextAt": "next"})


@cron.command("list")
@project_argument
def cron_list(project: str) -> None:
    """List the cron jobs of a project, each with its next time."""
    client, project_id = open_project_by_id(project)
    rows = items(client.call("GET", ["cronjob", project_id], query=ALL))
    show_rows(rows, _COLUMNS, "no cron jobs yet: `fieldbrook cron add PROJECT EXPRESSION`")


@cron.command("delete")
@ids_argument
def cron_delete(ids: tuple[str, ...]) -> None:
    """Delete cron jobs."""
    client = current().client()
    for job_id in ids:
        client.call("DELETE", ["cronjob", "data", job_id])
    show_done(f"{counted(len(ids), 'cron job')} deleted", deleted=list(ids))
