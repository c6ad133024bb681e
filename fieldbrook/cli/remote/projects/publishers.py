"""Commands on publishers: `publisher`."""

from __future__ import annotations

from typing import Any

import click

from fieldbrook.cli.client import Client
from fieldbrook.cli.errors import WrongUsageError
from fieldbrook.cli.options import CommandGroup, project_argument
from fieldbrook.cli.output import show_done, show_fields, show_rows
from fieldbrook.cli.remote.lookup import Object, find_publisher, open_project, publishers

_COLUMNS = {"key": "KEY", "name": "NAME", "publisherID": "ID", "createdAt": "CREATED"}
_FIELDS = {
    "key": "publisher",
    "publisherID": "id",
    "token": "token",
    "eventTypes": "event types",
    "expiredAt": "expires",
}
_key_argument = click.argument("key")
_days_option = click.option(
    "--expires-days",
    type=int,
    default=0,
    help="Days until its token expires [default: it does not].",
)


@click.group(cls=CommandGroup)
def publisher() -> None:
    """Manage publishers: devices that send events to a project."""


@publisher.command("add")
@project_argument
@_key_argument
@click.option("--name", help="A name for people [default: the key].")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="An event type that it may send; repeatable [default: every type].",
)
@_days_option
def publisher_add(
    project: str, key: str, name: str | None, types: tuple[str, ...], expires_days: int
) -> None:
    """Add a publisher and print its id and its token."""
    client, project = open_project(project)
    body: dict[str, Any] = {"name": name or key, "key": key}
    if types:
        body["eventTypes"] = list(types)
    if expires_days:
        body["expirationDays"] = expires_days
    show_fields(client.call("POST", ["publisher", project], body=body), _FIELDS)


@publisher.command("list")
@project_argument
def publisher_list(project: str) -> None:
    """List the publishers of a project."""
    rows = publishers(*open_project(project))
    show_rows(rows, _COLUMNS, "no publishers yet: `fieldbrook publisher add PROJECT KEY`")


@publisher.command("token")
@project_argument
@_key_argument
def publisher_token(project: str, key: str) -> None:
    """Print a publisher's token and nothing else, for scripts."""
    _, _, found = _open_publisher(project, key)
    show_done(str(found["token"]), token=found["token"])


@publisher.command("rotate")
@project_argument
@_key_argument
@_days_option
def publisher_rotate(project: str, key: str, expires_days: int) -> None:
    """Replace a publisher's token and print the new one.

    The old one stops working at once.
    """
    client, _, found = _open_publisher(project, key)
    path = ["publisher", "data", str(found["publisherID"]), "token"]
    body = {"expirationDays": expires_days} if expires_days else {}
    made = client.call("POST", path, body=body)
    expiry = {"expiredAt": made["expiredAt"]} if "expiredAt" in made else {}
    show_done(str(made["token"]), token=made["token"], **expiry)


@publisher.command("allow")
@project_argument
@_key_argument
@click.argument("types", metavar="[TYPE]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Allow every type.")
def publisher_allow(project: str, key: str, types: tuple[str, ...], everything: bool) -> None:
    """Set the event types that a publisher may send.

    Events of other types are refused.
    """
    if everything == bool(types):
        raise WrongUsageError("name the allowed event types, or give --all")
    client, project, found = _open_publisher(project, key)
    body = {"name": found["name"], "key": found["key"], "eventTypes": list(types)}
    client.call("PUT", ["publisher", project, str(found["publisherID"])], body=body)
    allowed = ", ".join(types) if types else "every type"
    show_done(f"publisher {found['key']} may send {allowed}", eventTypes=list(types))


@publisher.command("delete")
@project_argument
@_key_argument
def publisher_delete(project: str, key: str) -> None:
    """Delete a publisher; its token stops working at once."""
    client, project, found = _open_publisher(project, key)
    query = {"publisherID": found["publisherID"]}
    client.call("DELETE", ["publisher", project], query=query)
    show_done(f"publisher {found['key']} deleted", deleted=found["publisherID"])


def _open_publisher(project: str, key: str) -> tuple[Client, str, Object]:
    client, name = open_project(project)
    return client, name, find_publisher(client, name, key)
