"""The page of hosts, in a cluster of three real hosts; a node without a cluster has no such
page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import Open
from tests.dashboard.test_accessibility import LEAST, LOADED, THEMES, zoomed
from tests.support.applets import TALLY
from tests.support.hosts import Cluster, Host
from tests.support.nodes import RunningNode, message, until

pytestmark = pytest.mark.timeout(600)
JS = Path(__file__).parent / "js"
PAGE = "/node/hosts"


def test_a_node_that_is_alone_has_no_page_of_hosts(node: RunningNode, signed_in: Open) -> None:
    page = signed_in(node, "/node/health").page
    page.get_by_role("link", name="Health", exact=True).wait_for()
    assert page.get_by_role("link", name="Hosts", exact=True).count() == 0
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("hosts")
    page.get_by_text("Nothing found").wait_for()


class Site:
    """A cluster with a project."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder, self._prepare)
        self.first = self.cluster.hosts[0]
        self.owner = self.cluster.owner(self.project)

    def _prepare(self, host: Host) -> None:
        self.project: Any = host.create_project("room")
        host.deploy("room", TALLY)
        publisher = host.add_publisher("room", "sensor")
        assert host.send("room", message(publisher)).status == 201


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("hosts"))
    yield made
    made.cluster.stop()


def cells(page: Any, host: str) -> list[str]:
    """Return the cells of a host on the page."""
    row = page.get_by_role("region", name="Hosts").get_by_role("row").filter(has_text=host)
    return [str(text) for text in row.get_by_role("cell").all_inner_texts()]


@pytest.mark.thorough
def test_the_page_tells_what_each_host_does_and_who_owns_what(site: Site, signed_in: Open) -> None:
    page = signed_in(site.first, "/").page
    page.get_by_role("link", name="Hosts", exact=True).click()
    page.get_by_text("One host may be lost").wait_for()
    page.get_by_text("1 to spare").wait_for()
    until(lambda: cells(page, "h2")[8] == "ok", "the clocks are compared")
    for name in ("h1", "h2", "h3"):
        shown = cells(page, name)
        assert ("this host" in shown[0]) is (name == "h1")
        assert shown[1] == "up"
        assert shown[4].startswith("1" if name == site.owner.name else "0")
        assert re.fullmatch(r"\d+ of \d+", shown[5])
    owners = page.get_by_role("region", name="Projects and their owners")
    row = owners.get_by_role("row").filter(has_text="room")
    assert row.get_by_role("cell").last.inner_text() == site.owner.name
    other = site.cluster.others(site.owner)[0]
    page.get_by_label("Host", exact=True).select_option(other.name)
    page.wait_for_url(f"**{PAGE}?host={other.name}")
    row.wait_for(state="detached")
    page.get_by_label("Host", exact=True).select_option("All hosts")
    row.get_by_role("link", name="room").click()
    page.get_by_role("heading", name="room").wait_for()


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", THEMES)
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_has_no_findings_and_fits_the_screen(
    site: Site, signed_in: Open, axe: str, width: int, scheme: str
) -> None:
    seen = signed_in(site.first, PAGE, width=width, scheme=scheme, reduced_motion="reduce")
    page = seen.page
    page.get_by_text("to spare").wait_for()
    page.wait_for_function(LOADED)
    page.evaluate(axe)
    problems = page.evaluate((JS / "findings.js").read_text(), THEMES[scheme])
    problems += page.evaluate((JS / "targets.js").read_text(), LEAST[width])
    problems += page.evaluate((JS / "wider.js").read_text(), width)
    problems += zoomed(page, width)
    assert problems == []


@pytest.mark.thorough
def test_a_host_that_dies_is_shown_as_silent_with_what_that_means(
    site: Site, signed_in: Open
) -> None:
    page = signed_in(site.first, PAGE, expected=["503"]).page
    page.get_by_text("1 to spare").wait_for()
    site.cluster.hosts[2].kill()
    page.get_by_text("Host h3 is silent. When one more host is lost").wait_for()
    page.get_by_text("0 to spare").wait_for()
    until(lambda: cells(page, "h3")[1] == "silent", "the row says it")
    until(lambda: cells(page, "h3")[3].endswith(" s"), "and for how long")
    site.cluster.hosts[2].start(ready=False)
    page.get_by_text("1 to spare").wait_for()
