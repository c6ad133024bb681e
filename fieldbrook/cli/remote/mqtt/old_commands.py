"""Commands on the embedded broker of earlier versions; each prints the command that replaces it."""

from __future__ import annotations

import click

from fieldbrook.cli.errors import WrongUsageError
from fieldbrook.cli.options import SharedCommand

_ANY = {"ignore_unknown_options": True}


@click.command("status", cls=SharedCommand, hidden=True)
def status() -> None:
    """Print the commands that replace `mqtt status`."""
    raise WrongUsageError(
        "there is no embedded broker any more",
        "`fieldbrook mqtt sessions` and `fieldbrook mqtt retained` list what the node keeps; the "
        "limits are settings",
    )


@click.command("clear", cls=SharedCommand, hidden=True, context_settings=_ANY)
@click.argument("kind", nargs=-1)
def clear(kind: tuple[str, ...]) -> None:
    """Print the commands that replace `mqtt clear`."""
    del kind
    raise WrongUsageError(
        "there is no embedded broker any more",
        "`fieldbrook mqtt session CLIENT --remove` and `fieldbrook mqtt retained TOPIC --remove` "
        "remove what the node keeps",
    )
