"""The site in a browser: no request leaves the node, nothing is blocked, pages fit the screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_served import DocumentedNode
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
LIMIT_MS = 60_000


@pytest.fixture(scope="module")
def node(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DocumentedNode]:
    require_tool("chromium")
    running = DocumentedNode(tmp_path_factory.mktemp("browsed"), site)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # CI is root, for whom Chromium has no sandbox.
        launched = playwright.chromium.launch(
            executable_path=require_tool("chromium"), args=["--no-sandbox"], timeout=LIMIT_MS
        )
        yield launched
        launched.close()


class Visit:
    """A page of the browser, and what went wrong in it."""

    def __init__(self, browser: Any, address: str, width: int, scheme: str) -> None:
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page.set_default_timeout(LIMIT_MS)
        self.address = address
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._console)

    def _console(self, message: Any) -> None:
        # The browser itself reports the status 404 of the unknown page.
        if message.type == "error" and "status of 404" not in message.text:
            self.errors.append(message.text)

    def foreign(self) -> list[str]:
        return [url for url in self.requests if not url.startswith((self.address, "data:"))]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_load_from_the_node_alone_and_fit_the_screen(
    node: DocumentedNode, browser: Any, width: int, scheme: str
) -> None:
    address = f"http://127.0.0.1:{node.dashboard_port}"
    visit = Visit(browser, address, width, scheme)
    wide = []
    for path in PAGES:
        visit.page.goto(f"{address}/docs/{path}", wait_until="networkidle")
        if visit.page.evaluate("document.documentElement.scrollWidth") > width:
            wide.append(path)
    visit.page.close()
    assert visit.errors == []
    assert visit.foreign() == []
    assert wide == []


def test_the_search_finds_a_setting_without_network(node: DocumentedNode, browser: Any) -> None:
    address = f"http://127.0.0.1:{node.dashboard_port}"
    visit = Visit(browser, address, 1280, "light")
    visit.page.goto(f"{address}/docs/", wait_until="networkidle")
    visit.page.keyboard.press("Control+k")
    visit.page.keyboard.type("FIELDBROOK_HTTP_PORT")
    visit.page.wait_for_selector('a[href*="reference/settings"] mark, a[href*="settings"] mark')
    visit.page.close()
    assert visit.errors == []
    assert visit.foreign() == []
