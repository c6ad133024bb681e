"""The command line: `fieldbrook`.

Exit codes: 0 done; 1 the node refused, or a handler failed; 2 wrong usage or settings;
3 the node cannot be reached; 4 not logged in, or not allowed; 130 ended by Ctrl-C.

A command is imported when it is called, and only the commands that run a node import the node and
its libraries.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fieldbrook import __version__
from fieldbrook.cli.console import Console, current
from fieldbrook.cli.errors import EXIT_REFUSED, EXIT_USAGE, ClientError
from fieldbrook.cli.options import (
    CommandGroup,
    SharedCommand,
    shared_options,
    yes_option,
)
from fieldbrook.cli.output import note, show_json

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

    A command is imported when it is requested. The program exits with 128 + SIGPIPE when the reader
    of its output closes the pipe (`| head`).
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

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(itertools.chain(*SECTIONS.values()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands:
            for module in _MODULES.get(cmd_name, ()):
                found = importlib.import_module(f"fieldbrook.cli.{module}")
                command = getattr(found, cmd_name.replace("-", "_"), None)
                if isinstance(command, click.Command):  # other modules register commands of a group
                    self.add_command(command)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args[0] not in names:
            for name in names:  # click suggests only the names of registered commands
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, self.list_commands(context)))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                commands = filter(None, (self.get_command(context, name) for name in names))
                formatter.write_dl(
                    [
                        (str(command.name), command.get_short_help_str(limit))
                        for command in commands
                    ],
                    col_max=16,
                )


class _NodeCommand(click.Command):
    """A command with `--config` and one option per setting.

    The options are created when they are needed, so that other commands do not import the settings.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        if all(each.name != "config" for each in self.params):
            self.params += _node_options()
        return super().get_params(ctx)


def _node_options() -> list[click.Parameter]:
    """Return `--config`, all settings except secrets, and hidden options for renamed and removed
    settings."""
    from fieldbrook.core.settings import (
        REMOVED,
        RENAMED,
        SECRETS,
        default_text,
        flag_of,
        settings_fields,
    )

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
        for name, field in settings_fields().items()
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

    It checks versions, limits, the clock, the disk, the stores, ports and certificates, before a
    node runs or while it runs. The options are those of `up`. The exit code is 1 when a node cannot
    run like this.
    """
    settings = _settings(context, config, given)
    from fieldbrook.cli.local.doctor import show
    from fieldbrook.node.doctor.examination import examine

    context.exit(show(examine(settings)))


@click.command(cls=_NodeCommand)
@click.pass_context
def usage(context: click.Context, /, config: Path | None, **given: str | None) -> None:
    """Show the disk space of each kind of data in the data folder, and the setting that limits it.

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


@click.command(cls=_NodeCommand)
@yes_option
@click.pass_context
def rescue(context: click.Context, /, config: Path | None, yes: bool, **given: str | None) -> None:
    """Turn the last host of a cluster into a single node, if the other hosts will never return.

    No node may run on the data folder. Data that only the other hosts have is lost; the command
    prints the time of the last record of this host. It needs as much disk space again as the
    streams. The options are those of `up`. The exit code is 1 when a project or a module is not
    complete.
    """
    settings = _settings(context, config, given)
    from fieldbrook.cli.local.rescue import carry_out

    context.exit(carry_out(settings, yes))


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
    assert kind is not None  # the choices are those of click
    click.echo(kind(cli, {}, PROGRAM, "_FIELDBROOK_COMPLETE").source())
    note(f"save this as {_COMPLETION_FILES[shell]} and open a new shell")


SECTIONS: dict[str, tuple[str, ...]] = {
    "Run a node": (
        *("up", "node", "doctor", "status", "health", "settings", "node-log", "mqtt", "cluster"),
        "cert",
    ),
    "Keep its data": ("backup", "restore", "verify", "outbox", "upgrade", "usage", "rescue"),
    "Log in and manage accounts": (
        *("admin", "login", "logout", "whoami", "account", "key", "operator", "quota", "audit"),
    ),
    "Manage projects": (
        *("project", "applet", "strategy", "publisher", "resource", "kv", "sql", "cron", "limit"),
        "search",
    ),
    "Send and follow events": ("send", "simulate", "logs", "event", "refused", "dead-letter"),
    "Use chains": ("chain", "monitor", "abi", "tx"),
    "Other commands": ("version", "completion"),
}
"""The names of all commands, by the title of their section in the help."""

_MODULES: dict[str, tuple[str, ...]] = {
    "status": ("remote.node.health",),
    "health": ("remote.node.health",),
    "settings": ("remote.node.settings",),
    "node-log": ("remote.node.node_log",),
    "mqtt": ("remote.mqtt.group", "local.old_broker"),
    "cluster": ("remote.node.cluster",),
    "cert": ("local.certificate",),
    "backup": ("local.backup",),
    "restore": ("local.backup",),
    "verify": ("local.backup",),
    "outbox": ("local.backup",),
    "upgrade": ("local.upgrade",),
    "admin": ("remote.accounts.administrators",),
    "login": ("remote.accounts.login",),
    "logout": ("remote.accounts.login",),
    "whoami": ("remote.accounts.login",),
    "account": ("remote.accounts.accounts", "remote.accounts.quotas"),
    "key": ("remote.accounts.access_keys",),
    "operator": ("remote.accounts.operators",),
    "quota": ("remote.accounts.quotas",),
    "audit": ("remote.accounts.audit_log",),
    "project": ("remote.projects.projects",),
    "applet": (
        "remote.projects.applets",
        *("local.applets.dev", "local.applets.folders", "local.applets.run", "local.applets.test"),
        *("remote.modules.dry_runs", "remote.modules.inspection"),
    ),
    "strategy": ("remote.projects.strategies",),
    "publisher": ("remote.projects.publishers",),
    "resource": ("remote.projects.resources",),
    "kv": ("remote.data.key_values",),
    "sql": ("remote.data.tables",),
    "cron": ("remote.events.cron_jobs",),
    "limit": ("remote.events.traffic_limits",),
    "search": ("remote.node.search",),
    "send": ("remote.events.send",),
    "simulate": ("remote.simulation.command",),
    "logs": ("remote.events.logs",),
    "event": ("remote.events.history",),
    "refused": ("remote.events.history",),
    "dead-letter": ("remote.events.dead_letters",),
    "chain": ("remote.chain.chains", "local.chains"),
    "monitor": ("remote.chain.monitors",),
    "abi": ("remote.chain.abis",),
    "tx": ("remote.chain.transactions",),
}
"""The modules of the commands that are not in this file, below `fieldbrook.cli`. The first module
has a variable with the name of the command, which is the command."""

for _command in (up, node, doctor, usage, rescue, version, completion):
    cli.add_command(_command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Expected errors become a message on standard error. An answer that a command cannot read is
    reported in the same way; but if FIELDBROOK_TRACEBACK is set, its exception is raised.
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
    # Imported objects are never freed, and garbage collections among them took a tenth of a start.
    gc.set_threshold(50_000)
    from fieldbrook.system.process import report_fatal_signals

    report_fatal_signals()
    sys.exit(run())


def _settings(context: click.Context, config: Path | None, given: dict[str, str | None]) -> Any:
    from fieldbrook.core.errors import SettingsError
    from fieldbrook.core.settings import load

    root = context.find_root()
    # A variable is left to `load`, so that it records the environment as the source of the value.
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
