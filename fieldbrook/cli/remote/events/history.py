"""Commands on the event history and refused events: `event`, `refused`."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from fieldbrook.cli.client import Client, items
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import EXIT_REFUSED, ClientError, WrongUsageError
from fieldbrook.cli.options import CommandGroup, SharedCommand, limit_option, project_argument
from fieldbrook.cli.output import note, show_fields, show_json, show_rows
from fieldbrook.cli.remote.events.logs import log_line
from fieldbrook.cli.remote.events.traces import show_calls, trace
from fieldbrook.cli.remote.lookup import open_project, with_publisher_keys
from fieldbrook.cli.stream import follow
from fieldbrook.cli.text import as_json, counted, printable

_EVENT_COLUMNS = {
    "eventID": "EVENT",
    "eventType": "TYPE",
    "source": "SOURCE",
    "handledAt": "HANDLED",
    "outcome": "OUTCOME",
}
_EFFECT_COLUMNS = {"kind": "SENT", "target": "TO", "size": "BYTES", "state": "STATE"}
_TRANSACTION_COLUMNS = {"transactionID": "TRANSACTION", "state": "STATE", "hash": "HASH"}
_FLOW_COLUMNS = {
    "eventType": "TYPE",
    "source": "SOURCE",
    "publisher": "PUBLISHER",
    "events": "EVENTS",
    "failed": "FAILED",
    "perSecond": "PER SECOND",
}
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


_OUTCOMES = ("ok", "failed", "unhandled", "duplicate")
_SOURCES = ("http", "mqtt", "cron", "api", "chain")

F = TypeVar("F", bound=Callable[..., Any])


def _filter_options(command: F) -> F:
    """Add the options that select events; the command gets them as `**filters`."""
    for name, kind, text in (
        ("before", str, "List only events before this place of the history."),
        ("to", str, "List only events received before this time."),
        ("from", str, "List only events received at or after this time."),
        ("source", click.Choice(_SOURCES), "List only events from this source."),
        ("outcome", click.Choice(_OUTCOMES), "List only events with this outcome."),
        ("publisher", str, "List only events of this publisher, by key or id."),
        ("type", str, "List only events of this type."),
    ):
        command = click.option(f"--{name}", type=kind, help=text)(command)
    return command


class _EventGroup(CommandGroup):
    """Makes `event PROJECT` an abbreviation of `event show PROJECT`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [arg for arg in args if not arg.startswith("-")]
        if words and words[0] not in self.commands:
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_EventGroup)
def event() -> None:
    """Show the event history, replay events of it, or trace the next ones.

    `event PROJECT [EVENT]` is short for `event show PROJECT [EVENT]`. A project with the name
    `list`, `show`, `flow`, `replay` or `trace` needs the long form: `event show show`.
    """


event.add_command(trace)


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


@event.command("flow")
@project_argument
@click.option(
    "--seconds",
    type=click.IntRange(10, 3_600),
    default=300,
    show_default=True,
    help="How far back events are counted.",
)
def event_flow(project: str, seconds: int) -> None:
    """Count the recent events by type and sender, and the failed ones."""
    client, project = open_project(project)
    answer = client.call("GET", ["event_log", project, "flow"], query={"seconds": seconds})
    if current().json:
        show_json(answer)
        return
    sources = with_publisher_keys(client, project, answer["sources"])
    show_rows(sources, _FLOW_COLUMNS, f"no events in the last {seconds} s")


_follow_option = click.option(
    "-f", "--follow", "following", is_flag=True, help="Keep printing new events."
)


@event.command("list")
@project_argument
@limit_option()
@_filter_options
@_follow_option
def event_list(project: str, limit: int, following: bool, **filters: str | None) -> None:
    """List the latest events with their outcomes.

    It is `event show PROJECT` without an EVENT. TIME has the form 2026-11-21T06:31:00Z.
    """
    _list(project, None, limit, following, filters)


@event.command("show")
@project_argument
@click.argument("event_id", metavar="[EVENT]", required=False)
@limit_option()
@_filter_options
@click.option("--place", metavar="PLACE", help="Show the event at this place of the history.")
@click.option("--payload", is_flag=True, help="With --place: print only the event's payload.")
@_follow_option
def event_show(
    project: str,
    event_id: str | None,
    limit: int,
    place: str | None,
    payload: bool,
    following: bool,
    **filters: str | None,
) -> None:
    """Show the outcome of one event, or of the latest events.

    EVENT is the id in every answer to an event (X-Event-Id, eventID). For one event the output
    includes its log lines, everything that its handlers sent, the host calls of a traced event, and
    the reason of a refusal. The place of an event is in the JSON of a list (--json). TIME has the
    form 2026-11-21T06:31:00Z.

    With --follow the command prints events as they are handled, at most 160 per second, failed
    ones first, and says how many it left out. With --json each message of the node is one line.
    """
    if following and (event_id or place):
        raise WrongUsageError("--follow shows new events: EVENT and --place cannot be given")
    if payload and not place:
        raise WrongUsageError("--payload needs --place")
    if place:
        client, project = open_project(project)
        _show_place(client, project, place, payload)
    else:
        _list(project, event_id, limit, following, filters)


