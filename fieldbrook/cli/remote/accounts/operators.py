"""Commands on operators, the keys that sign transactions: `operator`."""

from __future__ import annotations

import click

from fieldbrook.cli.client import Client, items
from fieldbrook.cli.console import current
from fieldbrook.cli.input import read_secret
from fieldbrook.cli.options import CommandGroup, confirm, project_argument, yes_option
from fieldbrook.cli.output import show_done, show_fields, show_rows
from fieldbrook.cli.remote.lookup import ALL, Object, find, open_project_by_id

_COLUMNS = {"name": "NAME", "operatorID": "ID", "type": "TYPE", "address": "ADDRESS"}
_FIELDS = {"name": "operator", "operatorID": "id", "type": "type", "address": "address"}
_TYPES = {"ecdsa": 1, "ed25519": 2}


@click.group(cls=CommandGroup)
def operator() -> None:
    """Manage operators: keys that sign transactions of projects."""


@operator.command("create")
@click.argument("name")
@click.option(
    "--type",
    "kind",
    type=click.Choice(list(_TYPES)),
    default="ecdsa",
    show_default=True,
    help="The kind of the key.",
)
@click.option("--key-stdin", is_flag=True, help="Read the private key from standard input.")
def operator_create(name: str, kind: str, key_stdin: bool) -> None:
    """Create an operator from a private key.

    The node stores the key encrypted. The command asks for the key or reads it from standard
    input, because other users of this machine could see a key on the command line.
    """
    secret = read_secret("private key", key_stdin, "--key-stdin")
    body = {"name": name, "privateKey": secret, "type": _TYPES[kind]}
    _show_operator(current().client().call("POST", ["operator"], body=body))


@operator.command("generate")
@click.argument("name")
def operator_generate(name: str) -> None:
    """Create an operator with a key that the node generates."""
    _show_operator(current().client().call("POST", ["operator", "generate"], body={"name": name}))


@operator.command("export")
@click.argument("name", metavar="OPERATOR")
@click.option("--password-stdin", is_flag=True, help="Read your password from standard input.")
def operator_export(name: str, password_stdin: bool) -> None:
    """Print an operator's private key, for administrators.

    This needs your password. The audit log records the export.
    """
    password = read_secret("password", password_stdin, "--password-stdin")
    client = current().client()
    found = _find_operator(client, name)
    path = ["operator", "data", str(found["operatorID"]), "export"]
    value = client.call("POST", path, body={"password": password})
    show_fields(value, {**_FIELDS, "privateKey": "private key"})


@operator.command("list")
def operator_list() -> None:
    """List your operators."""
    rows = _operators(current().client())
    if not current().json:
        rows = [_with_type(row) for row in rows]
    show_rows(rows, _COLUMNS, "no operators yet: `fieldbrook operator generate NAME`")


@operator.command("delete")
@click.argument("name", metavar="OPERATOR")
@yes_option
def operator_delete(name: str, yes: bool) -> None:
    """Delete an operator and its key permanently."""
    client = current().client()
    found = _find_operator(client, name)
    question = f"Delete operator {found['name']} ({found['address']})? Its key cannot be restored"
    confirm(question, yes)
    client.call("DELETE", ["operator", "data", str(found["operatorID"])])
    show_done(f"operator {found['name']} deleted", deleted=found["name"])


@operator.command("use")
@project_argument
@click.argument("name", metavar="OPERATOR")
def operator_use(project: str, name: str) -> None:
    """Let a project use an operator other than `default`, at once.

    If the project uses another one, the new one takes its place in one step.
    """
    client, project_id = open_project_by_id(project)
    found = _find_operator(client, name)
    client.call("PUT", ["project_operator", project_id, str(found["operatorID"])])
    _show_used(project, found["name"])


@operator.command("release")
@project_argument
def operator_release(project: str) -> None:
    """Let a project use the operator named `default` again."""
    client, project_id = open_project_by_id(project)
    client.call("DELETE", ["project_operator", project_id])
    _show_used(project, "default")


@operator.command("of")
@project_argument
def operator_of(project: str) -> None:
    """Show the operator that a project uses."""
    client, project_id = open_project_by_id(project)
    _show_operator(client.call("GET", ["project_operator", "data", project_id]))


def _operators(client: Client) -> list[Object]:
    return items(client.call("GET", ["operator", "datalist"], query=ALL))


def _find_operator(client: Client, given: str) -> Object:
    return find(_operators(client), given, "operator", "name", "operatorID")


def _with_type(row: Object) -> Object:
    names = {number: name for name, number in _TYPES.items()}
    return {**row, "type": names.get(row["type"], row["type"])}


def _show_operator(value: Object) -> None:
    show_fields(value if current().json else _with_type(value), _FIELDS)


def _show_used(project: str, name: str) -> None:
    show_done(f"project {project} uses operator {name}", project=project, operator=name)
