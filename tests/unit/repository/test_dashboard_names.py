"""Each name in the sources of the dashboard is used: exports, words, imports, styles and icons."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from tests.unit.repository.test_dashboard_sources import ROOT, SOURCES

TESTS = Path(__file__).parents[2] / "dashboard" / "js"
SCRIPTS = {path: path.read_text() for path in SOURCES if path.suffix == ".js"}
STYLES = "".join(path.read_text() for path in SOURCES if path.suffix == ".css")
EVERYTHING = "".join(SCRIPTS.values()) + (ROOT / "index.html").read_text()
_EXPORT = re.compile(
    r"^export (?:async )?(?:const|let|function|class) (\w+|\{[^}]*\})", re.MULTILINE
)
_IMPORT = re.compile(r"^import (.+) from '(\.[^']+)'", re.MULTILINE)
_LINE_OF_IMPORT = re.compile(r"^import .*$", re.MULTILINE)
_BY_NAME = re.compile(r"""\bpart="(\w+)"|\b(Page)\b""")  # modules that are loaded when needed
_SELECTOR = re.compile(r"^([^@{}\n]*)\{", re.MULTILINE)
_CLASS = re.compile(r"\.([a-zA-Z][\w-]*)")
_USED = re.compile(r"\b(?:class|kind)=(\"[^\"]*\"|\$\{`[^`]*`)")
_ICON = re.compile(r"^  (\w+): '[Mm]", re.MULTILINE)
# Names that are joined from the prefix `t-` or `--` and a word.
_COMPOSED = frozenset({"accent", "amber", "blue", "dim", "red", "violet"})
_COMPOSED_OF_TOKENS = frozenset({"t-name", "t-number", "t-string", "t-word"})


def imported() -> tuple[dict[Path, set[str]], list[str]]:
    """Return the names that modules import from others, by module, and unused imports."""
    taken: dict[Path, set[str]] = defaultdict(set)
    idle = []
    tests = {path: path.read_text() for path in TESTS.glob("*.mjs")}
    for path, text in (SCRIPTS | tests).items():
        body = _LINE_OF_IMPORT.sub("", text)
        for names, source in _IMPORT.findall(text):
            folder = path.parent if path in SCRIPTS else ROOT / "core"
            target = (folder / re.sub(r"^\.\./dashboard/core/", "./", source)).resolve()
            if names.startswith("* as "):
                space = names.removeprefix("* as ")
                assert not re.search(rf"\b{space}\)?\[", body), f"{path}: {space}[...] hides names"
                taken[target].update(re.findall(rf"\b{space}\.(\w+)", body))
                for group in re.findall(rf"\{{([^{{}}]*)\}} = {space};", body):
                    taken[target].update(re.findall(r"\w+", group))
                continue
            for name in re.findall(r"(\w+)(?: as (\w+))?", names):
                taken[target].add(name[0])
                if not re.search(rf"\b{name[1] or name[0]}\b", body):
                    idle.append(f"{path.relative_to(ROOT)}: {name[0]}")
    return taken, idle


def test_every_export_and_word_is_used_by_another_module() -> None:
    taken, idle = imported()
    assert idle == []
    by_name = {name for pair in _BY_NAME.findall(EVERYTHING) for name in pair if name}
    unused = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in SCRIPTS.items()
        for found in _EXPORT.findall(text)
        for name in re.findall(r"\w+", found)
        if name not in taken[path] | by_name
    ]
    assert unused == []


def classes_of(styles: str) -> set[str]:
    return {name for found in _SELECTOR.findall(styles) for name in _CLASS.findall(found)}


def test_every_class_of_the_styles_and_every_icon_is_used() -> None:
    classes = classes_of(STYLES)
    assert len(classes) > 100
    icons = set(_ICON.findall((ROOT / "parts" / "basics.js").read_text()))
    assert len(icons) > 20
    unused = [
        name
        for name in sorted(classes - _COMPOSED - _COMPOSED_OF_TOKENS)
        if not re.search(rf"(?<![\w-]){name}(?![\w-])", EVERYTHING)
    ]
    unused += [name for name in sorted(icons) if not re.search(rf"['\"]{name}['\"]", EVERYTHING)]
    assert unused == []


def test_pages_use_only_styles_that_are_loaded_with_them() -> None:
    own = {path.stem: path.read_text() for path in (ROOT / "styles").glob("*.css")}
    everywhere = classes_of(own["base"] + own["parts"])
    loaded = {"node": classes_of(own["node"]), "project": classes_of(own["project"] + own["flow"])}
    others = {"node": loaded["project"], "project": loaded["node"]}
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for area, foreign in others.items()
        for path, text in SCRIPTS.items()
        if path.is_relative_to(ROOT / "pages" / area)
        for used in _USED.findall(text)
        for name in re.findall(r"[\w-]+", used)
        if name in foreign - loaded[area] - everywhere
    ]
    assert missing == []
