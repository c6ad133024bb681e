"""The command line: `fieldbrook`.

Exit codes: 0 done; 1 the node refused, or a handler failed; 2 wrong usage or settings;
3 the node cannot be reached; 4 not logged in, or not allowed; 130 ended by Ctrl-C.

Only the commands that run a node import the node and its libraries, and only when they are
called, so that `fieldbrook --help` answers at once.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import fieldbrook.cli.local.applets.dev
import fieldbrook.cli.local.applets.folders
import fieldbrook.cli.local.applets.run
import fieldbrook.cli.local.applets.test

# These modules register commands of a group that is imported below.
import fieldbrook.cli.local.chains
import fieldbrook.cli.local.old_broker
import fieldbrook.cli.remote.modules.dry_runs
import fieldbrook.cli.remote.modules.inspection  # noqa: F401
from fieldbrook import __version__
from fieldbrook.cli.console import Console, current
from fieldbrook.cli.errors import EXIT_REFUSED, EXIT_USAGE, ClientError
from fieldbrook.cli.local.backup import backup, outbox, restore, verify
from fieldbrook.cli.local.certificate import cert
from fieldbrook.cli.local.upgrade import upgrade
from fieldbrook.cli.options import CommandGroup, SharedCommand, shared_options
from fieldbrook.cli.output import note, show_json
from fieldbrook.cli.remote.accounts.access_keys import key
from fieldbrook.cli.remote.accounts.accounts import account
from fieldbrook.cli.remote.accounts.administrators import admin
from fieldbrook.cli.remote.accounts.audit_log import audit
from fieldbrook.cli.remote.accounts.login import login, logout, whoami
from fieldbrook.cli.remote.accounts.operators import operator
from fieldbrook.cli.remote.accounts.quotas import quota
from fieldbrook.cli.remote.chain.abis import abi
from fieldbrook.cli.remote.chain.chains import chain
from fieldbrook.cli.remote.chain.monitors import monitor
from fieldbrook.cli.remote.chain.transactions import tx
from fieldbrook.cli.remote.data.key_values import kv
from fieldbrook.cli.remote.data.tables import sql
from fieldbrook.cli.remote.events.cron_jobs import cron
from fieldbrook.cli.remote.events.dead_letters import dead_letter
from fieldbrook.cli.remote.events.history import event, refused
from fieldbrook.cli.remote.events.logs import logs
from fieldbrook.cli.remote.events.send import send
from fieldbrook.cli.remote.events.traffic_limits import limit
from fieldbrook.cli.remote.mqtt.group import mqtt
from fieldbrook.cli.remote.node.cluster import cluster
from fieldbrook.cli.remote.node.health import health, status
from fieldbrook.cli.remote.node.node_log import node_log
from fieldbrook.cli.remote.node.search import search
from fieldbrook.cli.remote.node.settings import settings
from fieldbrook.cli.remote.projects.applets import applet
from fieldbrook.cli.remote.projects.projects import project
from fieldbrook.cli.remote.projects.publishers import publisher
from fieldbrook.cli.remote.projects.resources import resource
from fieldbrook.cli.remote.projects.strategies import strategy
from fieldbrook.cli.remote.simulation.command import simulate

PROGRAM = "fieldbrook"
TRACEBACK_VARIABLE = "FIELDBROOK_TRACEBACK"
EXIT_INTERRUPTED = 130

_COMPLETION_FILES = {
    "bash": "~/.local/share/bash-completion/completions/fieldbrook",
    "zsh": "_fieldbrook in a folder of your $fpath",
    "fish": "~/.config/fish/completions/fieldbrook.fish",
}


class _Program(CommandGroup):
    """The program: a group that has the shared options itself, and sections in its help.

    It exits with 128 + SIGPIPE when the reader of its output closes the pipe (`| head`).
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params += shared_options()

    def invoke(self, context: click.Context) -> Any:
        try:
            value = super().invoke(context)
            sys.stdout.flush()
        except BrokenPipeError:
            # The interpreter flushes standard output at exit; the closed pipe would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            context.exit(128 + signal.SIGPIPE)
        return value

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                limit = formatter.width - 6 - max(len(name) for name in self.commands)
                formatter.write_dl(
                    [
                        (str(command.name), command.get_short_help_str(limit))
                        for command in commands
                    ],
                    col_max=16,
                )


