"""Commands on the node's embedded MQTT broker: `mqtt`."""

from __future__ import annotations

import click

from fieldbrook.cli.client import items
from fieldbrook.cli.console import current
from fieldbrook.cli.options import CommandGroup
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


@click.group(cls=CommandGroup)
def mqtt() -> None:
    """Show or clear the state of the embedded MQTT broker."""


@mqtt.command("status")
def mqtt_status() -> None:
    """Show how much state the broker keeps, and its limits."""
    show_rows(items(current().client().call("GET", ["mqtt"])), _COLUMNS, "no state is kept")


@mqtt.command("clear")
@click.argument("kind", type=click.Choice(KINDS), metavar="KIND")
def mqtt_clear(kind: str) -> None:
    """Remove all state of one kind that the broker keeps for devices.

    KIND is `retained` (retained messages), `qos2` (QoS 2 messages that were never released and
    so have not become events) or `sessions` (sessions, their subscriptions and the messages
    that wait for them). Removing sessions restarts the broker: devices lose their connection
    for a moment and have to subscribe again.
    """
    removed = current().client().call("DELETE", ["mqtt", kind])["removed"]
    show_done(f"{kind}: {removed} removed", kind=kind, removed=removed)
