"""Options and arguments that several commands share.

A command of class `SharedCommand` has the options `--json`, `--server` and `--ca`. The program also
has these options, so that users may give them before or after the command's name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from fieldbrook.cli.client import DEFAULT_SERVER, normal_server
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import WrongUsageError

F = TypeVar("F", bound=Callable[..., Any])

project_argument = click.argument("project", metavar="PROJECT")
ids_argument = click.argument("ids", metavar="ID...", nargs=-1, required=True)
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
event_type_option = click.option(
    "--type",
    "event_type",
    default="DEFAULT",
    show_default=True,
    help="The type of the events.",
)


def limit_option(default: int = 20, largest: int = 1_000) -> Callable[[F], F]:
    """Return the option `--limit` of a command that lists something."""
    kind = click.IntRange(1, largest)
    return click.option(
        "--limit", "-n", type=kind, default=default, show_default=True, help="How many to list."
    )


class SharedCommand(click.Command):
    """A command with the shared options."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params += shared_options()


class CommandGroup(click.Group):
    """A group whose commands have the shared options."""

    command_class = SharedCommand


def shared_options() -> list[click.Parameter]:
    """Return the shared options; their callbacks change the `current` console."""
    return [
        click.Option(
            ["--json"],
            is_flag=True,
            expose_value=False,
            callback=_set_json,
            help="Print JSON, for programs.",
        ),
        click.Option(
            ["--server"],
            metavar="URL",
            expose_value=False,
            callback=_set_server,
            help="The node's address [env: FIELDBROOK_SERVER; default: the login's, else "
            f"{DEFAULT_SERVER}].",
        ),
        click.Option(
            ["--ca"],
            metavar="FILE",
            expose_value=False,
            callback=_set_authorities,
            help="PEM file of the certificate authorities trusted for an https:// server "
            "[env: FIELDBROOK_CA; default: the login's, else the system's].",
        ),
    ]


def _set_json(_context: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        current().json = True


def _set_server(_context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value:
        current().given_server = normal_server(value)


def _set_authorities(_context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value:
        current().given_authorities = value


def split_pair(text: str, option: str, form: str) -> tuple[str, str]:
    """Split a value of the form `LEFT=RIGHT` into both sides; `form` names them in the error.

    Raises:
        WrongUsageError: the text has another form, or LEFT is empty.
    """
    left, equals, right = text.partition("=")
    if not equals or not left:
        raise WrongUsageError(f"{option} {text!r} does not have the form {form}")
    return left, right


def confirm(question: str, yes: bool) -> None:
    """Ask on the terminal whether to continue; `yes` is the value of `yes_option`.

    Raises:
        click.Abort: the answer is no.
    """
    if not yes:
        click.confirm(question, abort=True, err=True)
