"""The page on MQTT conformance: it has every statement, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "mqtt-conformance.md").read_text("utf-8")
PROTOCOL = ROOT / "tests" / "unit" / "gateway" / "mqtt" / "protocol"
ROW = re.compile(r"\| MQTT-([0-9.-]+-[0-9]+) \| [^|]+ \| ([^|]+) \|")
TEST = re.compile(r"`([a-z0-9_/]+\.py)(?:::(test_[a-z0-9_]+))?`")
NUMBER = re.compile(r"([0-9.-]+)-([0-9]+)(?: to [0-9.]+-([0-9]+))?")
STANDARDS = ("3.1.1", "5.0")
COUNTS = {"3.1.1": 141, "5.0": 251}
# The numbering of MQTT 5.0 has no such statement.
GAPS = {"3.1.1": set[str](), "5.0": {"2.2.1-1"}}


def section(standard: str) -> str:
    """Return the section of the page on one standard."""
    _, _, rest = PAGE.partition(f"\n## MQTT {standard}\n")
    return rest.partition("\n## ")[0]


def rows(standard: str) -> dict[str, str]:
    """Return the test of each statement."""
    lines = [line for line in section(standard).splitlines() if line.startswith("| MQTT")]
    found = [ROW.fullmatch(line) for line in lines]
    read = [row for row in found if row is not None]
    assert len(read) == len(lines)
    statements = {row[1]: row[2] for row in read}
    assert len(statements) == len(lines), "a statement is there twice"
    return statements


def for_clients(standard: str) -> set[str]:
    """Return the statements that the page lists for clients."""
    listed = re.search(r"^For clients only: (.+)\.$", section(standard), re.MULTILINE)
    assert listed is not None
    return {
        f"{where}-{number}"
        for where, first, last in NUMBER.findall(listed[1])
        for number in range(int(first), int(last or first) + 1)
    }


@cache
def functions(path: Path) -> set[str]:
    """Return the functions of a test file."""
    tree = ast.parse(path.read_text("utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


@pytest.mark.parametrize("standard", STANDARDS)
def test_every_statement_of_the_standard_is_on_the_page_once(standard: str) -> None:
    servers, clients = set(rows(standard)), for_clients(standard)
    assert servers & clients == set()
    numbers: dict[str, set[int]] = {}
    # One statement of 3.1.1 has the form 3-8.3-4.
    for statement in servers | clients | GAPS[standard]:
        where, _, number = statement.replace("3-8.3", "3.8.3").rpartition("-")
        numbers.setdefault(where, set()).add(int(number))
    assert {
        where: sorted(set(range(1, max(found) + 1)) - found)
        for where, found in numbers.items()
        if found != set(range(1, max(found) + 1))
    } == {}
    assert len(servers | clients) == COUNTS[standard]  # the last of a section leaves no gap


@pytest.mark.parametrize("standard", STANDARDS)
def test_every_statement_is_shown_by_a_test_or_says_why_not(standard: str) -> None:
    bare = [
        statement
        for statement, shown in rows(standard).items()
        if not TEST.search(shown)
        and shown != "not shown yet"
        and not re.fullmatch(r"does not apply: .+", shown)
    ]
    assert bare == []


@pytest.mark.parametrize("standard", STANDARDS)
def test_every_test_that_the_page_names_exists(standard: str) -> None:
    missing = []
    for statement, shown in rows(standard).items():
        for name, function in TEST.findall(shown):
            path = ROOT / name if "/" in name else PROTOCOL / name
            if not path.is_file() or (function and function not in functions(path)):
                missing.append((statement, name, function))
    assert missing == []
