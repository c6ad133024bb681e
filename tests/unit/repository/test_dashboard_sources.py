"""Rules for the sources of the dashboard: sizes, words, and constructs that its content security
policy forbids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3] / "dashboard"
SOURCES = sorted(
    path
    for path in ROOT.rglob("*")
    if path.suffix in {".js", ".css"} and "vendor" not in path.parts
)
PAGES = [path for path in SOURCES if path.suffix == ".js" and "words" not in path.parts]
LINES = 250
BYTES = 467_500
_TAG = re.compile(r"<[^<>]*+>")
_WORD = re.compile(r"[A-Za-z]{2,}")
_SPOKEN = re.compile(r'\b(?:aria-label|title|placeholder|alt|label)="([^"\0]*[A-Za-z]{2}[^"\0]*)"')
_FORBIDDEN = re.compile(
    r"\binnerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|\beval\("
    r"|new Function|setAttribute\('style'|localStorage\.setItem\('token"
)


def templates(text: str) -> Iterator[tuple[int, str]]:
    """Yield the templates of html`...` with their lines; each `${...}` is a NUL."""
    stack: list[list[str] | int] = []  # a template's pieces, or the depth of braces in its code
    at, line = 0, 1
    while at < len(text):
        inside = stack[-1] if stack else None
        line += text[at] == "\n"
        if isinstance(inside, list):
            if text[at] == "`":
                stack.pop()
                yield line, "".join(inside)
            elif text.startswith("${", at):
                inside.append("\0")
                stack.append(0)
                at += 1
            else:
                inside.append(text[at])
        elif text.startswith("html`", at):
            stack.append([])
            at += 4
        elif isinstance(inside, int):
            stack[-1] = inside + (text[at] == "{") - (text[at] == "}")
            if stack[-1] == -1:
                stack.pop()
        at += 1


def spoken(template: str) -> list[str]:
    """Return the words of a template that a user reads or hears."""
    plain = _TAG.sub(" ", template.replace("\0", ""))
    return [*_WORD.findall(plain), *_SPOKEN.findall(template)]


def test_the_reader_of_templates_finds_text_between_tags_and_in_attributes() -> None:
    text = (
        "const a = html`<p class=x>${b ? html`<i>inner</i>` : ''} Outer</p>`; const c = `not this`;"
    )
    assert [spoken(found) for _, found in templates(text)] == [["inner"], ["Outer"]]
    assert spoken('<button aria-label="Close it">\0</button>') == ["Close it"]
    assert spoken('<td class="num">\0</td>') == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_all_words_are_in_the_folder_of_words(path: Path) -> None:
    found = [(line, words) for line, text in templates(path.read_text()) if (words := spoken(text))]
    assert found == []


def test_no_source_makes_elements_or_code_from_text() -> None:
    found = [
        (path.name, match[0]) for path in SOURCES for match in _FORBIDDEN.finditer(path.read_text())
    ]
    assert found == []


def test_sources_are_short_and_checked_by_types() -> None:
    long = {p.name: n for p in SOURCES if (n := len(p.read_text().splitlines())) > LINES}
    assert long == {}
    assert [p.name for p in PAGES if not p.read_text().startswith("// @ts-check\n")] == []
    assert sum(path.stat().st_size for path in SOURCES) <= BYTES
