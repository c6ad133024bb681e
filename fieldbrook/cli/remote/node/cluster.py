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
_PROJECT_COLUMNS = {
    "project": "PROJECT",
    "account": "ACCOUNT",
    "host": "HOST",
    "pinnedTo": "PINNED TO",
}
_CLOCK_S = 0.1  # smaller differences are shown as `ok`


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Show, drain, add and remove the hosts of a cluster, for administrators."""


@cluster.command(cls=SharedCommand)
def status() -> None:
    """List the hosts with their state, and the effect of losing one more host.

    LAG is the number of records that the replicas of a host lack. CLOCK is how far its clock is
    ahead of the clock of the host that you ask. The figures of a silent host are those of its last
    heartbeat.
    """
    answer = current().client().call("GET", ["cluster"])
    if current().json:
        show_json(answer)
        return
    show_rows([_row(host) for host in items(answer)], _COLUMNS, "no hosts")
    note(answer["outlook"])
    for host in items(answer):
        if host["changesRegistry"] and not answer["missing"]:
            note(f"{host['name']} owns the registry: it changes accounts and projects")
    if not answer["missing"]:
        note("an acknowledged event is synced on 2 of 3 hosts")


def _row(host: dict[str, Any]) -> dict[str, Any]:
    """Return a host as a row of the table."""
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
@click.option("--host", default="", help="Only the projects of this host.")
def projects(host: str) -> None:
    """List the projects with the hosts that own them."""
    answer = (
        current().client().call("GET", ["cluster", "projects"], query={"host": host, "size": -1})
    )
    if current().json:
        show_json(answer)
        return
    show_rows(items(answer), _PROJECT_COLUMNS, "no projects")


@cluster.command(cls=SharedCommand)
@click.argument("project")
@click.argument("host")
def pin(project: str, host: str) -> None:
    """Move a project to a host, and keep it there.

    While the host is silent or drained, another host owns the project. `cluster projects` lists the
    pinned ones.
    """
    current().client().call("PUT", ["cluster", "projects", project, "pin"], body={"host": host})
    show_done(f"{project} moves to {host}", project=project, host=host, change="pinned")


@cluster.command(cls=SharedCommand)
@click.argument("project")
def unpin(project: str) -> None:
    """Let any host own a project again; it may move to another one."""
    current().client().call("DELETE", ["cluster", "projects", project, "pin"])
    show_done(f"{project} may be owned by any host", project=project, change="unpinned")


@cluster.command(cls=SharedCommand)
@click.argument("host")
def drain(host: str) -> None:
    """Move the projects of a host to other hosts, before it is restarted or removed.

    The host still answers requests. Its projects move two at a time; `cluster status` shows how
    many are left.
    """
    current().client().call("POST", ["cluster", "hosts", host, "drain"])
    show_done(f"{host} gives up its projects", host=host, change="drained")


@cluster.command(cls=SharedCommand)
@click.argument("host")
def undrain(host: str) -> None:
    """Let a drained host own projects again."""
    current().client().call("DELETE", ["cluster", "hosts", host, "drain"])
    show_done(f"{host} gets its share of the projects", host=host, change="undrained")


@cluster.command(cls=SharedCommand)
@click.argument("host")
@yes_option
def forget(host: str, yes: bool) -> None:
    """Remove a host that will never return, so that a new host can replace it.

    All other hosts must be up. The removed host cannot return, and its name cannot be used again.
    """
    confirm(f"remove the host {host} for ever? Its name cannot be used again", yes)
    current().client().call("DELETE", ["cluster", "hosts", host])
    show_done(f"removed {host}; let a new host join to replace it", host=host, change="removed")


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
