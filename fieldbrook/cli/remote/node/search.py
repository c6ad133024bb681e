"""Command that finds things by name, id, hash or address: `search`."""

from __future__ import annotations

import click

from fieldbrook.cli.client import items
from fieldbrook.cli.console import current
from fieldbrook.cli.options import SharedCommand
from fieldbrook.cli.output import show_rows

_COLUMNS = {"kind": "KIND", "name": "NAME", "project": "PROJECT", "id": "ID"}


@click.command(cls=SharedCommand)
@click.argument("text")
def search(text: str) -> None:
    """Find projects, applets, publishers, events, transactions and addresses of the account.

    TEXT is a part of a name, or an event's id, a transaction's hash or an address. At most 20 are
    listed, 5 of a kind.
    """
    found = current().client().call("GET", ["search"], query={"q": text})
    show_rows(items(found), _COLUMNS, "nothing found")
