"""Command on the settings of the node: `settings`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from fieldbrook.cli.client import items
from fieldbrook.cli.console import current
from fieldbrook.cli.options import SharedCommand
from fieldbrook.cli.output import show_rows

_COLUMNS = {"name": "SETTING", "value": "VALUE", "default": "DEFAULT", "source": "FROM"}


@click.command(cls=SharedCommand)
@click.argument("text", default="")
@click.option("--changed", is_flag=True, help="List only settings that do not have their default.")
def settings(text: str, changed: bool) -> None:
    """List the settings that the node runs with, for administrators.

    TEXT selects those with all its words in name, value or description. Secrets are shown as `set`.
    With --json each setting has its description, too.
    """
    rows = [
        row
        for row in items(current().client().call("GET", ["setting"]))
        if _contains(row, text) and not (changed and row["source"] == "default")
    ]
    show_rows(rows, _COLUMNS, "no such settings")


def _contains(row: Mapping[str, Any], text: str) -> bool:
    searched = f"{row['name']} {row.get('value', '')} {row['description']}".casefold()
    return all(word in searched for word in text.casefold().split())
