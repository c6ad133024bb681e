"""The dashboard in Firefox: signing in, the live list with a story, deploying an applet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dashboard.project import Project
from tests.support.firefox import ENTER, TAB, Firefox, FirefoxPage, firefox
from tests.support.nodes import RunningNode, until

pytestmark = pytest.mark.timeout(300)
EXAMPLE = Path(__file__).parents[2] / "examples" / "counter" / "counter.wat"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    with firefox(tmp_path_factory.mktemp("firefox")) as running:
        yield running


@pytest.fixture
def page(browser: Firefox, node: RunningNode) -> Iterator[FirefoxPage]:
    """The overview, reached by the form."""
    with browser.page(f"http://localhost:{node.dashboard_port}/") as opened:
        opened.click("textbox", "Username")
        opened.type("admin" + TAB + "correct horse" + ENTER)
        opened.find("heading", "Overview")
        yield opened


@pytest.mark.thorough
def test_the_form_signs_in_and_another_page_shows_what_was_asked_for(
    page: FirefoxPage, node: RunningNode
) -> None:
    page.click("link", "All projects")
    page.find("heading", "Projects")
    assert page.evaluate("document.cookie + Object.keys(localStorage)") == ""
    page.go(f"http://localhost:{node.dashboard_port}/node/health")
    page.find("heading", "Health")


@pytest.mark.thorough
def test_events_appear_in_the_live_list_and_tell_their_story(
    page: FirefoxPage, node: RunningNode
) -> None:
    project = Project(node)
    page.go(f"http://localhost:{node.dashboard_port}{project.path}/events")
    page.wait_for_text("No events yet")
    project.send(b"ck", event_id="seen-in-firefox")
    rows = "document.querySelectorAll('.row').length"
    until(lambda: page.evaluate(rows) == 1, "the event is listed")
    page.evaluate("document.querySelector('.row button').focus()")
    page.type(ENTER)
    page.find("dialog", "Event")
    page.wait_for_text("Committed and answered")
    page.wait_for_text("seen-in-firefox")


@pytest.mark.thorough
def test_a_module_is_chosen_checked_and_deployed(page: FirefoxPage, node: RunningNode) -> None:
    node.create_project("firefox")
    publisher = node.add_publisher("firefox", "sensor")
    page.go(f"http://localhost:{node.dashboard_port}/projects/firefox/applets")
    page.find("button", "Choose a file")
    page.choose_file("input[type=file]", EXAMPLE)
    page.wait_for_text("This node can run it")
    page.click("button", "Deploy")
    page.find("region", "counter")
    header = {"pub_id": "sensor", "token": publisher["token"], "event_type": "ANY"}
    sent = node.send("firefox", {"header": header, "payload": ""})
    assert [result["code"] for result in sent.json["results"]] == [0]
