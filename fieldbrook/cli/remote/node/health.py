"""Commands on the health of the node: `status`, `health`."""

from __future__ import annotations

from typing import Any

import click

from fieldbrook.cli.client import items
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import EXIT_REFUSED
from fieldbrook.cli.options import SharedCommand
from fieldbrook.cli.output import note, show_json, show_rows

_OPEN_COLUMNS = {"part": "PART", "state": "STATE", "since": "SINCE", "detail": "DETAIL"}
_ENDED_COLUMNS = {
    "part": "PART",
    "state": "STATE",
    "since": "SINCE",
    "until": "UNTIL",
    "detail": "DETAIL",
}


@click.command(cls=SharedCommand)
@click.pass_context
def status(context: click.Context) -> None:
    """Show the state of each part of the node; this needs no login.

    The exit code is 1 when a part is not ok.
    """
    parts = current().anonymous_client().liveness() or {}
    rows = [{"part": name, "state": state} for name, state in sorted(parts.items())]
    if current().json:
        show_json(parts)
    else:
        show_rows(rows, {"part": "PART", "state": "STATE"}, "the node reports no parts")
    if any(row["state"] != "ok" for row in rows):
        context.exit(EXIT_REFUSED)


_PROCESS_COLUMNS = {
    "part": "PROCESS",
    "state": "STATE",
    "pid": "PID",
    "memory": "MEMORY",
    "cpuSeconds": "CPU SECONDS",
    "restarts": "RESTARTS",
    "projects": "PROJECTS",
}
_PROJECT_COLUMNS = {
    "project": "PROJECT",
    "worker": "WORKER",
    "memory": "MEMORY",
    "busySeconds": "BUSY SECONDS",
    "restarts": "RESTARTS",
}


@click.command(cls=SharedCommand)
@click.option("--recent", is_flag=True, help="Show conditions that have ended, too.")
@click.option("--processes", is_flag=True, help="Show the processes and the projects in them, too.")
@click.pass_context
def health(context: click.Context, recent: bool, processes: bool) -> None:
    """Show open health conditions, for administrators.

    The exit code is 1 when the node is not healthy.
    """
    answer: dict[str, Any] = current().client().call("GET", ["health"])
    if current().json:
        show_json(answer)
    else:
        show_rows(items(answer), _OPEN_COLUMNS, "nothing is wrong")
        if answer["total"] > len(items(answer)):
            note(f"{answer['total']} conditions in total")
        if recent and answer["recent"]:
            note("ended conditions:")
            show_rows(answer["recent"], _ENDED_COLUMNS, "")
        if processes:
            note("processes:")
            show_rows(_with_memory(answer["processes"]), _PROCESS_COLUMNS, "")
            note("projects, the busiest first:")
            show_rows(_with_memory(answer["running"]), _PROJECT_COLUMNS, "no projects")
    if not answer["healthy"]:
        context.exit(EXIT_REFUSED)


def _with_memory(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with their memory in a form for users."""
    return [
        {**row, "memory": f"{row['memoryBytes'] / (1 << 20):.1f} MiB"}
        if "memoryBytes" in row
        else row
        for row in rows
    ]
