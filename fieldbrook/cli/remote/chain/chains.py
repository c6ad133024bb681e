"""Commands on chains: `chain`."""

from __future__ import annotations

import click

from fieldbrook.cli.client import items
from fieldbrook.cli.console import current
from fieldbrook.cli.options import CommandGroup
from fieldbrook.cli.output import show_fields, show_json, show_rows

_COLUMNS = {
    "chainID": "ID",
    "name": "NAME",
    "state": "STATE",
    "head": "HEAD",
    "headAt": "SEEN",
    "confirmations": "CONFIRMATIONS",
    "reorganisations": "REORGANISATIONS",
    "greatestLag": "LAG",
    "failures": "FAILURES",
}
_GROUPS = ("fees", "transactions", "monitors")
_ENDPOINT_COLUMNS = {
    "endpoint": "ENDPOINT",
    "head": "HEAD",
    "failures": "FAILURES",
    "state": "STATE",
}


@click.group(cls=CommandGroup)
def chain() -> None:
    """Show the chains that the node uses."""


@chain.command("list")
def chain_list() -> None:
    """List the chains, each with its state and newest block."""
    answer = current().client().call("GET", ["chain"])
    if current().json:
        show_json(answer)
        return
    rows = [{**row, "greatestLag": row["monitors"]["greatestLag"]} for row in items(answer)]
    show_rows(rows, _COLUMNS, "no chains: add them to the setting `chains`")


@chain.command("show")
@click.argument("chain_", metavar="CHAIN")
def chain_show(chain_: str) -> None:
    """Show a chain, by id or name, and its monitors.

    Administrators see its endpoints, too.
    """
    row = current().client().call("GET", ["chain", chain_])
    if current().json:
        show_json(row)
        return
    flat = {key: value for key, value in row.items() if key not in (*_GROUPS, "endpoints")}
    for group in _GROUPS:
        flat |= {f"{group} {key}": value for key, value in row.get(group, {}).items()}
    show_fields(flat, {key: key for key in flat})
    if "endpoints" in row:
        show_rows(row["endpoints"], _ENDPOINT_COLUMNS, "")
