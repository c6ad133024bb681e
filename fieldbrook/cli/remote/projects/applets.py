"""Commands on deployed applets: `applet deploy`, `list`, `rollback` and others.

`local/applets/` adds the commands that need no node to the same group.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fieldbrook.cli.client import Client, Upload, items
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import ClientError
from fieldbrook.cli.input import read_module
from fieldbrook.cli.options import CommandGroup, project_argument, split_pair
from fieldbrook.cli.output import (
    note_unless_json,
    show_done,
    show_fields,
    show_rows,
    show_warnings,
)
from fieldbrook.cli.remote.lookup import Object, applets, find_applet, open_project

_COLUMNS = {"name": "NAME", "appletID": "ID", "state": "STATE", "updatedAt": "UPDATED"}
_FIELDS = {
    "name": "applet",
    "appletID": "id",
    "instanceID": "instance",
    "state": "state",
    "version": "version",
    "wasmName": "module",
    "resourceID": "resource",
    "rules": "strategies",
}
_VERSION_COLUMNS = {
    "version": "VERSION",
    "wasmName": "MODULE",
    "createdAt": "UPLOADED",
    "size": "BYTES",
    "md5": "MD5",
}
_applet_argument = click.argument("name", metavar="APPLET")


@click.group(cls=CommandGroup)
def applet() -> None:
    """Develop, deploy and manage applets: modules with handlers."""


@applet.command("deploy")
@project_argument
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--name", help="The applet's name [default: the file's name without its suffix].")
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="TYPE=HANDLER",
    help="Run HANDLER for events of TYPE; repeatable. A new applet without strategies gets "
    "DEFAULT=start if its module exports that handler.",
)
@click.option(
    "--isolation",
    type=click.Choice(["event", "batch", "instance"]),
    help="How many events share an instance of the module: none (event), those that arrive "
    "together (batch: faster, but handlers find data of other events in memory), or --reuse-events "
    "(instance: for applets that keep state in memory) [default: event].",
)
@click.option(
    "--reuse-events",
    type=click.IntRange(1, 1_000_000),
    help="Events that share an instance with --isolation instance [default: 1000].",
)
def applet_deploy(
    project: str,
    file: Path,
    name: str | None,
    strategies: tuple[str, ...],
    isolation: str | None,
    reuse_events: int | None,
) -> None:
    """Deploy a WebAssembly module.

    FILE is a module in binary (.wasm) or as text (.wat). An existing applet of that name is
    updated and keeps its data. It also keeps its strategies, unless --strategy replaces them.
    """
    client, project = open_project(project)
    name = name or file.stem
    info: dict[str, Any] = {"appletName": name, "wasmName": file.name}
    if strategies:
        pairs = [split_pair(text, "--strategy", "TYPE=HANDLER") for text in strategies]
        info["strategies"] = [{"eventType": kind, "handler": handler} for kind, handler in pairs]
    if isolation:
        info["isolation"] = isolation.upper()
    if reuse_events:
        info["reuseEvents"] = reuse_events
    value = deploy_module(client, project, info, read_module(file))
    _show_applet(value)
    note_unless_json("updated" if value["updated"] else "deployed")


def deploy_module(client: Client, project: str, info: Object, module: bytes) -> Object:
    """Create the applet that `info` names, or update it; `updated` in the answer tells which of the
    two was done.

    Args:
        client: a client with the login.
        project: the project's name.
        info: the part `info` of the upload, with `appletName` and `wasmName`.
        module: WebAssembly, in binary or as text.
    """
    upload = Upload(info["wasmName"], module)
    rows = applets(client, project)
    existing = next((row for row in rows if row["name"] == info["appletName"]), None)
    if existing is None:
        value = client.upload("POST", ["applet", project], info, upload)
    else:
        value = client.upload("PUT", ["applet", str(existing["appletID"])], info, upload)
    return {**value, "updated": existing is not None}


@applet.command("list")
@project_argument
def applet_list(project: str) -> None:
    """List the applets of a project."""
    rows = [_flat(row) for row in applets(*open_project(project))]
    show_rows(rows, _COLUMNS, "no applets yet: `fieldbrook applet deploy PROJECT FILE`")


@applet.command("show")
@project_argument
@_applet_argument
def applet_show(project: str, name: str) -> None:
    """Show an applet and its strategies."""
    client, project = open_project(project)
    applet_id = str(find_applet(client, project, name)["appletID"])
    _show_applet(client.call("GET", ["applet", project, applet_id]))


@applet.command("delete")
@project_argument
@_applet_argument
def applet_delete(project: str, name: str) -> None:
    """Delete an applet and its strategies."""
    client, found = _open_applet(project, name)
    client.call("DELETE", ["applet", str(found["appletID"])])
    show_done(f"applet {found['name']} deleted", deleted=found["appletID"])


@applet.command("start")
@project_argument
@_applet_argument
def applet_start(project: str, name: str) -> None:
    """Start a stopped applet, so that it handles events again."""
    _control(project, name, "START", "started")


@applet.command("stop")
@project_argument
@_applet_argument
def applet_stop(project: str, name: str) -> None:
    """Stop an applet; its events are answered with code -1."""
    _control(project, name, "STOP", "stopped")


@applet.command("versions")
@project_argument
@_applet_argument
def applet_versions(project: str, name: str) -> None:
    """List the module versions that `applet rollback` can use."""
    rows = _versions(*_open_applet(project, name))
    if not current().json:
        for row in rows:
            row["version"] = f"{row['version']}{' *' if row['current'] else ''}"
    show_rows(rows, _VERSION_COLUMNS, "no versions are kept: deploy the applet once more")


@applet.command("rollback")
@project_argument
@_applet_argument
@click.argument("version", type=click.IntRange(1), required=False)
def applet_rollback(project: str, name: str, version: int | None) -> None:
    """Roll an applet back to an earlier module.

    Its data and strategies stay. The default VERSION is the one before the current version.
    """
    client, found = _open_applet(project, name)
    if version is None:
        rows = _versions(client, found)
        version = next((row["version"] for row in rows if row["version"] < found["version"]), None)
        if version is None:
            hint = f"see `fieldbrook applet versions {project} {name}`"
            raise ClientError(f"applet {found['name']} has no earlier version", hint)
    path = ["applet", "data", str(found["appletID"]), "versions", str(version)]
    _show_applet(client.call("PUT", path))
    note_unless_json("rolled back")


def _open_applet(project: str, name: str) -> tuple[Client, Object]:
    client, project = open_project(project)
    return client, find_applet(client, project, name)


def _versions(client: Client, applet_: Object) -> list[Object]:
    """Return the kept versions of an applet, the latest first."""
    return items(client.call("GET", ["applet", "data", str(applet_["appletID"]), "versions"]))


def _flat(value: Object) -> Object:
    """Return an applet with the id and the state of its instance added to its own fields.

    An applet without an instance gets the state `REMOVED`.
    """
    instances = [value["instance"]] if value.get("instance") else value.get("instances")
    found = instances[0] if instances else {"instanceID": "", "state": "REMOVED"}
    return {**value, "instanceID": found["instanceID"], "state": found["state"]}


def _control(project: str, name: str, command: str, done: str) -> None:
    client, found = _open_applet(project, name)
    value = _flat(found)
    if value["instanceID"]:
        client.call("PUT", ["deploy", str(value["instanceID"]), command])
    elif command == "START":
        client.call("POST", ["deploy", "applet", str(value["appletID"])])
    else:
        raise ClientError(f"applet {value['name']} has no instance to stop")
    show_done(f"applet {value['name']} {done}", appletID=value["appletID"], state=done.upper())


def _show_applet(value: Object) -> None:
    value = _flat(value)
    if not current().json:
        value["rules"] = [f"{row['eventType']}={row['handler']}" for row in value["strategies"]]
    show_fields(value, _FIELDS)
    show_warnings(value, *value["strategies"])
