"""Commands for authors of applets, all without a node: `applet new`, `build`, `run`, `test`."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fieldbrook.cli.client import EXIT_REFUSED, ClientError, WrongUsageError
from fieldbrook.cli.console import current, note, printable, shared_options, show_done, show_json
from fieldbrook.cli.remote.objects import applet, pair

if TYPE_CHECKING:
    from fieldbrook.workbench.runs import Outcome, Workbench
    from fieldbrook.workbench.simulated_chain import SimulatedChains

__all__ = ["applet"]

_TEMPLATES = ("assemblyscript", "c", "rust", "wat")
_HOSTS = ("raw", "reference", "batch")
_SHOWN_VALUE = 200  # characters of a value or payload that a person is shown
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)

_KEPT = click.Path(path_type=Path, dir_okay=False)
_SHARED = (
    click.option(
        "--env", "env", multiple=True, metavar="KEY=VALUE", help="A variable; may be repeated."
    ),
    click.option(
        "--store",
        type=_KEPT,
        metavar="FILE.json",
        help="The key-value store: read before, written after; made when it is not there.",
    ),
    click.option(
        "--schema",
        type=_FILE,
        metavar="FILE.json",
        help="The tables for SQL, as in the project's configuration PROJECT_DATABASE.",
    ),
    click.option(
        "--database",
        type=_KEPT,
        metavar="FILE",
        help="Where to keep these tables; they are made there.  [default: nowhere]",
    ),
    click.option(
        "--chain",
        "chain",
        type=_KEPT,
        metavar="FILE.json",
        help="Chains to simulate: what contracts answer, which transactions are taken.",
    ),
    click.option(
        "--record-chain",
        "endpoints",
        multiple=True,
        metavar="URL",
        help="Ask this endpoint for what FILE.json of --chain lacks, and keep the answers there. "
        "No transaction is sent. May be repeated, for several chains.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, (1 << 63) - 1),
        default=1,
        show_default=True,
        help="Of resource ids and random numbers: the same seed gives the same runs.",
    ),
    click.option(
        "--time",
        "start",
        type=click.DateTime(["%Y-%m-%dT%H:%M:%SZ"]),
        default="2026-01-01T00:00:00Z",
        show_default=True,
        help="What the clock says at the first run (UTC); each further one begins 1 s later.",
    ),
    click.option(
        "--host",
        type=click.Choice(_HOSTS),
        default="raw",
        show_default=True,
        help="The node's host; the plain one it is measured by; or the node's with events that "
        "share an instance, as with `--isolation batch`.",
    ),
    click.option(
        "--deadline-ms",
        type=click.IntRange(1, 3_600_000),
        default=5000,
        show_default=True,
        help="Longest run of a handler.",
    ),
)


@dataclass(frozen=True, slots=True)
class _Bench:
    """The options that `run` and `test` share."""

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


def _bench_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `_Bench` to a command, which receives them in its argument `given`."""
    names = [field.name for field in fields(_Bench)]

    @wraps(command)
    def call(*arguments: Any, **options: Any) -> None:
        given = _Bench(**{name: options.pop(name) for name in names})
        command(*arguments, **options, given=given)

    for option in reversed(_SHARED):
        call = option(call)
    return call


# ---------------------------------------------------------------- new, build


@applet.command("new")
@click.argument("name")
@click.option("--template", type=click.Choice(_TEMPLATES), required=True)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to make it [default: ./NAME].",
)
@shared_options
def applet_new(name: str, template: str, folder: Path | None) -> None:
    """Create a folder with a starter applet: source, build recipe and test events."""
    from fieldbrook.workbench import scaffold

    folder = folder or Path(name)
    with _foreseen(scaffold.ScaffoldError):
        files = scaffold.create(name, template, folder)
    if current().json:
        show_json({"folder": str(folder), "files": [str(path) for path in files]})
        return
    for path in files:
        click.echo(printable(str(path)))
    note(f"build it with `fieldbrook applet build {folder}`")


@applet.command("build")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@shared_options
def applet_build(folder: Path) -> None:
    """Build an applet with the recipe in its applet.toml and print the module's path.

    The module then gets the checks that a node makes at upload.
    """
    from fieldbrook.wasm.limits import Limits
    from fieldbrook.wasm.module.inspection import check
    from fieldbrook.workbench import scaffold

    with _foreseen(scaffold.ScaffoldError):
        module = scaffold.build(folder)
        report = check(module.read_bytes(), Limits())
        size = module.stat().st_size
    if not current().json:
        note(f"{size} bytes, handlers: {', '.join(report.handlers)}")
    show_done(str(module), module=str(module), bytes=size, handlers=list(report.handlers))


# ---------------------------------------------------------------- run


