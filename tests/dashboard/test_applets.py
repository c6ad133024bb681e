"""The applets of a project: deployed, given versions and strategies, stopped, deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import Open
from tests.support.nodes import RunningNode

pytestmark = pytest.mark.timeout(300)

EXAMPLE = (Path(__file__).parents[2] / "examples" / "counter" / "counter.wat").read_bytes()


def choose(page: Any, button: Any, name: str, content: bytes) -> Any:
    """Choose a file for an upload, and return the dialog that deploys it."""
    with page.expect_file_chooser() as chooser:
        button.click()
    chooser.value.set_files({"name": name, "mimeType": "", "buffer": content})
    return page.get_by_role("dialog", name=f"Deploy {name}")


@pytest.mark.thorough
def test_the_counter_example_is_deployed_and_goes_through_its_versions(
    node: RunningNode, signed_in: Open
) -> None:
    node.create_project("counting")
    publisher = node.add_publisher("counting", "sensor")
    page = signed_in(node, "/projects/counting/applets").page
    page.get_by_text("No applets yet").wait_for()

    page.get_by_role("button", name="Use the counter example").click()
    dialog = page.get_by_role("dialog", name="Deploy counter.wat")
    dialog.get_by_text("This node can run it").wait_for()
    dialog.get_by_text("ws_set_db", exact=True).wait_for()
    dialog.get_by_role("button", name="Deploy").click()
    card = page.get_by_role("region", name="counter", exact=True)
    card.get_by_text("started").wait_for()
    header = {"pub_id": "sensor", "token": publisher["token"], "event_type": "ANY"}
    sent = node.send("counting", {"header": header, "payload": ""})
    assert [result["code"] for result in sent.json["results"]] == [0]

    second = EXAMPLE.replace(b'"count="', b'"total="')
    button = card.get_by_role("button", name="New version of counter")
    dialog = choose(page, button, "counter2.wat", second)
    dialog.get_by_text("The strategies stay as they are").wait_for()
    dialog.get_by_role("button", name="Deploy").click()
    versions = card.get_by_role("region", name="Versions, counter")
    current = versions.get_by_role("row").filter(has_text="runs")
    current.filter(has_text="counter2.wat").filter(has_text="admin").wait_for()
    with page.expect_download() as download:
        versions.get_by_role("button", name="Download the module of version 2").click()
    assert Path(download.value.path()).read_bytes() == second

    versions.get_by_role("button", name="Roll back to version 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    current.filter(has_text="counter.wat").wait_for()

    card.get_by_role("button", name="Stop counter").click()
    card.get_by_text("stopped", exact=True).wait_for()
    card.get_by_role("button", name="Start counter").click()
    card.get_by_text("started", exact=True).wait_for()

    card.get_by_role("button", name="Edit counter").click()
    dialog = page.get_by_role("dialog", name="Edit counter")
    dialog.locator("[name=name]").fill("tally")
    dialog.locator("[name=isolation]").select_option("INSTANCE")
    dialog.locator("[name=reuse]").fill("50")
    dialog.get_by_role("button", name="Save").click()
    card = page.get_by_role("region", name="tally", exact=True)
    card.get_by_text("a kept instance").wait_for()
    (applet,) = node.call("GET", "/applet/x/counting/datalist").json["data"]
    assert (applet["isolation"], applet["reuseEvents"], applet["version"]) == ("INSTANCE", 50, 1)

    card.get_by_role("button", name="Delete tally").click()
    dialog = page.get_by_role("dialog", name="Delete tally?")
    dialog.get_by_role("textbox").fill("tally")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_text("No applets yet").wait_for()
    assert node.call("GET", "/applet/x/counting/datalist").json["total"] == 0


@pytest.mark.thorough
def test_a_module_that_cannot_run_is_refused_before_it_is_stored(
    node: RunningNode, signed_in: Open
) -> None:
    node.create_project("broken")
    page = signed_in(node, "/projects/broken/applets").page
    start = b'(func (export "start") (param i32) (result i32) i32.const 0)'
    unknown = b'(module (import "env" "ws_fly" (func)) %s)' % start
    dialog = choose(page, page.get_by_role("button", name="Choose a file"), "fly.wat", unknown)
    dialog.get_by_text("This node cannot run it").wait_for()
    dialog.get_by_text("ws_fly").first.wait_for()
    assert dialog.get_by_role("button", name="Deploy").is_disabled()
    page.keyboard.press("Escape")
    page.get_by_text("No applets yet").wait_for()
    assert node.call("GET", "/applet/x/broken/datalist").json["total"] == 0


@pytest.mark.thorough
def test_strategies_are_chosen_added_changed_and_deleted(
    node: RunningNode, signed_in: Open
) -> None:
    node.create_project("routes")
    page = signed_in(node, "/projects/routes/applets", expected=["409"]).page
    page.get_by_role("button", name="Use the counter example").click()
    dialog = page.get_by_role("dialog", name="Deploy counter.wat")
    dialog.get_by_role("button", name="Add event type").click()
    dialog.get_by_label("Event type").nth(1).fill("TEMPERATURE")
    dialog.get_by_role("button", name="Leave out DEFAULT").click()
    dialog.get_by_role("button", name="Deploy").click()
    card = page.get_by_role("region", name="counter", exact=True)
    table = card.get_by_role("region", name="Strategies, counter")
    table.get_by_role("row").filter(has_text="TEMPERATURE").get_by_text("works").wait_for()

    def add(event_type: str, handler: str) -> Any:
        card.get_by_role("button", name="Add strategy").click()
        dialog = page.get_by_role("dialog", name="Add strategy")
        dialog.locator("[name=type]").fill(event_type)
        dialog.locator("[name=handler]").fill(handler)
        dialog.get_by_role("button", name="Save").click()
        return dialog

    add("HUMIDITY", "absent")
    table.get_by_role("row").filter(has_text="HUMIDITY").get_by_text("dead").wait_for()
    card.get_by_text("strategy HUMIDITY is dead").wait_for()
    refused = add("HUMIDITY", "absent")
    refused.get_by_role("alert").filter(has_text="HUMIDITY").wait_for()
    page.keyboard.press("Escape")

    table.get_by_role("button", name="Edit the strategy of HUMIDITY").click()
    dialog = page.get_by_role("dialog", name="Edit the strategy of HUMIDITY")
    dialog.locator("[name=handler]").fill("start")
    dialog.get_by_role("button", name="Save").click()
    table.get_by_role("row").filter(has_text="HUMIDITY").get_by_text("works").wait_for()
    table.get_by_role("button", name="Delete the strategy of TEMPERATURE").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    table.get_by_role("row").filter(has_text="TEMPERATURE").wait_for(state="detached")
    rows = node.call("GET", "/strategy/x/routes/datalist").json["data"]
    assert [(row["eventType"], row["handler"]) for row in rows] == [("HUMIDITY", "start")]
