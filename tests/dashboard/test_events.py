"""The events of a project: the list with its filters, and the story of one event."""

from __future__ import annotations

import pytest

from tests.dashboard.conftest import Open
from tests.dashboard.project import Project
from tests.support.nodes import RunningNode, long_id

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def project(node: RunningNode) -> Project:
    made = Project(node, ("sensor-1", "sensor-2"))
    made.send(b"ck payload", event_id=long_id("counted"))
    made.send(b"t", event_id=long_id("trapped"), publisher="sensor-2")
    made.send(b"-", event_id=long_id("refused"), publisher="sensor-2")
    made.send(b"", "NOBODY", event_id=long_id("unhandled"))
    return made


@pytest.mark.thorough
def test_the_story_of_an_event_tells_what_happened_to_it(
    node: RunningNode, project: Project, signed_in: Open
) -> None:
    page = signed_in(node, f"{project.path}/events?publisher=sensor-1&type=START").page
    rows = page.get_by_role("table", name="Events, the newest first").locator(".row")
    rows.first.wait_for()
    assert rows.count() == 1
    rows.first.click()
    story = page.get_by_role("dialog", name="Event")
    steps = story.get_by_role("listitem")
    story.get_by_role("region", name="Payload").wait_for()
    story.get_by_text("Logged", exact=True).wait_for()
    text = " ".join(steps.all_inner_texts())
    told = ["Received over http from sensor-1", "ck payload", "Matched one strategy"]
    told += ["Ran meter.start", "returned 1", "Logged", "Committed and answered after"]
    places = [" ".join(text.split()).find(part) for part in told]
    assert -1 not in places, (text, told)
    assert places == sorted(places)

    shared = page.url
    page.goto(shared)
    story.get_by_text(long_id("counted"), exact=True).wait_for()
    page.keyboard.press("Escape")
    story.wait_for(state="detached")
    assert "event=" not in page.url

    page.goto(f"http://localhost:{node.dashboard_port}{project.path}/events/{long_id('counted')}")
    page.get_by_role("heading", name=long_id("counted")).wait_for()
    page.get_by_text("ck payload").first.wait_for()


def test_filters_are_in_the_address_and_find_what_failed(
    node: RunningNode, project: Project, signed_in: Open
) -> None:
    page = signed_in(node, f"{project.path}/events").page
    rows = page.get_by_role("table", name="Events, the newest first").locator(".row")
    rows.nth(2).wait_for()
    page.get_by_label("Outcome").select_option(label="Failed")
    page.wait_for_url("**outcome=failed")
    rows.filter(has_text="sensor-2").first.wait_for()
    rows.filter(has_text="sensor-1").first.wait_for(state="detached")
    assert "wasm trap" in rows.nth(1).inner_text()
    rows.first.get_by_text("returned -2", exact=True).wait_for()
    page.get_by_label("Outcome").select_option(label="No handler")
    rows.filter(has_text="NOBODY").wait_for()
    page.get_by_role("button", name="Clear filters").click()
    rows.nth(2).wait_for()
    page.get_by_label("Source").select_option(label="MQTT")
    page.get_by_text("No event matches").wait_for()
    page.get_by_role("button", name="Clear filters").click()
    rows.nth(2).wait_for()
    page.locator("details.menu summary").click()
    page.get_by_label("Until").fill("2020-01-01T00:00")
    page.wait_for_url("**end=2020**")
    page.get_by_text("No event matches").wait_for()


def test_an_event_runs_again_from_its_story(
    node: RunningNode, project: Project, signed_in: Open
) -> None:
    page = signed_in(node, f"{project.path}/events/{long_id('counted')}").page
    page.get_by_role("button", name="Run again").first.click()
    page.get_by_role("status").filter(has_text="ran again").wait_for()
    project_id = project.applet["appletID"]
    assert int.from_bytes(node.kv(project.name, project_id, b"k"), "little") == 2


def test_an_event_that_is_not_kept_is_told(
    node: RunningNode, project: Project, signed_in: Open
) -> None:
    seen = signed_in(node, f"{project.path}/events?event=1", expected=["status of 404"])
    seen.page.get_by_text("This event is no longer kept").wait_for()
