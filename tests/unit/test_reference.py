"""The reference pages say what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["settings.md", "cli.md", "http.md", "errors.md", "abi.md"])
def test_a_page_is_as_the_code_would_write_it(name: str) -> None:
    made: str = reference().PAGES[name]()
    assert (ROOT / "docs" / "reference" / name).read_text() == made


@pytest.mark.parametrize("name", ["settings.md", "http.md", "errors.md", "abi.md"])
def test_nothing_is_listed_without_a_word_on_what_it_is(name: str) -> None:
    made: str = reference().PAGES[name]()
    rows = [line for line in made.splitlines() if line.startswith("| ")]
    bare = [row for row in rows if re.search(r"\|\s*\|$", row)]
    assert bare == []
