"""Every page, light and dark, wide and narrow, and in the colours of the system: no finding of axe,
no horizontal scrolling, and controls that are large enough and distinguishable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import Open
from tests.dashboard.project import Project
from tests.support.nodes import RunningNode

pytestmark = pytest.mark.timeout(600)
JS = Path(__file__).parent / "js"
ZOOMED = {1280: 640, 390: 320}
"""The width that is left at a zoom of 200 %, and the narrowest one (WCAG 2.2, 1.4.4 and 1.4.10)."""
LEAST = {1280: 24, 390: 40}
"""How high controls are, in pixels: WCAG 2.2 (2.5.8) wants 24, and fingers on phones want more."""
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


def zoomed(page: Any, width: int) -> list[str]:
    """Return the elements that overflow the window, or cannot be scrolled to, when a page is
    enlarged."""
    narrow, low = ZOOMED[width], 450
    page.set_viewport_size({"width": narrow, "height": low})
    page.evaluate(_DRAWN)
    found: list[str] = page.evaluate((JS / "wider.js").read_text(), narrow)
    dialog = page.locator("dialog[open]")
    box = dialog.last.bounding_box() if dialog.count() else None
    if box and box["y"] + box["height"] > low + 0.5:
        found.append(f"a dialog is {box['height']} px high where there are {low}")
    page.set_viewport_size({"width": width, "height": 900})
    return found


@pytest.fixture(scope="module")
def project(node: RunningNode) -> Project:
    made = Project(node)
    made.send(b"ck", event_id="an-event-for-the-pages")
    made.send(b"t")
    return made


@pytest.mark.parametrize("scheme", THEMES)
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.thorough("1280", "390-light")
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
        if scheme == "light":
            problems += page.evaluate((JS / "targets.js").read_text(), LEAST[width])
            problems += page.evaluate((JS / "wider.js").read_text(), width)
            problems += zoomed(page, width)
            page.emulate_media(forced_colors="active")
            problems += page.evaluate((JS / "states.js").read_text())
            page.emulate_media(forced_colors="none")
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
