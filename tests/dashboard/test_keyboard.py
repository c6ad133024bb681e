"""Everything can be done with the keyboard, and the focus is visible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import Open
from tests.dashboard.project import Project
from tests.dashboard.test_accessibility import GO, LOADED
from tests.dashboard.test_applets import EXAMPLE
from tests.support.nodes import RunningNode

pytestmark = pytest.mark.timeout(600)
WATCH = (Path(__file__).parent / "js" / "keyboard.js").read_text()
TABS = (
    *("flow", "events", "logs", "letters", "data", "applets", "publishers", "triggers"),
    *("transactions", "console", "settings"),
)
NODE = ("health", "chains", "accounts", "keys", "audit", "refused", "settings", "log")
MORE = 12  # more steps than stops, because pages change meanwhile


@pytest.fixture(scope="module")
def project(node: RunningNode) -> Project:
    made = Project(node)
    made.send(b"ck", event_id="an-event-for-the-keyboard")
    made.send(b"t")
    return made


@pytest.fixture
def page(node: RunningNode, project: Project, signed_in: Open) -> Any:
    """The overview, with a record of what the keyboard reaches."""
    seen = signed_in(node, "/setup", reduced_motion="reduce", watch=WATCH)
    return seen.page


def open_page(page: Any, path: str) -> None:
    page.evaluate(GO, path)
    page.wait_for_function(LOADED)
    page.evaluate("document.getElementById('main').focus()")


def walk(page: Any, root: str = "#main", more: int = MORE) -> list[str]:
    """Go through all stops of a part of the page with Tab; return the defects."""
    page.evaluate("keyboard.begin()")
    for _ in range(page.evaluate("(root) => keyboard.count(root)", root) + more):
        page.keyboard.press("Tab")
    return page.evaluate("keyboard.problems()")  # type: ignore[no-any-return]


@pytest.mark.thorough
def test_tab_reaches_everything_on_every_page_and_shows_where_it_is(
    page: Any, project: Project
) -> None:
    paths = [
        *("/", "/projects", *(f"/node/{name}" for name in NODE)),
        *(f"{project.path}/{tab}" for tab in TABS),
        f"{project.path}/events/an-event-for-the-keyboard",
    ]
    found = {}
    for path in paths:
        open_page(page, path)
        if problems := walk(page):
            found[path] = problems
    assert found == {}


@pytest.mark.thorough
def test_the_focus_is_visible_in_colours_of_the_system(page: Any, project: Project) -> None:
    page.emulate_media(forced_colors="active")
    found = {}
    for path in ("/", "/node/keys", *(f"{project.path}/{tab}" for tab in ("flow", "events"))):
        open_page(page, path)
        if problems := walk(page):
            found[path] = problems
    assert found == {}


def dialogs(project: Project) -> list[tuple[str, tuple[str, ...]]]:
    """The buttons that open dialogs, by page."""
    own = project.path
    return [
        ("/projects", ("New project", "Import")),
        (f"{own}/letters", ("Discard all",)),
        (f"{own}/data", ("Add a key", "k", "Edit the schema")),
        (
            f"{own}/applets",
            (
                *("Use the counter example", "Edit meter", "Delete meter", "Add strategy"),
                *("Edit the strategy of START", "Delete the strategy of START?"),
            ),
        ),
        (
            f"{own}/publishers",
            (
                *("Add publisher", "Connect sensor-1", "Edit sensor-1", "New token for sensor-1"),
                *("Delete sensor-1?", "Add limit"),
            ),
        ),
        (f"{own}/triggers", ("Add cron job", "Add ABI")),
        (f"{own}/settings", ("Delete project",)),
        ("/node/chains", ("Import a key", "Generate a key", "Delete operator default")),
        ("/node/accounts", ("New account",)),
        ("/node/keys", ("New key", "Change password", "Sign out everywhere")),
    ]


@pytest.mark.thorough
def test_dialogs_keep_the_focus_until_escape_gives_it_back(page: Any, project: Project) -> None:
    found = {}
    for path, names in dialogs(project):
        open_page(page, path)
        for name in names:
            opener = page.locator("#main").get_by_role("button", name=name, exact=True)
            opener.focus()
            page.keyboard.press("Enter")
            dialog = page.locator("dialog[open]")
            dialog.wait_for()
            page.wait_for_function("() => !document.querySelector('dialog .waiting')")
            problems = walk(page, "dialog[open]", more=2)
            page.keyboard.press("Escape")
            dialog.wait_for(state="detached")
            if not opener.evaluate("(button) => button === document.activeElement"):
                problems.append("the focus does not return")
            if problems:
                found[path, name] = problems
    assert found == {}


def focus(page: Any, role: str, name: str, limit: int = 80) -> None:
    """Press Tab until an element has the focus."""
    wanted = page.get_by_role(role, name=name, exact=True)
    for _ in range(limit):
        if wanted.evaluate_all("([first]) => first && first === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"no {role} {name!r} within {limit} steps")


def test_a_project_is_made_deployed_and_used_without_a_pointer(
    node: RunningNode, visit: Open
) -> None:
    page = visit(node, "/projects", expected=["status of 401"], watch=WATCH).page
    counter = {"name": "counter.wat", "mimeType": "", "buffer": EXAMPLE}
    page.on("filechooser", lambda chooser: chooser.set_files(counter))
    page.get_by_role("textbox", name="Username").wait_for()
    assert walk(page, "#app") == []
    focus(page, "textbox", "Username")
    page.keyboard.type("admin")
    focus(page, "textbox", "Password")
    page.keyboard.type("correct horse\n")
    page.get_by_role("heading", name="Projects", level=1).wait_for()

    focus(page, "button", "New project")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement.name === 'name'")
    page.keyboard.type("by_hand\n")
    page.wait_for_url("**/projects/by_hand/applets")

    page.get_by_role("button", name="Choose a file").wait_for()
    focus(page, "button", "Choose a file")
    page.keyboard.press("Enter")
    page.get_by_text("This node can run it").wait_for()
    focus(page, "button", "Deploy")
    page.keyboard.press("Space")
    page.get_by_role("region", name="counter", exact=True).wait_for()

    focus(page, "link", "Console")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Add the publisher “console”").wait_for()
    focus(page, "button", "Add the publisher “console”")
    page.keyboard.press("Enter")
    page.get_by_role("textbox", name="Payload").wait_for()
    focus(page, "textbox", "Payload")
    page.keyboard.press("Control+Enter")
    page.get_by_text("Committed and answered").wait_for()


@pytest.mark.thorough
def test_events_are_opened_and_left_without_a_pointer(page: Any, project: Project) -> None:
    open_page(page, f"{project.path}/events")
    rows = page.get_by_role("table", name="Events, the newest first").locator(".row")
    rows.nth(1).wait_for()
    opener = rows.first.get_by_role("button")
    focus(page, "button", opener.get_attribute("aria-label") or "")
    page.keyboard.press("Enter")
    story = page.get_by_role("dialog", name="Event")
    story.get_by_text("Committed and answered").wait_for()
    first = page.url
    page.keyboard.press("j")
    page.wait_for_function("(before) => location.href !== before", arg=first)
    page.keyboard.press("k")
    page.wait_for_function("(before) => location.href === before", arg=first)
    page.keyboard.press("Escape")
    story.wait_for(state="detached")
    page.keyboard.press("p")
    page.get_by_role("button", name="Go on").wait_for()
    page.keyboard.press("p")
    page.get_by_role("button", name="Pause").wait_for()
    assert opener.evaluate("(button) => button === document.activeElement")

    menu = page.locator("details.menu")
    menu.locator("summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.type") == "datetime-local"
    page.keyboard.press("Escape")
    page.wait_for_function("() => !document.querySelector('details.menu').open")
    assert page.evaluate("document.activeElement.localName") == "summary"


def test_a_link_skips_the_navigation_and_the_search_opens_pages(
    node: RunningNode, project: Project, signed_in: Open
) -> None:
    page = signed_in(node, "/").page
    page.keyboard.press("Tab")
    page.get_by_role("link", name="Skip to the page").wait_for()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Search").wait_for()
    page.keyboard.type(project.name)
    options = page.get_by_role("option")
    options.nth(1).wait_for()
    for key, chosen in (("ArrowDown", 1), ("ArrowUp", 0)):
        page.keyboard.press(key)
        page.locator(f"[role=combobox][aria-activedescendant=found-{chosen}]").wait_for()
    page.keyboard.type(" dead")
    page.get_by_role("option", name=f"{project.name} · Dead letters").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{project.path}/letters")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Search").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("combobox", name="Search").wait_for(state="detached")
