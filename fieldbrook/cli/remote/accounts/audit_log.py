"""Command on the audit log: `audit`."""

from __future__ import annotations

from typing import Any

import click

from fieldbrook.cli.client import Client, items
from fieldbrook.cli.console import current
from fieldbrook.cli.options import SharedCommand, limit_option
from fieldbrook.cli.output import show_rows

_COLUMNS = {
    "time": "TIME",
    "account": "ACCOUNT",
    "accessKey": "KEY",
    "from": "FROM",
    "operation": "OPERATION",
    "path": "PATH",
    "status": "STATUS",
    "error": "ERROR",
}


@click.command(cls=SharedCommand)
@click.option(
    "--account", "username", metavar="USERNAME", help="List only changes by this account."
)
@click.option("--operation", metavar="NAME", help="List only this operation, e.g. CreateProject.")
@click.option("--path", metavar="TEXT", help="List only changes whose path contains this text.")
@click.option(
    "--since",
    metavar="TIME",
    help="List only changes from this time on, e.g. 2026-11-21T06:00:00Z.",
)
@click.option("--until", metavar="TIME", help="List only changes until this time.")
@click.option("--refused", is_flag=True, help="List only refused changes.")
@limit_option(50, 100_000)
def audit(
    username: str | None,
    operation: str | None,
    path: str | None,
    since: str | None,
    until: str | None,
    refused: bool,
    limit: int,
) -> None:
    """List the audit log: who changed what, the latest first."""
    query: dict[str, Any] = {
        "account": username,
        "operation": operation,
        "path": path,
        "begin": since,
        "end": until,
        "outcome": "REFUSED" if refused else None,
    }
    rows = _audit_rows(current().client(), query, limit)
    show_rows(rows, _COLUMNS, "no such rows in the audit log")


def _audit_rows(client: Client, query: dict[str, Any], limit: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    before = "0"
    while before and len(rows) < limit:
        page = {**query, "before": before, "limit": min(limit - len(rows), 1_000)}
        answer = client.call("GET", ["audit"], query=page)
        rows += items(answer)
        before = str(answer.get("next", ""))
    return rows
