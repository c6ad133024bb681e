"""Output of `applet dev`: one block per save, and the rows of a project's log between them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from typing import Any

import click

from fieldbrook.cli.console import current
from fieldbrook.cli.errors import ClientError
from fieldbrook.cli.local.applets.workbench import NO_EXPECTATION
from fieldbrook.cli.text import as_json, counted, printable

_INDENT = " " * 10
_RUNS_SHOWN = 20
_LINES_SHOWN = 40
_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Shown:
    """One event of a block: `lines` are the results, which are compared with those of the last
    save."""

    title: str
    lines: list[str]
    failed: bool
    elapsed_ms: float
    problems: list[str] = field(default_factory=list)
    """How the results differ from the expected ones: `FIELD: TEXT`."""
    key: object = None
    """The identity of the event: equal for the same event in two blocks."""


@dataclass(slots=True)
class Block:
    """The results of one save. `build_ms` is None when nothing was built."""

    at: datetime
    changed: list[str]
    build_ms: int | None = None
    bytes: int = 0
    deployed: str = ""
    """The result of the deployment on a node."""
    runs: list[Shown] = field(default_factory=list)
    error: str = ""
    hint: str = ""
    kept: str = ""
    """The version that still runs after an error."""

    def fail(self, error: ClientError, kept: str) -> None:
        """Add an error, and the version that still runs."""
        self.error, self.hint, self.kept = str(error), error.hint, kept


class Blocks:
    """Prints blocks, each compared with the last one in which events ran."""

    def __init__(self) -> None:
        console = current()
        self._json = console.json
        self._explain = console.explain
        self._lock = Lock()
        self._closed = False
        self._began = False
        self._before: dict[tuple[object, int], list[str]] | None = None

    def begin(self, changed: list[str]) -> Block:
        """Print the first line of a block, before the compiler prints its lines."""
        block = Block(datetime.now().astimezone(), changed)
        if not self._json:
            what = ", ".join(changed[:_NAMES_SHOWN])
            more = len(changed) - _NAMES_SHOWN
            what += f" and {more} more" if more > 0 else ""
            head = printable(f"{block.at:%H:%M:%S}  {f'{what} changed' if what else 'first build'}")
            self.write(("\n" if self._began else "") + _styled(head, bold=True))
        self._began = True
        return block

    def end(self, block: Block) -> None:
        """Print the rest of a block."""
        shown = self._compared(block)
        if self._json:
            self.write(as_json(_to_json(block, shown)))
        else:
            self.write("\n".join(_lines(block, shown)))

    def write(self, text: str) -> None:
        """Print lines; other threads may call this, until `close`."""
        with self._lock:
            if not self._closed:
                click.echo(text)

    def write_row(self, row: dict[str, Any], line: str) -> None:
        """Print a row of a project's log; `line` is its form for users."""
        if self._json:
            self.write(as_json({"log": row}))
        else:
            self.write(_styled(f"log  {line}", dim=True))

    def write_note(self, text: str) -> None:
        """Print a remark about the log on standard error."""
        with self._lock:
            if not self._closed:
                click.echo(printable(text), err=True)

    def explain(self, error: ClientError) -> str:
        """Return advice about an error; "" if there is none."""
        return self._explain(error)

    def close(self) -> None:
        """Stop printing, because the program ends and closes its standard output."""
        with self._lock:
            self._closed = True

    def _compared(self, block: Block) -> list[tuple[Shown, list[str] | None]]:
        """Return each run with its changes; None if there is nothing to compare it with."""
        from fieldbrook.workbench.results import changes

        if not block.runs:
            return []
        count: Counter[object] = Counter()
        found: dict[tuple[object, int], list[str]] = {}
        shown: list[tuple[Shown, list[str] | None]] = []
        for run in block.runs:
            key = (run.key, count[run.key])
            count[run.key] += 1
            before = None if self._before is None else self._before.get(key)
            shown.append((run, None if before is None else changes(before, run.lines)))
            found[key] = run.lines
        self._before = found
        return shown


