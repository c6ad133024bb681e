"""The command that drops the messages of an earlier version's broker: `mqtt discard-old-broker`.

It works on the files of a data folder, whether or not a node runs on it.
"""

from __future__ import annotations

from pathlib import Path

import click

from fieldbrook.cli.console import current
from fieldbrook.cli.errors import expected_errors
from fieldbrook.cli.options import confirm, yes_option
from fieldbrook.cli.output import show_done
from fieldbrook.cli.remote.mqtt.group import mqtt


@mqtt.command("discard-old-broker")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="The node's data folder [default: as for `fieldbrook`].",
)
@yes_option
def discard_old_broker(data: Path | None, yes: bool) -> None:
    """Drop the messages that the broker of an earlier version still holds for the node.

    The node delivers them by itself where nats-server is installed: pip install
    'fieldbrook[old-broker]'. Use this command if nobody needs the messages in the data folder.
    """
    confirm("Drop the messages of the old broker?", yes)
    with expected_errors():
        from fieldbrook.gateway.mqtt.old_broker.store import discard

        discarded = discard(data or current().data)
    show_done(
        "the messages of the old broker are dropped" if discarded else "there is no old broker",
        discarded=discarded,
    )
