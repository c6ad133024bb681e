"""Commands on the objects of a node: projects, applets, publishers, strategies, resources.

Users may give the name or the id of an object; the name is tried first.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fieldbrook.cli.client import Client, ClientError, Upload, WrongUsageError
from fieldbrook.cli.console import (
    available,
    current,
    items,
    note,
    shared_options,
    show_done,
    show_fields,
    show_rows,
)

ALL = {"size": -1}
_ID_DIGITS = 15  # ids have 15 to 19 digits; a shorter number is a name

_PROJECT = {"projectName": "NAME", "projectID": "ID", "applets": "APPLETS", "createdAt": "CREATED"}
_APPLET = {"name": "NAME", "appletID": "ID", "state": "STATE", "updatedAt": "UPDATED"}
_VERSION = {
    "version": "VERSION",
    "wasmName": "MODULE",
    "createdAt": "UPLOADED",
    "size": "BYTES",
    "md5": "MD5",
}
_PUBLISHER = {"key": "KEY", "name": "NAME", "publisherID": "ID", "createdAt": "CREATED"}
_PUBLISHER_FIELDS = {
    "key": "publisher",
    "publisherID": "id",
    "token": "token",
    "eventTypes": "may send",
    "expiredAt": "expires",
}
_STRATEGY = {
    "eventType": "EVENT TYPE",
    "appletName": "APPLET",
    "handler": "HANDLER",
    "dead": "DEAD",
    "strategyID": "ID",
}
_RESOURCE = {"filename": "FILE", "resourceID": "ID", "size": "BYTES", "path": "SHA-256"}

# ---------------------------------------------------------------- projects


@click.group()
def project() -> None:
    """Projects: the destinations of events, each with its applets."""


@project.command("create")
@click.argument("name")
@click.option("--description", default="")
@click.option("--env", "env", multiple=True, metavar="KEY=VALUE", help="For its applets.")
@shared_options
def project_create(name: str, description: str, env: tuple[str, ...]) -> None:
    """Create a project. Its name is also its MQTT topic."""
    body: dict[str, Any] = {"name": name, "description": description}
    if env:
        body["envs"] = [pair(text, "--env") for text in env]
    made = current().client().call("POST", ["project"], body=body)
    show_fields(made, {"name": "project", "projectID": "id"})


@project.command("list")
@shared_options
def project_list() -> None:
    """List your projects."""
    rows = projects(current().client())
    if not current().json:
        for row in rows:
            row["applets"] = [item["appletName"] for item in row.get("applets") or []]
    show_rows(rows, _PROJECT, "no projects yet: `fieldbrook project create NAME`")


@project.command("show")
@click.argument("name", metavar="PROJECT")
@shared_options
def project_show(name: str) -> None:
    """Show one project."""
    client = current().client()
    value = client.call("GET", ["project", project_name(client, name)])
    labels = {"name": "project", "projectID": "id", "description": "description"}
    labels |= {"env": "environment", "createdAt": "created", "updatedAt": "updated"}
    if not current().json:
        value["env"] = [f"{key}={text}" for key, text in value["envs"]["env"]]
    show_fields(value, labels)


@project.command("export")
@click.argument("name", metavar="PROJECT")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--tokens", is_flag=True, help="With its publishers' tokens: the file is a secret.")
@click.option("--no-data", is_flag=True, help="Without what its handlers stored.")
@shared_options
def project_export(name: str, file: Path, tokens: bool, no_data: bool) -> None:
    """Export a project to a file for `project import`, at this or another node.

    The file has its configurations, applets with their modules, strategies, publishers, cron
    jobs, monitors, ABIs, limits, and the data that its handlers stored. Logs, the event
    history and dead letters are not exported.
    """
    client = current().client()
    path = ["project", "x", project_name(client, name), "export"]
    content = client.download("POST", path, {"tokens": tokens, "data": not no_data})
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
    except OSError as error:
        raise ClientError(f"{file}: {error.strerror}") from None
    show_done(f"{file}: {len(content)} bytes", file=str(file), bytes=len(content))


@project.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--name", default="", help="What to call it here [default: as it was].")
@click.option(
    "--new-tokens", is_flag=True, help="Give its publishers new tokens though the file has some."
)
@shared_options
def project_import(file: Path, name: str, new_tokens: bool) -> None:
    """Create a project of yours from a file of `project export`, completely or not at all.

    Publishers keep the tokens in the file; a publisher without one gets a new token.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ClientError(f"{file}: {error.strerror}") from None
    info = {"name": name, "newTokens": new_tokens}
    made = (
        current().client().upload("POST", ["project", "import"], info, Upload(file.name, content))
    )
    show_fields(made, {"name": "project", "projectID": "id"})
    _show_warnings(made)


