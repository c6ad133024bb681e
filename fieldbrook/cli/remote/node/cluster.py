"""Commands on the hosts of a cluster: `cluster`."""

from __future__ import annotations

import click

from fieldbrook.cli.client import items
from fieldbrook.cli.console import current
from fieldbrook.cli.options import CommandGroup, SharedCommand, confirm, yes_option
from fieldbrook.cli.output import note, show_done, show_json, show_rows

_COLUMNS = {"name": "HOST", "address": "ADDRESS", "state": "STATE", "projects": "PROJECTS"}


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Show the hosts of a cluster, and change which there are, for administrators."""


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
@click.argument("host")
def drain(host: str) -> None:
    """Move the projects of a host to others, before it is restarted or removed.

    It goes on to answer requests. Its projects move two at a time; `cluster status` shows how many
    are left.
    """
    current().client().call("POST", ["cluster", "hosts", host, "drain"])
    show_done(f"{host} gives up its projects", host=host, change="drained")


@cluster.command(cls=SharedCommand)
@click.argument("host")
def undrain(host: str) -> None:
    """Give projects to a drained host again."""
    current().client().call("DELETE", ["cluster", "hosts", host, "drain"])
    show_done(f"{host} gets its share of the projects", host=host, change="undrained")


@cluster.command(cls=SharedCommand)
@click.argument("host")
@yes_option
def forget(host: str, yes: bool) -> None:
    """Remove a host that is gone for good, so that another one can take its place.

    All other hosts have to be there. The host cannot come back, and its name is never used again.
    """
    confirm(f"remove the host {host} for good? Its name is never used again", yes)
    current().client().call("DELETE", ["cluster", "hosts", host])
    show_done(f"removed {host}; have a new host join in its place", host=host, change="removed")


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
