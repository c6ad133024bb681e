"""Commands on dead letters: `dead-letter`."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from fieldbrook.cli.client import Client, items
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import EXIT_REFUSED, WrongUsageError
from fieldbrook.cli.options import CommandGroup, limit_option, project_argument
from fieldbrook.cli.output import note, show_done, show_fields, show_rows
from fieldbrook.cli.remote.lookup import find_applet, open_project, with_publisher_keys
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
    "publisher": "publisher",
    "appletName": "applet",
    "appletVersion": "version",
    "handler": "handler",
    "reason": "reason",
    "attempts": "attempts",
    "receivedAt": "received",
    "failedAt": "failed",
    "size": "bytes",
}
_GROUP_COLUMNS = {
    "count": "LETTERS",
    "newest": "LAST FAILED",
    "appletName": "APPLET",
    "handler": "HANDLER",
    "reason": "REASON",
}
_REPLAY_FIELDS = {
    "found": "found",
    "replayed": "replayed",
    "failed": "failed",
    "notReplayable": "not replayable",
}
_DISCARD_FIELDS = {"found": "found", "discarded": "discarded"}
_BATCH = 1_000  # letters per request, the largest `limit` of the routes

F = TypeVar("F", bound=Callable[..., Any])

_letters_argument = click.argument("letters", nargs=-1, metavar="[LETTER...]")
_all_option = click.option("--all", "everything", is_flag=True, help="Take all dead letters.")
_dry_run_option = click.option("--dry-run", is_flag=True, help="Only count the dead letters.")


def _filter_options(command: F) -> F:
    """Add the options that select dead letters; the command gets them as `**filters`."""
    for name, kind, text in (
        ("version", click.IntRange(1), "Take only letters of this version of the applet."),
        ("type", str, "Take only letters of this event type."),
        ("handler", str, "Take only letters of this handler."),
        ("applet", str, "Take only letters of this applet, by name or id."),
        ("reason", str, "Take only letters with exactly this reason."),
    ):
        command = click.option(f"--{name}", type=kind, help=text)(command)
    return command


def _filters(client: Client, project: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the routes for the given options of `_filter_options`."""
    found = {key: given[key] for key in ("reason", "handler", "version") if given[key]}
    if given["type"]:
        found["eventType"] = given["type"]
    if given["applet"]:
        found["appletID"] = find_applet(client, project, given["applet"])["appletID"]
    return found


@click.group("dead-letter", cls=CommandGroup)
def dead_letter() -> None:
    """Manage dead letters: events whose handler trapped or could not run.

    An event whose handler returned a negative code is not a dead letter, because its writes are
    kept: see `event list --outcome failed`.
    """


@dead_letter.command("list")
@project_argument
@limit_option()
@click.option("--before", metavar="LETTER", help="List only letters older than this one.")
@click.option("--group", is_flag=True, help="Count letters by reason, applet and handler.")
@_filter_options
def letter_list(project: str, limit: int, before: str | None, group: bool, **filters: Any) -> None:
    """List dead letters, the newest first, or count them with --group."""
    client, project = open_project(project)
    query: dict[str, Any] = {"limit": limit, **_filters(client, project, filters)}
    if group:
        query["groupBy"] = "reason"
        groups = client.call("GET", ["dead_letter", project], query=query)["groups"]
        show_rows(groups, _GROUP_COLUMNS, "no dead letters")
        return
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
        if not current().json:
            (value,) = with_publisher_keys(client, project, [value])
        show_fields(value, _FIELDS)


@dead_letter.command("replay")
@project_argument
@_letters_argument
@_filter_options
@_all_option
@_dry_run_option
@click.pass_context
def letter_replay(
    context: click.Context,
    /,
    project: str,
    letters: tuple[str, ...],
    everything: bool,
    dry_run: bool,
    **filters: Any,
) -> None:
    """Run the handlers of dead letters again: of the given ones, or of all that options select.

    Each new failure makes a new dead letter. The exit code is 1 when a handler failed.
    """
    client, project = open_project(project)
    chosen = _chosen(client, project, letters, everything, dry_run, filters)
    if chosen is not None:
        route = ["dead_letter", project, "replay"]
        total = _repeat(
            lambda body: client.call("POST", route, body=body), chosen, [*_REPLAY_FIELDS]
        )
        show_fields(total, _REPLAY_FIELDS)
        if total["failed"] or total["notReplayable"]:
            context.exit(EXIT_REFUSED)
        return
    body = {"letterIDs": list(letters)}
    results = client.call("POST", ["dead_letter", project, "replay"], body=body)["results"]
    rows = [{**row, "outcome": row["errMsg"] or f"code {row['code']}"} for row in results]
    show_rows(rows, {"letterID": "LETTER", "outcome": "OUTCOME"}, "nothing to replay")
    if any(row["errMsg"] for row in results):
        context.exit(EXIT_REFUSED)


@dead_letter.command("discard")
@project_argument
@_letters_argument
@_filter_options
@_all_option
@_dry_run_option
def letter_discard(
    project: str, letters: tuple[str, ...], everything: bool, dry_run: bool, **filters: Any
) -> None:
    """Delete dead letters: the given ones, or all that options select."""
    client, project = open_project(project)
    chosen = _chosen(client, project, letters, everything, dry_run, filters)
    if chosen is not None:
        query = {key: _query_text(value) for key, value in chosen.items()}
        route = ["dead_letter", project]
        total = _repeat(
            lambda part: client.call("DELETE", route, query=part), query, [*_DISCARD_FIELDS]
        )
        show_fields(total, _DISCARD_FIELDS)
        return
    client.call("DELETE", ["dead_letter", project], query={"letterID": list(letters)})
    show_done(f"{counted(len(letters), 'dead letter')} discarded", discarded=list(letters))


def _chosen(
    client: Client,
    project: str,
    letters: tuple[str, ...],
    everything: bool,
    dry_run: bool,
    filters: dict[str, Any],
) -> dict[str, Any] | None:
    """Return the parameters that select letters by options; None if letters were named.

    Raises:
        WrongUsageError: neither or both were given.
    """
    selecting = everything or any(filters.values())
    if letters and (selecting or dry_run):
        raise WrongUsageError("LETTER cannot be given together with options that select letters")
    if letters:
        return None
    if not selecting:
        raise WrongUsageError(
            "no dead letters are given", "name LETTERs, or select them with --reason or --all"
        )
    chosen = _filters(client, project, filters)
    return {**chosen, "all": not chosen, "dryRun": dry_run, "limit": _BATCH}


def _repeat(
    request: Callable[[dict[str, Any]], dict[str, Any]], chosen: dict[str, Any], keys: list[str]
) -> dict[str, int]:
    """Repeat a request until no letter is left, and return the sums of its counts."""
    total = dict.fromkeys(keys, 0)
    while True:
        answer = request(chosen)
        for key in keys:
            total[key] += answer[key]
        if not answer["next"]:
            return total
        chosen = {**chosen, "after": answer["next"]}


def _query_text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
