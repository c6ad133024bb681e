"""Commands about what happened: `event` and `dead-letter`."""

from __future__ import annotations

import base64
import sys
from typing import Any

import click

from fieldbrook.commands_events import log_line
from fieldbrook.commands_objects import project_name
from fieldbrook.console import (
    current,
    items,
    note,
    shared_options,
    show_done,
    show_fields,
    show_json,
    show_rows,
)

_EVENT = {"eventID": "EVENT", "eventType": "TYPE", "handledAt": "HANDLED", "outcome": "OUTCOME"}
_LETTER = {
    "letterID": "LETTER",
    "failedAt": "FAILED",
    "eventType": "TYPE",
    "appletName": "APPLET",
    "handler": "HANDLER",
    "reason": "REASON",
}
_LETTER_FIELDS = {
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


@click.command()
@click.argument("project_", metavar="PROJECT")
@click.argument("event_id", metavar="[EVENT]", required=False)
@click.option("--limit", "-n", type=click.IntRange(1, 1_000), default=20, show_default=True)
@shared_options
def event(project_: str, event_id: str | None, limit: int) -> None:
    """Tell what became of an event, or of the last ones.

    EVENT is the id that every answer carries (X-Event-Id, eventID).
    """
    client = current().client()
    query: dict[str, Any] = {"limit": limit}
    if event_id:
        query["eventID"] = event_id
    answer = client.call("GET", ["event_log", project_name(client, project_)], query=query)
    if current().json:
        show_json(answer)
        return
    rows = [{**row, "outcome": _outcome(row)} for row in items(answer)]
    show_rows(rows, _EVENT, "nothing is known of such an event")
    for row in answer.get("logs", ()):
        click.echo(log_line(row))


def _outcome(row: dict[str, Any]) -> str:
    if row.get("error"):
        return f"refused: {row['error']}"
    results = row["results"]
    if not results:
        return "no strategy matched"
    return ", ".join(part["errMsg"] or f"code {part['code']}" for part in results)


@click.group("dead-letter")
def dead_letter() -> None:
    """Events whose handler failed: look at them, run them again, throw them away."""


@dead_letter.command("list")
@click.argument("project_", metavar="PROJECT")
@click.option("--limit", "-n", type=click.IntRange(1, 1_000), default=20, show_default=True)
@click.option("--before", help="Only letters older than this one.")
@shared_options
def letter_list(project_: str, limit: int, before: str | None) -> None:
    """List dead letters, the newest first."""
    client = current().client()
    query: dict[str, Any] = {"limit": limit}
    if before:
        query["before"] = before
    answer = client.call("GET", ["dead_letter", project_name(client, project_)], query=query)
    show_rows(items(answer), _LETTER, "no dead letters")
    if not current().json and answer["total"] > len(items(answer)):
        note(f"{answer['total']} in all")


@dead_letter.command("show")
@click.argument("project_", metavar="PROJECT")
@click.argument("letter")
@click.option("--payload", is_flag=True, help="Print the event's payload alone, byte for byte.")
@shared_options
def letter_show(project_: str, letter: str, payload: bool) -> None:
    """Show one dead letter."""
    client = current().client()
    value = client.call("GET", ["dead_letter", project_name(client, project_), letter])
    if payload:
        sys.stdout.buffer.write(base64.b64decode(value["payload"]))
        sys.stdout.flush()
    else:
        show_fields(value, _LETTER_FIELDS)


@dead_letter.command("replay")
@click.argument("project_", metavar="PROJECT")
@click.argument("letters", nargs=-1, required=True, metavar="LETTER...")
@shared_options
def letter_replay(project_: str, letters: tuple[str, ...]) -> None:
    """Run handlers again over dead letters; one that fails again is a new letter."""
    client = current().client()
    path = ["dead_letter", project_name(client, project_), "replay"]
    answer = client.call("POST", path, body={"letterIDs": list(letters)})
    rows = [{**row, "outcome": row["errMsg"] or f"code {row['code']}"} for row in answer["results"]]
    show_rows(rows, {"letterID": "LETTER", "outcome": "OUTCOME"}, "nothing to replay")
    if any(row["errMsg"] for row in answer["results"]):
        sys.exit(1)


@dead_letter.command("discard")
@click.argument("project_", metavar="PROJECT")
@click.argument("letters", nargs=-1, required=True, metavar="LETTER...")
@shared_options
def letter_discard(project_: str, letters: tuple[str, ...]) -> None:
    """Throw dead letters away."""
    client = current().client()
    path = ["dead_letter", project_name(client, project_)]
    client.call("DELETE", path, query={"letterID": list(letters)})
    show_done(f"{len(letters)} discarded", discarded=list(letters))
