"""Commands on the quotas of accounts: `quota` and `account quota`."""

from __future__ import annotations

from typing import Any

import click

from fieldbrook.cli.client import items
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import WrongUsageError
from fieldbrook.cli.options import SharedCommand
from fieldbrook.cli.output import show_rows
from fieldbrook.cli.remote.accounts.accounts import account, find_account

_COLUMNS = {
    "name": "QUOTA",
    "used": "USED",
    "limit": "LIMIT",
    "from": "SOURCE",
    "desc": "DESCRIPTION",
}
_UNITS = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_UNLIMITED, _DEFAULT = "unlimited", "default"


@click.command(cls=SharedCommand)
def quota() -> None:
    """Show the quotas of your account and how much of them is used."""
    _show(current().client().call("GET", ["quota"]))


@account.command("quota")
@click.argument("name", metavar="USERNAME")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="QUOTA=LIMIT",
    help="Change a quota to a number (with KiB, MiB, GiB or TiB for bytes), `unlimited`, or "
    "`default` for that of the settings; repeatable.",
)
def account_quota(name: str, changes: tuple[str, ...]) -> None:
    """Show or change the quotas of an account."""
    quotas = [_change(text) for text in changes]
    client = current().client()
    path = ["account", str(find_account(client, name)["accountID"]), "quota"]
    _show(client.call("PUT", path, body={"quotas": quotas}) if quotas else client.call("GET", path))


def _change(text: str) -> dict[str, Any]:
    name, equals, limit = text.partition("=")
    name, limit = name.strip().replace("-", "_"), limit.strip()
    if not name or not equals or not limit:
        raise WrongUsageError(
            f"--set {text!r} does not have the form QUOTA=LIMIT", "e.g. --set projects=200"
        )
    if limit == _UNLIMITED:
        return {"name": name, "unlimited": True}
    if limit == _DEFAULT:
        return {"name": name}
    return {"name": name, "limit": _number(limit)}


def _number(text: str) -> int:
    lowered = text.lower()
    unit = next((unit for unit in _UNITS if lowered.endswith(unit)), "")
    digits = lowered.removesuffix(unit).strip()
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 16):
        raise WrongUsageError(
            f"{text!r} is not a limit", "give a whole number, 10GiB, unlimited or default"
        )
    return int(digits) * _UNITS.get(unit, 1)


def _show(answer: dict[str, Any]) -> None:
    rows = items(answer)
    if not current().json:
        rows = [{**row, "limit": row.get("limit", "no limit")} for row in rows]
    show_rows(rows, _COLUMNS, "no quotas")
