"""Commands on the event history, refused events and dead letters."""

from __future__ import annotations

import base64
import sys
from typing import Any

import click

from fieldbrook.cli.client import EXIT_REFUSED
from fieldbrook.cli.console import (
    current,
    items,
    note,
    shared_options,
    show_done,
    show_fields,
    show_json,
    show_rows,
)
from fieldbrook.cli.remote.events import log_line
from fieldbrook.cli.remote.objects import project_name

_EVENT = {
    "eventID": "EVENT",
    "eventType": "TYPE",
    "source": "BY",
    "handledAt": "HANDLED",
    "outcome": "OUTCOME",
}
_EFFECT = {"kind": "SENT", "target": "TO", "size": "BYTES", "state": "STATE"}
_REFUSED = {
    "eventID": "EVENT",
    "refusedAt": "REFUSED",
    "source": "BY",
    "publisher": "PUBLISHER",
    "error": "ERROR",
    "reason": "REASON",
}
_LETTER = {
    "letterID": "LETTER",
    "failedAt": "FAILED",
    "eventType": "TYPE",
    "appletName": "APPLET",
    "handler": "HANDLER",
    "reason": "REASON",
}
_REPLAYED = {
    "found": "found",
    "replayed": "replayed",
    "failed": "failed",
    "notReplayable": "not replayable",
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


class _Events(click.Group):
    """Makes `event PROJECT` an abbreviation of `event show PROJECT`, the most frequent use."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [arg for arg in args if not arg.startswith("-")]
        if words and words[0] not in self.commands:
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Events)
def event() -> None:
    """The event history: show or replay events.

    `event PROJECT [EVENT]` is short for `event show PROJECT [EVENT]`. A project with the name
    `show` or `replay` needs the long form: `event show show`.
    """


@event.command("replay")
@click.option("--project", "project_", required=True, metavar="PROJECT")
@click.option("--from", "begin", required=True, metavar="TIME", help="Received from then on.")
@click.option("--to", "end", required=True, metavar="TIME", help="And before then.")
@click.option("--type", "event_type", default="", help="Only events of this type.")
@click.option("--publisher", default="", help="Only those of this publisher, by key or id.")
@click.option("--dry-run", is_flag=True, help="Count them, and run nothing.")
@shared_options
@click.pass_context
def event_replay(
    context: click.Context,
    project_: str,
    begin: str,
    end: str,
    event_type: str,
    publisher: str,
    dry_run: bool,
) -> None:
    """Run all handlers again for the events of a time range, the oldest first.

    TIME has the form 2026-11-21T06:31:00Z. The node keeps only the payloads of the newest
    events (setting replayable_bytes); the output counts the events that cannot be replayed.
    Each replay is an event of its own with the id <event id>#r1, #r2 and so on. The exit code
    is 1 when a handler failed.
    """
    client = current().client()
    path = ["event_log", project_name(client, project_), "replay"]
    body: dict[str, Any] = {"from": begin, "to": end, "eventType": event_type, "limit": 1_000}
    body |= {"publisher": publisher, "dryRun": dry_run, "after": ""}
    total = dict.fromkeys(_REPLAYED, 0)
    while True:
        answer = client.call("POST", path, body=body)
        for key in total:
            total[key] += answer[key]
        if not answer["next"]:
            break
        body["after"] = answer["next"]
    show_fields(total, _REPLAYED)
    if total["failed"]:
        context.exit(EXIT_REFUSED)


@event.command("show")
@click.argument("project_", metavar="PROJECT")
@click.argument("event_id", metavar="[EVENT]", required=False)
@click.option("--limit", "-n", type=click.IntRange(1, 1_000), default=20, show_default=True)
@shared_options
def event_show(project_: str, event_id: str | None, limit: int) -> None:
    """Show the outcome of one event, or of the latest events.

    EVENT is the id in every answer to an event (X-Event-Id, eventID). For one event the output
    includes its log lines, everything that its handlers sent, and the reason of a refusal.
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
    refused = answer.get("refusals") or []
    if rows or not refused:
        show_rows(rows, _EVENT, "nothing is known of such an event")
    for row in answer.get("logs", ()):
        click.echo(log_line(row))
    if answer.get("effects"):
        show_rows(answer["effects"], _EFFECT, "")
    if refused:
        show_rows(refused, _REFUSED, "")


@click.command()
@click.argument("event_id", metavar="[EVENT]", required=False)
@click.option("--project", "project_", metavar="PROJECT", help="Only those sent to this name.")
@click.option("--limit", "-n", type=click.IntRange(1, 1_000), default=20, show_default=True)
@shared_options
def refused(event_id: str | None, project_: str | None, limit: int) -> None:
    """Show administrators the refused events, with the reason.

    These events were refused before a project received them. Only this command shows events
    for unknown projects; owners find those for their own projects with `event`.
    """
    query = {"limit": limit, "eventID": event_id, "project": project_}
    answer = current().client().call("GET", ["refused_event"], query=query)
    if current().json:
        show_json(answer)
        return
    show_rows(items(answer), {"project": "PROJECT", **_REFUSED}, "nothing was refused")
    if answer["more"]:
        note(f"{answer['more']} more were refused and only counted")


def _outcome(row: dict[str, Any]) -> str:
    if row.get("error"):
        return f"refused: {row['error']}"
    results = row["results"]
    if not results:
        return "no strategy matched"
    said = ", ".join(_way(part) + (part["errMsg"] or f"code {part['code']}") for part in results)
    return f"again: {said}" if row.get("again") else said


def _way(part: dict[str, Any]) -> str:
    """Return the applet, its version and the handler of a result, e.g. `counter v2 start: `.

    The text is "" when the applet is no longer known.
    """
    if not part.get("appletName"):
        return ""
    handler = part.get("handler", "")
    return f"{part['appletName']} v{part['appletVersion']} {handler}".rstrip() + ": "


@click.group("dead-letter")
def dead_letter() -> None:
    """Dead letters: events whose handler failed."""


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
    """Run the handlers of dead letters again; each new failure makes a new dead letter."""
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
    """Delete dead letters."""
    client = current().client()
    path = ["dead_letter", project_name(client, project_)]
    client.call("DELETE", path, query={"letterID": list(letters)})
    show_done(f"{len(letters)} discarded", discarded=list(letters))
