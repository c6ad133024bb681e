"""Output of all commands: results on standard output, remarks on standard error.

Results are tables, fields or JSON. Control characters in text from other sources (names, logs,
errors) are printed as escapes, so that an applet's log line cannot control the terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from fieldbrook.cli.console import current
from fieldbrook.cli.text import as_json, printable

Row = Mapping[str, Any]


def show_rows(rows: Sequence[Row], columns: Mapping[str, str], nothing: str) -> None:
    """Print rows: a JSON array, or a table of `columns` (key of the row -> heading).

    Without rows, `nothing` is printed on standard error instead of the table.
    """
    if current().json:
        show_json(list(rows))
        return
    if not rows:
        click.echo(nothing, err=True)
        return
    table = [list(columns.values())]
    table += [[_cell(row.get(key)) for key in columns] for row in rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(columns))]
    for line in table:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def show_fields(value: Row, labels: Mapping[str, str]) -> None:
    """Print one object: as JSON, or the fields in `labels` (key -> label), one per line.

    Fields without a value are left out of the lines.
    """
    if current().json:
        show_json(value)
        return
    width = max(len(label) for label in labels.values())
    for key, label in labels.items():
        if value.get(key) not in (None, "", []):
            click.echo(f"{label.ljust(width)}  {_cell(value[key])}")


def show_done(text: str, **value: object) -> None:
    """Report a finished action: print the sentence `text`, or `value` as JSON."""
    if current().json:
        show_json(value)
    else:
        click.echo(printable(text))


def show_json(value: object) -> None:
    """Print one JSON document."""
    click.echo(as_json(value, indent=2))


def show_warnings(*values: Row) -> None:
    """Print the warnings in the node's answers, each once; JSON output contains them anyway."""
    if not current().json:
        for text in dict.fromkeys(text for value in values for text in value.get("warnings", ())):
            note(f"warning: {text}")


def note(text: str) -> None:
    """Print a remark on standard error."""
    click.echo(printable(text), err=True)


def note_unless_json(text: str) -> None:
    """Print a remark that the JSON output does not need."""
    if not current().json:
        note(text)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_cell(item) for item in value)
    return printable(str(value))
