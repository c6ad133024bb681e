"""Commands on keys: access keys for programs, and operators that sign for projects."""

from __future__ import annotations

import sys
from typing import Any

import click

from fieldbrook.cli.client import Client, WrongUsageError
from fieldbrook.cli.console import (
    current,
    items,
    note,
    shared_options,
    show_done,
    show_fields,
    show_rows,
)
from fieldbrook.cli.remote.accounts.login import line_of_input
from fieldbrook.cli.remote.objects import ALL, pair, pick, project_name

_KEY = {
    "name": "NAME",
    "identityType": "OF",
    "grants": "GRANTS",
    "expiredAt": "EXPIRES",
    "lastUsed": "LAST USED",
    "desc": "DESCRIPTION",
}
_KEY_FIELDS = {
    "name": "access key",
    "accessKey": "key",
    "grants": "grants",
    "expiredAt": "expires",
    "lastUsed": "last used",
    "desc": "description",
}
_OPERATOR = {"name": "NAME", "operatorID": "ID", "type": "TYPE", "address": "ADDRESS"}
_OPERATOR_FIELDS = {"name": "operator", "operatorID": "id", "type": "type", "address": "address"}
_TYPES = {"ecdsa": 1, "ed25519": 2}
_EVERY_GROUP = "*"

_GRANT = click.option(
    "--grant",
    "grants",
    multiple=True,
    metavar="GROUP=PERMISSION",
    help="READONLY or READ_WRITE on a group (see `fieldbrook key groups`), * for every group; "
    "may be repeated. What is not granted is refused.",
)
_DAYS = click.option(
    "--days", type=click.IntRange(0, 36_500), help="Days until it expires; 0 for never."
)


@click.group()
def key() -> None:
    """Access keys: tokens for programs, with an expiry and permissions of their own.

    A program uses an access key in place of a login: FIELDBROOK_TOKEN=w3b_...
    """


@key.command("create")
@click.argument("name")
@_GRANT
@_DAYS
@click.option("--description", default="")
@shared_options
def key_create(name: str, grants: tuple[str, ...], days: int | None, description: str) -> None:
    """Create an access key and show it; it cannot be shown again."""
    client = current().client()
    body = {
        "name": name,
        "privileges": _privileges(client, grants),
        "expirationDays": days or 0,
        "desc": description,
    }
    _show_key(client.call("POST", ["account_access_key"], body=body))
    if not current().json:
        note("the key is shown only now")
        if not grants:
            note("it may do nothing yet: `fieldbrook key update NAME --grant GROUP=PERMISSION`")


@key.command("list")
@shared_options
def key_list() -> None:
    """List your access keys."""
    rows = items(current().client().call("GET", ["account_access_key", "datalist"], query=ALL))
    if not current().json:
        rows = [{**row, "grants": _grants(row)} for row in rows]
    show_rows(rows, _KEY, "no access keys yet: `fieldbrook key create NAME`")


@key.command("show")
@click.argument("name")
@shared_options
def key_show(name: str) -> None:
    """Show one access key, without the key itself."""
    _show_key(current().client().call("GET", ["account_access_key", "data", name]))


@key.command("update")
@click.argument("name")
@_GRANT
@_DAYS
@click.option("--description")
@shared_options
def key_update(
    name: str, grants: tuple[str, ...], days: int | None, description: str | None
) -> None:
    """Change the grants, the expiry or the description of an access key.

    New grants replace all earlier ones.
    """
    client = current().client()
    body: dict[str, Any] = {}
    if grants:
        body["privileges"] = _privileges(client, grants)
    if days is not None:
        body["expirationDays"] = days
    if description is not None:
        body["desc"] = description
    if not body:
        raise WrongUsageError("nothing to change", "give --grant, --days or --description")
    _show_key(client.call("PUT", ["account_access_key", name], body=body))


@key.command("delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared_options
def key_delete(name: str, yes: bool) -> None:
    """Delete an access key; it stops working at once."""
    client = current().client()
    client.call("GET", ["account_access_key", "data", name])  # DELETE accepts unknown names
    if not yes:
        click.confirm(f"Delete access key {name}?", abort=True, err=True)
    client.call("DELETE", ["account_access_key", name])
    show_done(f"access key {name} deleted", deleted=name)


@key.command("groups")
@shared_options
def key_groups() -> None:
    """List the groups of operations that can be granted."""
    rows = _groups(current().client())
    show_rows(rows, {"name": "GROUP", "desc": "WHAT"}, "the node has none")


@click.group()
def operator() -> None:
    """Operators: keys that sign the transactions of projects."""


@operator.command("create")
@click.argument("name")
@click.option("--type", "kind", type=click.Choice(list(_TYPES)), default="ecdsa", show_default=True)
@click.option("--key-stdin", is_flag=True, help="Read the private key from standard input.")
@shared_options
def operator_create(name: str, kind: str, key_stdin: bool) -> None:
    """Create an operator from a private key, which the node keeps encrypted.

    The command asks for the key or reads it from standard input, because other users of this
    machine could see a key on the command line.
    """
    if key_stdin:
        secret = line_of_input("private key")
    elif sys.stdin.isatty():
        secret = click.prompt("Private key", hide_input=True, err=True)
    else:
        raise WrongUsageError("nobody can be asked for the private key", "use --key-stdin")
    body = {"name": name, "privateKey": secret, "type": _TYPES[kind]}
    _show_operator(current().client().call("POST", ["operator"], body=body))


@operator.command("generate")
@click.argument("name")
@shared_options
def operator_generate(name: str) -> None:
    """Create an operator with a private key that the node generates and does not show."""
    _show_operator(current().client().call("POST", ["operator", "generate"], body={"name": name}))


@operator.command("export")
@click.argument("name", metavar="OPERATOR")
@click.option("--password-stdin", is_flag=True, help="Read your password from standard input.")
@shared_options
def operator_export(name: str, password_stdin: bool) -> None:
    """Print an operator's private key, as an administrator; it asks for your password.

    The audit log records the export.
    """
    if password_stdin:
        password = line_of_input("password")
    elif sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, err=True)
    else:
        raise WrongUsageError("nobody can be asked for the password", "use --password-stdin")
    client = current().client()
    found = _find_operator(client, name)
    path = ["operator", "data", str(found["operatorID"]), "export"]
    value = client.call("POST", path, body={"password": password})
    show_fields(value, {**_OPERATOR_FIELDS, "privateKey": "private key"})


