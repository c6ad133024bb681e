"""Shared by `applet run`, `test` and `dev`: their options, and the workbench with these options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fieldbrook.cli.errors import (
    ClientError,
    WrongUsageError,
    expected_errors,
    require_chain_libraries,
)
from fieldbrook.cli.input import read_module
from fieldbrook.cli.options import split_pair
from fieldbrook.cli.output import note
from fieldbrook.cli.text import available

if TYPE_CHECKING:
    from fieldbrook.workbench.runs import Workbench
    from fieldbrook.workbench.simulated_chain import SimulatedChains

_HOSTS = ("raw", "reference", "batch")
EVENTS_FILE = "events.jsonl"
"""The file of events of an applet folder."""
EXISTING_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)
_OPTIONS = (
    click.option(
        "--env",
        "env",
        multiple=True,
        metavar="KEY=VALUE",
        help="A variable of the project; repeatable.",
    ),
    click.option(
        "--store",
        type=_FILE,
        metavar="FILE.json",
        help="File of the key-value store: read before the runs, and, except by `dev`, written "
        "after them [default: the store is empty and not kept].",
    ),
    click.option(
        "--schema",
        type=EXISTING_FILE,
        metavar="FILE.json",
        help="SQL tables, as in the project's configuration PROJECT_DATABASE.",
    ),
    click.option(
        "--database",
        type=_FILE,
        metavar="FILE",
        help="File of the SQL tables [default: they are not kept].",
    ),
    click.option(
        "--chain",
        "chain",
        type=_FILE,
        metavar="FILE.json",
        help="File of simulated chains: results of calls, accepted transactions.",
    ),
    click.option(
        "--record-chain",
        "endpoints",
        multiple=True,
        metavar="URL",
        help="Endpoint of a real chain that is queried for answers that the file of --chain lacks; "
        "they are added to the file. No transaction is sent. Repeatable, for several chains.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, (1 << 63) - 1),
        default=1,
        show_default=True,
        help="Seed of resource ids and random numbers: the same seed gives the same results.",
    ),
    click.option(
        "--time",
        "start",
        type=click.DateTime(["%Y-%m-%dT%H:%M:%SZ"]),
        default="2026-01-01T00:00:00Z",
        show_default=True,
        help="Time (UTC) of the first run; each further run starts 1 s later.",
    ),
    click.option(
        "--host",
        type=click.Choice(_HOSTS),
        default="raw",
        show_default=True,
        help="WebAssembly host: that of the node (raw), the plain one that defines correct results "
        "(reference), or that of the node with events sharing an instance (batch).",
    ),
    click.option(
        "--deadline-ms",
        type=click.IntRange(1, 3_600_000),
        default=5000,
        show_default=True,
        help="Time limit of a handler run.",
    ),
)


@dataclass(frozen=True, slots=True)
class WorkbenchOptions:
    """The options that `run`, `test` and `dev` share."""

    env: tuple[str, ...]
    store: Path | None
    schema: Path | None
    database: Path | None
    chain: Path | None
    endpoints: tuple[str, ...]
    seed: int
    start: datetime
    host: str
    deadline_ms: int


def workbench_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `WorkbenchOptions` to a command, as its argument `given`."""
    names = [field.name for field in fields(WorkbenchOptions)]

    @wraps(command)
    def call(*arguments: Any, **options: Any) -> None:
        given = WorkbenchOptions(**{name: options.pop(name) for name in names})
        command(*arguments, **options, given=given)

    for option in reversed(_OPTIONS):
        call = option(call)
    return call


@contextmanager
def open_workbench(
    module: Path, given: WorkbenchOptions, *, lines: bool = False
) -> Iterator[Workbench]:
    """Make a workbench for a module, and close it at the end.

    With `lines`, traps name lines of sources. These texts can differ between computers.

    Raises:
        WrongUsageError: the options contradict each other.
        ClientError: the module cannot be read.
    """
    from fieldbrook.wasm.limits import Limits
    from fieldbrook.workbench import files, runs

    if given.database is not None and given.schema is None:
        raise WrongUsageError("--database needs --schema")
    with _chains(given) as chains:
        bench = runs.Workbench(
            read_module(module),
            host=given.host,
            env=dict(split_pair(text, "--env", "KEY=VALUE") for text in given.env),
            store=files.read_store(given.store) if given.store is not None else None,
            schema=files.read_schema(given.schema) if given.schema is not None else None,
            database=given.database,
            limits=Limits(deadline_ms=given.deadline_ms),
            chains=chains,
            seed=given.seed,
            start=given.start.replace(tzinfo=UTC),
            lines=lines,
        )
        try:
            yield bench
        finally:
            bench.close()


@contextmanager
def _chains(given: WorkbenchOptions) -> Iterator[SimulatedChains | None]:
    """Yield the simulated chains; answers recorded from real chains are saved in their file."""
    from fieldbrook.workbench import chain_file as f
    from fieldbrook.workbench.simulated_chain import SimulatedChains

    if given.chain is None:
        if given.endpoints:
            raise WrongUsageError("--record-chain needs --chain")
        yield None
        return
    if not given.endpoints:
        yield SimulatedChains(f.read_chains(given.chain), given.chain.name, given.seed)
        return
    require_chain_libraries("--record-chain")
    from fieldbrook.workbench.chain_recording import ChainRecorder

    file = f.read_chains(given.chain) if given.chain.exists() else f.ChainFile([])
    with closing(ChainRecorder(given.endpoints)) as recorder:
        f.add_chains(file, recorder.chain_ids)
        try:
            yield SimulatedChains(file, given.chain.name, given.seed, recorder.query)
        finally:
            f.write_chains(given.chain, file)
    note(f"chains recorded in {given.chain}")


HANDLER_OPTIONS = "--handler HANDLER, --strategy TYPE=HANDLER, or [strategies] in applet.toml"
"""The options that choose the handlers of a file of events."""


NO_EXPECTATION = "no expected result"
"""The problem of a run that is not in the file of expected results."""


def expectations_of(events: Path) -> Path:
    """Return the file of expected results that belongs to a file of events."""
    return events.with_name(f"{events.stem}.expected.jsonl")


def route_rules(
    strategies: Sequence[str], handler: str | None, folder: Path | None = None
) -> list[tuple[str, str]]:
    """Return the (type, handler) of `--strategy`, or those of `--handler` for every event.

    Without these options, the rules of the applet folder are returned, if there is one.

    Raises:
        WrongUsageError: both are given, or a strategy has another form.
        ClientError: the folder has no readable recipe.
    """
    from fieldbrook.workbench import scaffold

    if handler is not None and strategies:
        raise WrongUsageError("--handler and --strategy cannot both be given")
    rules = [split_pair(text, "--strategy", "TYPE=HANDLER") for text in strategies]
    if not rules and handler is None and folder is not None:
        with expected_errors(scaffold.ScaffoldError):
            rules = list(scaffold.read_recipe(folder).strategies.items())
    return rules or [("DEFAULT", handler or "start")]


def require_handlers(bench: Workbench, handlers: Sequence[str], options: str) -> None:
    """Raise ClientError unless the module has all of these handlers; `options` are the options that
    choose others."""
    for name in handlers:
        if name not in bench.handlers:
            hint = f"{available('handler', bench.handlers)}; choose with {options}"
            raise ClientError(f"the module has no handler {name}", hint)
