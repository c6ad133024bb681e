"""Regular expressions: all are linear in their input, and all are in the table."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fieldbrook.gateway.http.tornado.applications import EVENT_PATH
from fieldbrook.gateway.management.application import make_application_routes
from fieldbrook.gateway.management.framework.context import ManagementContext
from tests.unit.repository.pattern_table import TABLE
from tests.unit.repository.patterns import (
    ALL_CPU_LIMIT_S,
    CPU_LIMIT_S,
    ROOT,
    SIZE,
    find_patterns,
    generic,
    inflate,
    measure,
    misplaced,
)


def test_every_pattern_is_compiled_where_the_search_for_patterns_finds_it() -> None:
    assert misplaced() == []


def test_every_pattern_of_the_product_is_in_the_table_with_what_it_sees_and_its_worst_input() -> (
    None
):
    assert {found.name for found in find_patterns()} == set(TABLE)
    for name, entry in TABLE.items():
        assert entry.sees, name
        assert entry.methods, name
        assert entry.worst, name


def test_the_table_names_the_methods_that_a_pattern_is_used_with() -> None:
    for found in find_patterns():
        if found.methods:
            assert found.methods == set(TABLE[found.name].methods), found.name


@cache
def _attacks() -> dict[str, list[dict[str, Any]]]:
    """Return the results of all attacks, which run in a child with limited CPU time."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.repository.patterns"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * ALL_CPU_LIMIT_S,
        check=False,
    )
    results: dict[str, list[dict[str, Any]]] = {}
    for line in done.stdout.splitlines():
        result = json.loads(line)
        results.setdefault(result["name"], []).append(result)
    assert done.returncode == 0, f"{done.returncode} after {list(results)[-1:]}: {done.stderr}"
    return results


@pytest.mark.timeout(2 * ALL_CPU_LIMIT_S)
@pytest.mark.parametrize("name", TABLE)
def test_a_pattern_takes_time_in_proportion_to_its_worst_input(name: str) -> None:
    results = _attacks()[name]
    assert any(result["size"] == SIZE for result in results)
    slow = [r for r in results if r["seconds"] is None or r["seconds"] > CPU_LIMIT_S]
    assert slow == []


def test_the_patterns_of_routes_take_time_in_proportion_to_a_path() -> None:
    context = cast(ManagementContext, SimpleNamespace(registry=None))
    matched = [rule[0] for rule in make_application_routes(context)]
    patterns = [each if isinstance(each, str) else each.regex.pattern for each in matched]
    routes = [EVENT_PATH, *patterns]
    for route in routes:
        pattern = re.compile(f"{route}$")
        for prefix in ("/", "/srv-applet-mgr/v0/", "/api/w3bapp/event/"):
            for pump in ("/", "a", "/a", "/event/"):
                path = prefix + pump * (SIZE // len(pump)) + "\n"
                assert measure(pattern, "match", path) is not None, (route, prefix, pump)


@pytest.mark.parametrize(
    ("quadratic", "method"),
    [
        # Former patterns of the product, and common mistakes.
        (rb"(?:[!-9;-~]+:[ \t]*[\t\x20-\x7e\x80-\xff]*\r\n)+\r\n", "search"),
        (rb"^(host):[ \t]*(.*?)[ \t]*\r$", "findall"),
        (r"\{[^}]*\}", "sub"),
        (r"\s+$", "search"),
        (r"(a+)+b", "fullmatch"),
    ],
)
def test_the_attacks_find_a_pattern_that_is_not_linear(
    quadratic: bytes | str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.unit.repository.patterns.CPU_LIMIT_S", 1.0)
    pattern: re.Pattern[Any] = re.compile(quadratic, re.MULTILINE)
    attacks = [("host:", " ", "b\n"), *generic(pattern)]
    found = (measure(pattern, method, inflate(pattern, each, SIZE)) for each in attacks)
    assert any(seconds is None for seconds in found)
