"""Commands on the hosts of a cluster: `cluster`."""

from __future__ import annotations

import click

from fieldbrook.cli.client import items
from fieldbrook.cli.console import current
from fieldbrook.cli.options import CommandGroup, SharedCommand
from fieldbrook.cli.output import note, show_json, show_rows

_COLUMNS = {"name": "HOST", "address": "ADDRESS", "state": "STATE", "projects": "PROJECTS"}


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Show the hosts of a cluster, and invite new ones, for administrators."""


@cluster.command(cls=SharedCommand)
def status() -> None:
    """List the hosts, their states, and how many projects each owns."""
    answer = current().client().call("GET", ["cluster"])
    if current().json:
        show_json(answer)
        return
    show_rows(items(answer), _COLUMNS, "no hosts")
    if answer["missing"]:
        note(f"{answer['missing']} more hosts have to join; until then this node serves alone")
    else:
        note(f"acknowledged means: synced on 2 of 3 hosts; {answer['spare']} of them may die now")


@cluster.command(cls=SharedCommand)
def invite() -> None:
    """Print the command with which another host joins; its token is valid for an hour."""
    answer = current().client().call("POST", ["cluster", "invitation"])
    if current().json:
        show_json(answer)
        return
    click.echo(
        "fieldbrook up --data DATA --cluster-bind ADDRESS "
        f"--join {answer['address']} --join-token {answer['token']}"
    )
