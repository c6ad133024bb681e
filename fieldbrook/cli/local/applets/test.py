"""Command that replays recorded events without a node: `applet test`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fieldbrook.cli.console import current
from fieldbrook.cli.errors import EXIT_REFUSED, WrongUsageError, expected_errors
from fieldbrook.cli.local.applets.workbench import (
    EVENTS_FILE,
    EXISTING_FILE,
    HANDLER_OPTIONS,
    NO_EXPECTATION,
    WorkbenchOptions,
    expectations_of,
    open_workbench,
    require_handlers,
    route_rules,
    workbench_options,
)
from fieldbrook.cli.output import note, note_unless_json, show_json
from fieldbrook.cli.remote.projects.applets import applet
from fieldbrook.cli.text import counted, printable

if TYPE_CHECKING:
    from fieldbrook.workbench.runs import Outcome


@applet.command("test")
@click.argument("module", type=click.Path(path_type=Path, exists=True))
@click.argument("events", type=EXISTING_FILE, required=False)
@click.option(
    "--expect",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="File of expected results [default: EVENTS with the suffix .expected.jsonl, if any].",
)
@click.option(
    "--record",
    is_flag=True,
    help="Write the file of expected results instead of comparing with it.",
)
@click.option(
    "--handler",
    help="Run this handler for every event [default: [strategies] of applet.toml, else start].",
)
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="TYPE=HANDLER",
    help="Run HANDLER for events of TYPE; repeatable.",
)
@workbench_options
@click.pass_context
def applet_test(
    context: click.Context,
    module: Path,
    events: Path | None,
    expect: Path | None,
    record: bool,
    handler: str | None,
    strategies: tuple[str, ...],
    given: WorkbenchOptions,
) -> None:
    """Replay recorded events without a node and compare the results.

    MODULE may also be an applet folder, which is then built first, unless its sources are those of
    the last build; EVENTS is by default its file events.jsonl. EVENTS holds one event per line: a
    data message as a device sends it, or {"event_type": TYPE, "payload": TEXT OR JSON}. The file of
    expected results has one line per run, as --record writes it; only the fields that a line has
    are compared. With --chain, the events with which the chains answer run after those of the file.

    The exit code is 1 when a run differs from its expectation, when no event was run although there
    are some or, without expectations, when a run failed.
    """
    from fieldbrook.workbench import files, results, runs
    from fieldbrook.workbench.chain_file import ChainSourceError

    rules = route_rules(strategies, handler, module if module.is_dir() else None)
    module, events = _built(module, events)
    expected_file = expect or expectations_of(events)
    with expected_errors(files.WorkbenchError, ChainSourceError):
        recorded = files.read_events(events)
        trials, skipped = runs.route(recorded, rules), runs.without_strategy(recorded, rules)
        expected = None
        if not record and (expect is not None or expected_file.exists()):
            expected = files.read_expectations(expected_file)
        with open_workbench(module, given) as bench:
            require_handlers(bench, [name for _, name in rules], HANDLER_OPTIONS)
            outcomes = bench.replay(trials, rules)
            if given.store is not None:
                files.write_store(given.store, bench.store)
        found = [results.describe(outcome) for outcome in outcomes]
        if record:
            files.write_lines(expected_file, found)
    problems = [] if record else problems_of(outcomes, found, expected)
    if skipped and not outcomes:
        problems.append({"run": 0, "problems": ["no event was run"]})
    if current().json:
        show_json({"runs": found, "problems": problems, "skipped": skipped})
    else:
        _show_replay(outcomes, problems)
        for event_type, count in skipped.items():
            note(
                f"{counted(count, 'event')} of type {printable(event_type)} not run: no strategy "
                f"names this type (add it to [strategies] in applet.toml, or give --strategy)"
            )
        if record:
            note(f"results recorded in {expected_file}")
        elif problems and expected is not None:
            note("with --record these results are the expected ones from now on")
    if problems:
        context.exit(EXIT_REFUSED)


def _built(module: Path, events: Path | None) -> tuple[Path, Path]:
    """Build the module if it is a folder; return the module and the file of events.

    If the sources are those of the last build, the module is not built again.
    """
    from fieldbrook.workbench import build_record, scaffold

    if not module.is_dir():
        if events is None:
            raise WrongUsageError("give the file of events, or an applet folder in place of MODULE")
        return module, events
    events = events or module / EVENTS_FILE
    if not events.is_file():
        raise WrongUsageError(f"{events} does not exist", "name another file of events")
    with expected_errors(scaffold.ScaffoldError):
        recipe = scaffold.read_recipe(module)
        sources = build_record.fingerprint(module, recipe)
        built = module / recipe.module
        if build_record.is_current(built, sources):
            note_unless_json(
                f"{built} is tested as it is: its sources are those of the last build "
                f"(`fieldbrook applet build {module}` builds it again)"
            )
            return built, events
        built = scaffold.build(module, tell=note_unless_json)
        build_record.remember(built, sources)
        return built, events


def problems_of(
    outcomes: Sequence[Outcome],
    found: Sequence[dict[str, Any]],
    expected: Sequence[dict[str, Any]] | None,
) -> list[dict[str, Any]]:
    """Return the problems by the number of their run, which counts from 1; 0 stands for all runs.

    A run beyond the expected results has the problem `NO_EXPECTATION`.
    """
    from fieldbrook.workbench.results import differences

    if expected is None:
        failed = ((n, o) for n, o in enumerate(outcomes, 1) if o.failed)
        return [{"run": n, "problems": [o.error or f"code {o.code}"]} for n, o in failed]
    pairs = enumerate(zip(expected, found, strict=False), 1)
    compared = ((n, differences(wanted, result)) for n, (wanted, result) in pairs)
    problems = [{"run": n, "problems": texts} for n, texts in compared if texts]
    new = range(len(expected) + 1, len(found) + 1)
    problems += [{"run": number, "problems": [NO_EXPECTATION]} for number in new]
    if len(expected) > len(found):
        text = f"there are {len(found)} runs and {len(expected)} expected results"
        problems.append({"run": 0, "problems": [text]})
    return problems


def _headline(outcome: Outcome) -> str:
    """Return the line of a run: the event, the result, the number of writes and the duration."""
    result = f"trap: {outcome.error}" if outcome.error else f"code {outcome.code}"
    trial = outcome.trial
    return printable(
        f"{trial.event_type} {trial.handler} ({len(trial.payload)} bytes): {result}, "
        f"{counted(len(outcome.writes), 'write')}, {outcome.elapsed_us / 1000:.2f} ms"
    )


def _show_replay(outcomes: Sequence[Outcome], problems: Sequence[dict[str, Any]]) -> None:
    texts = {item["run"]: item["problems"] for item in problems}
    new = [number for number, found in texts.items() if found == [NO_EXPECTATION]]
    for number, outcome in enumerate(outcomes, 1):
        mark = "new" if number in new else "FAIL" if number in texts else "ok"
        click.echo(f"{number:>4}  {mark:<4}  {_headline(outcome)}")
        for text in texts.get(number, ()):
            click.echo(f"            {printable(text)}")
    for text in texts.get(0, ()):
        click.echo(printable(text))
    without = f", {len(new)} without an expected result" if new else ""
    unexpected = len(texts.keys() - {0}) - len(new)
    click.echo(f"{counted(len(outcomes), 'run')}, {unexpected} not as expected{without}")
