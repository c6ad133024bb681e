"""Commands on the health of the node: `status`, `health`."""

from __future__ import annotations

from typing import Any

import click

from fieldbrook.cli.client import EXIT_REFUSED
from fieldbrook.cli.console import current, items, note, shared_options, show_json, show_rows

_TROUBLE = {"part": "PART", "state": "STATE", "since": "SINCE", "detail": "DETAIL"}
_ENDED = {"part": "PART", "state": "STATE", "since": "SINCE", "until": "UNTIL", "detail": "DETAIL"}


@click.command()
@shared_options
@click.pass_context
def status(context: click.Context) -> None:
    """Show the state of each part of the node.

    The exit code is 1 when a part is not ok.
    """
    parts = current().anonymous_client().liveness() or {}
    rows = [{"part": name, "state": state} for name, state in sorted(parts.items())]
    if current().json:
        show_json(parts)
    else:
        show_rows(rows, {"part": "PART", "state": "STATE"}, "the node says nothing of its parts")
    if any(row["state"] != "ok" for row in rows):
        context.exit(EXIT_REFUSED)


@click.command()
@click.option("--recent", is_flag=True, help="Show what was wrong and has ended, too.")
@shared_options
@click.pass_context
def health(context: click.Context, recent: bool) -> None:
    """Show open health conditions and their start, to administrators.

    The exit code is 1 when the node is not healthy.
    """
    answer: dict[str, Any] = current().client().call("GET", ["health"])
    if current().json:
        show_json(answer)
    else:
        show_rows(items(answer), _TROUBLE, "nothing is wrong")
        if answer["total"] > len(items(answer)):
            note(f"{answer['total']} in all")
        if recent and answer["recent"]:
            note("what has ended:")
            show_rows(answer["recent"], _ENDED, "")
    if not answer["healthy"]:
        context.exit(EXIT_REFUSED)
