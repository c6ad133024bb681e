"""The dashboard behind a proxy: at a host name or a port of its own, and not below a path."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.support.browser import Visit
from tests.support.nodes import RunningNode
from tests.support.tools import LIMIT_S

pytestmark = pytest.mark.timeout(300)


class Proxy(ThreadingHTTPServer):
    """Sends GET and PUT requests below a path on to a port, without the path."""

    daemon_threads = True

    def __init__(self, port: int, path: str) -> None:
        super().__init__(("127.0.0.1", 0), Forward)
        self.port, self.path = port, path
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://localhost:{self.server_port}"


class Forward(BaseHTTPRequestHandler):
    """One connection of a browser to the proxy."""

    def do_GET(self) -> None:
        proxy: Any = self.server
        if not self.path.startswith(proxy.path + "/"):
            self.send_error(404)
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name != "Upgrade"}
        target = self.path.removeprefix(proxy.path)
        upstream = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=LIMIT_S)
        # A browser that leaves a page ends its requests.
        with closing(upstream), suppress(ConnectionError):
            upstream.request(self.command, target, body, headers)
            answer = upstream.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.read())

    do_PUT = do_GET  # noqa: N815 - the name that the base class calls

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def proxies(node: RunningNode) -> Iterator[list[Proxy]]:
    """A proxy without a path, and one with a path."""
    both = [Proxy(node.dashboard_port, path) for path in ("", "/fb")]
    yield both
    for each in both:
        each.shutdown()
        each.server_close()


@pytest.mark.thorough
def test_a_proxy_with_a_port_of_its_own_serves_the_dashboard_and_a_path_says_why_not(
    node: RunningNode, browser: Any, proxies: list[Proxy]
) -> None:
    own, below = proxies
    seen = Visit(browser, own.address, expected=["status of 401", "WebSocket"])
    seen.page.goto(own.address)
    seen.page.get_by_label("Username").fill("admin")
    seen.page.get_by_label("Password").fill("correct horse")
    seen.page.get_by_role("button", name="Sign in", exact=True).click()
    seen.page.get_by_role("heading", name="Overview").wait_for()
    seen.close()
    seen = Visit(browser, below.address, expected=["status of 404", "MIME type"])
    seen.page.goto(f"{below.address}/fb/")
    text = seen.page.get_by_text("needs a host name or a port of its own")
    text.wait_for()
    box = text.bounding_box()
    assert box is not None
    assert box["height"] > 10
    seen.close()
