"""The command line: `fieldbrook`.

Exit codes: 0 done; 1 the node refused, or a handler failed; 2 wrong usage or settings;
3 the node cannot be reached; 4 not logged in, or not allowed; 130 ended by Ctrl-C.

Only the commands that run a node import the node and its libraries, and only when they are
called, so that `fieldbrook --help` answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from fieldbrook import __version__
from fieldbrook.cli.client import EXIT_REFUSED, EXIT_USAGE, ClientError
from fieldbrook.cli.console import Console, current, note, shared_options, show_json
from fieldbrook.cli.local.applets import applet
from fieldbrook.cli.local.backup import backup, outbox, restore, verify
from fieldbrook.cli.local.certificate import cert
from fieldbrook.cli.remote.accounts.accounts import account, audit
from fieldbrook.cli.remote.accounts.keys import key, operator
from fieldbrook.cli.remote.accounts.login import admin, login, logout, whoami
from fieldbrook.cli.remote.accounts.quotas import quota
from fieldbrook.cli.remote.chain import abi, chain, monitor
from fieldbrook.cli.remote.events import kv, logs, send
from fieldbrook.cli.remote.health import health, status
from fieldbrook.cli.remote.history import dead_letter, event, refused
from fieldbrook.cli.remote.mqtt import mqtt
from fieldbrook.cli.remote.objects import project, publisher, resource, strategy
from fieldbrook.cli.remote.schedule import cron, limit
from fieldbrook.cli.remote.transactions import tx

PROGRAM = "fieldbrook"
TRACEBACK_VARIABLE = "FIELDBROOK_TRACEBACK"
EXIT_INTERRUPTED = 130

F = TypeVar("F", bound=Callable[..., Any])

_COMPLETION_PLACES = {
    "bash": "~/.local/share/bash-completion/completions/fieldbrook",
    "zsh": "a folder of your $fpath, as _fieldbrook",
    "fish": "~/.config/fish/completions/fieldbrook.fish",
}


class _Program(click.Group):
    """Exits with 128 + SIGPIPE when the reader of its output closes the pipe (`| head`)."""

    def invoke(self, context: click.Context) -> Any:
        try:
            value = super().invoke(context)
            sys.stdout.flush()
        except BrokenPipeError:
            # The interpreter flushes standard output at exit; the closed pipe would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            context.exit(128 + signal.SIGPIPE)
        return value


@click.group(
    cls=_Program,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done; 1 the node refused, or a handler failed; 2 wrong usage or "
    "settings; 3 the node cannot be reached; 4 not logged in, or not allowed.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="FIELDBROOK_DATA",
    help="The node's data folder [env: FIELDBROOK_DATA; default: ./data].",
)
@shared_options
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli(data: Path | None) -> None:
    """An event node for devices: run one, and talk to one.

    \b
    fieldbrook up                             run a node here
    fieldbrook admin create                   make yourself its administrator
    fieldbrook project create room
    fieldbrook applet deploy room counter.wat
    fieldbrook publisher add room sensor-1
    fieldbrook send room --publisher sensor-1 --data 21.5
    fieldbrook logs room --follow
    """  # noqa: D301 - the backspace tells click to keep the lines
    if data is not None:
        current().data = data


class _NodeCommand(click.Command):
    """A command with one option per setting. They are made when they are first needed, because
    importing the settings takes long."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """All options of the command."""
        if not self.params:
            self.params = _node_options()
        return super().get_params(ctx)


def _node_options() -> list[click.Parameter]:
    """`--config`, all settings except secrets, and hidden: the old names of renamed settings."""
    from fieldbrook.core.settings import RENAMED, SECRETS, Settings, default_text, flag_of

    config = click.Option(
        ["--config"],
        type=click.Path(path_type=Path),
        help="Settings in a TOML file [env: FIELDBROOK_CONFIG].",
    )
    options = [
        click.Option(
            [flag_of(name), name],
            metavar="VALUE",
            help=f"{field.description} [default: {default_text(name)}]",
        )
        for name, field in Settings.model_fields.items()
        if name not in SECRETS
    ]
    old = [click.Option([flag_of(name), name], hidden=True) for name in RENAMED]
    return [config, *options, *old]


@cli.command(cls=_NodeCommand)
@click.pass_context
def up(context: click.Context, /, config: Path | None, **given: str | None) -> None:
    """Run a whole node in the foreground, its MQTT broker included.

    Every option can also be an environment variable (FIELDBROOK_HTTP_PORT) or a line of the
    settings file (http_port = 8888). Options override variables, and variables the file.
    """
    settings = _settings(context, config, given)
    from fieldbrook.node.up import run

    context.exit(run(settings))


@cli.command(cls=_NodeCommand)
@click.pass_context
def node(context: click.Context, /, config: Path | None, **given: str | None) -> None:
    """Run a node without a broker, for a process supervisor. The options are those of `up`."""
    settings = _settings(context, config, given)
    from fieldbrook.node.main import run

    context.exit(run(settings))


@cli.command()
@shared_options
def version() -> None:
    """Print the version."""
    if current().json:
        show_json({"version": __version__})
    else:
        click.echo(f"{PROGRAM} {__version__}")


@cli.command()
@click.argument("shell", type=click.Choice(sorted(_COMPLETION_PLACES)))
def completion(shell: str) -> None:
    """Print the completion script of a shell, and say on standard error where to put it."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # the choices are those that click knows
    click.echo(kind(cli, {}, PROGRAM, "_FIELDBROOK_COMPLETE").source())
    note(f"put this into {_COMPLETION_PLACES[shell]} and open a new shell")


