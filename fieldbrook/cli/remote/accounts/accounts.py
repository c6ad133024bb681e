"""Commands for administrators on accounts and the audit log: `account` and `audit`."""

from __future__ import annotations

from typing import Any

import click

from fieldbrook.cli.client import Client
from fieldbrook.cli.console import (
    current,
    items,
    note,
    shared_options,
    show_done,
    show_fields,
    show_json,
    show_rows,
)
from fieldbrook.cli.remote.accounts.login import new_password
from fieldbrook.cli.remote.objects import ALL, pick

_ACCOUNT = {
    "username": "USERNAME",
    "accountID": "ID",
    "role": "ROLE",
    "state": "STATE",
    "projects": "PROJECTS",
    "createdAt": "CREATED",
}
_ACCOUNT_FIELDS = {key: label.lower() for key, label in _ACCOUNT.items()}
_AUDIT = {
    "time": "TIME",
    "account": "ACCOUNT",
    "accessKey": "KEY",
    "from": "FROM",
    "operation": "OPERATION",
    "path": "PATH",
    "status": "STATUS",
    "error": "ERROR",
}
_PASSWORD = click.option(
    "--password",
    "source",
    metavar="-|prompt|generated",
    help="Where the password comes from: standard input, a question, or the node, which then "
    "shows it once. Default: prompt on a terminal, else generated.",
)


@click.group()
def account() -> None:
    """Accounts of the node, for its administrators."""


@account.command("list")
@click.option("--role", type=click.Choice(["admin", "developer"]))
@click.option("--state", type=click.Choice(["enabled", "disabled"]))
@shared_options
def account_list(role: str | None, state: str | None) -> None:
    """List the accounts."""
    query = {**ALL, "role": role, "state": state}
    rows = items(current().client().call("GET", ["account"], query=query))
    show_rows(rows, _ACCOUNT, "no such accounts")


@account.command("show")
@click.argument("name", metavar="USERNAME")
@shared_options
def account_show(name: str) -> None:
    """Show one account, by its username or id."""
    show_fields(find_account(current().client(), name), _ACCOUNT_FIELDS)


@account.command("create")
@click.argument("username")
@click.option(
    "--role", type=click.Choice(["admin", "developer"]), default="developer", show_default=True
)
@_PASSWORD
@shared_options
def account_create(username: str, role: str, source: str | None) -> None:
    """Create an account."""
    password = new_password(source)
    body = {"username": username, "role": role.upper()}
    if password is not None:
        body["password"] = password
    made = current().client().call("POST", ["register", "admin"], body=body)
    _show_with_password(made)


@account.command("disable")
@click.argument("name", metavar="USERNAME")
@shared_options
def account_disable(name: str) -> None:
    """Disable an account: refuse its logins, its access keys, and events for its projects."""
    _set_state(name, "disable")


@account.command("enable")
@click.argument("name", metavar="USERNAME")
@shared_options
def account_enable(name: str) -> None:
    """Enable a disabled account."""
    _set_state(name, "enable")


@account.command("password")
@click.argument("name", metavar="USERNAME")
@_PASSWORD
@shared_options
def account_password(name: str, source: str | None) -> None:
    """Set the password of another account. For your own: `fieldbrook admin password`."""
    client = current().client()
    account_id = str(find_account(client, name)["accountID"])
    password = new_password(source)
    body = {} if password is None else {"password": password}
    _show_with_password(client.call("PUT", ["account", account_id, "password"], body=body))


@account.command("delete")
@click.argument("name", metavar="USERNAME")
@click.option("--force", is_flag=True, help="With its projects and all their data.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared_options
def account_delete(name: str, force: bool, yes: bool) -> None:
    """Delete an account with its access keys and operators."""
    client = current().client()
    found = find_account(client, name)
    username, account_id = str(found["username"]), str(found["accountID"])
    if not yes:
        more = f" and its {found['projects']} projects" if force else ""
        click.confirm(f"Delete account {username}{more}?", abort=True, err=True)
    query = {"force": "true"} if force else None
    client.call("DELETE", ["account", account_id], query=query)
    show_done(f"account {username} deleted", deleted=username)


@click.command()
@click.option("--account", "username", metavar="USERNAME", help="What this account did.")
@click.option("--operation", metavar="NAME", help="Only this one, e.g. CreateProject.")
@click.option("--path", metavar="TEXT", help="Where the path has this in it.")
@click.option("--since", metavar="TIME", help="Not before, e.g. 2026-11-21T06:00:00Z.")
@click.option("--until", metavar="TIME", help="Not after.")
@click.option("--refused", is_flag=True, help="Only what was refused.")
@click.option("--limit", "-n", type=click.IntRange(1, 100_000), default=50, show_default=True)
@shared_options
def audit(
    username: str | None,
    operation: str | None,
    path: str | None,
    since: str | None,
    until: str | None,
    refused: bool,
    limit: int,
) -> None:
    """Show the audit log (who changed what), the latest first."""
    query: dict[str, Any] = {
        "account": username,
        "operation": operation,
        "path": path,
        "begin": since,
        "end": until,
        "outcome": "REFUSED" if refused else None,
    }
    rows = _audit_rows(current().client(), query, limit)
    if current().json:
        show_json(rows)
    else:
        show_rows(rows, _AUDIT, "nothing of the kind is in the audit log")


def find_account(client: Client, given: str) -> dict[str, Any]:
    """Look up the account given by username or id.

    Raises:
        ClientError: there is no such account; the hint suggests or lists existing ones.
    """
    rows = items(client.call("GET", ["account"], query=ALL))
    return pick(rows, given, "account", "username", "accountID")


def _audit_rows(client: Client, query: dict[str, Any], limit: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    before = "0"
    while before and len(rows) < limit:
        page = {**query, "before": before, "limit": min(limit - len(rows), 1_000)}
        answer = client.call("GET", ["audit"], query=page)
        rows += items(answer)
        before = str(answer.get("next", ""))
    return rows


def _set_state(name: str, command: str) -> None:
    client = current().client()
    found = find_account(client, name)
    changed = client.call("PUT", ["account", str(found["accountID"]), command])
    show_done(
        f"account {changed['username']} is {changed['state'].lower()}",
        username=changed["username"],
        state=changed["state"],
    )


def _show_with_password(value: dict[str, Any]) -> None:
    labels = {"username": "username", "accountID": "id", "role": "role", "password": "password"}
    show_fields(value, labels)
    if "password" in value and not current().json:
        note("the password is shown only now")
