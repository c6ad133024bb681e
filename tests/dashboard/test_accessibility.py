"""Every page, light and dark, wide and narrow: no finding of axe, no sideways scrolling."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dashboard.conftest import Open
from tests.dashboard.project import Project
from tests.support.nodes import RunningNode

pytestmark = pytest.mark.timeout(600)
JS = Path(__file__).parent / "js"
ZOOMED = {1280: 640, 390: 320}
"""The width that is left at a zoom of 200 %, and the narrowest one (WCAG 2.2, 1.4.4 and 1.4.10)."""
THEMES = {"light": None, "dark": ["color-contrast"]}
"""The rules of axe to check in each theme; None: all of them."""
_DRAWN = "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
GO = f"""(path) => {{
  history.pushState(null, '', path);
  dispatchEvent(new Event('popstate'));
  return {_DRAWN};
}}"""
_BACKGROUND = "(one) => getComputedStyle(one).backgroundColor"
LOADED = "() => document.querySelector('#main h1') && !document.querySelector('.waiting')"


@pytest.fixture(scope="module")
def project(node: RunningNode) -> Project:
    made = Project(node)
    made.send(b"ck", event_id="an-event-for-the-pages")
    made.send(b"t")
    return made


@pytest.mark.parametrize("scheme", THEMES)
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.thorough("1280-dark", "390-light")
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
        page.evaluate(GO, path)
        page.wait_for_function(LOADED)
        problems = page.evaluate((JS / "findings.js").read_text(), THEMES[scheme])
        for narrow in (width, ZOOMED[width]) if scheme == "light" else ():
            page.set_viewport_size({"width": narrow, "height": 900})
            page.evaluate(_DRAWN)
            problems += page.evaluate((JS / "wider.js").read_text(), narrow)
        page.set_viewport_size({"width": width, "height": 900})
        if problems:
            found[path] = problems
    assert found == {}


def test_colours_of_the_system_leave_charts_marks_and_choices_visible(
    node: RunningNode, signed_in: Open
) -> None:
    page = signed_in(node, "/", forced_colors="active").page
    page.locator(".chart canvas").nth(3).wait_for()
    card = page.locator(".chart").first.evaluate(_BACKGROUND)
    swatches = page.locator(".legend i").evaluate_all(f"(all) => all.map({_BACKGROUND})")
    assert card not in swatches
    assert len(set(swatches)) > 3
    chosen = page.get_by_role("button", pressed=True).evaluate(_BACKGROUND)
    assert chosen != page.get_by_role("button", pressed=False).first.evaluate(_BACKGROUND)
    page.wait_for_function((JS / "colours.js").read_text())


@pytest.mark.thorough
def test_nothing_moves_for_those_who_do_not_want_it(
    node: RunningNode, project: Project, signed_in: Open
) -> None:
    for _ in range(20):
        project.send()
    page = signed_in(node, f"{project.path}/flow").page
    page.locator(".dot").first.wait_for(state="attached")
    page.wait_for_function("() => document.getAnimations().length > 0")
    page.emulate_media(reduced_motion="reduce")
    page.wait_for_function("() => document.getAnimations().length === 0")