COMMANDS: tuple[click.Command, ...] = (
    status,
    health,
    mqtt,
    event,
    refused,
    dead_letter,
    cert,
    admin,
    login,
    logout,
    whoami,
    account,
    quota,
    audit,
    key,
    operator,
    project,
    applet,
    publisher,
    strategy,
    resource,
    cron,
    chain,
    monitor,
    abi,
    tx,
    limit,
    send,
    logs,
    kv,
    backup,
    restore,
    verify,
    outbox,
)
for _command in COMMANDS:
    cli.add_command(_command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Expected errors become a message on standard error. An answer that a command cannot read is
    reported the same way, unless FIELDBROOK_TRACEBACK is set: its exception is then raised.
    """
    console = Console()
    try:
        code = cli.main(arguments, PROGRAM, standalone_mode=False, obj=console)
        return code if isinstance(code, int) else 0
    except ClientError as error:
        _complain(str(error), console.explain(error))
        return error.exit_code
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        answered = console.answered()
        if not answered or TRACEBACK_VARIABLE in os.environ:
            raise
        what = f"{answered} was answered with something this command cannot read"
        _complain(
            f"{what}: {type(error).__name__}: {str(error)[:200]}",
            f"is the server a node of this version? {TRACEBACK_VARIABLE}=1 shows where it failed",
        )
        return EXIT_REFUSED
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return EXIT_USAGE
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    finally:
        console.close()


def main() -> None:
    """Entry point of the program `fieldbrook`."""
    from fieldbrook.system.process import report_fatal_signals

    report_fatal_signals()
    sys.exit(run())


def _settings(context: click.Context, config: Path | None, given: dict[str, str | None]) -> Any:
    from fieldbrook.core.errors import SettingsError
    from fieldbrook.core.settings import load

    root_data = context.find_root().params.get("data")
    given["data"] = given["data"] or (None if root_data is None else str(root_data))
    try:
        return load(config=config, **given)
    except SettingsError as error:
        raise click.UsageError(str(error)) from None


def _complain(message: str, hint: str) -> None:
    # Line breaks stay, because messages of this program have several lines. `note` escapes all
    # other control characters, which may come from a server.
    for line in f"{PROGRAM}: {message}".split("\n"):
        note(line)
    if hint:
        note(f"  {hint}")
