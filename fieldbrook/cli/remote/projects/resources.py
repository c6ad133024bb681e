"""Commands on uploaded modules: `resource`."""

from __future__ import annotations

import click

from fieldbrook.cli.client import items
from fieldbrook.cli.console import current
from fieldbrook.cli.options import CommandGroup
from fieldbrook.cli.output import show_done, show_rows
from fieldbrook.cli.remote.lookup import ALL

_COLUMNS = {"filename": "FILE", "resourceID": "ID", "size": "BYTES", "path": "SHA-256"}


@click.group(cls=CommandGroup)
def resource() -> None:
    """Manage resources: uploaded modules, each stored once."""


@resource.command("list")
def resource_list() -> None:
    """List your uploaded modules."""
    rows = items(current().client().call("GET", ["resource"], query=ALL))
    show_rows(rows, _COLUMNS, "no resources yet")


@resource.command("delete")
@click.argument("resource_id", metavar="ID")
def resource_delete(resource_id: str) -> None:
    """Delete an uploaded module.

    The file stays as long as an applet runs it or keeps a version of it.
    """
    current().client().call("DELETE", ["resource", resource_id])
    show_done(f"resource {resource_id} deleted", deleted=resource_id)