def _lines(block: Block, shown: Sequence[tuple[Shown, list[str] | None]]) -> list[str]:
    lines: list[str] = []
    if block.build_ms is not None:
        built = f"built in {block.build_ms} ms, {block.bytes} bytes"
        failed = f"the build failed after {block.build_ms} ms"
        lines.append(_INDENT + (built if block.bytes else _styled(failed, fg="red")))
    if block.deployed:
        lines.append(_INDENT + printable(block.deployed))
    if block.error:
        lines += [_INDENT + _styled(printable(t), fg="red") for t in block.error.split("\n")]
        lines += [_INDENT + printable(block.kept)] if block.kept else []
    told = [
        (number, run, changes)
        for number, (run, changes) in enumerate(shown, 1)
        if len(shown) <= _RUNS_SHOWN or changes or changes is None or run.failed or run.problems
    ]
    for number, run, changes in told[:_RUNS_SHOWN]:
        lines += _run_lines(number, run, changes)
    if len(told) > _RUNS_SHOWN:
        lines.append(f"{_INDENT}... and {len(told) - _RUNS_SHOWN} more")
    if shown:
        lines.append(f"{counted(len(shown), 'run')}, {_totals(shown)}")
    return lines + [_INDENT + printable(text) for text in block.hint.split("\n") if text]


def _run_lines(number: int, run: Shown, changes: list[str] | None) -> list[str]:
    failed = run.failed or bool(run.problems)
    new = run.problems == [NO_EXPECTATION]
    mark = _styled("FAIL", fg="red") if failed else _styled("ok  ", fg="green")
    if new and not run.failed:
        mark = "new "
    same = ", as before" if changes == [] else ""
    lines = [f"{number:>4}  {mark}  {printable(run.title)}, {run.elapsed_ms:.2f} ms{same}"]
    told = run.lines if changes is None else changes
    for text in told[:_LINES_SHOWN]:
        color = {"+": "green", "-": "red"}.get(text[0]) if changes else None
        shown = printable(text)
        lines.append(f"{_INDENT}  {_styled(shown, fg=color) if color else shown}")
    if len(told) > _LINES_SHOWN:
        lines.append(f"{_INDENT}  ... and {len(told) - _LINES_SHOWN} more lines")
    if new:
        lines.append(f"{_INDENT}  {NO_EXPECTATION}")
    elif run.problems:
        fields = ", ".join(text.partition(":")[0] for text in run.problems)
        lines.append(f"{_INDENT}  not as expected: {fields}")
    return lines


def _totals(shown: Sequence[tuple[Shown, list[str] | None]]) -> str:
    failed = sum(run.failed for run, _ in shown)
    unknown = sum(run.problems == [NO_EXPECTATION] for run, _ in shown)
    problems = sum(bool(run.problems) for run, _ in shown) - unknown
    texts = [f"{failed} failed"]
    if any(changes is not None for _, changes in shown):
        texts.insert(0, f"{sum(bool(changes) for _, changes in shown)} changed")
        new = sum(changes is None for _, changes in shown)
        texts += [f"{new} new"] if new else []
    texts += [f"{problems} not as expected"] if problems else []
    texts += [f"{unknown} without an expected result"] if unknown else []
    return ", ".join(texts)


def _to_json(block: Block, shown: Sequence[tuple[Shown, list[str] | None]]) -> dict[str, Any]:
    return {
        "time": block.at.isoformat(timespec="milliseconds"),
        "changed": block.changed,
        "build_ms": block.build_ms,
        "bytes": block.bytes,
        "deployed": block.deployed,
        "error": block.error,
        "hint": block.hint,
        "runs": [
            {
                "event": run.title,
                "failed": run.failed,
                "result": run.lines,
                "changes": changes,
                "problems": run.problems,
                "elapsed_ms": round(run.elapsed_ms, 3),
            }
            for run, changes in shown
        ],
    }


def _styled(text: str, **style: Any) -> str:
    """Colour a text; `click.echo` removes colours if standard output is not a terminal."""
    return text if os.environ.get("NO_COLOR") else click.style(text, **style)
