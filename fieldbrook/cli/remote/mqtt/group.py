"""The group `mqtt` with all its commands."""

from __future__ import annotations

import click

from fieldbrook.cli.options import CommandGroup
from fieldbrook.cli.remote.mqtt.clients import client, clients, disconnect, session, sessions
from fieldbrook.cli.remote.mqtt.messages import publish, retained
from fieldbrook.cli.remote.mqtt.old_commands import clear, status
from fieldbrook.cli.remote.mqtt.try_out import pub, sub


@click.group(cls=CommandGroup)
def mqtt() -> None:
    """Manage the node's MQTT server, or try it out as a client."""


for _command in (
    *(clients, client, disconnect, sessions, session, retained, publish),
    *(pub, sub, status, clear),
):
    mqtt.add_command(_command)