@project.command("delete")
@click.argument("name", metavar="PROJECT")
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared_options
def project_delete(name: str, yes: bool) -> None:
    """Delete a project with its applets, publishers, strategies and data."""
    client = current().client()
    real = project_name(client, name)
    if not yes:
        click.confirm(f"Delete project {real} and all its data?", abort=True, err=True)
    client.call("DELETE", ["project", real])
    show_done(f"project {real} deleted", deleted=real)


# ---------------------------------------------------------------- applets


@click.group()
def applet() -> None:
    """Applets: WebAssembly modules with handlers for events."""


@applet.command("deploy")
@click.argument("project_", metavar="PROJECT")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--name", help="[default: the file's name without its ending]")
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="TYPE=HANDLER",
    help="Run HANDLER for events of TYPE; may be repeated. A new applet without any gets "
    "DEFAULT=start if its module exports that handler.",
)
@click.option(
    "--isolation",
    type=click.Choice(["event", "batch", "instance"]),
    help="A fresh instance for every event, one for events that arrive together, which is "
    "faster but lets an event find in memory what others left there, or one for many events, "
    "for applets that keep state in memory.  [default: event]",
)
@click.option(
    "--reuse-events",
    type=click.IntRange(1, 1_000_000),
    help="Events that an instance serves with --isolation instance.  [default: 1000]",
)
@shared_options
def applet_deploy(
    project_: str,
    file: Path,
    name: str | None,
    strategies: tuple[str, ...],
    isolation: str | None,
    reuse_events: int | None,
) -> None:
    """Deploy a module (.wasm, or .wat text).

    An existing applet of that name is updated and keeps its data. It also keeps its
    strategies, unless new ones are given, which replace them.
    """
    client = current().client()
    real = project_name(client, project_)
    name = name or file.stem
    info: dict[str, Any] = {"appletName": name, "wasmName": file.name}
    if strategies:
        info["strategies"] = [_strategy(text) for text in strategies]
    if isolation:
        info["isolation"] = isolation.upper()
    if reuse_events:
        info["reuseEvents"] = reuse_events
    try:
        upload = Upload(file.name, file.read_bytes())
    except OSError as error:
        raise ClientError(f"{file}: {error.strerror}") from None
    known = next((row for row in applets(client, real) if row["name"] == name), None)
    if known is None:
        value = client.upload("POST", ["applet", real], info, upload)
    else:
        value = client.upload("PUT", ["applet", str(known["appletID"])], info, upload)
    _show_applet({**value, "updated": known is not None})
    if not current().json:
        note("updated" if known else "deployed")


@applet.command("list")
@click.argument("project_", metavar="PROJECT")
@shared_options
def applet_list(project_: str) -> None:
    """List the applets of a project."""
    client = current().client()
    rows = applets(client, project_name(client, project_))
    show_rows([flat_applet(row) for row in rows], _APPLET, "no applets yet")


@applet.command("show")
@click.argument("project_", metavar="PROJECT")
@click.argument("name", metavar="APPLET")
@shared_options
def applet_show(project_: str, name: str) -> None:
    """Show one applet and its strategies."""
    client = current().client()
    real = project_name(client, project_)
    applet_id = str(find_applet(client, real, name)["appletID"])
    _show_applet(client.call("GET", ["applet", real, applet_id]))


