"""The modules that a browser is told to load early are those that the first page imports."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pytest

DASHBOARD = Path(__file__).parents[3] / "dashboard"
_IMPORT = re.compile(r"^import (?:[^'\"\n]* from )?'(\.[^'\n]+)';", re.MULTILINE)


def imported(name: str, found: set[str] | None = None) -> set[str]:
    """A module and all that it imports, and so on."""
    found = set() if found is None else found
    if name not in found:
        found.add(name)
        for relative in _IMPORT.findall((DASHBOARD / name).read_text()):
            path = DASHBOARD / PurePosixPath(name).parent / relative
            imported(path.resolve().relative_to(DASHBOARD).as_posix(), found)
    return found


def test_the_page_names_the_libraries_that_every_page_imports() -> None:
    page = (DASHBOARD / "index.html").read_text()
    named = re.findall(r'rel="modulepreload" href="/ui/([^"]+)"', page)
    assert named == [name for name in imported("app.js") if name.startswith("vendor/")]


@pytest.mark.parametrize(("place", "first"), [(0, "shell.js"), (1, "pages/signin.js")])
def test_the_first_script_names_what_the_first_page_imports_besides(place: int, first: str) -> None:
    lists = re.findall(r"\[('[^\]]+\.js')\]", (DASHBOARD / "first.js").read_text())
    assert len(lists) == 2, "for who is signed in, and who is not"
    names = re.findall(r"'([^']+)'", lists[place])
    assert set(names) == imported(first) - imported("app.js")
