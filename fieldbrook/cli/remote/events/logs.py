"""Command that prints the logs of applets: `logs`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from fieldbrook.cli.client import Client, items
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import WrongUsageError
from fieldbrook.cli.options import SharedCommand, project_argument
from fieldbrook.cli.remote.lookup import open_project
from fieldbrook.cli.text import printable

_PAGE_ROWS = 1_000  # largest page of the route
_POLL_S = 0.5


@click.command(cls=SharedCommand)
@project_argument
@click.option("--follow", "-f", is_flag=True, help="Print new rows until Ctrl-C.")
@click.option(
    "--tail",
    "-n",
    type=click.IntRange(1, _PAGE_ROWS),
    help="Print this many of the latest rows [default: 20].",
)
@click.option("--after", type=click.IntRange(0), help="Print all rows after this sequence number.")
def logs(project: str, follow: bool, tail: int | None, after: int | None) -> None:
    """Print the log rows of a project's applets, the oldest first.

    With --json each row is one line of JSON; its `sequence` is a value for --after.
    """
    if tail is not None and after is not None:
        raise WrongUsageError("--tail and --after cannot both be given")
    client, project = open_project(project)
    start = after if after is not None else -(tail or 20)
    for row in _rows(client, project, start, follow):
        click.echo(json.dumps(row, ensure_ascii=False) if current().json else log_line(row))


def log_line(row: dict[str, Any]) -> str:
    """Format a log row for people: `2026-11-21T06:31:00.123Z info  counter: count=1`."""
    source = str(row.get("src") or "")
    origin = "" if source in ("", "wasmCode") else f" [{source}]"
    level = str(row.get("level", ""))
    applet_name = row.get("appletName") or "-"
    return printable(
        f"{row.get('logTime', '')} {level:<5} {applet_name}{origin}: {row.get('msg', '')}"
    )


def _rows(client: Client, project: str, after: int, follow: bool) -> Iterator[dict[str, Any]]:
    end = None if follow else _last_sequence(client, project)
    while True:
        query = {"after": after, "limit": _PAGE_ROWS if after >= 0 else -after}
        page = items(client.call("GET", ["applet_log", project], query=query))
        for row in page:
            # Without --follow, rows that were written after the command started are left out.
            if end is None or int(row["sequence"]) <= end:
                yield row
        if page:
            after = int(page[-1]["sequence"])
        if end is not None and (not page or after >= end):
            return
        if not page:
            after = max(after, 0)  # an empty log: negative values count from its last row
            sys.stdout.flush()
            time.sleep(_POLL_S)


def _last_sequence(client: Client, project: str) -> int:
    query = {"after": -1, "limit": 1}
    newest = items(client.call("GET", ["applet_log", project], query=query))
    return int(newest[-1]["sequence"]) if newest else 0
