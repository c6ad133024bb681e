"""Commands about the node's MQTT broker: `mqtt`."""

from __future__ import annotations

import click

from fieldbrook.cli.console import current, items, shared_options, show_done, show_rows

KINDS = ("retained", "qos2", "sessions")
_KEPT = {
    "kind": "KIND",
    "count": "COUNT",
    "limit": "LIMIT",
    "bytes": "BYTES",
    "limitBytes": "LIMIT BYTES",
    "full": "FULL",
}


@click.group()
def mqtt() -> None:
    """The embedded MQTT broker, for administrators."""


@mqtt.command("status")
@shared_options
def mqtt_status() -> None:
    """Show how much state devices have left at the broker, and how much they may leave."""
    show_rows(items(current().client().call("GET", ["mqtt"])), _KEPT, "nothing is kept")


@mqtt.command("clear")
@click.argument("kind", type=click.Choice(KINDS))
@shared_options
def mqtt_clear(kind: str) -> None:
    """Remove all state of one kind that devices have left at the broker.

    KIND is `retained` (retained messages), `qos2` (QoS 2 messages that were sent and never
    released, so that they are no events yet) or `sessions` (sessions, their subscriptions and
    the messages that wait for them). To remove sessions the broker is started again: devices
    lose their connection for a moment and have to subscribe anew.
    """
    removed = current().client().call("DELETE", ["mqtt", kind])["removed"]
    show_done(f"{removed} removed", kind=kind, removed=removed)
