"""The site as a node serves it, over http and https, and in a browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.site import ROOT
from tests.support.nodes import Answer, RunningNode
from tests.support.tls import TlsNode

pytestmark = pytest.mark.timeout(400)


def package_with(folder: Path, site: Path | None) -> dict[str, str]:
    """The environment of a node whose package holds this site: links to all its other files."""
    package = folder / "fieldbrook"
    package.mkdir(parents=True)
    for path in (ROOT / "fieldbrook").iterdir():
        if path.name != "site" and not path.name.startswith("."):
            (package / path.name).symlink_to(path)
    if site is not None:
        (package / "site").symlink_to(site)
    # Safe: else `python -m` finds the package of the current folder first.
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}


class DocumentedNode(RunningNode):
    """A node with the built site."""

    def __init__(self, folder: Path, site: Path | None, *flags: str) -> None:
        self.environment = package_with(folder / "package", site)
        super().__init__(folder / "data", *flags)


class DocumentedTlsNode(TlsNode):
    """A node with the built site, over https."""

    def __init__(self, folder: Path, site: Path) -> None:
        self.environment = package_with(folder / "package", site)
        super().__init__(folder)


@pytest.fixture(scope="module")
def node(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DocumentedNode]:
    running = DocumentedNode(tmp_path_factory.mktemp("served"), site)
    yield running
    running.stop()


def ask(
    node: RunningNode,
    path: str,
    method: str = "GET",
    *,
    port: int | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """Send one request to the dashboard port, with its path unchanged."""
    connection = node.connection(port or node.dashboard_port)
    try:
        sent = headers or {}
        connection.putrequest(method, path, skip_host="Host" in sent, skip_accept_encoding=True)
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.endheaders()
        reply = connection.getresponse()
        return Answer(reply.status, dict(reply.getheaders()), reply.read())
    finally:
        connection.close()


def test_the_start_page_is_served_with_a_policy_that_lets_nothing_else_in(
    node: DocumentedNode, site: Path
) -> None:
    answer = ask(node, "/docs/")
    assert answer.status == 200, answer
    assert answer.body == (site / "index.html").read_bytes()
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self' 'sha256-")
    assert "unsafe-inline" not in policy.partition("style-src")[0]


def test_every_file_of_the_site_is_served_with_its_type(node: DocumentedNode, site: Path) -> None:
    kinds = {}
    for path in sorted(site.rglob("*")):
        if path.is_dir() or path.name == "manifest.json":
            continue
        answer = ask(node, f"/docs/{path.relative_to(site).as_posix()}")
        assert answer.status == 200, path
        assert answer.body == path.read_bytes()
        kinds[path.suffix] = answer.headers["Content-Type"].partition(";")[0]
    assert "application/octet-stream" not in kinds.values(), kinds
    assert kinds[".js"] == "text/javascript"
    assert kinds[".css"] == "text/css"
    assert kinds[".json"] == "application/json"


def test_a_browser_that_has_the_file_gets_no_second_copy(node: DocumentedNode) -> None:
    first = ask(node, "/docs/search.json")
    assert first.headers["Cache-Control"] == "no-cache"
    again = ask(node, "/docs/search.json", headers={"If-None-Match": first.headers["Etag"]})
    assert (again.status, again.body) == (304, b"")
    other = ask(node, "/docs/search.json", headers={"If-None-Match": '"another"'})
    assert other.status == 200
    head = ask(node, "/docs/search.json", "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == str(len(first.body))


def test_a_folder_without_its_slash_leads_to_the_page(node: DocumentedNode) -> None:
    assert ask(node, "/docs").headers["Location"] == "/docs/"
    answer = ask(node, "/docs/how-to/tls?h=certificate")
    assert answer.status == 301
    assert answer.headers["Location"] == "/docs/how-to/tls/?h=certificate"


@pytest.mark.parametrize(
    "path",
    [
        "/docs/nowhere/",
        "/docs/manifest.json",
        "/docs/../setup.cfg",
        "/docs/%2e%2e/setup.cfg",
        "/docs/..%2f..%2fsetup.cfg",
        "/docs/%2e%2e%2f__init__.py",
        "/docs//etc/passwd",
        "/docs/%2fetc/passwd",
        "/docs/./index.html",
        "/docs/index.html%00.png",
        "/docs/..\\__init__.py",
        "/docs/assets/",
        "/docs/%ff",
    ],
)
def test_a_path_that_is_no_file_of_the_site_is_not_found(node: DocumentedNode, path: str) -> None:
    answer = ask(node, path)
    assert answer.status in (400, 404), answer
    assert b"python_requires" not in answer.body
    assert b"root:" not in answer.body
    assert "fieldbrook.__version__" not in answer.body.decode()


def test_an_unknown_page_is_answered_with_a_page_that_has_the_navigation(
    node: DocumentedNode,
) -> None:
    answer = ask(node, "/docs/nowhere/")
    assert answer.status == 404
    assert b'href="/docs/' in answer.body
    assert "Etag" not in answer.headers


def test_the_site_can_only_be_read(node: DocumentedNode) -> None:
    for method in ("POST", "PUT", "DELETE"):
        answer = ask(node, "/docs/", method, headers={"Content-Length": "0"})
        assert answer.status == 405
        assert answer.headers["Allow"] == "GET, HEAD"


def test_the_event_port_has_no_documentation_and_the_dashboard_port_all_other_routes(
    node: DocumentedNode,
) -> None:
    assert ask(node, "/docs/", port=node.http_port).status == 404
    for path in ("/liveness", "/version", "/srv-applet-mgr", "/srv-applet-mgr/docs", "/docsx"):
        here, there = ask(node, path), ask(node, path, port=node.http_port)
        assert (here.status, here.body) == (there.status, there.body), path
    node.log_in()
    assert node.call("GET", "/project", port=node.dashboard_port).status == 200
    assert node.call("POST", "/project", {"name": "room"}, port=node.dashboard_port).status == 201


def test_an_absolute_target_reaches_the_site(node: DocumentedNode) -> None:
    assert ask(node, f"http://127.0.0.1:{node.dashboard_port}/docs/").status == 200


@pytest.mark.thorough
def test_the_site_is_served_over_https(site: Path, tmp_path: Path) -> None:
    node = DocumentedTlsNode(tmp_path, site)
    try:
        answer = ask(node, "/docs/how-to/tls/")
        assert answer.status == 200, answer
        assert answer.body == (site / "how-to" / "tls" / "index.html").read_bytes()
        assert "Strict-Transport-Security" not in answer.headers
        real = ask(node, "/docs/", headers={"Host": "node.example.com"})
        assert "Strict-Transport-Security" in real.headers
    finally:
        node.stop()


@pytest.mark.thorough
def test_a_node_without_the_site_says_how_to_build_it(tmp_path: Path) -> None:
    node = DocumentedNode(tmp_path, None)
    try:
        for path in ("/docs", "/docs/", "/docs/how-to/"):
            answer = ask(node, path)
            assert answer.status == 404
            assert b"scripts/docs" in answer.body
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert ask(node, "/version").status == 200
    finally:
        node.stop()