@applet.command("delete")
@click.argument("project_", metavar="PROJECT")
@click.argument("name", metavar="APPLET")
@shared_options
def applet_delete(project_: str, name: str) -> None:
    """Delete an applet and its strategies."""
    client = current().client()
    found = find_applet(client, project_name(client, project_), name)
    client.call("DELETE", ["applet", str(found["appletID"])])
    show_done(f"applet {found['name']} deleted", deleted=found["appletID"])


@applet.command("start")
@click.argument("project_", metavar="PROJECT")
@click.argument("name", metavar="APPLET")
@shared_options
def applet_start(project_: str, name: str) -> None:
    """Let a stopped applet handle events again."""
    _control(project_, name, "START", "started")


@applet.command("stop")
@click.argument("project_", metavar="PROJECT")
@click.argument("name", metavar="APPLET")
@shared_options
def applet_stop(project_: str, name: str) -> None:
    """Stop an applet: its events are answered with code -1."""
    _control(project_, name, "STOP", "stopped")


@applet.command("versions")
@click.argument("project_", metavar="PROJECT")
@click.argument("name", metavar="APPLET")
@shared_options
def applet_versions(project_: str, name: str) -> None:
    """List the kept module versions of an applet, for `applet rollback`, the latest first."""
    client = current().client()
    found = find_applet(client, project_name(client, project_), name)
    rows = versions(client, found)
    if not current().json:
        for row in rows:
            row["version"] = f"{row['version']}{' *' if row['current'] else ''}"
    show_rows(rows, _VERSION, "no versions are kept: deploy the applet once more")


@applet.command("rollback")
@click.argument("project_", metavar="PROJECT")
@click.argument("name", metavar="APPLET")
@click.argument("version", type=click.IntRange(1), required=False)
@shared_options
def applet_rollback(project_: str, name: str, version: int | None) -> None:
    """Roll an applet back to an earlier module; its data and strategies stay.

    The default VERSION is the one before the current version.
    """
    client = current().client()
    found = find_applet(client, project_name(client, project_), name)
    if version is None:
        before = [row for row in versions(client, found) if row["version"] < found["version"]]
        if not before:
            hint = f"see `fieldbrook applet versions {project_} {name}`"
            raise ClientError(f"applet {found['name']} has no earlier version", hint)
        version = int(before[0]["version"])
    path = ["applet", "data", str(found["appletID"]), "versions", str(version)]
    _show_applet(client.call("PUT", path))
    if not current().json:
        note("rolled back")


# ---------------------------------------------------------------- publishers


@click.group()
def publisher() -> None:
    """Publishers: the devices that may send events to a project."""


@publisher.command("add")
@click.argument("project_", metavar="PROJECT")
@click.argument("key")
@click.option("--name", help="[default: the key]")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Let it send these only.")
@click.option("--expires-days", type=int, default=0, help="Its token ends then [default: never].")
@shared_options
def publisher_add(
    project_: str, key: str, name: str | None, types: tuple[str, ...], expires_days: int
) -> None:
    """Register a publisher and print its id and its token."""
    client = current().client()
    path = ["publisher", project_name(client, project_)]
    body: dict[str, Any] = {"name": name or key, "key": key}
    if types:
        body["eventTypes"] = list(types)
    if expires_days:
        body["expirationDays"] = expires_days
    show_fields(client.call("POST", path, body=body), _PUBLISHER_FIELDS)


@publisher.command("list")
@click.argument("project_", metavar="PROJECT")
@shared_options
def publisher_list(project_: str) -> None:
    """List the publishers of a project."""
    client = current().client()
    rows = publishers(client, project_name(client, project_))
    show_rows(rows, _PUBLISHER, "no publishers yet: `fieldbrook publisher add PROJECT KEY`")


