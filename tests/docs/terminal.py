"""Pictures of a terminal, drawn from what the commands of a page print.

`python -m tests.docs.terminal` runs every page that has pictures and writes the pictures. Values
that differ between runs (ids, times, tokens, ports) are replaced, so that the same output gives the
same picture; a test compares the pictures.
"""

from __future__ import annotations

import re
import sys
import tempfile
import textwrap
from html import escape
from pathlib import Path

from tests.docs.commands import Ran, parse, run_page
from tests.docs.site import DOCS, ROOT

PICTURES = DOCS / "pictures"
_COLUMNS = 88
_WIDTH, _LINE, _TOP, _LEFT, _SIZE = 800, 21, 52, 20, 14
_PROMPT, _TEXT, _FAINT = "#7fd1a2", "#e6ece8", "#9fb0a6"


def pages() -> list[Path]:
    """The pages with pictures."""
    return [path for path in sorted(DOCS.rglob("*.md")) if "<!-- terminal: " in path.read_text()]


def names(path: Path) -> list[str]:
    """The pictures of a page."""
    return [step.picture for step in parse(path.read_text("utf-8")).steps if step.picture]


def draw(ran: list[Ran]) -> dict[str, str]:
    """The pictures of a page that was run, by name."""
    found = {}
    for r in ran:
        if r.step.picture:
            ids: dict[str, str] = {}
            parts = [(command, steady(output, ids)) for command, output in r.parts]
            found[r.step.picture] = svg(parts)
    return found


def steady(output: str, ids: dict[str, str]) -> str:
    """Replace the values that differ between runs; `ids` maps known ids to their replacements."""

    def numbered(match: re.Match[str]) -> str:
        return ids.setdefault(match[0], f"2443371{len(ids) + 1:08}")

    output = re.sub(r"\b\d{15,19}\b", numbered, output)
    output = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "2026-01-01T12:00:00.000Z", output)
    output = re.sub(r"eyJ[\w-]+\.[\w.-]+", "eyJhbGciOiJIUzI1NiIsInR5cCI6Ikp...", output)
    output = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8888", output)
    return re.sub(r"\b\d+(\.\d+)? ms\b", "0.4 ms", output)


def svg(parts: list[tuple[str, str]]) -> str:
    """Draw a terminal with commands and what each of them prints."""
    rows = []
    for command, output in parts:
        shown = [piece for line in command.splitlines() for piece in _wrapped(line)]
        for number, text in enumerate(shown):
            mark = f'<tspan fill="{_PROMPT}">{"$" if number == 0 else ">"} </tspan>'
            rows.append(f'{mark}<tspan fill="{_TEXT}">{escape(text)}</tspan>')
        for line in output.strip().splitlines():
            rows += [f'<tspan fill="{_FAINT}">{escape(text)}</tspan>' for text in _wrapped(line)]
    height = _TOP + _LINE * len(rows)
    lines = "\n".join(
        f'<text x="{_LEFT}" y="{_TOP + _LINE * number}" xml:space="preserve">{row}</text>'
        for number, row in enumerate(rows)
    )
    dots = "".join(
        f'<circle cx="{20 + 18 * number}" cy="17" r="5.5" fill="{colour}"/>'
        for number, colour in enumerate(("#e0705f", "#e0b45f", "#6fbf7a"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" '
        f'font-size="{_SIZE}">\n'
        f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="#16201a"/>\n'
        f'<rect width="{_WIDTH}" height="34" rx="8" fill="#24332a"/>\n{dots}\n{lines}\n</svg>\n'
    )


def _wrapped(line: str) -> list[str]:
    if len(line) <= _COLUMNS:
        return [line]
    return textwrap.wrap(line, _COLUMNS, replace_whitespace=False, drop_whitespace=False)


def main() -> int:
    """Write the pictures of all pages."""
    PICTURES.mkdir(exist_ok=True)
    written = set()
    for path in pages():
        with tempfile.TemporaryDirectory(prefix="fieldbrook-page-") as folder:
            for name, picture in draw(run_page(path, Path(folder) / "clone")).items():
                (PICTURES / name).write_text(picture)
                written.add(name)
        print(f"{path.relative_to(ROOT)}: {len(names(path))} pictures")
    for path in PICTURES.glob("*.svg"):
        if path.name not in written:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
