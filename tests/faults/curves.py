"""Curves over time as SVG pictures."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_LEFT, _WIDTH, _NAMES, _HEIGHT, _HEAD, _FOOT = 70, 620, 190, 150, 26, 30
_COLOURS = (
    *("#1f6f8b", "#c44e52", "#55a868", "#8172b2", "#cc8b3c", "#4c72b0", "#937860"),
    *("#da8bc3", "#8c8c8c", "#2f4b3c", "#b8a000", "#64b5cd"),
)
_LINE = 12


@dataclass(frozen=True, slots=True)
class Panel:
    """Some lines with one scale, which begins at 0; points are (minutes, value)."""

    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)


def svg(title: str, panels: Sequence[Panel]) -> str:
    """The panels below one another."""
    drawn = [panel for panel in panels if any(panel.lines.values())]
    width, heights = _LEFT + _WIDTH + _NAMES, [_height(panel) for panel in drawn]
    parts, y = [_text(10, 18, title, weight="bold")], 34
    for panel, height in zip(drawn, heights, strict=True):
        parts += _panel(panel, y)
        y += height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" '
        f'font-family="sans-serif" font-size="11"><rect width="{width}" height="{y}" '
        f'fill="white"/>{"".join(parts)}</svg>\n'
    )


def _height(panel: Panel) -> int:
    return _HEAD + max(_HEIGHT, _LINE * len(panel.lines)) + _FOOT


def _panel(panel: Panel, y: int) -> list[str]:
    points = [point for line in panel.lines.values() for point in line]
    longest = max(at for at, _ in points) or 1.0
    highest = max(value for _, value in points) or 1.0
    bottom = y + _HEAD + _HEIGHT

    def place(at: float, value: float) -> str:
        x = _LEFT + _WIDTH * at / longest
        return f"{x:.1f},{bottom - _HEIGHT * value / highest:.1f}"

    parts = [
        _text(_LEFT, y + 16, panel.title),
        f'<path d="M{_LEFT} {y + _HEAD}V{bottom}H{_LEFT + _WIDTH}" fill="none" stroke="#999"/>',
        _text(_LEFT - 6, y + _HEAD + 8, f"{highest:,.4g}", anchor="end"),
        _text(_LEFT - 6, bottom, "0", anchor="end"),
        _text(_LEFT + _WIDTH, bottom + 14, f"{longest:.3g} min", anchor="end"),
    ]
    for number, (name, line) in enumerate(panel.lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(place(at, value) for at, value in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')
        at = y + _HEAD + 8 + _LINE * number
        parts.append(_text(_LEFT + _WIDTH + 10, at, name, colour=colour))
    return parts


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", colour: str = "#333", weight: str = ""
) -> str:
    bold = f' font-weight="{weight}"' if weight else ""
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}"{bold}>'
        f"{html.escape(text)}</text>"
    )
