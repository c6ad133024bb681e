"""Commands on the key-value store of applets: `kv`."""

from __future__ import annotations

import base64
import sys

import click

from fieldbrook.cli.client import Client
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import ClientError, RefusedError
from fieldbrook.cli.input import read_value
from fieldbrook.cli.options import (
    CommandGroup,
    confirm,
    limit_option,
    project_argument,
    yes_option,
)
from fieldbrook.cli.output import note, show_done, show_json, show_rows
from fieldbrook.cli.remote.lookup import applets, find_applet, open_project
from fieldbrook.cli.text import counted, printable

_PAGE_KEYS = 1_000  # largest page of the route

_applet_option = click.option(
    "--applet", "applet_name", help="The applet [default: the project's only applet]."
)


@click.group(cls=CommandGroup)
def kv() -> None:
    """Read and change the key-value store in which handlers keep their data."""


@kv.command("get")
@project_argument
@click.argument("key")
@_applet_option
@click.option("--base64", "raw", is_flag=True, help="Print the value as base64.")
def kv_get(project: str, key: str, applet_name: str | None, raw: bool) -> None:
    """Print the value of a key, byte for byte.

    On a terminal and with --json a value that is not UTF-8 is printed as base64.
    """
    client, project = open_project(project)
    query = _key_query(client, project, applet_name, key)
    try:
        value = base64.b64decode(client.call("GET", ["kv", project], query=query)["value"])
    except RefusedError as error:
        if error.key != "NotFound":
            raise
        option = "" if applet_name is None else f" --applet {applet_name}"
        hint = f"list the keys with `fieldbrook kv list {project}{option}`"
        raise ClientError(f"there is no key {key or '(empty)'}", hint) from None
    encoded = base64.b64encode(value).decode()
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = None
    if current().json:
        shown = {"value": encoded, "encoding": "base64"}
        if text is not None and not raw:
            shown = {"value": text, "encoding": "text"}
        show_json({"key": key, **shown})
    elif raw or (text is None and sys.stdout.isatty()):
        click.echo(encoded)
    elif sys.stdout.isatty():
        click.echo(printable(text or ""))
    else:
        sys.stdout.buffer.write(value + (b"" if value.endswith(b"\n") else b"\n"))
        sys.stdout.flush()


@kv.command("list")
@project_argument
@_applet_option
@click.option("--prefix", default="", help="List only keys with this prefix.")
@click.option("--values", is_flag=True, help="Show the values and their sizes in bytes too.")
@limit_option(default=1_000, largest=1_000_000)
def kv_list(
    project: str, applet_name: str | None, prefix: str, values: bool, limit: int
) -> None:
    """List the keys of an applet in the order of their bytes."""
    client, project = open_project(project)
    query = {
        "appletID": _applet_id(client, project, applet_name),
        "prefix": _base64(prefix),
        "encoding": "base64",
        "values": str(values).lower(),
    }
    rows, more = _rows(client, project, query, limit)
    columns = {"key": "KEY", "size": "SIZE", "value": "VALUE"} if values else {"key": "KEY"}
    show_rows(rows, columns, "no keys yet")
    if rows and rows[0]["key"] == "":
        note(f'the first key is empty: `fieldbrook kv get {project} ""` prints its value')
    if more:
        note("there are more keys: raise --limit, or select some with --prefix")


@kv.command("set")
@project_argument
@click.argument("key")
@click.argument("value", metavar="VALUE|@FILE")
@_applet_option
def kv_set(project: str, key: str, value: str, applet_name: str | None) -> None:
    """Write a key; @FILE stands for the content of a file, @- for standard input.

    The value is written between two events, so no handler sees it change.
    """
    client, project = open_project(project)
    query = _key_query(client, project, applet_name, key)
    body = {"value": base64.b64encode(read_value(value)).decode(), "encoding": "base64"}
    written = client.call("PUT", ["kv", project], query=query, body=body)
    what = "created" if written["created"] else "changed"
    size = counted(written["size"], "byte")
    show_done(f"{what} {key or '(empty)'}: {size}", key=key, size=written["size"], change=what)


@kv.command("delete")
@project_argument
@click.argument("key")
@_applet_option
@yes_option
def kv_delete(project: str, key: str, applet_name: str | None, yes: bool) -> None:
    """Delete a key."""
    client, project = open_project(project)
    query = _key_query(client, project, applet_name, key)
    confirm(f"delete the key {key or '(empty)'} of project {project}?", yes)
    client.call("DELETE", ["kv", project], query=query)
    show_done(f"deleted {key or '(empty)'}", key=key, change="deleted")


def _rows(
    client: Client, project: str, query: dict[str, str], limit: int
) -> tuple[list[dict[str, object]], bool]:
    """Return the rows of `kv list`, and whether there are more; reads page by page."""
    rows: list[dict[str, object]] = []
    after: str | None = ""
    while after is not None and len(rows) < limit:
        page = {"limit": min(limit - len(rows), _PAGE_KEYS), "after": after}
        answer = client.call("GET", ["kv", project], query={**query, **page})
        rows += [_row(item) for item in answer["data"]]
        after = answer.get("next")
    return rows, after is not None


def _row(item: str | dict[str, str | int]) -> dict[str, object]:
    if isinstance(item, str):
        return {"key": _shown(item)}
    return {"key": _shown(str(item["key"])), "size": item["size"], "value": _shown(str(item["value"]))}


def _shown(encoded: str) -> str:
    return base64.b64decode(encoded).decode("utf-8", "backslashreplace")


def _key_query(
    client: Client, project: str, applet_name: str | None, key: str
) -> dict[str, str]:
    applet_id = _applet_id(client, project, applet_name)
    return {"appletID": applet_id, "key": _base64(key), "encoding": "base64"}


def _base64(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()


def _applet_id(client: Client, project: str, given: str | None) -> str:
    if given is not None:
        return str(find_applet(client, project, given)["appletID"])
    rows = applets(client, project)
    if len(rows) != 1:
        names = ", ".join(str(row["name"]) for row in rows)
        hint = f"name one with --applet: {names}" if rows else "deploy one first"
        raise ClientError(f"project {project} has {counted(len(rows), 'applet')}", hint)
    return str(rows[0]["appletID"])
