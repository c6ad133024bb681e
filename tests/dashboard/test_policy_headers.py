"""The answers of the dashboard port for pages and their files, without a browser."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re

import pytest

from tests.support.nodes import Answer, RunningNode

PAGES = ("/", "/setup", "/signin", "/projects", "/projects/room/events?failed=1", "/node/health")


def ask(
    node: RunningNode, path: str, method: str = "GET", port: int | None = None, **headers: str
) -> Answer:
    """Send one request to the dashboard port, with its path unchanged."""
    connection = node.connection(port or node.dashboard_port)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        reply = connection.getresponse()
        return Answer(reply.status, dict(reply.getheaders()), reply.read())
    finally:
        connection.close()


def prefix_of(page: Answer) -> str:
    """Return the path prefix of a page's files."""
    match = re.search(rb'"(/ui/[0-9a-f]{12}/)app\.js"', page.body)
    assert match is not None, page
    return match[1].decode()


def digests_in(page: Answer, tag: str) -> str:
    """The digests of all elements of a kind that have content, as a policy has them."""
    found = re.findall(f"<{tag}>(.*?)</{tag}>".encode(), page.body, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(content).digest()).decode() for content in found]
    return "".join(f" 'sha256-{digest}'" for digest in digests)


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_the_same_and_lets_no_foreign_script_in(node: RunningNode, path: str) -> None:
    page = ask(node, path)
    assert (page.status, page.body) == (200, ask(node, "/").body)
    headers = page.headers
    policy = headers["Content-Security-Policy"]
    scripts, sheets = digests_in(page, "script"), digests_in(page, "style")
    assert scripts
    assert sheets
    assert policy.startswith(
        f"default-src 'none'; script-src 'self'{scripts}; style-src 'self'{sheets}; img-src"
    )
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-cache"
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert "Set-Cookie" not in headers


def test_files_are_kept_for_a_year_and_sent_compressed_to_those_who_take_that(
    node: RunningNode,
) -> None:
    address = prefix_of(ask(node, "/")) + "app.js"
    plain, small = ask(node, address), ask(node, address, Accept_Encoding="br, gzip")
    assert plain.headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert "Content-Encoding" not in plain.headers
    assert small.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(small.body) == plain.body
    for answer in (plain, small):
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert answer.headers["Vary"] == "Accept-Encoding"
        assert "trusted-types 'none'" in answer.headers["Content-Security-Policy"]
    assert plain.headers["Etag"] != small.headers["Etag"]


@pytest.mark.parametrize("path", ["/", "app.js", "vendor/uplot.js", "vendor/LICENSES"])
def test_head_and_conditional_requests_are_answered_without_a_body(
    node: RunningNode, path: str
) -> None:
    address = path if path == "/" else prefix_of(ask(node, "/")) + path
    whole, head = ask(node, address), ask(node, address, "HEAD")
    assert whole.status == 200
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == str(len(whole.body))
    same = ask(node, address, If_None_Match=whole.headers["Etag"])
    assert (same.status, same.body) == (304, b"")
    assert ask(node, address, If_None_Match='"another"').status == 200


@pytest.mark.parametrize(
    "name",
    [
        "",
        "index.html",
        "api.d.ts",
        "vendor.toml",
        "vendor/preact.d.ts",
        "../../setup.cfg",
        "%2e%2e/%2e%2e/setup.cfg",
        "..%2f..%2fsetup.cfg",
        "vendor/",
        "app.js/",
        "app.js%00",
        "/app.js",
        "./app.js",
        "vendor\\preact.js",
        "%ff",
    ],
)
def test_nothing_but_the_listed_files_is_served(node: RunningNode, name: str) -> None:
    answer = ask(node, prefix_of(ask(node, "/")) + name)
    assert (answer.status, answer.body) == (404, b"404 page not found\n")
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/ui", "/ui/", "/ui/app.js", "/ui/000000000000/app.js"])
def test_files_have_no_address_but_that_of_their_bytes(node: RunningNode, path: str) -> None:
    assert ask(node, path).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_pages_are_read_only(node: RunningNode, method: str) -> None:
    for path in ("/", "/projects/room", prefix_of(ask(node, "/")) + "app.js"):
        answer = ask(node, path, method, Content_Length="0")
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


def test_the_event_port_has_no_pages(node: RunningNode) -> None:
    assert ask(node, "/", port=node.http_port).status == 204
    for path in ("/setup", "/projects", prefix_of(ask(node, "/")) + "app.js"):
        assert ask(node, path, port=node.http_port).status == 404
