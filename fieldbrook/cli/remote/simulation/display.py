"""Shows the figures of a fleet: a changing table on a terminal, otherwise lines."""

from __future__ import annotations

import sys

import click

from fieldbrook.cli.console import current
from fieldbrook.cli.output import show_json
from fieldbrook.cli.remote.simulation.figures import Figures
from fieldbrook.cli.text import printable

TABLE_EVERY_S, LINE_EVERY_S = 0.5, 5.0
_PROBLEM_LIMIT = 100
_UP_AND_CLEAR = "\x1b[{}A\x1b[J"


class Display:
    """Shows figures as they arrive; the last ones are always shown as a table."""

    def __init__(self, title: str, seconds: float) -> None:
        self._title = title
        self._seconds = seconds
        self._is_table = sys.stdout.isatty() and not current().json
        self._shown = 0  # lines of the table that is on the terminal
        self._due = self.every_s
        if not current().json:
            click.echo(printable(title))

    @property
    def every_s(self) -> float:
        """The interval between two displays, in seconds."""
        return TABLE_EVERY_S if self._is_table else LINE_EVERY_S

    def show(self, figures: Figures) -> None:
        """Show figures if it is time."""
        if current().json or figures.seconds < self._due:
            return
        self._due = figures.seconds + self.every_s
        if self._is_table:
            self._draw(figures)
        else:
            click.echo(_line(figures))

    def finish(self, figures: Figures) -> None:
        """Show the last figures."""
        if current().json:
            show_json(figures.as_json())
        else:
            self._draw(figures)

    def _draw(self, figures: Figures) -> None:
        lines = table(figures, self._seconds)
        up = _UP_AND_CLEAR.format(self._shown) if self._shown else ""
        click.echo(up + "\n".join(lines))
        self._shown = len(lines) if self._is_table else 0


def table(figures: Figures, seconds: float) -> list[str]:
    """Return the lines of the table."""
    reasons = ", ".join(f"{key} {count:,}" for key, count in figures.refused.items())
    rows = [
        ("time", f"{min(figures.seconds, seconds):,.0f} of {seconds:,.0f} s"),
        ("sent", f"{figures.sent:,}"),
        ("committed", f"{figures.committed:,}  ({figures.per_s:,.1f} events/s)"),
        ("failed handlers", f"{figures.failed_handlers:,}"),
        ("refused", f"{sum(figures.refused.values()):,}" + (f"  ({reasons})" if reasons else "")),
        ("waiting", f"{figures.waiting:,}"),
        ("retries", f"{figures.retries:,}"),
        ("latency", f"p50 {_ms(figures.p50_ms)}, p99 {_ms(figures.p99_ms)}"),
    ]
    if figures.last_problem:
        rows.append(("last problem", figures.last_problem[:_PROBLEM_LIMIT]))
    return [f"{name:<17}{printable(value)}" for name, value in rows]


def _line(figures: Figures) -> str:
    return printable(
        f"{figures.seconds:.0f} s: sent {figures.sent:,}, committed {figures.committed:,} "
        f"({figures.per_s:,.1f}/s), refused {sum(figures.refused.values()):,}, "
        f"waiting {figures.waiting:,}, retries {figures.retries:,}, "
        f"p50 {_ms(figures.p50_ms)}, p99 {_ms(figures.p99_ms)}"
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:g} ms"