@operator.command("list")
@shared_options
def operator_list() -> None:
    """List your operators."""
    rows = _operators(current().client())
    if not current().json:
        rows = [_with_type(row) for row in rows]
    show_rows(rows, _OPERATOR, "no operators")


@operator.command("delete")
@click.argument("name", metavar="OPERATOR")
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared_options
def operator_delete(name: str, yes: bool) -> None:
    """Delete an operator and its key, for good."""
    client = current().client()
    found = _find_operator(client, name)
    if not yes:
        text = f"Delete operator {found['name']} ({found['address']})? Its key cannot be restored"
        click.confirm(text, abort=True, err=True)
    client.call("DELETE", ["operator", "data", str(found["operatorID"])])
    show_done(f"operator {found['name']} deleted", deleted=found["name"])


@operator.command("use")
@click.argument("project_", metavar="PROJECT")
@click.argument("name", metavar="OPERATOR")
@shared_options
def operator_use(project_: str, name: str) -> None:
    """Let a project use an operator instead of the one named `default`."""
    client = current().client()
    found = _find_operator(client, name)
    path = ["project_operator", _project_id(client, project_), str(found["operatorID"])]
    client.call("POST", path)
    done = f"project {project_} uses operator {found['name']}"
    show_done(done, project=project_, operator=found["name"])


@operator.command("release")
@click.argument("project_", metavar="PROJECT")
@shared_options
def operator_release(project_: str) -> None:
    """Let a project use the operator named `default` again."""
    client = current().client()
    client.call("DELETE", ["project_operator", _project_id(client, project_)])
    show_done(f"project {project_} uses operator default", project=project_, operator="default")


@operator.command("of")
@click.argument("project_", metavar="PROJECT")
@shared_options
def operator_of(project_: str) -> None:
    """Show the operator that a project uses."""
    client = current().client()
    path = ["project_operator", "data", _project_id(client, project_)]
    _show_operator(client.call("GET", path))


def _privileges(client: Client, grants: tuple[str, ...]) -> list[dict[str, str]]:
    if not grants:
        return []
    groups = _groups(client)
    wanted: dict[str, str] = {}
    for text in grants:
        group, permission = pair(text, "--grant")
        if group == _EVERY_GROUP:
            names = [str(row["name"]) for row in groups]
        else:
            folded = [{**row, "folded": str(row["name"]).casefold()} for row in groups]
            names = [str(pick(folded, group.casefold(), "group", "folded", "name")["name"])]
        wanted |= dict.fromkeys(names, permission)
    return [{"name": name, "perm": permission} for name, permission in wanted.items()]


def _groups(client: Client) -> list[dict[str, Any]]:
    return items(client.call("GET", ["account_access_key", "operator_group_metas"]))


def _grants(row: dict[str, Any]) -> list[str]:
    """Return the grants of an access key, without the groups that it has no access to."""
    granted = (item for item in row.get("privileges") or [] if item["perm"] != "NO_ACCESS")
    return [f"{item['name']}={item['perm']}" for item in granted]


def _show_key(value: dict[str, Any]) -> None:
    show_fields(value if current().json else {**value, "grants": _grants(value)}, _KEY_FIELDS)


def _operators(client: Client) -> list[dict[str, Any]]:
    return items(client.call("GET", ["operator", "datalist"], query=ALL))


def _find_operator(client: Client, given: str) -> dict[str, Any]:
    return pick(_operators(client), given, "operator", "name", "operatorID")


def _with_type(row: dict[str, Any]) -> dict[str, Any]:
    names = {number: name for name, number in _TYPES.items()}
    return {**row, "type": names.get(row["type"], row["type"])}


def _show_operator(value: dict[str, Any]) -> None:
    show_fields(value if current().json else _with_type(value), _OPERATOR_FIELDS)


def _project_id(client: Client, given: str) -> str:
    found = client.call("GET", ["project", project_name(client, given)])
    return str(found["projectID"])
