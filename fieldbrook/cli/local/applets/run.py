"""Command that runs one event without a node: `applet run`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fieldbrook.cli.console import current
from fieldbrook.cli.errors import EXIT_REFUSED, WrongUsageError, expected_errors
from fieldbrook.cli.input import read_value
from fieldbrook.cli.local.applets.workbench import (
    EXISTING_FILE,
    WorkbenchOptions,
    open_workbench,
    require_handlers,
    workbench_options,
)
from fieldbrook.cli.options import event_type_option
from fieldbrook.cli.output import show_json
from fieldbrook.cli.remote.projects.applets import applet
from fieldbrook.cli.text import printable

if TYPE_CHECKING:
    from fieldbrook.workbench.runs import Outcome


@applet.command("run")
@click.argument("module", type=EXISTING_FILE)
@click.option("--handler", default="start", show_default=True, help="The handler that runs.")
@click.option(
    "--payload",
    default="",
    metavar="TEXT|@FILE",
    help="The event's payload; @FILE is the content of a file, @- standard input [default: none].",
)
@click.option("--base64", "encoded", is_flag=True, help="Decode the payload from base64.")
@event_type_option
@workbench_options
@click.pass_context
def applet_run(
    context: click.Context,
    module: Path,
    handler: str,
    payload: str,
    encoded: bool,
    event_type: str,
    given: WorkbenchOptions,
) -> None:
    """Run a handler over one event, without a node.

    The exit code is 1 when the handler failed: it trapped, exceeded a budget or returned a
    negative code. The writes of a run that trapped or exceeded a budget are discarded.
    """
    from fieldbrook.actors.project.chains import TX_EVENT
    from fieldbrook.workbench import files, results, runs
    from fieldbrook.workbench.chain_file import ChainSourceError

    data = _payload(payload, encoded)
    with (
        expected_errors(files.WorkbenchError, ChainSourceError),
        open_workbench(module, given, lines=True) as bench,
    ):
        require_handlers(bench, [handler], "--handler HANDLER")
        outcome = next(bench.perform([runs.Trial(handler, data, event_type)]))
        if given.store is not None and not outcome.error:
            files.write_store(given.store, bench.store)
        answers = bench.answers([outcome], [(TX_EVENT, handler)])
    if current().json:
        events = {"answers": results.describe_events(answers)} if given.chain else {}
        show_json({**results.describe(outcome), **events, "elapsed_us": round(outcome.elapsed_us)})
    else:
        _show(outcome, answers)
    if outcome.failed:
        context.exit(EXIT_REFUSED)


def _payload(text: str, encoded: bool) -> bytes:
    data = read_value(text)
    if not encoded:
        return data
    try:
        return base64.b64decode(b"".join(data.split()), validate=True)
    except binascii.Error as error:
        raise WrongUsageError(f"the payload is not base64: {error}") from None


def _show(outcome: Outcome, answers: Sequence[tuple[str, bytes]]) -> None:
    from fieldbrook.workbench.results import cut, describe, lines

    for line in lines(describe(outcome)):
        click.echo(printable(line))
    for event_type, payload in answers:
        click.echo(printable(f"answer   {event_type}: {cut(payload.decode('utf-8', 'replace'))}"))
    click.echo(f"time     {outcome.elapsed_us / 1000:.2f} ms")
