"""The live list of events: it follows, pauses for readers, has right totals, and survives a restart
of the node."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.dashboard.conftest import Open, session_of
from tests.dashboard.project import Project
from tests.support.browser import Visit
from tests.support.nodes import PREFIX, RunningNode, StartNode, flood, message, until

pytestmark = pytest.mark.timeout(300)
TABLE = "Events, the newest first"


def counts(seen: Visit) -> list[int]:
    """Return the numbers next to the list: per second, all, left out, failed."""
    text = seen.page.locator("output.counts").inner_text()
    return [int(float(number.replace(",", ""))) for number in re.findall(r"[\d,.]+", text)]


@pytest.mark.thorough
def test_new_events_come_on_top_and_the_list_stands_still_on_pause(
    node: RunningNode, signed_in: Open
) -> None:
    project = Project(node)
    project.send(b"ca")
    seen = signed_in(node, f"{project.path}/events")
    rows = seen.page.get_by_role("table", name=TABLE).locator(".row")
    rows.first.wait_for()
    project.send(b"", "SECOND")
    rows.first.filter(has_text="SECOND").wait_for()
    seen.page.keyboard.press("p")
    seen.page.get_by_role("button", name="Go on").wait_for()
    project.send(b"", "THIRD")
    newer = seen.page.get_by_role("button", name="1 newer")
    newer.wait_for()
    assert "SECOND" in rows.first.inner_text()
    newer.click()
    rows.first.filter(has_text="THIRD").wait_for()


@pytest.mark.parametrize("wanted", ["", "?type=BETWEEN"])
@pytest.mark.thorough
def test_an_event_between_the_first_list_and_the_stream_is_shown(
    node: RunningNode, signed_in: Open, wanted: str
) -> None:
    project = Project(node)
    seen = signed_in(node)

    def answer_late(route: Any) -> None:
        answer = route.fetch()
        project.send(b"", "BETWEEN")
        route.fulfill(response=answer)

    seen.page.route("**/event_log/**", answer_late, times=1)
    seen.page.goto(f"{seen.address}{project.path}/events{wanted}")
    rows = seen.page.get_by_role("table", name=TABLE).locator(".row")
    rows.first.filter(has_text="BETWEEN").wait_for()
    assert rows.count() == 1


def test_rows_stand_still_under_the_pointer_so_a_click_opens_what_it_meant(
    node: RunningNode, signed_in: Open
) -> None:
    project = Project(node)
    project.send(b"", "MEANT")
    seen = signed_in(node, f"{project.path}/events")
    rows = seen.page.get_by_role("table", name=TABLE).locator(".row")
    rows.first.hover()
    project.send(b"", "OTHER")
    seen.page.get_by_role("button", name="1 newer").wait_for()
    seen.page.mouse.down()
    seen.page.mouse.up()
    seen.page.get_by_role("dialog", name="Event").get_by_text("MEANT").first.wait_for()


@pytest.mark.thorough
def test_a_flood_is_thinned_and_the_counts_add_up_with_failures_listed(
    node: RunningNode, signed_in: Open
) -> None:
    project = Project(node)
    seen = signed_in(node, f"{project.path}/events")
    seen.page.get_by_text("No events yet").wait_for()
    one = message(project.publishers["sensor-1"], b"ck", "START")
    total = flood(node.http_port, project.name, json.dumps(one).encode(), 4000)
    project.send(b"t")
    until(lambda: len(counts(seen)) > 2 and counts(seen)[1] == total + 1, "all events are counted")
    listed = seen.page.get_by_role("table", name=TABLE).get_attribute("aria-rowcount")
    assert listed is not None
    assert int(listed) - 1 + counts(seen)[2] == total + 1
    assert seen.page.locator(".row.bad").count() == 1


def test_the_list_goes_on_after_the_node_was_killed(start_node: StartNode, browser: Any) -> None:
    node = start_node()
    project = Project(node)
    seen = Visit(
        browser,
        f"http://localhost:{node.dashboard_port}",
        expected=["ERR_CONNECTION", "WebSocket", "ERR_EMPTY", "ERR_SOCKET"],
    )
    seen.page.add_init_script(
        f"sessionStorage['fieldbrook.session'] ??= {json.dumps(session_of(node))}"
    )
    seen.page.goto(f"{seen.address}{project.path}/events")
    rows = seen.page.get_by_role("table", name=TABLE).locator(".row")
    project.send(b"", "BEFORE")
    rows.first.filter(has_text="BEFORE").wait_for()
    node.kill()
    strip = seen.page.get_by_role("alert").filter(has_text="The node does not answer")
    strip.wait_for()
    assert rows.count() == 1
    node.start()
    project.send(b"", "AFTER")
    rows.first.filter(has_text="AFTER").wait_for()
    strip.wait_for(state="detached")
    seen.close()


@pytest.mark.thorough
def test_twelve_pages_of_one_browser_all_follow(node: RunningNode, signed_in: Open) -> None:
    project = Project(node)
    seen = signed_in(node, f"{project.path}/events")
    pages = [seen.page, *(seen.open() for _ in range(11))]
    for page in pages[1:]:
        page.goto(f"{seen.address}{project.path}/events")
    for page in pages:
        page.get_by_role("table", name=TABLE).wait_for()
    project.send(b"", "SEEN")
    for page in pages:
        page.bring_to_front()
        page.get_by_role("table", name=TABLE).locator(".row", has_text="SEEN").wait_for()
    assert node.call("GET", f"{PREFIX}/project").status == 200
