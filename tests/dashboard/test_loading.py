"""Failed requests of a page: the page shows them, retries by itself, and has a button to retry."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.dashboard.conftest import Open
from tests.dashboard.project import Project
from tests.support.nodes import RunningNode, until

pytestmark = pytest.mark.timeout(300)
LATE = "This could not be loaded"
BUSY: dict[str, Any] = {
    "status": 503,
    "json": {"key": "ServiceUnavailable", "desc": "too much to do"},
}
DENIED: dict[str, Any] = {"status": 403, "json": {"key": "NoPermission", "desc": "not for you"}}
NOTICED = ["status of 503", "status of 403", "ERR_"]  # what Chromium writes to its console


@pytest.fixture(scope="module")
def project(node: RunningNode) -> Project:
    return Project(node)


def failing(page: Any, pattern: str, **answer: Any) -> Callable[[], int]:
    """Make the next request for a path fail: with an answer, else without one.

    Returns how many have failed.
    """
    failed = 0

    def handle(route: Any) -> None:
        nonlocal failed
        if failed:
            route.fallback()
            return
        failed += 1
        if answer:
            route.fulfill(**answer)
        else:
            route.abort("connectionreset")

    page.route(pattern, handle)
    return lambda: failed


def dry_run(project: Project, signed_in: Open) -> Any:
    page = signed_in(project.node, f"{project.path}/console", expected=NOTICED).page
    page.get_by_role("textbox", name="Payload").wait_for()
    return page


@pytest.mark.parametrize("answer", [BUSY, {}], ids=["busy", "cut off"])
@pytest.mark.thorough("busy")
def test_a_request_that_fails_for_now_is_told_and_sent_again(
    project: Project, signed_in: Open, answer: dict[str, Any]
) -> None:
    page = dry_run(project, signed_in)
    failing(page, "**/versions", **answer)
    page.get_by_role("button", name="Dry run").click()
    alert = page.get_by_role("alert").filter(has_text=LATE)
    alert.wait_for()
    page.get_by_label("Version").select_option("1")
    alert.wait_for(state="detached")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("ran in").wait_for()


def test_a_request_that_is_refused_can_be_sent_again_by_hand(
    project: Project, signed_in: Open
) -> None:
    page = dry_run(project, signed_in)
    refused = failing(page, "**/versions", **DENIED)
    page.get_by_role("button", name="Dry run").click()
    page.get_by_role("alert").filter(has_text="not for you").wait_for()
    page.get_by_role("button", name="Try again").click()
    page.get_by_label("Version").select_option("1")
    assert refused() == 1


@pytest.mark.parametrize("tab", ["events", "logs"])
@pytest.mark.thorough("logs")
def test_a_live_list_whose_first_rows_fail_follows_after_the_next_try(
    project: Project, signed_in: Open, tab: str
) -> None:
    project.send()
    seen = signed_in(project.node, f"{project.path}/flow", expected=NOTICED)
    failing(seen.page, "**/event_log/*?*" if tab == "events" else "**/applet_log/*?*", **BUSY)
    seen.page.get_by_role("link", name=tab.capitalize(), exact=True).click()
    seen.page.get_by_role("alert").filter(has_text="too much to do").wait_for()
    rows = seen.page.get_by_role("row")
    until(lambda: rows.count() > 1, "the rows are there")
    shown = rows.count()
    project.send()
    until(lambda: rows.count() > shown, "the list follows")


def test_what_was_typed_stays_while_newer_data_cannot_be_loaded(
    project: Project, signed_in: Open
) -> None:
    seen = signed_in(project.node, "/projects", expected=NOTICED)
    seen.page.clock.install()
    seen.page.goto(f"{seen.address}{project.path}/console")
    payload = seen.page.get_by_role("textbox", name="Payload")
    payload.fill("only here")
    failing(seen.page, f"**/project/x/{project.name}/data", **BUSY)
    seen.page.clock.fast_forward(16_000)
    alert = seen.page.get_by_role("alert").filter(has_text="too much to do")
    alert.wait_for()
    assert payload.input_value() == "only here"
    seen.page.clock.fast_forward(2_000)
    alert.wait_for(state="detached")
    assert payload.input_value() == "only here"


@pytest.mark.thorough
def test_an_event_whose_story_fails_for_now_is_not_said_to_be_gone(
    project: Project, signed_in: Open
) -> None:
    project.send(event_id="late-story")
    (row,) = project.node.call("GET", f"/event_log/{project.name}?eventID=late-story").json["data"]
    seen = signed_in(project.node, f"{project.path}/flow", expected=NOTICED)
    failing(seen.page, "**/event_log/*/at/*", **BUSY)
    seen.page.goto(f"{seen.address}{project.path}/events?event={row['place']}")
    story = seen.page.get_by_role("dialog", name="Event")
    story.get_by_role("alert").filter(has_text=LATE).wait_for()
    story.get_by_role("button", name="Run again").wait_for()
    assert seen.page.get_by_text("no longer kept").count() == 0


@pytest.mark.thorough
def test_a_list_that_is_late_has_grey_rows_until_it_is_there(
    node: RunningNode, signed_in: Open
) -> None:
    page = signed_in(node, f"{Project(node).path}/flow").page
    waiting = page.locator("#main .waiting i").first

    def answer_late(route: Any) -> None:
        waiting.wait_for()
        route.continue_()

    page.route("**/kv/**", answer_late, times=1)
    page.get_by_role("link", name="Data", exact=True).click()
    page.get_by_text("No keys yet").wait_for()
    waiting.wait_for(state="detached")


@pytest.mark.thorough
def test_figures_that_fail_for_now_are_told_and_loaded(node: RunningNode, signed_in: Open) -> None:
    seen = signed_in(node, "/projects", expected=NOTICED)
    failing(seen.page, "**/series?*", **BUSY)
    seen.page.get_by_role("link", name="Overview").first.click()
    alert = seen.page.get_by_role("alert").filter(has_text="too much to do")
    alert.wait_for()
    alert.wait_for(state="detached")


@pytest.mark.thorough
def test_a_stream_that_is_refused_and_a_topic_that_ends_are_followed_again(
    node: RunningNode, signed_in: Open
) -> None:
    busy = {"key": "TooManyRequests", "msg": "Too Many Requests", "desc": "16 pages are open"}
    opened: list[Any] = []

    def refuse_twice(socket: Any) -> None:
        opened.append(socket)
        if len(opened) <= 2:
            socket.send(json.dumps({"error": busy}))
            socket.close(code=1008, reason="TooManyRequests")
            return
        server = socket.connect_to_server()
        followed: list[int] = []

        def to_node(message: str) -> None:
            asked = json.loads(message).get("follow", {})
            if asked.get("topic") == "health" and not followed:
                followed.append(asked["id"])
                socket.send(json.dumps({"id": asked["id"], "error": {"key": "ServiceUnavailable"}}))
                return
            server.send(message)

        socket.on_message(to_node)

    seen = signed_in(node, "/projects", expected=["WebSocket"])
    seen.page.route_web_socket("**/stream", refuse_twice)
    seen.page.goto(seen.address)
    strip = seen.page.get_by_text("stand still in this tab: 16 pages are open")
    strip.wait_for()
    strip.wait_for(state="detached")
    seen.page.locator(".actions .badge").get_by_text("problem").wait_for()
    assert len(opened) == 3
