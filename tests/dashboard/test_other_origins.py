"""A page of another origin in the same browser, which tries to use the session of the dashboard."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import Open, session_of
from tests.dashboard.test_policy_headers import ask, prefix_of
from tests.support.browser import Visit, chromium
from tests.support.nodes import RunningNode

pytestmark = pytest.mark.timeout(300)
JS = Path(__file__).parent / "js"
REBOUND = "rebound.example"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser in which a name leads to this machine, as after a change of its DNS records.

    The protection of newer versions of Chromium is off, because other browsers have none.
    """
    rule = f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1"
    with chromium(rule, "--disable-features=LocalNetworkAccessChecks") as launched:
        yield launched


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[str]:
    """The address of a site of another program on this machine."""
    (tmp_path / "index.html").write_text("<!doctype html><title>a game</title><body>")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


def test_a_page_of_another_origin_gets_nothing_by_the_session_of_the_dashboard(
    node: RunningNode, signed_in: Open, elsewhere: str
) -> None:
    before = node.call("GET", "/project?size=-1").json["total"]
    errors = ["status of 4", "WebSocket", "frame-ancestors", "Framing", "CORS", "SecurityError"]
    errors += ["ERR_BLOCKED", "ERR_FAILED", "Failed to load", "Access is denied"]
    seen = signed_in(node, "/projects", expected=errors)
    hostile = seen.open()
    seen.allowed.append(elsewhere)
    hostile.goto(elsewhere)
    module = prefix_of(ask(node, "/")).removeprefix("/") + "core/session.js"
    script = (JS / "hostile.js").read_text().replace("SESSION_MODULE", module)
    found = hostile.evaluate(script.replace("DASHBOARD", seen.address))
    assert (found["read"], found["write"]) == (401, 401)
    unreadable = "TypeError: Failed to fetch"
    assert (found["readWithAll"], found["writeWithAll"]) == (unreadable, unreadable)
    assert found["form"] == "sent"
    assert found["socket"] == "closed"
    assert found["frame"] == "closed to this page"
    assert found["module"].startswith("TypeError")
    assert found["tabs"] == "Error: nothing came"
    assert found["opened"].startswith("SecurityError")
    assert node.call("GET", "/project?size=-1").json["total"] == before
    seen.page.get_by_role("heading", name="Projects", level=1).wait_for()
    assert seen.page.evaluate("sessionStorage.length") == 1


def test_a_name_that_leads_to_the_node_later_gets_nothing_by_the_session_of_the_dashboard(
    node: RunningNode, browser: Any
) -> None:
    before = node.call("GET", "/project?size=-1").json["total"]
    errors = ["status of 4", "WebSocket"]
    seen = Visit(browser, f"http://localhost:{node.dashboard_port}", expected=errors)
    seen.page.goto(f"{seen.address}/signin")
    seen.page.evaluate("(kept) => sessionStorage['fieldbrook.session'] = kept", session_of(node))
    seen.page.goto(f"{seen.address}/projects")
    seen.page.get_by_role("heading", name="Projects", level=1).wait_for()
    hostile = seen.open()
    address = f"http://{REBOUND}:{node.dashboard_port}"
    seen.allowed.append(address)
    # The server of that name answers once, and then the name leads to the node.
    game = {"body": "<!doctype html><title>a game</title>", "content_type": "text/html"}
    hostile.route(f"{address}/", lambda route: route.fulfill(**game), times=1)
    hostile.goto(address)
    script = (JS / "rebound.js").read_text()
    found = hostile.evaluate(script.replace("MODULE", f"{prefix_of(ask(node, '/'))}app.js"))
    seen.close()
    told = "the dashboard has another name"
    assert {what: (found[what][0], told in found[what][1]) for what in ("page", "file")} == {
        "page": (421, True),
        "file": (421, True),
    }
    assert [found[what][0] for what in ("projects", "created", "metrics")] == [401, 401, 401]
    assert found["socket"] == "closed"
    assert (found["kept"], found["cookies"], found["tabs"]) == (0, "", "nothing came")
    assert node.call("GET", "/project?size=-1").json["total"] == before
