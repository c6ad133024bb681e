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

# Every setting except secrets, which belong in a file or in the environment, because other
# users can read the command lines of processes. `settings.load` checks all values.
NODE_OPTIONS = {
    "data": "Folder of everything the node keeps [default: ./data].",
    "bind": "Address for events and MQTT [default: 0.0.0.0].",
    "http_port": "Port for events and management [default: 8888].",
    "event_port": "A second port for events alone, e.g. 8889.",
    "mqtt_port": "Port of the embedded broker [default: 1883].",
    "dashboard_bind": "Address of the dashboard [default: 127.0.0.1].",
    "dashboard_port": "Port of the dashboard [default: 3000].",
    "http_gateways": "Processes that serve the HTTP port; 0 = one per two cores [default: 0].",
    "shards": "Processes for one project's heavy handlers; 0 = one per core [default: 0].",
    "api_hosts": "Hosts that applets may call, separated by commas [default: none].",
    "mqtt_device_topics": "MQTT topic filters that devices may subscribe to [default: none].",
    "mqtt_broker": "HOST:PORT of an external broker instead of the embedded one.",
    "mqtt_username": "User at the external broker.",
    "mqtt_broker_tls": "Speak TLS to the external broker [default: False].",
    "mqtt_broker_ca": "PEM file of authorities for the external broker; else the system's.",
    "tls_certificate": "PEM file of the certificate: the ports then speak TLS.",
    "tls_key": "PEM file of the certificate's key.",
    "tls_client_ca": "PEM file of authorities that HTTP clients must have a certificate of.",
    "mqtt_memory_bytes": "Memory of the embedded broker [default: 2147483648].",
    "mqtt_logins": "The broker lets in devices with any user name and password [default: True].",
    "mqtt_sync": "When the broker syncs what it stores: 1s or always [default: 1s].",
    "mqtt_retained_limit": "Retained messages the broker keeps [default: 1000].",
    "mqtt_qos2_limit": "Unreleased QoS 2 messages the broker keeps [default: 10000].",
    "mqtt_session_limit": "Sessions of devices at the broker [default: 100000].",
    "mqtt_client_ca": "PEM file of authorities that MQTT clients must have a certificate of.",
    "mqtt_tls": "The embedded broker speaks TLS, too, with a certificate [default: True].",
    "token_lifetime_s": "Seconds a login lasts [default: 3600].",
    "body_limit_bytes": "Largest event [default: 1048576].",
    "upload_limit_bytes": "Largest module [default: 10485760].",
    "disk_reserve_bytes": "Bytes of the disk that uploads leave free [default: 20971520].",
    "deadline_ms": "Longest run of a handler [default: 5000].",
    "memory_limit_bytes": "Most memory of a handler [default: 67108864].",
    "spare_projects": "Processes kept ready for projects that start [default: 1].",
    "watchdog_s": "Seconds of silence that cost a process its life [default: 10].",
    "idle_s": "Seconds after which an idle project's process stops [default: 300].",
    "project_map_bytes": "Largest store of one project [default: 1 GiB].",
    "replayable_bytes": "Payloads a project keeps to replay events [default: 4194304].",
    "registry_map_bytes": "Largest registry [default: 4 GiB].",
    "applet_versions_kept": "Modules of an applet kept to go back to [default: 10].",
    "cron_jobs_limit": "Most cron jobs of one project [default: 100].",
    "quota_projects": "Projects of one account [default: 100].",
    "quota_applets": "Applets of one account [default: 1000].",
    "quota_modules": "Modules of one account [default: 1000].",
    "quota_bytes": "Stored bytes of one account [default: 4294967296].",
    "quota_strategies": "Strategies of one account [default: 10000].",
    "quota_publishers": "Publishers of one account [default: 10000].",
    "quota_databases": "Projects with SQL tables of one account [default: 50].",
    "quota_monitors": "Monitors of one account [default: 1000].",
    "quota_cron_jobs": "Cron jobs of one account [default: 1000].",
    "quota_abis": "Contract ABIs of one account [default: 200].",
    "quota_operators": "Operators of one account [default: 100].",
    "quota_access_keys": "Access keys of one account [default: 100].",
    "quota_processes": "Running projects of one account [default: 20].",
    "prover": "URL that applets' requests for zero-knowledge proofs are posted to.",
    "cron_timezone": "Time zone of cron expressions [default: UTC].",
    "wallet_whitelist": "Addresses that may sign in with a wallet, or * [default: none].",
    "wallet_domains": "Hosts that wallets sign in for, or *; none: the request's [default: none].",
    "wallet_nonce_required": "Wallets sign a nonce of this node [default: True].",
    "default_chain": "Chain of calls that name none, when there are several.",
    "wallet_chain": "Chain whose contracts may sign in; else the only one of the chains.",
    "sql_statement_ms": "Longest SQL statement [default: 1000].",
    "sql_rows": "Most rows of a statement's result [default: 10000].",
    "sql_result_bytes": "Largest result of a statement [default: 4194304].",
    "sql_database_bytes": "Largest database of a project [default: 268435456].",
    "audit_rows": "Rows of the audit log that are kept [default: 100000].",
    "core_dumps": "Leave core files, with secrets in them, for debugging [default: False].",
    "metrics": "Who may read /metrics: loopback, token or off [default: loopback].",
    "metrics_projects": "Projects with figures of their own in /metrics [default: 0].",
    "log_level": "DEBUG, INFO, WARNING, ERROR or CRITICAL [default: INFO].",
    "log_format": "text or json [default: text].",
}

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


def node_options(command: F) -> F:
    """Add `--config` and one option per setting to a command."""
    for name, text in reversed(NODE_OPTIONS.items()):
        flag = "--" + name.replace("_", "-")
        command = click.option(flag, name, metavar="VALUE", help=text)(command)
    config = click.option(
        "--config",
        type=click.Path(path_type=Path),
        help="Settings in a TOML file [env: FIELDBROOK_CONFIG].",
    )
    return config(command)


@cli.command()
@node_options
@click.pass_context
def up(context: click.Context, /, config: Path | None, **given: str | None) -> None:
    """Run a whole node in the foreground, its MQTT broker included.

    Every option can also be an environment variable (FIELDBROOK_HTTP_PORT) or a line of the
    settings file (http_port = 8888). Options override variables, and variables the file.
    """
    settings = _settings(context, config, given)
    from fieldbrook.node.up import run

    context.exit(run(settings))


@cli.command()
@node_options
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
