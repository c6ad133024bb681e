"""Commands on cron jobs and traffic limits: `cron`, `limit`."""

from __future__ import annotations

from typing import Any

import click

from fieldbrook.cli.client import Client, ClientError, WrongUsageError
from fieldbrook.cli.console import current, items, shared_options, show_done, show_fields, show_rows
from fieldbrook.cli.remote.objects import ALL, project_name

_CRON = {
    "cronExpressions": "WHEN",
    "eventType": "EVENT TYPE",
    "nextAt": "NEXT",
    "cronJobID": "ID",
}
_LIMIT = {
    "apiType": "CALLS",
    "threshold": "AT MOST",
    "duration": "IN",
    "publisherThreshold": "OF ONE PUBLISHER",
    "trafficLimitID": "ID",
}

# ---------------------------------------------------------------- cron jobs


@click.group()
def cron() -> None:
    """Cron jobs: events for a project at fixed times."""


@cron.command("add")
@click.argument("project_", metavar="PROJECT")
@click.argument("expression")
@click.option("--type", "event_type", default="DEFAULT", show_default=True)
@shared_options
def cron_add(project_: str, expression: str, event_type: str) -> None:
    """Send an event at the times of a cron expression.

    The expression has five fields (minute, hour, day of month, month, day of week), or is
    @hourly, @daily, @weekly, @monthly, @yearly or e.g. "@every 10m". A prefix sets the time
    zone: "CRON_TZ=Asia/Tokyo 0 9 * * *".
    """
    client = current().client()
    body = {"cronExpressions": expression, "eventType": event_type}
    made = client.call("POST", ["cronjob", _project_id(client, project_)], body=body)
    show_fields(made, {"cronJobID": "cron job", "eventType": "event type", "nextAt": "next"})


@cron.command("list")
@click.argument("project_", metavar="PROJECT")
@shared_options
def cron_list(project_: str) -> None:
    """List the cron jobs of a project, each with its next time."""
    client = current().client()
    rows = items(client.call("GET", ["cronjob", _project_id(client, project_)], query=ALL))
    show_rows(rows, _CRON, "no cron jobs yet: `fieldbrook cron add PROJECT EXPRESSION`")


@cron.command("delete")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@shared_options
def cron_delete(ids: tuple[str, ...]) -> None:
    """Delete cron jobs."""
    client = current().client()
    for job_id in ids:
        client.call("DELETE", ["cronjob", "data", job_id])
    show_done(f"{len(ids)} deleted", deleted=list(ids))


# ---------------------------------------------------------------- traffic limits


@click.group()
def limit() -> None:
    """Traffic limits: the most events of a project per time window."""


@limit.command("set")
@click.argument("project_", metavar="PROJECT")
@click.argument("threshold", type=click.IntRange(min=1))
@click.option("--per", "duration", required=True, metavar="DURATION", help="E.g. 10m or 24h.")
@click.option(
    "--publisher",
    "own",
    type=click.IntRange(min=0),
    help="How many of these one publisher may send; 0 for no limit of its own.",
)
@shared_options
def limit_set(project_: str, threshold: int, duration: str, own: int | None) -> None:
    """Limit the events of a project per time window; further events are answered 429.

    Only administrators may do this. An existing limit is changed.
    """
    client = current().client()
    real = project_name(client, project_)
    body: dict[str, Any] = {"threshold": threshold, "duration": duration}
    if own is not None:
        body["publisherThreshold"] = own
    known = _limits(client, real)
    if known:
        path = ["traffic", "x", real, str(known[0]["trafficLimitID"])]
        row = client.call("PUT", path, body=body)
    else:
        row = client.call("POST", ["traffic", "x", real], body={**body, "apiType": "EVENT"})
    show_rows([row], _LIMIT, "")


@limit.command("list")
@click.argument("project_", metavar="PROJECT")
@shared_options
def limit_list(project_: str) -> None:
    """List the limits of a project."""
    client = current().client()
    path = ["traffic", "x", project_name(client, project_), "datalist"]
    show_rows(items(client.call("GET", path, query=ALL)), _LIMIT, "no limits")


@limit.command("delete")
@click.argument("project_", metavar="PROJECT")
@shared_options
def limit_delete(project_: str) -> None:
    """Delete the limit of a project's events. Only administrators may do this."""
    client = current().client()
    real = project_name(client, project_)
    known = _limits(client, real)
    if not known:
        raise ClientError(f"project {real} has no limit of its events")
    client.call("DELETE", ["traffic", "x", real], query={"apiType": "EVENT"})
    show_done(f"limit of {real} deleted", deleted=known[0]["trafficLimitID"])


def _project_id(client: Client, given: str) -> str:
    """Look up the id of a project given by name or id."""
    if not given:
        raise WrongUsageError("which project?")
    value = client.call("GET", ["project", project_name(client, given)])
    return str(value["projectID"])


def _limits(client: Client, project_: str) -> list[dict[str, Any]]:
    path = ["traffic", "x", project_, "datalist"]
    return items(client.call("GET", path, query={**ALL, "apiType": "EVENT"}))
