"""Tables as pictures: bars of medians with the range of the rounds, as SVG."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.report import CPU, Table, number

_BAR, _GAP, _NAMES, _LENGTH, _FIGURES = 14, 6, 270, 250, 95
_PANEL = _LENGTH + _FIGURES
_OURS, _THEIRS, _WHISKER = "#1f6f8b", "#b5b5b5", "#333333"
_LOGARITHMIC_FROM = 100  # largest over smallest; below it a bar's length is the value


@dataclass(frozen=True)
class _Scale:
    """From a value to a length: linear, or by decades when linear would show only one."""

    low: float
    high: float
    logarithmic: bool

    def length(self, value: float) -> float:
        if not self.logarithmic:
            return max(1.0, _LENGTH * value / self.high)
        share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return max(1.0, _LENGTH * share)


def _scale(values: Sequence[float]) -> _Scale:
    positive = [value for value in values if value > 0] or [1.0]
    low, high = min(positive), max(positive)
    if high < low * _LOGARITHMIC_FROM:
        return _Scale(0, high, logarithmic=False)
    return _Scale(10 ** math.floor(math.log10(low)), high, logarithmic=True)


def svg(name: str, tables: Sequence[Table]) -> str:
    """The tables below one another, each with a row per server and a panel per column."""
    parts: list[str] = []
    y, widest = 44, 1
    for table in tables:
        columns = _plotted(table)
        widest = max(widest, len(columns))
        parts.append(_text(10, y, table.title, weight="bold"))
        y += _BAR + _GAP
        top = y + _BAR + _GAP
        for position, column in enumerate(columns):
            x = _NAMES + position * _PANEL
            parts += _panel(table, column, x, y)
        y = top
        for server in [*table.rows, *table.missing]:
            parts.append(_text(_NAMES - 8, y + _BAR - 3, server.strip(), anchor="end"))
            y += _BAR + _GAP
        for row, _ in enumerate(table.missing, len(table.rows)):
            line = top + row * (_BAR + _GAP)
            parts.append(_text(_NAMES + 4, line + _BAR - 3, "missing", colour="#777777"))
        y += 3 * _GAP + _BAR
    width = max(_NAMES + widest * _PANEL, 760)
    legend = "bars are medians, lines the range of the rounds; baselines are grey"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" '
        'font-family="sans-serif" font-size="12">'
        f'<rect width="{width}" height="{y}" fill="white"/>'
        + _text(10, 20, f"{name}: {legend}", colour="#555555")
        + "".join(parts)
        + "</svg>\n"
    )


def _plotted(table: Table) -> list[str]:
    wanted = table.plots or dict.fromkeys((table.main, CPU))
    return [c for c in wanted if any(table.values(server, c) for server in table.rows)]


def _panel(table: Table, column: str, x: float, y: float) -> list[str]:
    medians = table.medians()
    scale = _scale([v for server in table.rows for v in table.values(server, column)])
    unit = f"{column}, logarithmic" if scale.logarithmic else column
    parts = [_text(x, y + _BAR - 3, unit, colour="#555555")]
    for server in table.rows:
        y += _BAR + _GAP
        if column not in medians[server]:
            continue
        value, rounds = medians[server][column], table.values(server, column)
        length = scale.length(value)
        colour = _THEIRS if server in table.baselines else _OURS
        parts.append(
            f'<rect x="{x}" y="{y}" width="{length:.1f}" height="{_BAR}" fill="{colour}"/>'
        )
        end = length
        if len(rounds) > 1:
            low, end = scale.length(min(rounds)), max(length, scale.length(max(rounds)))
            parts.append(
                f'<path d="M{x + low:.1f} {y + _BAR / 2}H{x + end:.1f}" '
                f'stroke="{_WHISKER}" stroke-width="2"/>'
            )
        parts.append(_text(x + end + 6, y + _BAR - 3, number(value)))
    return parts


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    weight: str = "normal",
    colour: str = "#111111",
) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{colour}">{html.escape(text)}</text>'
    )
