"""Commands on the node's embedded MQTT broker: `mqtt status`, `mqtt clear`."""

from __future__ import annotations

import click

from fieldbrook.cli.client import items
from fieldbrook.cli.console import current
from fieldbrook.cli.options import SharedCommand
from fieldbrook.cli.output import show_done, show_rows

KINDS = ("retained", "qos2", "sessions")
_COLUMNS = {
    "kind": "KIND",
    "count": "COUNT",
    "limit": "LIMIT",
    "bytes": "BYTES",
    "limitBytes": "LIMIT BYTES",
    "full": "FULL",
}


@click.command("status", cls=SharedCommand)
def status() -> None:
    """Show how much state the embedded broker keeps, and its limits."""
    show_rows(items(current().client().call("GET", ["mqtt"])), _COLUMNS, "no state is kept")


@click.command("clear", cls=SharedCommand)
@click.argument("kind", type=click.Choice(KINDS), metavar="KIND")
def clear(kind: str) -> None:
    """Remove all state of one kind that the embedded broker keeps for devices.

    KIND is `retained` (retained messages), `qos2` (QoS 2 messages that were never released and
    so have not become events) or `sessions` (sessions, their subscriptions and the messages
    that wait for them). Removing sessions restarts the broker: devices lose their connection
    for a moment and have to subscribe again.
    """
    removed = current().client().call("DELETE", ["mqtt", kind])["removed"]
    show_done(f"{kind}: {removed} removed", kind=kind, removed=removed)
