"""Dead letters in groups: replay, discard, one letter with its payload."""

from __future__ import annotations

import pytest

from tests.dashboard.conftest import Open
from tests.dashboard.project import Project
from tests.support.nodes import RunningNode

pytestmark = pytest.mark.timeout(300)
CUSTOM_SECTION = b"\x00\x02\x01n"
"""Makes another module that does the same (WebAssembly core specification, 5.5.3)."""


@pytest.mark.thorough
def test_a_group_is_replayed_or_discarded_as_a_whole(node: RunningNode, signed_in: Open) -> None:
    project = Project(node)
    for number in range(3):
        project.send(b"t", event_id=f"the-event-that-traps-{number}")
    page = signed_in(node, f"{project.path}/letters").page
    page.get_by_role("heading", name="3 kept").wait_for()
    letters = page.get_by_role("region", name="Dead letters:").get_by_role("row")
    letters.nth(3).wait_for()
    page.get_by_role("button", name="the-event-that-traps-1").click()
    panel = page.get_by_role("dialog", name="Dead letter")
    panel.get_by_text("meter.start").wait_for()
    page.keyboard.press("Escape")

    page.get_by_role("button", name="Replay all").click()
    page.get_by_role("status").filter(has_text="3 of 3 failed again and stay").wait_for()

    page.get_by_label("Select the-event-that-traps-1").check()
    page.locator(".selected").get_by_role("button", name="Discard").click()
    page.get_by_role("heading", name="2 kept").wait_for()

    page.get_by_role("button", name="Discard all").click()
    dialog = page.get_by_role("dialog", name="Discard all")
    dialog.get_by_text("Discard 2 dead letters").wait_for()
    dialog.get_by_role("button", name="Discard all").click()
    page.get_by_text("No dead letters").wait_for()
    assert node.call("GET", f"/dead_letter/{project.name}").json["total"] == 0


@pytest.mark.thorough
def test_only_what_a_version_failed_is_replayed(node: RunningNode, signed_in: Open) -> None:
    project = Project(node)
    project.send(b"t", event_id="failed-in-the-first")
    node.redeploy(project.applet["appletID"], project.module + CUSTOM_SECTION)
    for number in range(2):
        project.send(b"t", event_id=f"failed-in-the-second-{number}")
    page = signed_in(node, f"{project.path}/letters").page
    page.get_by_role("heading", name="3 kept").wait_for()
    page.get_by_label("Select failed-in-the-first").check()
    page.get_by_label("Failed in version").fill("2")
    page.wait_for_url("**version=2")
    page.get_by_role("heading", name="2 kept").wait_for()
    assert page.locator(".selected").count() == 0
    letters = page.get_by_role("region", name="Dead letters:").get_by_role("row")
    letters.nth(2).wait_for()
    letters.filter(has_text="failed-in-the-first").wait_for(state="detached")

    page.get_by_role("button", name="Replay all").click()
    page.get_by_role("status").filter(has_text="2 of 2 failed again and stay").wait_for()
    rows = node.call("GET", f"/dead_letter/{project.name}").json["data"]
    assert sorted((row["appletVersion"], row["attempts"]) for row in rows) == [
        (1, 1),
        (2, 2),
        (2, 2),
    ]
    page.get_by_label("Failed in version").fill("7")
    page.get_by_text("No dead letters").wait_for()
    page.get_by_label("Failed in version").fill("")
    page.get_by_role("heading", name="3 kept").wait_for()