@publisher.command("token")
@click.argument("project_", metavar="PROJECT")
@click.argument("key")
@shared_options
def publisher_token(project_: str, key: str) -> None:
    """Print a publisher's token and nothing else, for scripts."""
    client = current().client()
    found = find_publisher(client, project_name(client, project_), key)
    show_done(str(found["token"]), token=found["token"])


@publisher.command("rotate")
@click.argument("project_", metavar="PROJECT")
@click.argument("key")
@click.option("--expires-days", type=int, default=0, help="It ends then [default: never].")
@shared_options
def publisher_rotate(project_: str, key: str, expires_days: int) -> None:
    """Replace a publisher's token and print the new one; the old one stops working at once."""
    client = current().client()
    found = find_publisher(client, project_name(client, project_), key)
    path = ["publisher", "data", str(found["publisherID"]), "token"]
    body = {"expirationDays": expires_days} if expires_days else {}
    made = client.call("POST", path, body=body)
    expiry = {"expiredAt": made["expiredAt"]} if "expiredAt" in made else {}
    show_done(str(made["token"]), token=made["token"], **expiry)


@publisher.command("allow")
@click.argument("project_", metavar="PROJECT")
@click.argument("key")
@click.argument("types", metavar="[TYPE]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Let it send every type again.")
@shared_options
def publisher_allow(project_: str, key: str, types: tuple[str, ...], everything: bool) -> None:
    """Restrict a publisher to events of these types; events of other types are refused."""
    if everything == bool(types):
        raise WrongUsageError("say which event types", "name them, or give --all")
    client = current().client()
    real = project_name(client, project_)
    found = find_publisher(client, real, key)
    body = {"name": found["name"], "key": found["key"], "eventTypes": list(types)}
    client.call("PUT", ["publisher", real, str(found["publisherID"])], body=body)
    what = ", ".join(types) if types else "every type"
    show_done(f"publisher {found['key']} may send {what}", eventTypes=list(types))


@publisher.command("delete")
@click.argument("project_", metavar="PROJECT")
@click.argument("key")
@shared_options
def publisher_delete(project_: str, key: str) -> None:
    """Delete a publisher: its token stops working."""
    client = current().client()
    real = project_name(client, project_)
    found = find_publisher(client, real, key)
    query = {"publisherID": found["publisherID"]}
    client.call("DELETE", ["publisher", real], query=query)
    show_done(f"publisher {found['key']} deleted", deleted=found["publisherID"])


# ---------------------------------------------------------------- strategies


@click.group()
def strategy() -> None:
    """Strategies: which handler runs for which type of event."""


@strategy.command("add")
@click.argument("project_", metavar="PROJECT")
@click.option("--applet", "applet_name", required=True)
@click.option("--type", "event_type", default="DEFAULT", show_default=True)
@click.option("--handler", default="start", show_default=True)
@shared_options
def strategy_add(project_: str, applet_name: str, event_type: str, handler: str) -> None:
    """Run a handler for a type of event.

    Events of a type without a strategy of its own go to the strategies of type DEFAULT.
    """
    client = current().client()
    real = project_name(client, project_)
    applet_id = str(find_applet(client, real, applet_name)["appletID"])
    rule = {"appletID": applet_id, "eventType": event_type, "handler": handler}
    client.call("POST", ["strategy", real], body={"strategies": [rule]})
    made = [
        row
        for row in strategies_of(client, real, applet_id)
        if row["eventType"] == event_type and row["handler"] == handler
    ]
    show_rows(made, _STRATEGY, "the strategy was deleted meanwhile")
    _show_warnings(*made)


@strategy.command("list")
@click.argument("project_", metavar="PROJECT")
@shared_options
def strategy_list(project_: str) -> None:
    """List the strategies of a project."""
    client = current().client()
    rows = strategies(client, project_name(client, project_))
    show_rows(rows, _STRATEGY, "no strategies yet")
    _show_warnings(*rows)


