"""Commands on accounts, for administrators: `account`."""

from __future__ import annotations

import click

from fieldbrook.cli.client import Client, items
from fieldbrook.cli.console import current
from fieldbrook.cli.input import new_password, password_option
from fieldbrook.cli.options import CommandGroup, confirm, yes_option
from fieldbrook.cli.output import note_unless_json, show_done, show_fields, show_rows
from fieldbrook.cli.remote.lookup import ALL, Object, find
from fieldbrook.cli.text import counted

_COLUMNS = {
    "username": "USERNAME",
    "accountID": "ID",
    "role": "ROLE",
    "state": "STATE",
    "projects": "PROJECTS",
    "createdAt": "CREATED",
}
_FIELDS = {key: label.lower() for key, label in _COLUMNS.items()}
_ROLES = click.Choice(["admin", "developer"])
_name_argument = click.argument("name", metavar="USERNAME")


@click.group(cls=CommandGroup)
def account() -> None:
    """Manage the accounts of the node, for administrators."""


@account.command("list")
@click.option("--role", type=_ROLES, help="List only accounts with this role.")
@click.option(
    "--state",
    type=click.Choice(["enabled", "disabled"]),
    help="List only accounts in this state.",
)
def account_list(role: str | None, state: str | None) -> None:
    """List the accounts."""
    query = {**ALL, "role": role, "state": state}
    rows = items(current().client().call("GET", ["account"], query=query))
    show_rows(rows, _COLUMNS, "no accounts")


@account.command("show")
@_name_argument
def account_show(name: str) -> None:
    """Show an account, by its username or id."""
    show_fields(find_account(current().client(), name), _FIELDS)


@account.command("create")
@click.argument("username")
@click.option(
    "--role", type=_ROLES, default="developer", show_default=True, help="The account's role."
)
@password_option
def account_create(username: str, role: str, source: str | None) -> None:
    """Create an account."""
    password = new_password(source)
    body = {"username": username, "role": role.upper()}
    if password is not None:
        body["password"] = password
    made = current().client().call("POST", ["register", "admin"], body=body)
    _show_with_password(made)


@account.command("disable")
@_name_argument
def account_disable(name: str) -> None:
    """Disable an account.

    Its logins, access keys and events for its projects are refused.
    """
    _set_state(name, "disable")


@account.command("enable")
@_name_argument
def account_enable(name: str) -> None:
    """Enable a disabled account."""
    _set_state(name, "enable")


@account.command("role")
@_name_argument
@click.argument("role", type=_ROLES)
def account_role(name: str, role: str) -> None:
    """Change the role of an account."""
    client = current().client()
    account_id = str(find_account(client, name)["accountID"])
    body = {"role": role.upper()}
    changed = client.call("PUT", ["account", account_id, "role"], body=body)
    show_done(
        f"account {changed['username']} is {changed['role'].lower()}",
        username=changed["username"],
        role=changed["role"],
    )


@account.command("logout")
@_name_argument
def account_logout(name: str) -> None:
    """End all logins of an account; its access keys stay valid."""
    client = current().client()
    found = find_account(client, name)
    client.call("POST", ["account", str(found["accountID"]), "logout"])
    username = found["username"]
    show_done(f"all logins of account {username} have ended", username=username)


@account.command("password")
@_name_argument
@password_option
def account_password(name: str, source: str | None) -> None:
    """Set the password of another account. For your own: `fieldbrook admin password`."""
    client = current().client()
    account_id = str(find_account(client, name)["accountID"])
    password = new_password(source)
    body = {} if password is None else {"password": password}
    _show_with_password(client.call("PUT", ["account", account_id, "password"], body=body))


@account.command("delete")
@_name_argument
@click.option("--force", is_flag=True, help="Delete its projects and all their data, too.")
@yes_option
def account_delete(name: str, force: bool, yes: bool) -> None:
    """Delete an account with its access keys and operators."""
    client = current().client()
    found = find_account(client, name)
    username, account_id = str(found["username"]), str(found["accountID"])
    projects = f" and its {counted(found['projects'], 'project')}" if force else ""
    confirm(f"Delete account {username}{projects}?", yes)
    query = {"force": "true"} if force else None
    client.call("DELETE", ["account", account_id], query=query)
    show_done(f"account {username} deleted", deleted=username)


def find_account(client: Client, given: str) -> Object:
    """Look up the account given by username or id.

    Raises:
        ClientError: there is no such account; the hint suggests or lists existing ones.
    """
    rows = items(client.call("GET", ["account"], query=ALL))
    return find(rows, given, "account", "username", "accountID")


def _set_state(name: str, command: str) -> None:
    client = current().client()
    found = find_account(client, name)
    changed = client.call("PUT", ["account", str(found["accountID"]), command])
    show_done(
        f"account {changed['username']} is {changed['state'].lower()}",
        username=changed["username"],
        state=changed["state"],
    )


def _show_with_password(value: Object) -> None:
    labels = {"username": "username", "accountID": "id", "role": "role", "password": "password"}
    show_fields(value, labels)
    if "password" in value:
        note_unless_json("the password cannot be shown again")
