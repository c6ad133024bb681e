"""The modules that the page tells a browser to load early are those that every page imports."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

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