@applet.command("run")
@click.argument("module", type=_FILE)
@click.option("--handler", default="start", show_default=True)
@click.option(
    "--payload",
    default="",
    metavar="TEXT|@FILE",
    help="The event's payload; @FILE is the content of a file, @- standard input.  [default: none]",
)
@click.option("--base64", "encoded", is_flag=True, help="The payload is given as base64.")
@click.option("--type", "event_type", default="DEFAULT", show_default=True)
@_bench_options
@shared_options
@click.pass_context
def applet_run(
    context: click.Context,
    module: Path,
    handler: str,
    payload: str,
    encoded: bool,
    event_type: str,
    given: _Bench,
) -> None:
    """Run a handler over one event, without a node, and show the result.

    The exit code is 1 when the handler failed: it trapped, exceeded a budget or returned a
    negative code. The writes of a run that trapped or exceeded a budget are discarded.
    """
    from fieldbrook.actors.project.chains import TX_EVENT
    from fieldbrook.workbench import runs as w
    from fieldbrook.workbench.chain_file import ChainSourceError

    data = _payload(payload, encoded)
    with _foreseen(w.WorkbenchError, ChainSourceError), _workbench(module, given) as bench:
        _require(bench, [handler])
        outcome = next(bench.perform([w.Trial(handler, data, event_type)]))
        if given.store is not None and not outcome.error:
            w.write_store(given.store, bench.store)
        answers = bench.answers([outcome], [(TX_EVENT, handler)])
    if current().json:
        told = {"answers": w.describe_events(answers)} if given.chain else {}
        show_json({**w.describe(outcome), **told, "elapsed_us": round(outcome.elapsed_us)})
    else:
        _show(outcome, answers)
    if outcome.failed:
        context.exit(EXIT_REFUSED)


# ---------------------------------------------------------------- test


@applet.command("test")
@click.argument("module", type=_FILE)
@click.argument("events", type=_FILE)
@click.option(
    "--expect",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="What the runs are to leave [default: EVENTS with .expected.jsonl, if it is there].",
)
@click.option("--record", is_flag=True, help="Write that file instead of comparing with it.")
@click.option("--handler", help="Run this handler for every event [default: start].")
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="TYPE=HANDLER",
    help="Run HANDLER for events of TYPE; may be repeated.",
)
@_bench_options
@shared_options
@click.pass_context
def applet_test(
    context: click.Context,
    module: Path,
    events: Path,
    expect: Path | None,
    record: bool,
    handler: str | None,
    strategies: tuple[str, ...],
    given: _Bench,
) -> None:
    """Replay recorded events in order, without a node, and compare the results.

    EVENTS holds one event per line: a data message as a device sends it, or
    {"event_type": TYPE, "payload": TEXT OR JSON}. The file of expectations has one line per
    run, as --record writes it; only the fields that a line has are compared. With --chain, the
    events with which the chains answer run after those of the file.

    The exit code is 1 when a run differs from its expectation or, without expectations, when
    a run failed.
    """
    from fieldbrook.workbench import runs as w
    from fieldbrook.workbench.chain_file import ChainSourceError

    if handler is not None and strategies:
        raise WrongUsageError("--handler and --strategy cannot both be given")
    rules = [pair(text, "--strategy") for text in strategies] or [("DEFAULT", handler or "start")]
    place = expect or events.with_name(f"{events.stem}.expected.jsonl")
    with _foreseen(w.WorkbenchError, ChainSourceError):
        trials = w.route(w.read_events(events), rules)
        known = None
        if not record and (expect is not None or place.exists()):
            known = w.read_expectations(place)
        with _workbench(module, given) as bench:
            _require(bench, [name for _, name in rules])
            outcomes = bench.replay(trials, rules)
            if given.store is not None:
                w.write_store(given.store, bench.store)
        found = [w.describe(outcome) for outcome in outcomes]
        if record:
            w.write_lines(place, found)
    wrong = [] if record else _compared(outcomes, found, known)
    if current().json:
        show_json({"runs": found, "problems": wrong})
    else:
        _show_replay(outcomes, wrong)
        if record:
            note(f"recorded in {place}")
    if wrong:
        context.exit(EXIT_REFUSED)


def _compared(
    outcomes: Sequence[Outcome],
    found: Sequence[dict[str, Any]],
    known: Sequence[dict[str, Any]] | None,
) -> list[dict[str, Any]]:
    """Return the problems with the number of their run, from 1 on; 0 stands for all runs."""
    from fieldbrook.workbench.runs import differences

    if known is None:
        failed = ((n, o) for n, o in enumerate(outcomes, 1) if o.failed)
        return [{"run": n, "problems": [o.error or f"code {o.code}"]} for n, o in failed]
    wrong: list[dict[str, Any]] = []
    for number, (expected, left) in enumerate(zip(known, found, strict=False), 1):
        problems = differences(expected, left)
        if problems:
            wrong.append({"run": number, "problems": problems})
    if len(known) != len(found):
        text = f"there are {len(found)} runs and {len(known)} expectations"
        wrong.append({"run": 0, "problems": [text]})
    return wrong


def _show_replay(outcomes: Sequence[Outcome], wrong: Sequence[dict[str, Any]]) -> None:
    problems = {item["run"]: item["problems"] for item in wrong}
    for number, outcome in enumerate(outcomes, 1):
        mark = "FAIL" if number in problems else "ok"
        click.echo(f"{number:>4}  {mark:<4}  {_headline(outcome)}")
        for text in problems.get(number, ()):
            click.echo(f"            {printable(text)}")
    for text in problems.get(0, ()):
        click.echo(printable(text))
    click.echo(f"{len(outcomes)} runs, {len(wrong)} not as expected")


