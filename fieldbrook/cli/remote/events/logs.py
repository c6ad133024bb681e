"""Command that prints the logs of applets: `logs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from fieldbrook.cli.client import Client, items
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import WrongUsageError
from fieldbrook.cli.options import SharedCommand, project_argument
from fieldbrook.cli.remote.lookup import open_project
from fieldbrook.cli.stream import follow
from fieldbrook.cli.text import as_json, printable

_PAGE_ROWS = 1_000  # largest page of the route
_LEVELS = ("panic", "fatal", "error", "warning", "info", "debug", "trace")


class _Level(click.Choice[str]):
    """The name of a level; `warn` is an older name of `warning`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert("warning" if value == "warn" else value, param, ctx)


@click.command(cls=SharedCommand)
@project_argument
@click.option("--follow", "-f", "goes_on", is_flag=True, help="Print new rows until Ctrl-C.")
@click.option(
    "--tail",
    "-n",
    type=click.IntRange(1, _PAGE_ROWS),
    help="Print this many of the latest rows [default: 20].",
)
@click.option("--after", type=click.IntRange(0), help="Print all rows after this sequence number.")
@click.option("--level", type=_Level(_LEVELS), help="Print only rows as severe as this.")
@click.option("--contains", metavar="TEXT", help="Print only rows with this text, in any case.")
@click.option("--event", metavar="EVENT", help="Print only rows of this event.")
@click.option("--instance", metavar="INSTANCE", help="Print only rows of this instance.")
@click.option("--from", "begin", metavar="TIME", help="Print only rows from this time on.")
@click.option("--to", "end", metavar="TIME", help="Print only rows before this time.")
def logs(
    project: str, goes_on: bool, tail: int | None, after: int | None, **filters: str | None
) -> None:
    """Print the log rows of a project's applets, the oldest first.

    With --json each row is one line of JSON; its `sequence` is a value for --after. TIME has the
    form 2026-11-21T06:31:00Z. --level also prints rows that are more severe.
    """
    if tail is not None and after is not None:
        raise WrongUsageError("--tail and --after cannot both be given")
    client, project = open_project(project)
    start = after if after is not None else -(tail or 20)
    names = {"event": "eventID", "instance": "instanceID"}
    query = {names.get(key, key): value for key, value in filters.items()}
    for row in _rows(client, project, start, goes_on, query):
        click.echo(as_json(row) if current().json else log_line(row))


def log_line(row: dict[str, Any]) -> str:
    """Format a log row for users: `2026-11-21T06:31:00.123Z info    counter: count=1`."""
    source = str(row.get("src") or "")
    origin = "" if source in ("", "wasmCode") else f" [{source}]"
    level = str(row.get("level", ""))
    applet_name = row.get("appletName") or "-"
    return printable(
        f"{row.get('logTime', '')} {level:<7} {applet_name}{origin}: {row.get('msg', '')}"
    )


def _rows(
    client: Client, project: str, after: int, goes_on: bool, filters: Mapping[str, str | None]
) -> Iterator[dict[str, Any]]:
    # Rows that are written after the command has started are printed only with --follow.
    end = last_sequence(client, project)
    while True:
        limit = _PAGE_ROWS if after >= 0 else -after
        query = {"after": after, "limit": limit, **filters}
        answer = client.call("GET", ["applet_log", project], query=query)
        for row in items(answer):
            if int(row["sequence"]) <= end:
                yield row
        # A search is bounded: even without a matching row, it may have advanced.
        advanced = int(answer["next"]) > after >= 0
        after = int(answer["next"])
        if not advanced or after >= end:
            break
    if goes_on:
        query = {"follow": "true", "after": end, "limit": _PAGE_ROWS, **filters}
        yield from follow(client, ["applet_log", project], **query)


def last_sequence(client: Client, project: str) -> int:
    """Return the sequence number of a project's newest log row; 0 if there is none."""
    query = {"after": -1, "limit": 1}
    newest = items(client.call("GET", ["applet_log", project], query=query))
    return int(newest[-1]["sequence"]) if newest else 0
