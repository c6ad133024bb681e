"""Commands on the event history and refused events: `event`, `refused`."""

from __future__ import annotations

from typing import Any

import click

from fieldbrook.cli.client import items
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import EXIT_REFUSED
from fieldbrook.cli.options import CommandGroup, SharedCommand, limit_option, project_argument
from fieldbrook.cli.output import note, show_fields, show_json, show_rows
from fieldbrook.cli.remote.events.logs import log_line
from fieldbrook.cli.remote.lookup import open_project
from fieldbrook.cli.text import counted

_EVENT_COLUMNS = {
    "eventID": "EVENT",
    "eventType": "TYPE",
    "source": "SOURCE",
    "handledAt": "HANDLED",
    "outcome": "OUTCOME",
}
_EFFECT_COLUMNS = {"kind": "SENT", "target": "TO", "size": "BYTES", "state": "STATE"}
_REFUSED_COLUMNS = {
    "eventID": "EVENT",
    "refusedAt": "REFUSED",
    "source": "SOURCE",
    "publisher": "PUBLISHER",
    "error": "ERROR",
    "reason": "REASON",
}
_REPLAY_FIELDS = {
    "found": "found",
    "replayed": "replayed",
    "failed": "failed",
    "notReplayable": "not replayable",
}


class _EventGroup(CommandGroup):
    """Makes `event PROJECT` an abbreviation of `event show PROJECT`, the most frequent use."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [arg for arg in args if not arg.startswith("-")]
        if words and words[0] not in self.commands:
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_EventGroup)
def event() -> None:
    """Show the event history, or replay events of it.

    `event PROJECT [EVENT]` is short for `event show PROJECT [EVENT]`. A project with the name
    `show` or `replay` needs the long form: `event show show`.
    """


@event.command("replay")
@click.option("--project", required=True, metavar="PROJECT", help="The project of the events.")
@click.option("--from", "begin", required=True, metavar="TIME", help="Begin of the time range.")
@click.option("--to", "end", required=True, metavar="TIME", help="End of the time range.")
@click.option("--type", "event_type", default="", help="Replay only events of this type.")
@click.option("--publisher", default="", help="Replay only events of this publisher, by key or id.")
@click.option("--dry-run", is_flag=True, help="Count the events, but do not run handlers.")
@click.pass_context
def event_replay(
    context: click.Context,
    project: str,
    begin: str,
    end: str,
    event_type: str,
    publisher: str,
    dry_run: bool,
) -> None:
    """Run handlers again for the events of a time range.

    The events run in the order of their receipt. TIME has the form 2026-11-21T06:31:00Z;
    events received at the end of the range are left out. The node keeps only the payloads of
    the newest events (setting replayable_bytes); the output counts the events that cannot be
    replayed. Each replay is an event of its own with the id <event id>#r1, #r2 and so on. The
    exit code is 1 when a handler failed.
    """
    client, project = open_project(project)
    body: dict[str, Any] = {"from": begin, "to": end, "eventType": event_type, "limit": 1_000}
    body |= {"publisher": publisher, "dryRun": dry_run, "after": ""}
    total = dict.fromkeys(_REPLAY_FIELDS, 0)
    while True:
        answer = client.call("POST", ["event_log", project, "replay"], body=body)
        for key in total:
            total[key] += answer[key]
        if not answer["next"]:
            break
        body["after"] = answer["next"]
    show_fields(total, _REPLAY_FIELDS)
    if total["failed"]:
        context.exit(EXIT_REFUSED)


@event.command("show")
@project_argument
@click.argument("event_id", metavar="[EVENT]", required=False)
@limit_option()
def event_show(project: str, event_id: str | None, limit: int) -> None:
    """Show the outcome of one event, or of the latest events.

    EVENT is the id in every answer to an event (X-Event-Id, eventID). For one event the output
    includes its log lines, everything that its handlers sent, and the reason of a refusal.
    """
    client, project = open_project(project)
    query: dict[str, Any] = {"limit": limit}
    if event_id:
        query["eventID"] = event_id
    answer = client.call("GET", ["event_log", project], query=query)
    if current().json:
        show_json(answer)
        return
    rows = [{**row, "outcome": _outcome(row)} for row in items(answer)]
    refused_rows = answer.get("refusals") or []
    if rows or not refused_rows:
        show_rows(rows, _EVENT_COLUMNS, "no such event in the history")
    for row in answer.get("logs", ()):
        click.echo(log_line(row))
    if answer.get("effects"):
        show_rows(answer["effects"], _EFFECT_COLUMNS, "")
    if refused_rows:
        show_rows(refused_rows, _REFUSED_COLUMNS, "")


@click.command(cls=SharedCommand)
@click.argument("event_id", metavar="[EVENT]", required=False)
@click.option("--project", metavar="PROJECT", help="List only events for a project of this name.")
@limit_option()
def refused(event_id: str | None, project: str | None, limit: int) -> None:
    """List events that no project received, for administrators.

    They were refused before. Only this command shows events for unknown projects; owners find
    those for their own projects with `event`.
    """
    query = {"limit": limit, "eventID": event_id, "project": project}
    answer = current().client().call("GET", ["refused_event"], query=query)
    if current().json:
        show_json(answer)
        return
    show_rows(items(answer), {"project": "PROJECT", **_REFUSED_COLUMNS}, "no refused events")
    if answer["more"]:
        note(f"{counted(answer['more'], 'more event')} were refused and only counted")


def _outcome(row: dict[str, Any]) -> str:
    if row.get("error"):
        return f"refused: {row['error']}"
    results = row["results"]
    if not results:
        return "no strategy matched"
    outcomes = (_handler(part) + (part["errMsg"] or f"code {part['code']}") for part in results)
    prefix = "again: " if row.get("again") else ""
    return prefix + ", ".join(outcomes)


def _handler(part: dict[str, Any]) -> str:
    """Return the applet, its version and the handler of a result, e.g. `counter v2 start: `.

    The text is "" when the applet is no longer known.
    """
    if not part.get("appletName"):
        return ""
    handler = part.get("handler", "")
    return f"{part['appletName']} v{part['appletVersion']} {handler}".rstrip() + ": "
