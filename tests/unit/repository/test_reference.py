"""The reference pages match the code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _scripts_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")


def reference() -> ModuleType:
    return importlib.import_module("reference")


def route_calls() -> ModuleType:
    return importlib.import_module("route_calls")


@pytest.mark.parametrize(
    "name", ["settings.md", "cli.md", "http.md", "routes.md", "metrics.md", "errors.md", "abi.md"]
)
@pytest.mark.thorough("routes.md")
def test_a_page_is_as_the_code_would_write_it(name: str) -> None:
    page = (ROOT / "docs" / "reference" / name).read_text()
    assert reference().fill(page, reference().PAGES[name]) == page


@pytest.mark.parametrize("name", ["settings.md", "http.md", "routes.md", "errors.md", "abi.md"])
def test_nothing_is_listed_without_a_word_on_what_it_is(name: str) -> None:
    text = "\n".join(make() for make in reference().PAGES[name].values())
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    bare = [row for row in rows if re.search(r"\|\s*\|$", row)]
    assert bare == []


def test_no_route_is_without_a_test_that_calls_it() -> None:
    page = reference()
    tests = route_calls().calls_by_test_file()
    untested = [page.shape(route) for route in page.ROUTES if not tests[page.shape(route)]]
    assert untested == []


FILE = """
X = "/publisher/x/room"

def one(project: str, rest: str = "") -> str:
    return f"/project/x/{project}{rest}"

@pytest.mark.parametrize("path", ["/login/wallet", "/login/eth"])
def test_a(path):
    ada("PUT", path, {})
    ada("POST", X + "/upsert")
    node.call("GET", one("room", "/data?x=1"))
    for kind in KINDS:
        ada("GET", f"/monitor/x/{P}/{kind}/datalist")
    ada("GET", unknown)
    print("DELETE", "no path")
"""


def test_a_call_in_a_test_is_found_by_its_method_and_its_path() -> None:
    page = route_calls()
    found = {
        page.shape(route)
        for method, target in page.requests_in(page.ast.parse(FILE))
        for route in page.routes_at(method, target)
    }
    assert found == {
        "PUT /login/wallet",
        "PUT /login/eth",
        "POST /publisher/x/{}/upsert",
        "GET /project/x/{}/data",
        "GET /monitor/x/{}/contract_log/datalist",
        "GET /monitor/x/{}/chain_tx/datalist",
        "GET /monitor/x/{}/chain_height/datalist",
    }


def test_every_route_of_the_interface_is_served_but_for_what_would_tell_secrets() -> None:
    page = reference()
    served = {page.shape(route) for route in page.ROUTES}
    missing = (page.SEED | page.LATER) - served
    assert missing <= {"GET /configuration/eth_client", "GET /configuration/chain_config"}
