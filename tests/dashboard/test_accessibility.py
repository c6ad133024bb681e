"""Every page, light and dark, wide and narrow: no finding of axe, no sideways scrolling."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dashboard.conftest import Open
from tests.dashboard.project import Project
from tests.support.nodes import RunningNode
from tests.support.tools import npm_installed

pytestmark = pytest.mark.timeout(600)
JS = Path(__file__).parent / "js"
_GO = """(path) => {
  history.pushState(null, '', path);
  dispatchEvent(new Event('popstate'));
  return new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
}"""
_LOADED = "() => document.querySelector('#main h1') && !document.querySelector('.waiting')"


@pytest.fixture(scope="module")
def axe() -> str:
    return (npm_installed(JS) / "axe-core" / "axe.min.js").read_text()


@pytest.fixture(scope="module")
def project(node: RunningNode) -> Project:
    made = Project(node)
    made.send(b"ck", event_id="an-event-for-the-pages")
    made.send(b"t")
    return made


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_have_no_findings_and_fit_the_screen(
    node: RunningNode, project: Project, signed_in: Open, axe: str, width: int, scheme: str
) -> None:
    seen = signed_in(node, project.path, width=width, scheme=scheme, reduced_motion="reduce")
    page = seen.page
    links = "nav a[href^='/']:not([target])"
    page.locator(".tabs a").first.wait_for()
    addresses = page.eval_on_selector_all(
        links, "(all) => [...new Set(all.map((link) => link.getAttribute('href')))]"
    )
    own = [each for each in addresses if each.split("/")[1] != "projects" or project.path in each]
    assert len(own) > 15, own
    found = {}
    page.evaluate(axe)
    for path in [*own, "/projects", f"{project.path}/events/an-event-for-the-pages"]:
        page.evaluate(_GO, path)
        page.wait_for_function(_LOADED)
        problems = page.evaluate((JS / "findings.js").read_text())
        if page.evaluate("document.documentElement.scrollWidth") > width:
            problems.append("wider than the screen")
        if problems:
            found[path] = problems
    assert found == {}


def test_everything_is_reached_by_keyboard(
    node: RunningNode, project: Project, signed_in: Open
) -> None:
    page = signed_in(node, "/").page
    page.keyboard.press("Tab")
    page.get_by_role("link", name="Skip to the page").wait_for()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Search").wait_for()
    page.keyboard.type(f"{project.name} dead")
    page.get_by_role("option", name=f"{project.name} · Dead letters").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{project.path}/letters")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Search").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("combobox", name="Search").wait_for(state="detached")
