"""Command that builds and runs an applet at each save: `applet dev`."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fieldbrook.cli.errors import ClientError, WrongUsageError, expected_errors
from fieldbrook.cli.local.applets.dev_blocks import Block, Blocks
from fieldbrook.cli.local.applets.dev_node import ProjectTarget
from fieldbrook.cli.local.applets.dev_runs import LocalTarget, Target
from fieldbrook.cli.local.applets.workbench import (
    EVENTS_FILE,
    EXISTING_FILE,
    WorkbenchOptions,
    expectations_of,
    route_rules,
    workbench_options,
)
from fieldbrook.cli.options import split_pair
from fieldbrook.cli.output import note
from fieldbrook.cli.remote.projects.applets import applet
from fieldbrook.system.regular_file import read_regular_file

if TYPE_CHECKING:
    from fieldbrook.workbench.watch import Snapshot

_POLL_S = 0.2
_POLLS_SHARE = 20
"""The pause between two scans of the folder, as a multiple of the duration of a scan."""
_SETTLED_S = 0.05
_SETTLING_LOOKS = 20
_BUILDS_IN_A_ROW = 5
_SLOW_S = 5.0
_OF_PROJECTS = ("name", "send", "publisher")


@applet.command("dev")
@click.argument(
    "folder", type=click.Path(path_type=Path, exists=True, file_okay=False), default=Path()
)
@click.option(
    "--events",
    type=EXISTING_FILE,
    metavar="FILE",
    help=f"The events to run [default: {EVENTS_FILE} in the folder].",
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
    help="Run HANDLER for events of TYPE; repeatable. With --project: the applet's strategies.",
)
@click.option(
    "--build-limit",
    "limit_s",
    type=click.FloatRange(0.1, 86_400),
    default=300.0,
    show_default=True,
    help="Seconds after which a build is ended.",
)
@click.option(
    "--project", metavar="PROJECT", help="Deploy to this project instead, and follow its log."
)
@click.option(
    "--name", help="With --project: the applet's name [default: the module's, without its suffix]."
)
@click.option(
    "--send",
    type=EXISTING_FILE,
    metavar="FILE",
    help="With --project: send the events of this file after each deployment.",
)
@click.option(
    "--publisher",
    metavar="KEY",
    help="With --send: the publisher [default: the project's only publisher].",
)
@workbench_options
@click.pass_context
def applet_dev(
    context: click.Context,
    folder: Path,
    events: Path | None,
    handler: str | None,
    strategies: tuple[str, ...],
    limit_s: float,
    project: str | None,
    name: str | None,
    send: Path | None,
    publisher: str | None,
    given: WorkbenchOptions,
) -> None:
    """Build an applet at each save, and run its events; ends with Ctrl-C.

    After each build the events of FOLDER/events.jsonl run without a node, as with `applet test`,
    and the command prints what changed since the last save: codes, log lines, writes, effects.

    With --project the module is deployed instead, and the project's log rows are printed as they
    come. A build that fails prints the compiler's errors and deploys nothing.

    With --json it prints one line of JSON for each save, and for each log row.
    """
    from fieldbrook.workbench import scaffold, watch

    _require_fitting(context, project)
    with ExitStack() as stack:
        stack.enter_context(_ended_by_signals())
        blocks = Blocks()
        with expected_errors(scaffold.ScaffoldError):
            recipe = scaffold.read_recipe(folder)
            watch.require_sources(folder, recipe, watch.look(folder, recipe.ignore))
            missing = scaffold.missing_programs(folder, recipe)
        if missing:
            raise ClientError(missing)
        target: Target
        if project is None:
            events = events or folder / EVENTS_FILE
            rules = partial(route_rules, strategies, handler, folder)
            rules()  # a wrong option ends the command; it does not count as a failed save
            target = LocalTarget(events, rules, given)
            if not events.is_file():
                note(f"{events} does not exist: the applet is built, and no event runs")
            others = [events, expectations_of(events), given.store, given.schema, given.chain]
        else:
            pairs = [split_pair(text, "--strategy", "TYPE=HANDLER") for text in strategies]
            name = name or Path(recipe.module).stem
            target = stack.enter_context(
                ProjectTarget(project, name, pairs, send, publisher, blocks)
            )
            others = [send]
        loop = _Loop(folder, [path for path in others if path], limit_s, target, blocks)
        try:
            loop.run()
        except KeyboardInterrupt:
            note("stopped")
            raise


def _require_fitting(context: click.Context, project: str | None) -> None:
    """Refuse options of local runs together with --project, and options of --project without it."""
    always = {"folder", "project", "strategies", "limit_s"}
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if source is not click.core.ParameterSource.COMMANDLINE or not parameter.expose_value:
            continue
        if parameter.name in _OF_PROJECTS:
            if project is None:
                raise WrongUsageError(f"{parameter.opts[0]} needs --project")
        elif project is not None and parameter.name not in always:
            raise WrongUsageError(
                f"{parameter.opts[0]} is for runs without a node, and cannot be given with "
                "--project"
            )
    if context.params["publisher"] is not None and context.params["send"] is None:
        raise WrongUsageError("--publisher needs --send")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Make SIGTERM and the end of the terminal act like Ctrl-C, which also ends a build."""
    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            before[number] = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Loop:
    """Watches the folder; after a change, builds the module and applies it."""

    def __init__(
        self, folder: Path, others: Sequence[Path], limit_s: float, target: Target, blocks: Blocks
    ) -> None:
        """`others` are the files that runs need in addition to the module; a build does not need
        them."""
        self._folder, self._others, self._limit_s = folder, others, limit_s
        self._target, self._blocks = target, blocks
        self._ignored: Sequence[str] = ()
        self._seen: Snapshot = {}  # the files at the latest block
        self._in_a_row = 0  # the number of latest consecutive builds during which files changed
        self._module: Path | None = None  # the module of the latest build; None if the build failed

    def run(self) -> None:
        """Build at once, and then after each change, until an exception."""
        self._seen = self._look()
        self._apply([], build=True)
        while True:
            before = time.monotonic()
            now = self._look()
            changed = self._changed(now)
            if changed:
                now = self._settle(now)
                changed = self._changed(now)
            if not changed:
                self._seen = now
                time.sleep(max(_POLL_S, _POLLS_SHARE * (time.monotonic() - before)))
                continue
            if self._in_a_row >= _BUILDS_IN_A_ROW:
                self._slow_down(changed, is_first=self._in_a_row == _BUILDS_IN_A_ROW)
            self._seen = now
            self._apply(changed, build=any(path not in self._others for path in changed))

    def _slow_down(self, changed: Sequence[Path], *, is_first: bool) -> None:
        """Pause between builds if each of them changes files, for example generated sources."""
        if is_first:
            note(
                f"{self._name(changed[0])} changed during each of the last builds: if the build "
                f"writes it, name it in `ignore` of {self._folder / 'applet.toml'}. Until it "
                f"stays as it is, there is one build in {_SLOW_S:g} s"
            )
        time.sleep(_SLOW_S)

    def _look(self) -> Snapshot:
        from fieldbrook.workbench import scaffold, watch

        with suppress(scaffold.ScaffoldError, OSError):  # the build reports these errors
            self._ignored = scaffold.read_recipe(self._folder).ignore
        with expected_errors(scaffold.ScaffoldError):
            return watch.look(self._folder, self._ignored, self._others, self._seen)

    def _changed(self, now: Snapshot) -> list[Path]:
        from fieldbrook.workbench import watch

        return watch.changed(self._seen, now)

    def _settle(self, seen: Snapshot) -> Snapshot:
        """Wait until an editor has written all its files, and return them."""
        from fieldbrook.workbench import watch

        for _ in range(_SETTLING_LOOKS):
            time.sleep(_SETTLED_S)
            now = self._look()
            if not watch.changed(seen, now):
                return now
            seen = now
        return seen

    def _apply(self, changed: Sequence[Path], *, build: bool) -> None:
        """Build and run, or deploy, after a save; print results and expected errors."""
        from fieldbrook.workbench import scaffold

        block = self._blocks.begin([self._name(path) for path in changed])
        try:
            with expected_errors(scaffold.ScaffoldError):
                if build:
                    self._module = None
                    self._module = self._build(block)
                if self._module is None:
                    raise ClientError("no event runs: the last build failed")
                self._target.apply(self._module, block)
        except ClientError as error:
            block.fail(error, self._target.kept)
        self._blocks.end(block)

    def _build(self, block: Block) -> Path:
        from fieldbrook.wasm.limits import Limits
        from fieldbrook.wasm.module.inspection import check
        from fieldbrook.workbench import scaffold

        before = time.monotonic()
        try:
            module = scaffold.build(self._folder, limit_s=self._limit_s)
            content = read_regular_file(module)
        finally:
            block.build_ms = round((time.monotonic() - before) * 1000)
            self._in_a_row = self._in_a_row + 1 if self._changed(self._look()) else 0
        block.bytes = len(content)
        check(content, Limits())
        return module

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._folder) if path.is_relative_to(self._folder) else path)
