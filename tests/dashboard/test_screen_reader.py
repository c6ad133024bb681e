"""What assistive programs get: dialogs and sign-in without findings of axe, names and levels in the
accessibility tree, and announced changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import Open, session_of
from tests.dashboard.project import Project
from tests.dashboard.test_accessibility import GO, LOADED, THEMES, zoomed
from tests.dashboard.test_keyboard import NODE, TABS, dialogs
from tests.support.browser import Visit
from tests.support.nodes import RunningNode, StartNode

pytestmark = pytest.mark.timeout(600)
FINDINGS = (Path(__file__).parent / "js" / "findings.js").read_text()
WIDTHS = pytest.mark.parametrize("width", [390, 1280])
CONTROLS = {
    *("button", "link", "textbox", "searchbox", "combobox", "checkbox", "radio", "spinbutton"),
    *("option", "dialog", "table", "region", "navigation", "img", "listbox"),
}


@pytest.fixture(scope="module")
def project(node: RunningNode) -> Project:
    made = Project(node)
    made.send(b"ck", event_id="an-event-to-be-read")
    made.send(b"t")
    return made


def findings(page: Any) -> list[str]:
    """Return the findings of axe in both themes, which differ only in their colours."""
    found = []
    for scheme, rules in THEMES.items():
        page.emulate_media(color_scheme=scheme)
        found += [f"{scheme}: {each}" for each in page.evaluate(FINDINGS, rules)]
    return found


@WIDTHS
@pytest.mark.thorough
def test_dialogs_panels_and_the_search_have_no_findings(
    project: Project, signed_in: Open, axe: str, width: int
) -> None:
    page = signed_in(project.node, "/", width=width, reduced_motion="reduce").page
    page.evaluate(axe)
    found: dict[str, list[str]] = {}
    for path, names in dialogs(project):
        page.evaluate(GO, path)
        page.wait_for_function(LOADED)
        for name in names:
            page.locator("#main").get_by_role("button", name=name, exact=True).click()
            page.locator("dialog[open]").wait_for()
            page.wait_for_function("() => !document.querySelector('dialog .waiting')")
            found[f"{path}: {name}"] = findings(page) + zoomed(page, width)
            page.keyboard.press("Escape")
            page.locator("dialog[open]").wait_for(state="detached")
    (row,) = project.node.call("GET", f"/event_log/{project.name}?type=START&limit=1").json["data"]
    page.evaluate(GO, f"{project.path}/events?event={row['place']}")
    page.get_by_role("dialog", name="Event").get_by_text("Committed and answered").wait_for()
    found["an event's panel"] = findings(page) + zoomed(page, width)
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Search").fill(project.name)
    page.locator("#found [role=option]").first.wait_for()
    found["search"] = findings(page) + zoomed(page, width)
    assert {what: problems for what, problems in found.items() if problems} == {}


@WIDTHS
@pytest.mark.thorough
def test_signing_in_has_no_findings(
    node: RunningNode, start_node: StartNode, visit: Open, browser: Any, axe: str, width: int
) -> None:
    form = visit(node, "/signin", width=width).page
    first = visit(start_node(logged_in=False), "/setup", width=width).page
    ended = Visit(
        browser,
        f"http://localhost:{node.dashboard_port}",
        width=width,
        expected=["status of 401"],
    )
    session = json.dumps(json.dumps({**json.loads(session_of(node)), "token": "ended"}))
    ended.context.add_init_script(f"sessionStorage['fieldbrook.session'] = {session}")
    ended.page.goto(ended.address)
    ended.page.get_by_role("dialog", name="Your login has ended").wait_for()
    found = {}
    for what, page in {"sign-in": form, "setup": first, "again": ended.page}.items():
        page.get_by_label("Password").wait_for()
        page.evaluate(axe)
        found[what] = findings(page) + zoomed(page, width)
    ended.close()
    assert found == {"sign-in": [], "setup": [], "again": []}


# ---------------------------------------------------------------- the accessibility tree


def tree(visit: Visit) -> list[dict[str, Any]]:
    """Return what assistive programs see of a page, from its top on: role, name and properties."""
    session = visit.context.new_cdp_session(visit.page)
    nodes = {one["nodeId"]: one for one in session.send("Accessibility.getFullAXTree")["nodes"]}
    session.detach()
    waiting, found = [next(iter(nodes))], []
    while waiting:
        one = nodes.get(waiting.pop())
        if one is None:
            continue
        waiting += reversed(one.get("childIds", ()))
        if not one["ignored"]:
            properties = {each["name"]: each["value"].get("value") for each in one["properties"]}
            name = str(one.get("name", {}).get("value", "")).strip()
            found.append({"role": one["role"]["value"], "name": name, **properties})
    return found


def problems_of(nodes: list[dict[str, Any]]) -> list[str]:
    """Return the defects of a page: missing names, unclear headings and landmarks."""
    found = [f"{one['role']} without a name" for one in nodes if is_nameless(one)]
    levels = [int(one["level"]) for one in nodes if one["role"] == "heading"]
    if levels.count(1) != 1:
        found.append(f"{levels.count(1)} headings of level 1")
    found += [
        f"a heading of level {level} behind one of level {before}"
        for before, level in zip([1, *levels], levels, strict=False)
        if level > before + 1
    ]
    if [one["role"] for one in nodes].count("main") != 1:
        found.append("not one main part")
    landmarks = [(one["role"], one["name"]) for one in nodes if one["role"] == "navigation"]
    return found + [f"twice: {one}" for one in set(landmarks) if landmarks.count(one) > 1]


def is_nameless(node: dict[str, Any]) -> bool:
    return node["role"] in CONTROLS and not node["name"]


def test_the_reader_of_the_tree_finds_what_lacks_a_name_or_skips_a_level() -> None:
    fine: list[dict[str, Any]] = [
        {"role": "main", "name": ""},
        {"role": "heading", "name": "A", "level": 1},
    ]
    assert problems_of(fine) == []
    wrong: list[dict[str, Any]] = [
        *({"role": "heading", "name": "B", "level": 3}, {"role": "button", "name": ""}),
        *({"role": "navigation", "name": "Main"}, {"role": "navigation", "name": "Main"}),
    ]
    assert problems_of([*fine, *wrong]) == [
        "button without a name",
        "a heading of level 3 behind one of level 1",
        "twice: ('navigation', 'Main')",
    ]


@pytest.mark.thorough
def test_every_page_has_names_one_title_and_levels_in_order(
    project: Project, signed_in: Open
) -> None:
    seen = signed_in(project.node, "/", reduced_motion="reduce")
    found, titles = {}, set()
    paths = [
        *("/", "/projects", *(f"/node/{name}" for name in NODE)),
        *(f"{project.path}/{tab}" for tab in TABS),
    ]
    for path in paths:
        seen.page.evaluate(GO, path)
        seen.page.wait_for_function(LOADED)
        titles.add(seen.page.title())
        if problems := problems_of(tree(seen)):
            found[path] = problems
    assert found == {}
    assert len(titles) == len(paths)


@pytest.mark.thorough
def test_the_live_list_is_a_table_that_announces_only_its_counts(
    project: Project, signed_in: Open
) -> None:
    seen = signed_in(project.node, f"{project.path}/events")
    table = seen.page.get_by_role("table", name="Events, the newest first")
    table.get_by_role("row").nth(2).wait_for()
    assert int(table.get_attribute("aria-rowcount") or 0) >= 3
    headings = table.get_by_role("columnheader").all_inner_texts()
    assert headings[:3] == ["Time", "Type", "Publisher"]
    live = "(one) => !!one.closest('[aria-live], [role=status], [role=log], [role=alert], output')"
    assert not table.evaluate(live)
    project.send()
    seen.page.get_by_role("status").filter(has_text="1 more, 0 failed").wait_for()


def test_messages_and_errors_appear_in_parts_that_are_announced(
    project: Project, signed_in: Open
) -> None:
    seen = signed_in(
        project.node, f"{project.path}/settings", expected=["ERR_INTERNET", "status of 409"]
    )
    page = seen.page
    page.get_by_role("textbox", name="Description").wait_for()
    live = [one for one in tree(seen) if one.get("live") == "polite"]
    assert live, "the region is there before its first message, or it is not read out"
    page.get_by_role("button", name="Save", exact=True).first.click()
    page.get_by_role("status").filter(has_text="Saved").wait_for()

    page.evaluate(GO, f"{project.path}/publishers?new=1")
    form = page.get_by_role("dialog", name="Add publisher")
    form.locator("input[name=key][aria-describedby]").wait_for()
    key = form.get_by_role("textbox", name="Key", exact=True)
    hint = key.get_attribute("aria-describedby")
    assert "serial number" in page.locator(f"#{hint}").inner_text()
    key.fill("sensor-1")
    form.get_by_role("button", name="Add publisher").click()
    form.get_by_role("alert").filter(has_text="Publisher Conflict").wait_for()

    seen.context.set_offline(True)
    page.get_by_role("alert").filter(has_text="The node does not answer").wait_for()
    seen.context.set_offline(False)


def test_a_page_that_opens_has_the_focus(project: Project, signed_in: Open) -> None:
    page = signed_in(project.node, "/").page
    page.get_by_role("navigation", name="Main").get_by_role("link", name="All projects").click()
    page.get_by_role("heading", name="Projects", level=1).wait_for()
    assert page.evaluate("document.activeElement.id") == "main"
