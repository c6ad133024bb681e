"""Search with Ctrl+K: the results, and the pages to which they lead."""

from __future__ import annotations

import re

import pytest

from tests.dashboard.conftest import Open
from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, message, strategies

pytestmark = pytest.mark.timeout(300)


@pytest.mark.thorough
def test_an_applet_an_event_and_a_publisher_are_found_and_opened(
    node: RunningNode, signed_in: Open
) -> None:
    node.create_project("sought")
    node.deploy("sought", TALLY, name="needle-applet", strategies=strategies("quiet"))
    sent = message(node.add_publisher("sought", "needle-key"), b"hay", "QUIET")
    sent["header"]["event_id"] = "needle-event-1"
    assert node.send("sought", sent).status == 201
    page = signed_in(node, "/").page

    def search(text: str, option: str) -> None:
        page.keyboard.press("Control+k")
        page.get_by_role("combobox", name="Search").fill(text)
        page.get_by_role("option").filter(has_text=option).click()
        page.get_by_role("dialog").wait_for(state="detached")

    search("needle-app", "sought · needle-applet")
    page.wait_for_url("**/projects/sought/applets")
    search("needle-event-1", "sought · needle-event-1")
    page.wait_for_url("**/projects/sought/events/needle-event-1")
    page.get_by_text("received").first.wait_for()
    search("needle-key", "needle-key")
    page.wait_for_url(re.compile("/projects/sought/publishers"))
    page.get_by_role("region", name="Publishers").get_by_text("needle-key").first.wait_for()


def test_a_project_of_another_account_is_not_found(node: RunningNode, signed_in: Open) -> None:
    node.create_project("hidden")
    node.deploy("hidden", TALLY, strategies=strategies("quiet"))
    sent = message(node.add_publisher("hidden", "p"), b"", "QUIET")
    sent["header"]["event_id"] = "hidden-event-1"
    assert node.send("hidden", sent).status == 201
    kinds = {row["kind"] for row in node.call("GET", "/search?q=hidden-event-1").json["data"]}
    assert kinds == {"event"}
    made = node.call("POST", "/register/admin", {"username": "seeker", "role": "DEVELOPER"}).json
    login = {"username": "seeker", "password": made["password"]}
    token = node.call("PUT", "/login", login).json["token"]
    for text in ("hidden", "hidden-event-1"):
        assert node.call("GET", f"/search?q={text}", token=token).json["data"] == []