class _NodeCommand(click.Command):
    """A command with `--config` and one option per setting.

    The options are made when they are needed, because importing the settings takes 0.1 s.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        if not self.params:
            self.params = _node_options()
        return super().get_params(ctx)


def _node_options() -> list[click.Parameter]:
    """`--config`, all settings except secrets, and hidden: those that were renamed or removed."""
    from fieldbrook.core.settings import REMOVED, RENAMED, SECRETS, Settings, default_text, flag_of

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
    old = [click.Option([flag_of(name), name], hidden=True) for name in (*RENAMED, *REMOVED)]
    return [config, *options, *old]


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
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli(data: Path | None) -> None:
    """Run an event node for devices, or manage one that runs.

    \b
    fieldbrook up                                        # run a node here
    fieldbrook admin create                              # in a second terminal
    fieldbrook project create room
    fieldbrook applet deploy room counter.wat
    fieldbrook publisher add room sensor-1
    fieldbrook send room --publisher sensor-1 --data 21.5
    fieldbrook logs room --follow
    """  # noqa: D301 - the backspace tells click to keep the lines
    if data is not None:
        current().data = data


@click.command(cls=_NodeCommand)
@click.pass_context
def up(context: click.Context, /, config: Path | None, **given: str | None) -> None:
    """Run a complete node in the foreground.

    Every option can also be an environment variable (FIELDBROOK_HTTP_PORT) or a line of the
    settings file (http_port = 8888). Options override variables, and variables the file.
    """
    settings = _settings(context, config, given)
    from fieldbrook.node.up import run

    context.exit(run(settings))


@click.command(cls=_NodeCommand)
@click.pass_context
def node(context: click.Context, /, config: Path | None, **given: str | None) -> None:
    """Run a node under a process supervisor of your own. The options are those of `up`."""
    settings = _settings(context, config, given)
    from fieldbrook.node.main import run

    context.exit(run(settings))


@click.command(cls=_NodeCommand)
@click.pass_context
def doctor(context: click.Context, /, config: Path | None, **given: str | None) -> None:
    """Examine this machine and the data folder, and say what to do.

    It looks at versions, limits, the clock, the disk, the stores, ports and certificates, before
    a node runs or while it does. The options are those of `up`. The exit code is 1 when a node
    cannot run like this.
    """
    settings = _settings(context, config, given)
    from fieldbrook.cli.local.doctor import show
    from fieldbrook.node.doctor.examination import examine

    context.exit(show(examine(settings)))


@click.command(cls=_NodeCommand)
@click.pass_context
def usage(context: click.Context, /, config: Path | None, **given: str | None) -> None:
    """Show what takes disk in the data folder, and the setting that bounds it.

    It reads the files of the data folder, while a node runs or without one, as the node's user. The
    options are those of `up`: the limits are those of these settings. The ten largest projects
    are listed; with --json, the hundred largest.
    """
    settings = _settings(context, config, given)
    from fieldbrook.cli.errors import expected_errors
    from fieldbrook.cli.local.usage import show

    with expected_errors():
        from fieldbrook.storage.usage import measure

        measured = measure(settings.data)
    show(measured, settings, 100 if current().json else 10)


@click.command(cls=SharedCommand)
def version() -> None:
    """Print the version."""
    if current().json:
        show_json({"version": __version__})
    else:
        click.echo(f"{PROGRAM} {__version__}")


@click.command()
@click.argument("shell", type=click.Choice(sorted(_COMPLETION_FILES)))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    Standard error says where to save it.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # the choices are those that click knows
    click.echo(kind(cli, {}, PROGRAM, "_FIELDBROOK_COMPLETE").source())
    note(f"save this as {_COMPLETION_FILES[shell]} and open a new shell")


SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "Run a node": (up, node, doctor, status, health, settings, node_log, mqtt, cluster, cert),
    "Keep its data": (backup, restore, verify, outbox, upgrade, usage),
    "Log in and manage accounts": (
        *(admin, login, logout, whoami, account, key, operator, quota, audit),
    ),
    "Manage projects": (
        *(project, applet, strategy, publisher, resource, kv, sql, cron, limit, search),
    ),
    "Send and follow events": (send, simulate, logs, event, refused, dead_letter),
    "Use chains": (chain, monitor, abi, tx),
    "Other commands": (version, completion),
}
for _command in itertools.chain(*SECTIONS.values()):
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
        _print_error(str(error), console.explain(error))
        return error.exit_code
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        answered = console.last_answered()
        if not answered or TRACEBACK_VARIABLE in os.environ:
            raise
        _print_error(
            f"cannot read the answer to {answered}: {type(error).__name__}: {str(error)[:200]}",
            f"is the server a node of this version? {TRACEBACK_VARIABLE}=1 shows the traceback",
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

    root = context.find_root()
    # A variable is left to `load`, which then knows that the value comes from the environment.
    if root.get_parameter_source("data") is click.core.ParameterSource.COMMANDLINE:
        given["data"] = given["data"] or str(root.params["data"])
    try:
        return load(config=config, **given)
    except SettingsError as error:
        raise click.UsageError(str(error)) from None


def _print_error(message: str, hint: str) -> None:
    # Line breaks stay, because messages of this program have several lines. `note` escapes all
    # other control characters, which may come from a server.
    for line in f"{PROGRAM}: {message}".split("\n"):
        note(line)
    if hint:
        note(f"  {hint}")
