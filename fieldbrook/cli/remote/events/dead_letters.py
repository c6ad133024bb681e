"""Commands on dead letters: `dead-letter`."""

from __future__ import annotations

import base64
import sys
from typing import Any

import click

from fieldbrook.cli.client import items
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import EXIT_REFUSED
from fieldbrook.cli.options import CommandGroup, limit_option, project_argument
from fieldbrook.cli.output import note, show_done, show_fields, show_rows
from fieldbrook.cli.remote.lookup import open_project
from fieldbrook.cli.text import counted

_COLUMNS = {
    "letterID": "LETTER",
    "failedAt": "FAILED",
    "eventType": "TYPE",
    "appletName": "APPLET",
    "handler": "HANDLER",
    "reason": "REASON",
}
_FIELDS = {
    "letterID": "letter",
    "eventID": "event",
    "eventType": "type",
    "publisherID": "publisher",
    "appletName": "applet",
    "handler": "handler",
    "reason": "reason",
    "attempts": "attempts",
    "receivedAt": "received",
    "failedAt": "failed",
    "size": "bytes",
}
_letters_argument = click.argument("letters", nargs=-1, required=True, metavar="LETTER...")


@click.group("dead-letter", cls=CommandGroup)
def dead_letter() -> None:
    """Manage dead letters: events whose handler failed."""


@dead_letter.command("list")
@project_argument
@limit_option()
@click.option("--before", metavar="LETTER", help="List only letters older than this one.")
def letter_list(project: str, limit: int, before: str | None) -> None:
    """List dead letters, the newest first."""
    client, project = open_project(project)
    query: dict[str, Any] = {"limit": limit}
    if before:
        query["before"] = before
    answer = client.call("GET", ["dead_letter", project], query=query)
    show_rows(items(answer), _COLUMNS, "no dead letters")
    if not current().json and answer["total"] > len(items(answer)):
        note(f"{counted(answer['total'], 'dead letter')} in total")


@dead_letter.command("show")
@project_argument
@click.argument("letter")
@click.option("--payload", is_flag=True, help="Print only the event's payload, byte for byte.")
def letter_show(project: str, letter: str, payload: bool) -> None:
    """Show a dead letter."""
    client, project = open_project(project)
    value = client.call("GET", ["dead_letter", project, letter])
    if payload:
        sys.stdout.buffer.write(base64.b64decode(value["payload"]))
        sys.stdout.flush()
    else:
        show_fields(value, _FIELDS)


@dead_letter.command("replay")
@project_argument
@_letters_argument
@click.pass_context
def letter_replay(context: click.Context, project: str, letters: tuple[str, ...]) -> None:
    """Run the handlers of dead letters again.

    Each new failure makes a new dead letter.
    """
    client, project = open_project(project)
    body = {"letterIDs": list(letters)}
    results = client.call("POST", ["dead_letter", project, "replay"], body=body)["results"]
    rows = [{**row, "outcome": row["errMsg"] or f"code {row['code']}"} for row in results]
    show_rows(rows, {"letterID": "LETTER", "outcome": "OUTCOME"}, "nothing to replay")
    if any(row["errMsg"] for row in results):
        context.exit(EXIT_REFUSED)


@dead_letter.command("discard")
@project_argument
@_letters_argument
def letter_discard(project: str, letters: tuple[str, ...]) -> None:
    """Delete dead letters."""
    client, project = open_project(project)
    client.call("DELETE", ["dead_letter", project], query={"letterID": list(letters)})
    show_done(f"{counted(len(letters), 'dead letter')} discarded", discarded=list(letters))
