"""The documentation site, built once for all tests that look at it."""

from __future__ import annotations

import importlib.util
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def builder() -> ModuleType:
    """The module scripts/build_docs.py."""
    spec = importlib.util.spec_from_file_location("build_docs", ROOT / "scripts" / "build_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Page(NamedTuple):
    """What one HTML page refers to."""

    links: list[str]
    resources: list[str]
    """Addresses that a browser loads by itself."""
    anchors: set[str]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page([], [], set())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.page.anchors.update(attributes[n] for n in ("id", "name") if n in attributes)
        if tag == "a" and "href" in attributes:
            self.page.links.append(attributes["href"])
        elif tag == "link" and attributes.get("rel") not in {"prev", "next"}:
            self.page.resources.append(attributes["href"])
        elif "src" in attributes:
            self.page.resources.append(attributes["src"])
        for name in ("srcset", "xlink:href", "data", "poster"):
            if name in attributes and not attributes[name].startswith("#"):
                self.page.resources.append(attributes[name])


def read_page(path: Path) -> Page:
    """Parse one HTML file."""
    reader = _Reader()
    reader.feed(path.read_text("utf-8"))
    return reader.page