def _list(
    project: str,
    event_id: str | None,
    limit: int,
    following: bool,
    filters: Mapping[str, str | None],
) -> None:
    """Print the events that the options select, only the event with the id, or new events."""
    if following and (filters["from"] or filters["to"] or filters["before"]):
        raise WrongUsageError("--follow shows new events: --from, --to, --before cannot be given")
    client, project = open_project(project)
    if following:
        _follow(client, topic="events", project=project, **filters)
        return
    query: dict[str, Any] = {"limit": limit, "eventID": event_id or None}
    query |= {key: value for key, value in filters.items() if key not in ("from", "to")}
    query |= {"begin": filters["from"], "end": filters["to"]}
    answer = _whole_page(client, project, query, limit)
    if current().json:
        show_json(answer)
        return
    rows = items(answer)
    if not event_id:
        _show_details(rows, answer, "no such events in the history")
        return
    _show_details(rows, answer)
    for row in rows:
        if row.get("traced"):
            show_calls(client.call("GET", ["event_log", project, "at", row["place"]]))


def _whole_page(client: Client, project: str, query: dict[str, Any], limit: int) -> Any:
    """Read events until there are `limit`; each request searches only a part of the history."""
    answer = client.call("GET", ["event_log", project], query=query)
    while answer.get("next") and len(answer["data"]) < limit:
        query |= {"before": answer["next"], "limit": limit - len(answer["data"])}
        more = client.call("GET", ["event_log", project], query=query)
        details = {key: [*answer[key], *more[key]] for key in ("logs", "effects") if key in answer}
        answer |= {"data": [*answer["data"], *more["data"]], "next": more["next"], **details}
    return answer


def _show_place(client: Client, project: str, place: str, payload: bool) -> None:
    value = client.call("GET", ["event_log", project, "at", place])
    if payload:
        if "payload" not in value:
            raise ClientError("the payload of this event is not kept any more")
        sys.stdout.buffer.write(base64.b64decode(value["payload"]))
        sys.stdout.flush()
    elif current().json:
        show_json(value)
    else:
        _show_details([value], value)
        show_calls(value)


def _show_details(
    rows: list[dict[str, Any]], answer: dict[str, Any], empty: str = "no such event in the history"
) -> None:
    rows = [{**row, "outcome": _outcome(row)} for row in rows]
    refused_rows = answer.get("refusals") or []
    if rows or not refused_rows:
        show_rows(rows, _EVENT_COLUMNS, empty)
    for row in answer.get("logs", ()):
        click.echo(log_line(row))
    if answer.get("effects"):
        show_rows(answer["effects"], _EFFECT_COLUMNS, "")
    if answer.get("transactions"):
        show_rows(answer["transactions"], _TRANSACTION_COLUMNS, "")
    if refused_rows:
        show_rows(refused_rows, _REFUSED_COLUMNS, "")


def _follow(client: Client, **query: object) -> None:
    for message in follow(client, ["stream"], **query):
        if current().json:
            click.echo(as_json(message))
            continue
        for row in message["rows"]:
            line = f"{row['handledAt']} {row['eventID']} {row['eventType']}: {_outcome(row)}"
            click.echo(printable(line))
        if message["left_out"]:
            note(f"{counted(message['left_out'], 'event')} not shown")
        sys.stdout.flush()


@click.command(cls=SharedCommand)
@click.argument("event_id", metavar="[EVENT]", required=False)
@click.option("--project", metavar="PROJECT", help="List only events for a project of this name.")
@limit_option()
def refused(event_id: str | None, project: str | None, limit: int) -> None:
    """List events that no project received, for administrators.

    They were refused before they reached a project. Only this command shows events for unknown
    projects; owners find those for their own projects with `event`.
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

    The text is "" if the applet was removed.
    """
    if not part.get("appletName"):
        return ""
    handler = part.get("handler", "")
    return f"{part['appletName']} v{part['appletVersion']} {handler}".rstrip() + ": "
