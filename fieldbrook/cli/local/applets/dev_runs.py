"""`applet dev` without a node: runs a file of events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from fieldbrook.cli.errors import expected_errors
from fieldbrook.cli.local.applets.dev_blocks import Block, Shown
from fieldbrook.cli.local.applets.test import problems_of
from fieldbrook.cli.local.applets.workbench import (
    HANDLER_OPTIONS,
    WorkbenchOptions,
    expectations_of,
    open_workbench,
    require_handlers,
)


class Target(Protocol):
    """The destination of a built module."""

    @property
    def kept(self) -> str:
        """The version that still runs if a build fails; "" for none."""

    def apply(self, module: Path, block: Block) -> None:
        """Use the module, and add the results to the block.

        Raises:
            ClientError: the module cannot be used.
        """


class LocalTarget:
    """Runs the events of a file, and compares the results with the expected ones, if any."""

    kept = ""

    def __init__(
        self, events: Path, rules: Callable[[], list[tuple[str, str]]], given: WorkbenchOptions
    ) -> None:
        """`rules` returns the handler of each event type, at each save."""
        self._events, self._rules, self._given = events, rules, given

    def apply(self, module: Path, block: Block) -> None:
        """Run all events again, starting with the store that `--store` names."""
        from fieldbrook.workbench import files, results, runs
        from fieldbrook.workbench.chain_file import ChainSourceError

        if not self._events.is_file():
            return
        expectations = expectations_of(self._events)
        rules = self._rules()
        with expected_errors(files.WorkbenchError, ChainSourceError):
            trials = runs.route(files.read_events(self._events), rules)
            expected = files.read_expectations(expectations) if expectations.is_file() else None
            with open_workbench(module, self._given, lines=True) as bench:
                require_handlers(bench, [name for _, name in rules], HANDLER_OPTIONS)
                outcomes = bench.replay(trials, rules)
        found = [results.describe(outcome) for outcome in outcomes]
        problems: dict[int, list[str]] = {}
        if expected is not None:
            listed = problems_of(outcomes, found, expected)
            problems = {item["run"]: item["problems"] for item in listed}
        for number, (outcome, result) in enumerate(zip(outcomes, found, strict=True), 1):
            trial = outcome.trial
            # An expected failure does not count as a failure, as with `applet test`.
            failed = outcome.failed and (expected is None or number in problems)
            title = f"{trial.event_type} {trial.handler} ({len(trial.payload)} bytes)"
            block.runs.append(
                Shown(
                    title,
                    results.lines(result),
                    failed,
                    outcome.elapsed_us / 1000,
                    problems.get(number, []),
                    trial,
                )
            )
        if 0 in problems:
            block.error = f"{expectations}: {'; '.join(problems[0])}"
        if problems:
            block.hint = "`fieldbrook applet test FOLDER --record` accepts the results"
