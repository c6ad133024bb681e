"""The command `simulate`."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from fieldbrook.cli.console import current
from fieldbrook.cli.errors import EXIT_REFUSED, WrongUsageError
from fieldbrook.cli.input import read_value
from fieldbrook.cli.options import SharedCommand, event_type_option, project_argument
from fieldbrook.cli.remote.lookup import open_project
from fieldbrook.cli.text import counted

if TYPE_CHECKING:
    from fieldbrook.cli.remote.simulation.display import Display
    from fieldbrook.cli.remote.simulation.fleet import Fleet
    from fieldbrook.device.address import Address
    from fieldbrook.device.transport import Sender

DEVICES_LIMIT = 900
"""Each device has a connection, and by default a process may have 1,024 open files."""
MQTT_DEVICES_LIMIT = 300
"""paho opens three files for a connection, and uses select(), which is limited to 1,024 files."""
_DEFAULT_DEVICES = 10
_DEFAULT_PAYLOAD = '{"device": "{{device}}", "count": {{count}}, "at": {{now}}}'
_ANSWERS_S, _ANSWERS_AFTER_CTRL_C_S = 10.0, 2.0
_LOOK_S = 0.1
_EXIT_INTERRUPTED = 130
_MQTT_PORTS = {"http": ("mqtt", 1883), "https": ("mqtts", 8883)}


def _duration_s(_context: click.Context, _option: click.Parameter, text: str) -> float:
    from fieldbrook.core.durations import parse_duration

    try:
        seconds = parse_duration(text) / 1000
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if not 0 < seconds <= 86_400:
        raise click.BadParameter("more than 0s and at most 24h")
    return seconds


@click.command(cls=SharedCommand)
@project_argument
@click.option(
    "--devices",
    type=click.IntRange(1, DEVICES_LIMIT),
    help=f"How many devices, over MQTT at most {MQTT_DEVICES_LIMIT} "
    f"[default: {_DEFAULT_DEVICES}, or all of --tokens].",
)
@click.option(
    "--rate",
    type=click.FloatRange(0.001, 1_000),
    default=1.0,
    show_default=True,
    help="How many events each device sends in a second.",
)
@click.option(
    "--for",
    "seconds",
    metavar="DURATION",
    default="60s",
    show_default=True,
    callback=_duration_s,
    help="How long, e.g. 90s or 10m.",
)
@event_type_option
@click.option(
    "--payload",
    metavar="TEMPLATE|@FILE",
    default=_DEFAULT_PAYLOAD,
    show_default=True,
    help="The payload with its placeholders.",
)
@click.option("--mqtt/--http", "mqtt", help="Send over MQTT or HTTP [default: HTTP].")
@click.option(
    "--to",
    metavar="URL",
    help="Where to send: http://, https://, mqtt:// or mqtts:// [default: --server, with --mqtt "
    "port 1883 of its host, or 8883 for an https:// server].",
)
@click.option(
    "--tokens",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Publishers that there are: a key and its token in each line of this file.",
)
@click.option("--keep", is_flag=True, help="Do not remove the publishers that were made.")
@click.option(
    "--seed", default="", help="Makes random values the same each time, for the same publishers."
)
@click.pass_context
def simulate(
    context: click.Context,
    project: str,
    devices: int | None,
    rate: float,
    seconds: float,
    event_type: str,
    payload: str,
    mqtt: bool,
    to: str | None,
    tokens: Path | None,
    keep: bool,
    seed: str,
) -> None:
    """Simulate a fleet of devices that send events, and show the results.

    It makes a publisher for each device and removes them at the end, or sends as the publishers of
    --tokens, which needs no login. Each device waits for the answer to an event before it sends
    the next one, and sends an event without an answer again with the same event id.

    Placeholders: {{count}} of the device's events, {{device}}: its key, {{now}} in Unix
    milliseconds, {{random A B}}, {{choice A B ...}}, {{walk START STEP}}: each value differs from
    the one before by at most STEP. Numbers have as many decimals as A, B, START and STEP.

    The exit code is 1 when an event was refused or not answered.
    """
    from fieldbrook.cli.remote.simulation.display import Display
    from fieldbrook.cli.remote.simulation.fleet import Fleet, Plan
    from fieldbrook.cli.remote.simulation.template import Template
    from fieldbrook.device.errors import DeviceError
    from fieldbrook.device.event import make_event

    template = Template(read_value(payload).decode("utf-8", "surrogateescape"))
    try:
        make_event(event_type, b"")
        address = _address(to, mqtt=mqtt)
    except DeviceError as error:
        raise WrongUsageError(str(error)) from None
    limit = MQTT_DEVICES_LIMIT if address.mqtt else DEVICES_LIMIT
    plan = Plan(event_type, rate, seconds, template, seed)
    with (
        _signals() as interrupted,
        _publishers(project, devices, tokens, limit, interrupted, keep=keep) as senders,
    ):
        fleet = Fleet(address, senders, plan)
        title = (
            f"{counted(len(senders), 'device')}, {rate:g} events/s of each, "
            f"to {senders[0].project} at {address}"
        )
        display = Display(title, seconds)
        _watch(fleet, display, interrupted)
        figures = fleet.tally.read(fleet.seconds, is_over=True)
        display.finish(figures)
    if interrupted.is_set():
        context.exit(_EXIT_INTERRUPTED)
    if figures.refused or figures.waiting:
        context.exit(EXIT_REFUSED)


def _watch(fleet: Fleet, display: Display, interrupted: threading.Event) -> None:
    """Show the progress of the fleet until it has ended."""
    limit_s = math.inf
    try:
        fleet.start()
        while fleet.is_running and fleet.seconds < limit_s:
            display.show(fleet.tally.read(fleet.seconds))
            if interrupted.is_set():
                fleet.stop()
                limit_s = min(limit_s, fleet.seconds + _ANSWERS_AFTER_CTRL_C_S)
                time.sleep(_LOOK_S)
            else:
                if fleet.is_over:
                    limit_s = min(limit_s, fleet.seconds + _ANSWERS_S)
                interrupted.wait(_LOOK_S)
    finally:
        fleet.give_up()


def _publishers(
    project: str,
    devices: int | None,
    tokens: Path | None,
    limit: int,
    interrupted: threading.Event,
    *,
    keep: bool,
) -> AbstractContextManager[list[Sender]]:
    from fieldbrook.cli.remote.simulation.publishers import made_publishers, read_tokens

    senders = [] if tokens is None else read_tokens(tokens, project, devices)
    if max(devices or 0, len(senders)) > limit:
        raise WrongUsageError(f"at most {limit} devices can send like this")
    if senders:
        return nullcontext(senders)
    client, project = open_project(project)
    return made_publishers(client, project, devices or _DEFAULT_DEVICES, interrupted, keep=keep)


def _address(to: str | None, *, mqtt: bool) -> Address:
    from fieldbrook.device.address import read_address

    if to is None:
        to = current().server
        if mqtt:
            server = urlsplit(to)
            scheme, port = _MQTT_PORTS[server.scheme]
            host = str(server.hostname)
            to = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    elif mqtt and not to.startswith("mqtt"):
        raise WrongUsageError(f"--mqtt needs an address of MQTT, and --to is {to}")
    return read_address(to, ca=current().authorities or None)


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Make Ctrl-C and SIGTERM set an event, so that the publishers are removed afterwards."""
    interrupted = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: interrupted.set()) for number in numbers}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
