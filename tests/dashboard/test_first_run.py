"""The first start: the setup code, the first administrator, the first steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dashboard.conftest import Open
from tests.support.nodes import RunningNode, StartNode

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def new_node(start_module_node: StartNode) -> RunningNode:
    return start_module_node(logged_in=False)


def test_a_new_node_is_set_up_in_the_page_once(new_node: RunningNode, visit: Open) -> None:
    # The browser itself reports the refused requests.
    seen = visit(new_node, "/projects", expected=["status of 403", "status of 401"])
    page = seen.page
    page.wait_for_url("**/setup")
    code_file = page.get_by_text("secrets/setup-code").inner_text()
    assert Path(code_file) == new_node.data / "secrets" / "setup-code"

    page.get_by_label("Setup code").fill("wrong")
    page.get_by_label("Password").fill("correct horse")
    page.get_by_role("button", name="Create administrator").click()
    page.get_by_role("alert").filter(has_text="code").wait_for()
    assert page.get_by_label("Password").input_value() == "correct horse"

    page.get_by_label("Setup code").fill(new_node.setup_code())
    page.get_by_role("button", name="Create administrator").click()
    page.get_by_role("heading", name="Overview").wait_for()
    steps = page.get_by_role("region", name="First steps")
    assert steps.get_by_role("heading").all_inner_texts() == [
        "Create a project",
        "Deploy an applet",
        "Send an event",
    ]

    second = visit(new_node, "/setup")
    second.page.wait_for_url("**/signin")
    assert second.page.get_by_label("Setup code").count() == 0


@pytest.mark.thorough
def test_the_first_step_creates_a_project_and_goes_on_to_its_applets(
    new_node: RunningNode, visit: Open
) -> None:
    new_node.log_in()
    page = visit(new_node, "/signin").page
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill("correct horse")
    page.get_by_role("button", name="Sign in", exact=True).click()
    steps = page.get_by_role("region", name="First steps")
    steps.get_by_role("link", name="Open").click()
    dialog = page.get_by_role("dialog", name="New project")
    dialog.get_by_label("Name").fill("garden")
    assert "fieldbrook project create garden" in dialog.text_content()
    dialog.get_by_role("button", name="New project").click()
    page.wait_for_url("**/projects/garden/applets")
    page.get_by_role("link", name="Overview").click()
    steps.locator(".done").get_by_text("Create a project").wait_for()
