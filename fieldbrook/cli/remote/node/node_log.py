"""Command that prints the log of the node: `node-log`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from fieldbrook.cli.client import Client, items
from fieldbrook.cli.console import current
from fieldbrook.cli.options import SharedCommand
from fieldbrook.cli.text import as_json, printable

_PAGE_ROWS = 1_000  # largest page of the route
_POLL_S = 0.5
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


@click.command("node-log", cls=SharedCommand)
@click.option("--follow", "-f", is_flag=True, help="Print new lines until Ctrl-C.")
@click.option(
    "--tail",
    "-n",
    type=click.IntRange(1, _PAGE_ROWS),
    default=100,
    help="Print this many of the latest lines [default: 100].",
)
@click.option(
    "--level",
    type=click.Choice(_LEVELS, case_sensitive=False),
    help="Print only lines as severe as this.",
)
@click.option("--contains", metavar="TEXT", help="Print only lines with this text, in any case.")
@click.option(
    "--process",
    metavar="NAME",
    help="Print only lines of this process, e.g. http:0, or of all of a kind, e.g. http.",
)
def node_log(follow: bool, tail: int, **filters: str | None) -> None:
    """Print the log of the node's processes, the oldest line first, for administrators.

    The node keeps the last 5,000 lines (2 MiB at most) in memory, also those of processes that have
    died. --level also prints lines that are more severe. With --json each line is a line of JSON.
    """
    for row in _rows(current().client(), tail, follow, filters):
        click.echo(as_json(row) if current().json else _line(row))


def _line(row: dict[str, Any]) -> str:
    """Format a line for users: `2026-11-21T06:31:00.123Z INFO    http:0: listen on :8888`."""
    head = f"{row['time']} {row['level']:<7} {row['process']}: "
    return printable(head + row["logger"] + ": ") + "\n".join(
        printable(line) for line in row["text"].split("\n")
    )


def _rows(
    client: Client, tail: int, follow: bool, filters: dict[str, str | None]
) -> Iterator[dict[str, Any]]:
    after, limit = -tail, tail
    while True:
        query = {"after": after, "limit": limit, **filters}
        answer = client.call("GET", ["node_log"], query=query)
        yield from items(answer)
        if not follow:
            return
        after, limit = int(answer["next"]), _PAGE_ROWS
        if not items(answer):
            sys.stdout.flush()
            time.sleep(_POLL_S)
