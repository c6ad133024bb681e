"""Results of a scenario: medians with the range of the rounds, ratios, a table, JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Figures = dict[str, float]  # one round's measurement of one server, by column
Budgets = list[tuple[str, float, float]]  # what, its figure, its limit

RATE, P50, P99 = "events/s", "p50 ms", "p99 ms"
CPU, PSS, RSS = "CPU s/10k", "PSS MiB", "RSS MiB"
OTHERS = "other cores"  # kept busy by neither the server nor the load tool: noise
_RANGE = "  min-max"


@dataclass
class Table:
    """One comparison: several servers, measured in turn, several rounds.

    Args:
        title: what was measured, and how.
        main: the column that ratios are of.
        baselines: the servers whose ratio to each row is shown; absent ones are skipped.
        missing: baselines that could not run, and why.
        plots: the columns that are plotted; without any, the main one and CPU.
        rows: the rounds of each server, in the order measured.
    """

    title: str
    main: str = RATE
    baselines: Sequence[str] = ()
    missing: dict[str, str] = field(default_factory=dict)
    plots: Sequence[str] = ()
    rows: dict[str, list[Figures]] = field(default_factory=dict)

    def add(self, server: str, figures: Figures) -> None:
        """Keep one round of one server."""
        self.rows.setdefault(server, []).append(figures)

    def values(self, server: str, column: str) -> list[float]:
        """One figure of one server in each round that has it."""
        return [figures[column] for figures in self.rows[server] if column in figures]

    def medians(self) -> dict[str, Figures]:
        """The median of each column of each server; a column may be absent from some."""
        return {
            server: {
                column: statistics.median(self.values(server, column))
                for column in _columns(rounds)
            }
            for server, rounds in self.rows.items()
        }

    def ratios(self) -> dict[str, dict[str, float]]:
        """By server and baseline: the server's median main figure over the baseline's."""
        medians = self.medians()
        present = [name for name in self.baselines if medians.get(name, {}).get(self.main)]
        return {
            server: {
                name: figures[self.main] / medians[name][self.main]
                for name in present
                if self.main in figures
            }
            for server, figures in medians.items()
        }

    def as_json(self) -> dict[str, Any]:
        """Everything, rounds included."""
        return {
            "title": self.title,
            "main": self.main,
            "medians": self.medians(),
            "ratios": self.ratios(),
            "missing": self.missing,
            "rounds": self.rows,
        }

    def text(self) -> str:
        """The table; a missing baseline has a line that says so."""
        medians, ratios = self.medians(), self.ratios()
        columns = _columns(list(medians.values()))
        shown = [name for name in self.baselines if name in medians]
        lines = [["", *columns, *(f"x {name}" for name in shown)]]
        for server, figures in medians.items():
            cells = [number(figures.get(column)) for column in columns]
            times = [number(ratios[server].get(name)) for name in shown]
            lines.append([server, *cells, *times])
            ranges = [_range(self.values(server, column)) for column in columns]
            if any(ranges):
                lines.append([_RANGE, *ranges, *("" for _ in shown)])
        absent = [f"{name}: missing, {reason}" for name, reason in self.missing.items()]
        return "\n".join([self.title, *_aligned(lines), *absent])


def budget_table(title: str, budgets: Budgets) -> Table:
    """Figures beside their limits; those above 1 in the last column exceed theirs."""
    table = Table(title, main="measured")
    for what, measured, limit in budgets:
        table.add(what, {"measured": measured, "limit": limit, "of limit": measured / limit})
    return table


def number(value: float | None) -> str:
    """Three digits or more, for the eye; "-" for none."""
    if value is None:
        return "-"
    if value >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 100 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def _range(values: Sequence[float]) -> str:
    return f"{number(min(values))}-{number(max(values))}" if len(values) > 1 else ""


def _columns(rounds: Sequence[Figures]) -> list[str]:
    return list(dict.fromkeys(column for figures in rounds for column in figures))


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if n else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