@strategy.command("update")
@click.argument("project_", metavar="PROJECT")
@click.argument("strategy_id", metavar="ID")
@click.option("--applet", "applet_name", help="[default: unchanged]")
@click.option("--type", "event_type", help="[default: unchanged]")
@click.option("--handler", help="[default: unchanged]")
@shared_options
def strategy_update(
    project_: str,
    strategy_id: str,
    applet_name: str | None,
    event_type: str | None,
    handler: str | None,
) -> None:
    """Change a strategy."""
    if applet_name is event_type is handler is None:
        raise WrongUsageError("nothing to change", "give --applet, --type or --handler")
    client = current().client()
    real = project_name(client, project_)
    rows = strategies(client, real)
    known = next((row for row in rows if str(row["strategyID"]) == strategy_id), None)
    if known is None:
        raise _not_found("strategy", strategy_id, [str(row["strategyID"]) for row in rows])
    applet_id = known["appletID"]
    if applet_name is not None:
        applet_id = find_applet(client, real, applet_name)["appletID"]
    body = {
        "appletID": str(applet_id),
        "eventType": event_type or known["eventType"],
        "handler": handler or known["handler"],
    }
    client.call("PUT", ["strategy", real, strategy_id], body=body)
    found = client.call("GET", ["strategy", real, strategy_id])
    warnings = {key: found[key] for key in ("warnings",) if key in found}
    show_done(f"strategy {strategy_id} updated", strategyID=strategy_id, **body, **warnings)
    _show_warnings(found)


@strategy.command("delete")
@click.argument("project_", metavar="PROJECT")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@shared_options
def strategy_delete(project_: str, ids: tuple[str, ...]) -> None:
    """Delete strategies."""
    client = current().client()
    real = project_name(client, project_)
    known = [str(row["strategyID"]) for row in strategies(client, real)]
    for strategy_id in ids:
        if strategy_id not in known:
            raise _not_found("strategy", strategy_id, known)
    client.call("DELETE", ["strategy", real], query={"strategyID": list(ids)})
    show_done(f"{len(ids)} deleted", deleted=list(ids))


# ---------------------------------------------------------------- resources


@click.group()
def resource() -> None:
    """Resources: uploaded modules, each stored once."""


@resource.command("list")
@shared_options
def resource_list() -> None:
    """List your uploaded modules."""
    rows = items(current().client().call("GET", ["resource"], query=ALL))
    show_rows(rows, _RESOURCE, "no resources yet")


@resource.command("delete")
@click.argument("resource_id", metavar="ID")
@shared_options
def resource_delete(resource_id: str) -> None:
    """Delete an uploaded module.

    The file stays as long as an applet runs it or keeps a version of it.
    """
    current().client().call("DELETE", ["resource", resource_id])
    show_done(f"resource {resource_id} deleted", deleted=resource_id)


# ---------------------------------------------------------------- lookup by name or id


def projects(client: Client) -> list[dict[str, Any]]:
    """All projects of the account."""
    return items(client.call("GET", ["project"], query=ALL))


def project_name(client: Client, given: str) -> str:
    """Return the name of the project given by name or id.

    A name is not looked up, because the route that it is sent to reports unknown projects.
    """
    if not (given.isdecimal() and len(given) >= _ID_DIGITS):
        return given
    found = [row for row in projects(client) if given in (row["projectName"], row["projectID"])]
    return str(found[0]["projectName"]) if found else given


def applets(client: Client, project_: str) -> list[dict[str, Any]]:
    """All applets of a project."""
    return items(client.call("GET", ["applet", project_], query=ALL))


def find_applet(client: Client, project_: str, given: str) -> dict[str, Any]:
    """The applet of a project by name or id."""
    return pick(applets(client, project_), given, "applet", "name", "appletID")


def versions(client: Client, applet_: dict[str, Any]) -> list[dict[str, Any]]:
    """The kept versions of an applet, the latest first."""
    return items(client.call("GET", ["applet", "data", str(applet_["appletID"]), "versions"]))


