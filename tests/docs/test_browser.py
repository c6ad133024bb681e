"""The site in a browser: no request to other hosts, nothing is blocked, pages fit the screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_served import DocumentedNode
from tests.support.browser import Visit, chromium
from tests.support.tools import require_tool

pytestmark = pytest.mark.timeout(600)
PAGES = (
    "",
    "tutorials/contract/",
    "how-to/monitor/",
    "reference/http/",
    "reference/settings/",
    "explanation/architecture/",
    "explanation/guarantees/",
    "decisions/",
    "nowhere/",
)


@pytest.fixture(scope="module")
def node(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DocumentedNode]:
    require_tool("chromium")
    running = DocumentedNode(tmp_path_factory.mktemp("browsed"), site)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as launched:
        yield launched


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.thorough("390", "1280-light")
def test_pages_load_from_the_node_alone_and_fit_the_screen(
    node: DocumentedNode, browser: Any, width: int, scheme: str
) -> None:
    address = f"http://127.0.0.1:{node.dashboard_port}"
    # The browser itself reports the status 404 of the unknown page.
    visit = Visit(browser, address, width, scheme, expected=["status of 404"])
    wide = []
    for path in PAGES:
        visit.page.goto(f"{address}/docs/{path}", wait_until="networkidle")
        if visit.page.evaluate("document.documentElement.scrollWidth") > width:
            wide.append(path)
    visit.close()
    assert wide == []


@pytest.mark.thorough
def test_the_search_finds_a_setting_without_network(node: DocumentedNode, browser: Any) -> None:
    address = f"http://127.0.0.1:{node.dashboard_port}"
    visit = Visit(browser, address)
    visit.page.goto(f"{address}/docs/", wait_until="networkidle")
    visit.page.keyboard.press("Control+k")
    visit.page.keyboard.type("FIELDBROOK_HTTP_PORT")
    visit.page.wait_for_selector('a[href*="reference/settings"] mark, a[href*="settings"] mark')
    visit.close()