# ---------------------------------------------------------------- shared


@contextmanager
def _workbench(module: Path, given: _Bench) -> Iterator[Workbench]:
    from fieldbrook.wasm.limits import Limits
    from fieldbrook.workbench import runs as w

    if given.database is not None and given.schema is None:
        raise WrongUsageError("--database is of no use without --schema")
    with _chains(given) as chains:
        bench = w.Workbench(
            module.read_bytes(),
            host=given.host,
            env=dict(pair(text, "--env") for text in given.env),
            store=w.read_store(given.store) if given.store is not None else None,
            schema=w.read_schema(given.schema) if given.schema is not None else None,
            database=given.database,
            limits=Limits(deadline_ms=given.deadline_ms),
            chains=chains,
            seed=given.seed,
            start=given.start.replace(tzinfo=UTC),
        )
        try:
            yield bench
        finally:
            bench.close()


@contextmanager
def _chains(given: _Bench) -> Iterator[SimulatedChains | None]:
    """Yield the simulated chains; answers recorded from real chains are saved in their file."""
    from fieldbrook.workbench import chain_file as f
    from fieldbrook.workbench.simulated_chain import SimulatedChains

    if given.chain is None:
        if given.endpoints:
            raise WrongUsageError("--record-chain needs --chain: the file to record in")
        yield None
        return
    if not given.endpoints:
        yield SimulatedChains(f.read_chains(given.chain), given.chain.name, given.seed)
        return
    from fieldbrook.workbench.chain_recording import ChainRecorder

    file = f.read_chains(given.chain) if given.chain.exists() else f.ChainFile([])
    with closing(ChainRecorder(given.endpoints)) as recorder:
        f.add_chains(file, recorder.chain_ids)
        try:
            yield SimulatedChains(file, given.chain.name, given.seed, recorder.ask)
        finally:
            f.write_chains(given.chain, file)
    note(f"chains recorded in {given.chain}")


@contextmanager
def _foreseen(*kinds: type[Exception]) -> Iterator[None]:
    """Turn expected exceptions into errors of the command line.

    Expected are `kinds`, a module that a node would refuse, other errors of the node's code, and
    files that cannot be read or written.
    """
    from fieldbrook.core.errors import ModuleRefusedError, NodeError

    try:
        yield
    except ModuleRefusedError as error:
        raise ClientError(f"a node would refuse the module: {error.desc}") from None
    except kinds as error:
        raise ClientError(str(error), getattr(error, "hint", "")) from None
    except NodeError as error:
        raise ClientError(str(error)) from None
    except OSError as error:
        raise ClientError(f"{error.filename}: {error.strerror}") from None


def _require(bench: Workbench, handlers: Sequence[str]) -> None:
    """Raise unless the module has all of these handlers."""
    for name in handlers:
        if name not in bench.handlers:
            hint = f"it has {', '.join(bench.handlers)}"
            raise ClientError(f"the module has no handler {name}", hint)


def _payload(text: str, encoded: bool) -> bytes:
    if text.startswith("@"):
        name = text[1:]
        try:
            data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        except OSError as error:
            raise ClientError(f"{name}: {error.strerror}") from None
    else:
        data = text.encode("utf-8", "surrogateescape")
    if not encoded:
        return data
    try:
        return base64.b64decode(b"".join(data.split()), validate=True)
    except binascii.Error as error:
        raise WrongUsageError(f"the payload is not base64: {error}") from None


def _headline(outcome: Outcome) -> str:
    result = f"trap: {outcome.error}" if outcome.error else f"code {outcome.code}"
    trial = outcome.trial
    return printable(
        f"{trial.event_type} {trial.handler} ({len(trial.payload)} bytes): {result}, "
        f"{len(outcome.writes)} writes, {outcome.elapsed_us / 1000:.2f} ms"
    )


def _show(outcome: Outcome, answers: Sequence[tuple[str, bytes]]) -> None:
    from fieldbrook.workbench.runs import describe

    left = describe(outcome)
    click.echo(
        printable(f"trap     {outcome.error}" if outcome.error else f"code     {outcome.code}")
    )
    for level, text, *source in left["logs"]:
        origin = f" [{source[0]}]" if source else ""
        click.echo(printable(f"log      {level}{origin}: {text}"))
    for key, value in left["writes"].items():
        click.echo(printable(f"write    {key} = {_cut(value)}"))
    for effect in left["effects"]:
        fields = ", ".join(f"{k}={_cut(str(v))}" for k, v in effect.items() if k != "kind")
        click.echo(printable(f"effect   {effect['kind']}: {fields}"))
    for event_type, payload in answers:
        click.echo(printable(f"answer   {event_type}: {_cut(payload.decode('utf-8', 'replace'))}"))
    click.echo(f"time     {outcome.elapsed_us / 1000:.2f} ms")


def _cut(text: str) -> str:
    more = len(text) - _SHOWN_VALUE
    return text if more <= 0 else f"{text[:_SHOWN_VALUE]}... and {more} characters"