def flat_applet(value: dict[str, Any]) -> dict[str, Any]:
    """Return an applet with the id and the state of its instance added to its own fields.

    An applet without an instance gets the state `REMOVED`.
    """
    instances = [value["instance"]] if value.get("instance") else value.get("instances")
    found = instances[0] if instances else {"instanceID": "", "state": "REMOVED"}
    return {**value, "instanceID": found["instanceID"], "state": found["state"]}


def publishers(client: Client, project_: str) -> list[dict[str, Any]]:
    """All publishers of a project."""
    return items(client.call("GET", ["publisher", project_], query=ALL))


def find_publisher(client: Client, project_: str, given: str) -> dict[str, Any]:
    """The publisher of a project by key or id."""
    return pick(publishers(client, project_), given, "publisher", "key", "publisherID")


def strategies(client: Client, project_: str) -> list[dict[str, Any]]:
    """All strategies of a project, without the route's grouping by applet."""
    groups = items(client.call("GET", ["strategy", project_], query=ALL))
    return [row for group in groups for row in group.get("strategies") or []]


def strategies_of(client: Client, project_: str, applet_id: str) -> list[dict[str, Any]]:
    """The strategies of one applet."""
    return [row for row in strategies(client, project_) if str(row["appletID"]) == applet_id]


def pick(
    rows: list[dict[str, Any]], given: str, what: str, name_key: str, id_key: str
) -> dict[str, Any]:
    """Return the row whose name is `given`, otherwise the row whose id is `given`.

    Raises:
        ClientError: there is no such row; the hint suggests a similar name or lists the names.
    """
    for key in (name_key, id_key):
        for row in rows:
            if str(row[key]) == given:
                return row
    raise _not_found(what, given, [str(row[name_key]) for row in rows])


def _not_found(what: str, given: str, names: list[str]) -> ClientError:
    close = difflib.get_close_matches(given, names, 1)
    plural = "strategies" if what == "strategy" else f"{what}s"
    hint = f"did you mean {close[0]}?" if close else available(plural, names)
    return ClientError(f"there is no {what} {given}", hint)


def _control(project_: str, name: str, command: str, done: str) -> None:
    client = current().client()
    real = project_name(client, project_)
    value = flat_applet(find_applet(client, real, name))
    if value["instanceID"]:
        client.call("PUT", ["deploy", str(value["instanceID"]), command])
    elif command == "START":
        client.call("POST", ["deploy", "applet", str(value["appletID"])])
    else:
        raise ClientError(f"applet {value['name']} has no instance: it runs nothing")
    show_done(f"applet {value['name']} {done}", appletID=value["appletID"], state=done.upper())


def _show_applet(value: dict[str, Any]) -> None:
    value = flat_applet(value)
    if not current().json:
        rules = (f"{row['eventType']}={row['handler']}" for row in value["strategies"])
        value["rules"] = list(rules)
    labels = {"name": "applet", "appletID": "id", "instanceID": "instance", "state": "state"}
    labels |= {"version": "version", "wasmName": "module", "resourceID": "resource"}
    labels |= {"rules": "strategies"}
    show_fields(value, labels)
    _show_warnings(value, *value["strategies"])


def _show_warnings(*values: Mapping[str, Any]) -> None:
    """Print the warnings in the node's answers, each once; JSON output has them already."""
    if not current().json:
        for text in dict.fromkeys(text for value in values for text in value.get("warnings", ())):
            note(f"warning: {text}")


def _strategy(text: str) -> dict[str, str]:
    event_type, handler = pair(text, "--strategy")
    return {"eventType": event_type, "handler": handler}


def pair(text: str, option: str) -> tuple[str, str]:
    """Split `LEFT=RIGHT` into both sides.

    Raises:
        WrongUsageError: the text has another form, or LEFT is empty.
    """
    left, equals, right = text.partition("=")
    if not equals or not left:
        raise WrongUsageError(f"{option} {text!r} is not of the form LEFT=RIGHT")
    return left, right
