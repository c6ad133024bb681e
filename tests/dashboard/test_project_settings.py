"""The settings of a project: description, variables, operator, export and deletion."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dashboard.conftest import Open
from tests.support.nodes import RunningNode

pytestmark = pytest.mark.timeout(300)


@pytest.mark.thorough
def test_what_a_project_is_can_be_changed(node: RunningNode, signed_in: Open) -> None:
    node.create_project("ship")
    page = signed_in(node, "/projects/ship/settings", expected=["400"]).page
    card = page.locator("section.card").filter(has=page.get_by_role("heading", name="Project"))
    card.locator("[name=description]").fill("The engine room")
    card.get_by_role("button", name="Save").click()
    page.get_by_text("Saved").wait_for()
    assert node.call("GET", "/project/x/ship/data").json["description"] == "The engine room"

    card.get_by_role("button", name="Accept events without a token").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Accept events without a token").click()
    card.get_by_text("accepted").wait_for()
    assert node.send("ship", {"header": {"event_type": "A"}, "payload": ""}).status in (201, 404)
    card.get_by_role("button", name="Refuse events without a token").click()
    dialog.get_by_role("button", name="Refuse events without a token").click()
    card.get_by_text("refused").wait_for()
    assert node.call("GET", "/publisher/x/ship").json["total"] == 0

    for button, shown, dedicated in (
        ("Use a worker of its own", "its own", True),
        ("Share a worker", "shared", False),
    ):
        card.get_by_role("button", name=button).click()
        dialog.get_by_role("button", name=button).click()
        card.get_by_text(shown, exact=True).wait_for()
        assert node.call("GET", "/project/ship").json["dedicated"] is dedicated


def test_variables_are_added_changed_and_left_out(node: RunningNode, signed_in: Open) -> None:
    node.create_project("tuned")
    page = signed_in(node, "/projects/tuned/settings", expected=["400"]).page

    def saved() -> object:
        return node.call("GET", "/project_config/x/tuned/PROJECT_ENV").json["env"]

    for number, (key, value) in enumerate({"UNIT": "celsius", "LIMIT": "1=2"}.items(), 1):
        page.get_by_role("button", name="Add variable").click()
        page.get_by_label(f"Name of variable {number}", exact=True).fill(key)
        page.get_by_label(f"Value of variable {number}", exact=True).fill(value)
    page.get_by_role("button", name="Save variables").click()
    page.get_by_text("Variables saved").wait_for()
    assert saved() == [["UNIT", "celsius"], ["LIMIT", "1=2"]]
    page.get_by_label("Name of variable 2", exact=True).fill("UNIT")
    page.get_by_role("button", name="Save variables").click()
    page.get_by_role("alert").filter(has_text="UNIT occurs twice").wait_for()
    page.get_by_role("button", name="Leave out variable 1", exact=True).click()
    page.get_by_role("button", name="Save variables").click()
    page.get_by_role("alert").filter(has_text="UNIT").wait_for(state="detached")
    page.reload()
    assert page.get_by_label("Value of variable 1", exact=True).input_value() == "1=2"
    assert saved() == [["UNIT", "1=2"]]


def test_another_operator_signs_and_may_spend_so_much(node: RunningNode, signed_in: Open) -> None:
    project = node.create_project("payer")["projectID"]
    first = node.call("POST", "/operator/generate", {"name": "purse"}).json
    other = node.call("POST", "/operator/generate", {"name": "treasury"}).json
    page = signed_in(node, "/projects/payer/settings").page
    choice = page.get_by_label("Sign with")
    for operator in (first, other):  # the second one in the place of the first one
        choice.select_option(operator["operatorID"])
        page.get_by_text(operator["address"]).wait_for()
    bound = node.call("GET", f"/project_operator/data/{project}").json
    assert bound["name"] == "treasury"
    default = choice.locator("option").filter(has_text="default").get_attribute("value")
    choice.select_option(default)
    page.get_by_text(other["address"]).wait_for(state="detached")
    page.get_by_role("button", name="Set a limit").click()
    dialog = page.get_by_role("dialog", name="Set a limit")
    dialog.locator("[name=wei]").fill("2500000000000000000")
    dialog.get_by_text("2.5 ether").wait_for()
    dialog.get_by_role("button", name="Set a limit").click()
    page.get_by_text("2.5 ether per day").wait_for()
    assert node.call("GET", "/tx/payer/state").json["weiPerDay"] == "2500000000000000000"


@pytest.mark.thorough
def test_a_project_leaves_as_a_file_is_deleted_and_comes_back(
    node: RunningNode, signed_in: Open, tmp_path: Path
) -> None:
    node.create_project("traveller")
    token = node.add_publisher("traveller", "device")["token"]
    page = signed_in(node, "/projects/traveller/settings", expected=["409"]).page
    page.get_by_label("With the tokens").check()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export project").click()
    assert download.value.suggested_filename == "traveller.fieldbrook"
    file = tmp_path / "traveller.fieldbrook"
    download.value.save_as(file)

    page.get_by_role("button", name="Delete project").click()
    dialog = page.get_by_role("dialog", name="Delete traveller?")
    delete = dialog.get_by_role("button", name="Delete project")
    assert delete.is_disabled()
    dialog.get_by_role("textbox").fill("traveller")
    delete.click()
    page.wait_for_url("**/projects")
    assert node.call("GET", "/project/x/traveller/data").status == 404

    page.get_by_role("button", name="Import").click()
    dialog = page.get_by_role("dialog", name="Import")
    dialog.locator("[name=file]").set_input_files(file)
    dialog.get_by_role("button", name="Import").click()
    page.get_by_role("table").get_by_role("link", name="traveller", exact=True).wait_for()
    assert node.call("GET", "/publisher/x/traveller").json["data"][0]["token"] == token
