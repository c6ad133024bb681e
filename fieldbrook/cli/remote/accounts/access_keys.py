"""Commands on access keys: `key`."""

from __future__ import annotations

from typing import Any

import click

from fieldbrook.cli.client import Client, items
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import WrongUsageError
from fieldbrook.cli.options import CommandGroup, confirm, split_pair, yes_option
from fieldbrook.cli.output import note, show_done, show_fields, show_rows
from fieldbrook.cli.remote.lookup import ALL, find

_COLUMNS = {
    "name": "NAME",
    "identityType": "OWNER",
    "grants": "GRANTS",
    "expiredAt": "EXPIRES",
    "lastUsed": "LAST USED",
    "desc": "DESCRIPTION",
}
_FIELDS = {
    "name": "access key",
    "accessKey": "key",
    "grants": "grants",
    "expiredAt": "expires",
    "lastUsed": "last used",
    "desc": "description",
}
_EVERY_GROUP = "*"
_grant_option = click.option(
    "--grant",
    "grants",
    multiple=True,
    metavar="GROUP=PERMISSION",
    help="READONLY or READ_WRITE on a group (see `fieldbrook key groups`), or on * for every "
    "group; repeatable.",
)
_days_option = click.option(
    "--days", type=click.IntRange(0, 36_500), help="Days until it expires; 0 for never."
)


@click.group(cls=CommandGroup)
def key() -> None:
    """Manage access keys: tokens with an expiry and permissions.

    A program uses an access key instead of a login: FIELDBROOK_TOKEN=w3b_...
    """


@key.command("create")
@click.argument("name")
@_grant_option
@_days_option
@click.option("--description", default="", help="A text for people.")
def key_create(name: str, grants: tuple[str, ...], days: int | None, description: str) -> None:
    """Create an access key and print it; it cannot be shown again."""
    client = current().client()
    body = {
        "name": name,
        "privileges": _privileges(client, grants),
        "expirationDays": days or 0,
        "desc": description,
    }
    _show_key(client.call("POST", ["account_access_key"], body=body))
    if not current().json:
        note("the key cannot be shown again")
        if not grants:
            note("it has no permissions yet: `fieldbrook key update NAME --grant GROUP=PERMISSION`")


@key.command("list")
def key_list() -> None:
    """List your access keys."""
    rows = items(current().client().call("GET", ["account_access_key", "datalist"], query=ALL))
    if not current().json:
        rows = [{**row, "grants": _grants(row)} for row in rows]
    show_rows(rows, _COLUMNS, "no access keys yet: `fieldbrook key create NAME`")


@key.command("show")
@click.argument("name")
def key_show(name: str) -> None:
    """Show an access key, without the key itself."""
    _show_key(current().client().call("GET", ["account_access_key", "data", name]))


@key.command("update")
@click.argument("name")
@_grant_option
@_days_option
@click.option("--description", help="A text for people.")
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
@yes_option
def key_delete(name: str, yes: bool) -> None:
    """Delete an access key; it stops working at once."""
    client = current().client()
    client.call("GET", ["account_access_key", "data", name])  # DELETE accepts unknown names
    confirm(f"Delete access key {name}?", yes)
    client.call("DELETE", ["account_access_key", name])
    show_done(f"access key {name} deleted", deleted=name)


@key.command("groups")
def key_groups() -> None:
    """List the groups of operations on which a key can have permissions."""
    rows = _groups(current().client())
    show_rows(rows, {"name": "GROUP", "desc": "DESCRIPTION"}, "no groups")


def _privileges(client: Client, grants: tuple[str, ...]) -> list[dict[str, str]]:
    if not grants:
        return []
    groups = _groups(client)
    wanted: dict[str, str] = {}
    for text in grants:
        group, permission = split_pair(text, "--grant", "GROUP=PERMISSION")
        if group == _EVERY_GROUP:
            names = [str(row["name"]) for row in groups]
        else:
            folded = [{**row, "folded": str(row["name"]).casefold()} for row in groups]
            names = [str(find(folded, group.casefold(), "group", "folded", "name")["name"])]
        wanted |= dict.fromkeys(names, permission)
    return [{"name": name, "perm": permission} for name, permission in wanted.items()]


def _groups(client: Client) -> list[dict[str, Any]]:
    return items(client.call("GET", ["account_access_key", "operator_group_metas"]))


def _grants(row: dict[str, Any]) -> list[str]:
    """Return the grants of an access key, without groups to which it has no access."""
    granted = (item for item in row.get("privileges") or [] if item["perm"] != "NO_ACCESS")
    return [f"{item['name']}={item['perm']}" for item in granted]


def _show_key(value: dict[str, Any]) -> None:
    show_fields(value if current().json else {**value, "grants": _grants(value)}, _FIELDS)
