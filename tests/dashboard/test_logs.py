"""The log lines of a project: live, with filters in the address, and from a line to its event."""

from __future__ import annotations

import pytest

from tests.dashboard.conftest import Open
from tests.dashboard.project import Project
from tests.dashboard.test_applets import EXAMPLE
from tests.support.nodes import RunningNode, message, strategies

pytestmark = pytest.mark.timeout(300)
LABEL = "Log lines, the newest first"


@pytest.mark.thorough
def test_lines_appear_are_filtered_and_lead_to_their_event(
    node: RunningNode, signed_in: Open
) -> None:
    project = Project(node)
    node.deploy(project.name, EXAMPLE, "counter", strategies=strategies(COUNT="start"))
    project.send(b"ck first", event_id="of-the-first-line")
    page = signed_in(node, f"{project.path}/logs").page
    rows = page.get_by_role("table", name=LABEL).locator(".row")
    rows.filter(has_text="ck first").wait_for()
    counted = message(project.publishers["sensor-1"], b"second", "COUNT")
    assert node.send(project.name, counted).status == 201
    rows.first.filter(has_text="payload=second").wait_for()

    page.get_by_label("Applet").select_option(label="meter")
    page.wait_for_url("**instance=**")
    rows.filter(has_text="payload=second").wait_for(state="detached")
    rows.filter(has_text="ck first").wait_for()
    page.get_by_label("Applet").select_option(value="")
    page.get_by_label("Contains").fill("payload=")
    page.wait_for_url("**contains=payload%3D")
    rows.filter(has_text="ck first").wait_for(state="detached")
    page.get_by_label("Level").select_option("error")
    page.get_by_text("No line matches these filters").wait_for()

    page.goto(page.url.partition("?")[0])
    rows.filter(has_text="ck first").get_by_role("link").click()
    page.wait_for_url("**/events/of-the-first-line")
    page.get_by_role("heading", name="of-the-first-line").wait_for()
