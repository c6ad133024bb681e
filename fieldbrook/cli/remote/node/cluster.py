"""Commands on the hosts of a cluster: `cluster`."""

from __future__ import annotations

from typing import Any

import click

from fieldbrook.cli.client import items
from fieldbrook.cli.console import current
from fieldbrook.cli.options import CommandGroup, SharedCommand, confirm, yes_option
from fieldbrook.cli.output import note, show_done, show_json, show_rows

_COLUMNS = {
    "name": "HOST",
    "address": "ADDRESS",
    "state": "STATE",
    "version": "VERSION",
    "projects": "PROJECTS",
    "streams": "STREAMS LED/HELD",
    "load": "LOAD",
    "lag": "LAG",
    "clock": "CLOCK",
    "silent": "SILENT FOR",
}
_PROJECT_COLUMNS = {"project": "PROJECT", "account": "ACCOUNT", "host": "HOST"}
_CLOCK_S = 0.1  # smaller differences are not worth a look


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Show the hosts of a cluster, and change which there are, for administrators."""


@cluster.command(cls=SharedCommand)
def status() -> None:
    """List the hosts: what each owns, leads and lacks, and what one more loss would mean.

    LAG is the number of records that the copies of a host lack, CLOCK how far its clock is ahead of
    the one of the host that you ask. What a silent host has told is from before.
    """
    answer = current().client().call("GET", ["cluster"])
    if current().json:
        show_json(answer)
        return
    show_rows([_row(host) for host in items(answer)], _COLUMNS, "no hosts")
    note(answer["outlook"])
    for host in items(answer):
        if host["changesRegistry"] and not answer["missing"]:
            note(f"{host['name']} makes the changes of accounts and projects")
    if not answer["missing"]:
        note("acknowledged means: synced on 2 of 3 hosts")


def _row(host: dict[str, Any]) -> dict[str, Any]:
    """A host as a row of texts."""
    ahead_s, led = host.get("clockAheadS"), host.get("streamsLed")
    silent_s, lag = host.get("silentS"), host.get("lagRecords")
    return {
        **host,
        "version": host.get("version", "-"),
        "streams": "-" if led is None else f"{led} / {host['streamsHeld']}",
        "load": f"{host['load']:.2f}" if "load" in host else "-",
        "lag": "-" if lag is None else lag,
        "clock": "-"
        if ahead_s is None
        else "ok"
        if abs(ahead_s) < _CLOCK_S
        else f"{ahead_s:+.1f} s",
        "silent": "this host" if host["me"] else "-" if silent_s is None else f"{silent_s:.1f} s",
    }


@cluster.command(cls=SharedCommand)
@click.option("--host", default="", help="Only those of this host.")
def projects(host: str) -> None:
    """List which host owns which project."""
    answer = (
        current().client().call("GET", ["cluster", "projects"], query={"host": host, "size": -1})
    )
    if current().json:
        show_json(answer)
        return
    show_rows(items(answer), _PROJECT_COLUMNS, "no projects")


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
