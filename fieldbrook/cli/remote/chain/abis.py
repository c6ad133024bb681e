"""Commands on contract ABIs: `abi`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fieldbrook.cli.client import items
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import WrongUsageError
from fieldbrook.cli.options import CommandGroup, project_argument
from fieldbrook.cli.output import show_done, show_fields, show_json, show_rows
from fieldbrook.cli.remote.lookup import ALL, open_project
from fieldbrook.cli.text import counted
from fieldbrook.core.bounded_json import from_json
from fieldbrook.system.regular_file import read_regular_file

_COLUMNS = {"name": "NAME", "sizeBytes": "BYTES", "events": "EVENTS", "createdAt": "CREATED"}


@click.group(cls=CommandGroup)
def abi() -> None:
    """Manage contract ABIs, which a project keeps for its monitors."""


@abi.command("add")
@project_argument
@click.argument("name")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def abi_add(project: str, name: str, file: Path) -> None:
    """Store a JSON ABI under a name. FILE may also be compiler output with an `abi` field."""
    client, project = open_project(project)
    body = {"name": name, "abi": read_abi(file)}
    made = client.call("POST", ["contract_abi", project], body=body)
    show_fields({**made, "events": "  ".join(made["events"])}, {"name": "ABI", "events": "events"})


@abi.command("list")
@project_argument
def abi_list(project: str) -> None:
    """List the ABIs that a project keeps, and the events of each."""
    client, project = open_project(project)
    answer = client.call("GET", ["contract_abi", project], query=ALL)
    if current().json:
        show_json(answer["data"])
        return
    rows = [{**row, "events": "  ".join(row["events"])} for row in items(answer)]
    show_rows(rows, _COLUMNS, "no ABIs yet: `fieldbrook abi add PROJECT NAME FILE`")


@abi.command("show")
@project_argument
@click.argument("name")
def abi_show(project: str, name: str) -> None:
    """Print an ABI as it was uploaded."""
    client, project = open_project(project)
    show_json(client.call("GET", ["contract_abi", project, name])["abi"])


@abi.command("delete")
@project_argument
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def abi_delete(project: str, names: tuple[str, ...]) -> None:
    """Delete ABIs; monitors that were made with them continue."""
    client, project = open_project(project)
    for name in names:
        client.call("DELETE", ["contract_abi", project, name])
    show_done(f"{counted(len(names), 'ABI')} deleted", deleted=list(names))


def read_abi(path: Path) -> list[Any]:
    """Read the JSON ABI of a contract, or compiler output with an `abi` field.

    Raises:
        WrongUsageError: the file cannot be read or has another content.
    """
    try:
        value = from_json(read_regular_file(path))
    except (OSError, ValueError) as error:
        raise WrongUsageError(f"{path} is not a JSON ABI: {error}") from None
    abi = value.get("abi") if isinstance(value, dict) else value
    if not isinstance(abi, list):
        raise WrongUsageError(f"{path} is neither a JSON ABI nor an object with the field `abi`")
    return abi
