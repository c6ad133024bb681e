"""Signing in and out: passwords, several tabs, and a login that ends while the page is used."""

from __future__ import annotations

import json

import pytest

from tests.dashboard.conftest import Open
from tests.support.nodes import RunningNode

pytestmark = pytest.mark.timeout(300)
REFUSED = ["status of 401"]


def sign_in(page: object, password: str = "correct horse") -> None:
    page.get_by_label("Username").fill("admin")  # type: ignore[attr-defined]
    page.get_by_label("Password").fill(password)  # type: ignore[attr-defined]
    page.get_by_role("button", name="Sign in", exact=True).click()  # type: ignore[attr-defined]


@pytest.mark.thorough
def test_a_wrong_password_is_told_and_the_right_one_opens_the_page(
    node: RunningNode, visit: Open
) -> None:
    seen = visit(node, "/projects?name=x", expected=REFUSED)
    sign_in(seen.page, "wrong horse")
    seen.page.get_by_role("alert").filter(has_text="password").wait_for()
    sign_in(seen.page)
    seen.page.get_by_role("heading", name="Projects", level=1).wait_for()
    assert seen.page.url.endswith("/projects?name=x")
    assert seen.context.cookies() == []


@pytest.mark.thorough
def test_a_new_tab_is_signed_in_and_signing_out_ends_all_tabs(
    node: RunningNode, visit: Open
) -> None:
    seen = visit(node, expected=REFUSED)
    sign_in(seen.page)
    seen.page.get_by_role("heading", name="Overview").wait_for()
    token = json.loads(seen.page.evaluate("sessionStorage.getItem('fieldbrook.session')"))["token"]
    other = seen.open()
    other.goto(seen.address + "/projects")
    other.get_by_role("heading", name="Projects", level=1).wait_for()
    other.get_by_role("button", name="Sign out").click()
    for page in (seen.page, other):
        page.get_by_role("button", name="Sign in", exact=True).wait_for()
        assert page.evaluate("sessionStorage.length") == 0
    assert node.call("GET", "/project", token=token).status == 401


def test_a_login_that_ends_asks_for_the_password_over_the_page_and_keeps_what_was_typed(
    node: RunningNode, visit: Open
) -> None:
    seen = visit(node, "/projects", expected=REFUSED)
    page = seen.page
    sign_in(page)
    page.get_by_role("button", name="New project").click()
    dialog = page.get_by_role("dialog", name="New project")
    dialog.get_by_label("Name").fill("kept_words")
    token = json.loads(page.evaluate("sessionStorage.getItem('fieldbrook.session')"))["token"]
    assert node.call("DELETE", "/login", token=token).status == 204
    dialog.get_by_role("button", name="New project").click()
    again = page.get_by_role("dialog", name="Your login has ended")
    again.get_by_label("Password").fill("correct horse")
    again.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url("**/projects/kept_words/applets")
    assert node.call("GET", "/project/x/kept_words/data").status == 200


@pytest.mark.thorough
def test_the_page_says_that_the_node_does_not_answer_and_recovers(
    node: RunningNode, visit: Open
) -> None:
    seen = visit(node, expected=[*REFUSED, "ERR_CONNECTION", "ERR_INTERNET", "WebSocket"])
    sign_in(seen.page)
    seen.page.get_by_role("heading", name="Overview").wait_for()
    seen.context.set_offline(True)
    strip = seen.page.get_by_role("alert").filter(has_text="The node does not answer")
    strip.wait_for()
    seen.page.get_by_role("heading", name="Overview").wait_for()
    seen.context.set_offline(False)
    strip.wait_for(state="detached")
