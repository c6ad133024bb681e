"""The built site: every link has a target, and reading it needs no network."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from fieldbrook.observability.health import MEANINGS
from tests.docs.site import DOCS, Page, builder, read_page

FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2", re.MULTILINE | re.DOTALL)
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: read_page(path) for path in site.rglob("*.html")}


def target_of(site: Path, page: Path, link: str) -> tuple[Path, str]:
    """Return the file and the anchor to which a link of a page leads."""
    path, _, anchor = link.partition("#")
    if path.startswith("/docs/"):
        path = os.path.relpath(site / path.removeprefix("/docs/"), page.parent)
    target = Path(os.path.normpath(page.parent / unquote(path))) if path else page
    return (target / "index.html" if target.is_dir() else target), unquote(anchor)


def test_every_link_of_the_built_site_leads_to_a_page_and_to_a_heading_of_it(
    site: Path, pages: dict[Path, Page]
) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            target, anchor = target_of(site, path, link)
            found = target.is_file() and target.is_relative_to(site)
            if not found or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_health_states_settings_and_errors_have_ids_that_the_dashboard_links_to(
    pages: dict[Path, Page],
) -> None:
    ids = {
        path.parent.name: page.anchors for path, page in pages.items() if path.name == "index.html"
    }
    assert MEANINGS.keys() <= ids["monitor"]
    assert {"http_port", "disk_reserve_bytes"} <= ids["settings"]
    assert {"badRequest", "InvalidEventToken"} <= ids["errors"]


def test_a_page_loads_nothing_but_files_of_the_site(site: Path, pages: dict[Path, Page]) -> None:
    loaded = {(path, name) for path, page in pages.items() for name in page.resources}
    foreign = [
        f"{path.relative_to(site)}: {name}"
        for path, name in sorted(loaded)
        if not name.startswith("data:")
        and (re.match(r"[a-z]+:|//", name) or not target_of(site, path, name)[0].is_file())
    ]
    assert foreign == []


def test_the_style_sheets_load_nothing_from_elsewhere(site: Path) -> None:
    found = {
        (path.name, address)
        for path in site.rglob("*.css")
        for address in re.findall(
            r"url\(['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", path.read_text()
        )
        for address in address
        if address and not address.startswith(("data:", "#"))
    }
    assert found == set()


def test_a_picture_and_a_drawing_say_in_words_what_they_show(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text("utf-8")
        for image in re.findall(r"<img[^>]*>", text):
            assert re.search(r'alt="[^"]+"', image), (path, image)
        for figure in re.findall(r'<figure class="diagram".*?</figure>', text, re.DOTALL):
            assert re.search(r'<svg aria-label="[^"]+"', figure), path
            assert re.search(r"<figcaption>.+</figcaption>", figure), path


def test_the_manifest_lists_every_file_with_its_digest_and_every_inline_script(
    site: Path,
) -> None:
    manifest = json.loads((site / "manifest.json").read_text())
    files = {
        path.relative_to(site).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in site.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }
    assert manifest["files"] == files
    scripts = set()
    for path in site.rglob("*.html"):
        text = path.read_text("utf-8")
        assert not re.search(r"\son[a-z]+=\"", text), f"{path} has an inline event handler"
        scripts |= set(re.findall(r"<script>(.*?)</script>", text, re.DOTALL))
    assert manifest["scripts"] == sorted(map(builder().script_hash, scripts))


def test_the_search_knows_the_text_of_the_pages(site: Path) -> None:
    index = (site / "search.json").read_text("utf-8")
    for words in ("/srv-applet-mgr/v0", "FIELDBROOK_HTTP_PORT", "ws_send_mqtt_msg"):
        assert words in index


def test_every_page_is_reached_from_the_navigation() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", (DOCS / "site.yml").read_text()))
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert {name for name in written - listed if not name.startswith("decisions/")} == set()


def test_a_list_has_an_empty_line_before_it_so_that_every_renderer_shows_a_list() -> None:
    wrong = []
    for path in DOCS.rglob("*.md"):
        lines = FENCE.sub("", path.read_text()).splitlines()
        for before, line in itertools.pairwise(lines):
            first = re.match(r"([*-]|1\.) ", line)
            if first and before and not re.match(r"\s|[*-] |\d+\. |#", before):
                wrong.append(f"{path.relative_to(DOCS)}: {line[:60]}")
    assert wrong == []


def test_the_architecture_names_files_that_there_are() -> None:
    text = (DOCS / "explanation" / "architecture.md").read_text()
    named = set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", text))
    assert len(named) > 30
    assert [name for name in named if not (DOCS.parent / name).exists()] == []
