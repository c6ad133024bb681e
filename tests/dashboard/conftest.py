"""Fixtures of the tests of the dashboard: a node, browsers, and a context for each test."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Visit, chromium
from tests.support.nodes import RunningNode, StartNode
from tests.support.tools import npm_installed

Open = Callable[..., Visit]
JS = Path(__file__).parent / "js"


@pytest.fixture(scope="module")
def node(start_module_node: StartNode) -> RunningNode:
    """One node for all tests of a file, with an administrator. One for all files would run beside
    the tests of other folders, too, and an idle node takes processor time."""
    return start_module_node()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    # Playwright keeps an event loop running, which other tests of the process must not meet.
    with chromium() as launched:
        yield launched


@pytest.fixture
def visit(browser: Any) -> Iterator[Open]:
    """Opens pages of a node; the test fails if an error occurred in one of them."""
    opened: list[Visit] = []

    def start(node: RunningNode, path: str = "/", **options: Any) -> Visit:
        found = Visit(browser, f"http://localhost:{node.dashboard_port}", **options)
        opened.append(found)
        found.page.goto(found.address + path)
        return found

    yield start
    for each in opened:
        each.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, for `js/findings.js`."""
    return (npm_installed(JS) / "axe-core" / "axe.min.js").read_text()


def session_of(node: RunningNode, username: str = "admin", role: str = "ADMIN") -> str:
    """Return what a page stores about a login, as JSON."""
    life = datetime.timedelta(hours=1)
    expires = datetime.datetime.now(datetime.UTC) + life
    (account,) = node.call("GET", f"/account?username={username}").json["data"]
    return json.dumps(
        {
            "token": node.token,
            "accountRole": role,
            "accountID": account["accountID"],
            "expireAt": expires.isoformat(),
            "renewAt": (expires - life / 2).timestamp() * 1000,
            "name": username,
        }
    )


@pytest.fixture
def signed_in(browser: Any) -> Iterator[Open]:
    """Opens pages signed in as the node's administrator, without the form."""
    opened: list[Visit] = []

    def start(node: RunningNode, path: str = "/", **options: Any) -> Visit:
        found = Visit(browser, f"http://localhost:{node.dashboard_port}", **options)
        opened.append(found)
        kept = json.dumps(session_of(node))
        found.context.add_init_script(f"sessionStorage['fieldbrook.session'] ??= {kept}")
        found.page.goto(found.address + path)
        found.page.locator("#main .page").wait_for()
        return found

    yield start
    for each in opened:
        each.close()
