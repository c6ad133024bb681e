"""Commands on traffic limits: `limit`."""

from __future__ import annotations

from typing import Any

import click

from fieldbrook.cli.client import Client, items
from fieldbrook.cli.errors import ClientError
from fieldbrook.cli.options import CommandGroup, project_argument
from fieldbrook.cli.output import show_done, show_rows
from fieldbrook.cli.remote.lookup import ALL, open_project

_COLUMNS = {
    "apiType": "KIND",
    "threshold": "LIMIT",
    "duration": "PER",
    "publisherThreshold": "LIMIT PER PUBLISHER",
    "trafficLimitID": "ID",
}


@click.group(cls=CommandGroup)
def limit() -> None:
    """Manage traffic limits: the most events per time window."""


@limit.command("set")
@project_argument
@click.argument("threshold", type=click.IntRange(min=1))
@click.option(
    "--per", "duration", required=True, metavar="DURATION", help="The time window, e.g. 10m or 24h."
)
@click.option(
    "--publisher",
    "publisher_threshold",
    type=click.IntRange(min=0),
    help="The most events of one publisher; 0 for no limit per publisher.",
)
def limit_set(project: str, threshold: int, duration: str, publisher_threshold: int | None) -> None:
    """Limit the events of a project per time window.

    Further events are answered 429. Only administrators may do this. An existing limit is changed.
    """
    client, project = open_project(project)
    body: dict[str, Any] = {"threshold": threshold, "duration": duration}
    if publisher_threshold is not None:
        body["publisherThreshold"] = publisher_threshold
    known = _event_limits(client, project)
    if known:
        path = ["traffic", "x", project, str(known[0]["trafficLimitID"])]
        row = client.call("PUT", path, body=body)
    else:
        row = client.call("POST", ["traffic", "x", project], body={**body, "apiType": "EVENT"})
    show_rows([row], _COLUMNS, "")


@limit.command("list")
@project_argument
def limit_list(project: str) -> None:
    """List the limits of a project."""
    client, project = open_project(project)
    rows = items(client.call("GET", ["traffic", "x", project, "datalist"], query=ALL))
    show_rows(rows, _COLUMNS, "no limits yet: `fieldbrook limit set PROJECT NUMBER --per DURATION`")


@limit.command("delete")
@project_argument
def limit_delete(project: str) -> None:
    """Delete the event limit of a project. Only administrators may do this."""
    client, project = open_project(project)
    known = _event_limits(client, project)
    if not known:
        raise ClientError(f"project {project} has no event limit")
    client.call("DELETE", ["traffic", "x", project], query={"apiType": "EVENT"})
    show_done(f"event limit of project {project} deleted", deleted=known[0]["trafficLimitID"])


def _event_limits(client: Client, project: str) -> list[dict[str, Any]]:
    path = ["traffic", "x", project, "datalist"]
    return items(client.call("GET", path, query={**ALL, "apiType": "EVENT"}))
