"""Commands on the key-value store of applets: `kv`."""

from __future__ import annotations

import base64
import sys

import click

from fieldbrook.cli.client import Client
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import ClientError, RefusedError
from fieldbrook.cli.options import CommandGroup, project_argument
from fieldbrook.cli.output import note, show_json, show_rows
from fieldbrook.cli.remote.lookup import applets, find_applet, open_project
from fieldbrook.cli.text import counted, printable

_KEYS_LIMIT = 1_000  # largest page of the route

_applet_option = click.option(
    "--applet", "applet_name", help="The applet [default: the project's only applet]."
)


@click.group(cls=CommandGroup)
def kv() -> None:
    """Read the key-value store in which handlers keep their data."""


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
    query = {
        "appletID": _applet_id(client, project, applet_name),
        "key": _base64(key),
        "encoding": "base64",
    }
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
def kv_list(project: str, applet_name: str | None, prefix: str) -> None:
    """List the keys of an applet, at most 1000 of them."""
    client, project = open_project(project)
    query = {
        "appletID": _applet_id(client, project, applet_name),
        "prefix": _base64(prefix),
        "encoding": "base64",
        "limit": _KEYS_LIMIT,
    }
    answer = client.call("GET", ["kv", project], query=query)
    keys = [base64.b64decode(key).decode("utf-8", "backslashreplace") for key in answer["data"]]
    show_rows([{"key": key} for key in keys], {"key": "KEY"}, "no keys yet")
    if "" in keys:
        note(f'the first key is empty: `fieldbrook kv get {project} ""` prints its value')
    if len(keys) == _KEYS_LIMIT:
        note("there may be more keys: select some with --prefix")


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
