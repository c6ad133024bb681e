"""Chromium, its pages, and the errors in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.support.tools import require_tool

LIMIT_MS = 60_000
_ARGUMENTS = (
    "--no-sandbox",  # CI runs as root, for which Chromium has no sandbox
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
# Violations of the page's policy are also console errors, but only those of the page's own frame.
_COLLECT_VIOLATIONS = """
addEventListener('securitypolicyviolation', (event) =>
  console.error(`violates ${event.effectiveDirective}: ${event.blockedURI}`));
"""


@contextmanager
def chromium(*arguments: str) -> Iterator[Any]:
    """The system's Chromium; tests that need it are skipped without it, and fail in CI."""
    from playwright.sync_api import sync_playwright

    path = require_tool("chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=path, args=[*_ARGUMENTS, *arguments], timeout=LIMIT_MS
        )
        yield launched
        launched.close()


class Visit:
    """A page in a context of its own: no cookies, no store, and a record of all errors."""

    def __init__(
        self,
        browser: Any,
        address: str,
        width: int = 1280,
        scheme: str = "light",
        *,
        expected: Sequence[str] = (),
        watch: str = "",
        **options: Any,
    ) -> None:
        """`expected` are parts of console errors that the test provokes. `watch` is a script that
        runs in each page before the page's own scripts."""
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, **options
        )
        self.context.add_init_script(_COLLECT_VIOLATIONS + watch)
        self.address = address
        self.expected = list(expected)
        self.allowed: list[str] = []
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page = self.open()

    def open(self) -> Any:
        """Open another page of the same context."""
        page = self.context.new_page()
        page.set_default_timeout(LIMIT_MS)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self._wrong(str(error)))
        page.on("console", self._said)
        return page

    def _said(self, message: Any) -> None:
        if message.type == "error":
            self._wrong(message.text)

    def _wrong(self, text: str) -> None:
        if not any(part in text for part in self.expected):
            self.errors.append(text)

    def foreign(self) -> list[str]:
        """Requests that went to other hosts than the test allows."""
        known = self.address, "data:", *self.allowed
        return [url for url in self.requests if not url.startswith(known)]

    def close(self) -> None:
        """Close the page; fail if there were errors."""
        self.context.close()
        assert not self.errors, self.errors
        assert not self.foreign(), self.foreign()
