"""The publishers of a project: added, connected, changed, deleted."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from tests.dashboard.conftest import Open
from tests.support.nodes import RunningNode, until
from tests.support.tools import LIMIT_S, require_tool

pytestmark = pytest.mark.timeout(300)


@pytest.mark.thorough
def test_a_publisher_is_added_changed_given_another_token_and_deleted(
    node: RunningNode, signed_in: Open
) -> None:
    node.create_project("gates")
    page = signed_in(node, "/projects/gates/publishers", expected=["409"]).page
    page.get_by_text("No publishers yet").wait_for()

    def add(key: str) -> None:
        page.get_by_role("button", name="Add publisher").first.click()
        dialog = page.get_by_role("dialog", name="Add publisher")
        dialog.locator("[name=key]").fill(key)
        dialog.locator("[name=name]").fill(f"The {key} gate")
        dialog.locator("[name=types]").fill("OPENED\nCLOSED\n")
        dialog.get_by_role("button", name="Add publisher").click()

    add("north")
    panel = page.get_by_role("dialog", name="Connect north")
    panel.get_by_text("Authorization: Bearer").wait_for()
    assert panel.get_by_label("Event type").input_value() == "OPENED"
    page.keyboard.press("Escape")
    panel.wait_for(state="detached")

    add("north")
    refused = page.get_by_role("dialog", name="Add publisher")
    refused.get_by_role("alert").filter(has_text="north").wait_for()
    page.keyboard.press("Escape")
    add("south")
    page.get_by_role("dialog", name="Connect south").wait_for()
    page.keyboard.press("Escape")

    table = page.get_by_role("region", name="Publishers")
    page.get_by_label("Filter by key or name").fill("SOUTH")
    page.wait_for_url("**?find=SOUTH")
    table.get_by_role("row").filter(has_text="north").wait_for(state="detached")
    table.get_by_role("button", name="Edit south").click()
    dialog = page.get_by_role("dialog", name="Edit south")
    dialog.locator("[name=types]").fill("")
    dialog.get_by_role("button", name="Save").click()
    table.get_by_role("row").filter(has_text="south").filter(has_text="all").wait_for()

    (before,) = node.call("GET", "/publisher/x/gates?key=south").json["data"]
    table.get_by_role("button", name="New token for south").click()
    dialog = page.get_by_role("dialog", name="New token for south")
    dialog.locator("[name=days]").fill("3")
    dialog.get_by_role("button", name="New token").click()
    page.get_by_role("dialog", name="Connect south").get_by_text("Bearer").wait_for()
    (after,) = node.call("GET", "/publisher/x/gates?key=south").json["data"]
    assert after["token"] != before["token"]
    assert "expiredAt" in after
    page.keyboard.press("Escape")

    table.get_by_role("button", name="Delete south").click()
    page.get_by_role("dialog", name="Delete south").get_by_role("button", name="Delete").click()
    page.get_by_text("No publisher matches").wait_for()
    assert node.call("GET", "/publisher/x/gates").json["total"] == 1


@pytest.mark.thorough
def test_what_the_page_tells_a_device_to_run_sends_events(
    node: RunningNode, signed_in: Open, tmp_path: Path
) -> None:
    node.create_project("snippets")
    node.call("POST", "/publisher/x/snippets", {"name": "it's °C", "key": "p 1"})
    page = signed_in(node, "/projects/snippets/publishers").page
    page.get_by_role("button", name="Connect p 1").click()
    panel = page.get_by_role("dialog", name="Connect p 1")
    panel.get_by_label("Event type").fill("SO-MANY ¿?")

    def example(way: str) -> str:
        panel.get_by_role("button", name=way, exact=True).click()
        return str(panel.get_by_role("region", name=f"Example for {way}").inner_text())

    def run(*command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr

    run("sh", "-c", f"{example('HTTP')} --fail --silent --show-error --noproxy '*'")
    script = tmp_path / "send.py"
    script.write_text(example("Python"))
    run("env", "-u", "http_proxy", "-u", "HTTP_PROXY", sys.executable, str(script))
    panel.get_by_label("Event type").fill("LAST")
    require_tool("mosquitto_pub")
    run("sh", "-c", example("MQTT"))
    path = "/event_log/snippets"
    until(lambda: len(node.call("GET", path).json["data"]) == 3, "the broker's event is handled")
    rows = node.call("GET", path).json["data"]
    assert [(row["eventType"], row["source"]) for row in rows] == [
        ("LAST", "mqtt"),
        ("SO-MANY ¿?", "http"),
        ("SO-MANY ¿?", "http"),
    ]
    assert {row["size"] for row in rows} == {len('{"temperature": 21.5}')}

    row = page.get_by_role("region", name="Publishers").get_by_role("row").filter(has_text="p 1")
    row.get_by_role("link", name="3", exact=True).wait_for()
    (listed,) = node.call("GET", "/publisher/x/snippets").json["data"]
    assert listed["events"] == 3
    assert -1 <= time.time() - datetime.fromisoformat(listed["lastSeen"]).timestamp() < LIMIT_S

    panel.get_by_role("button", name="Show the QR code").click()
    panel.get_by_role("img", name="QR code").wait_for()
    token = node.call("GET", "/publisher/x/snippets").json["data"][0]["token"]
    assert token in example("C")
    assert json.dumps("Authorization: Bearer " + token) in example("C")


def test_administrators_limit_the_traffic_of_a_project(node: RunningNode, signed_in: Open) -> None:
    node.create_project("limited")
    page = signed_in(node, "/projects/limited/publishers", expected=["400"]).page
    page.get_by_role("button", name="Add limit").click()
    dialog = page.get_by_role("dialog", name="Add limit")
    dialog.locator("[name=duration]").fill("soon")
    dialog.get_by_role("button", name="Save").click()
    dialog.get_by_role("alert").filter(has_text="duration").wait_for()
    dialog.locator("[name=duration]").fill("10m")
    dialog.locator("[name=threshold]").fill("5000")
    dialog.get_by_role("button", name="Save").click()
    table = page.get_by_role("region", name="Traffic limits")
    table.get_by_role("cell", name="5,000 per 10m").wait_for()
    table.get_by_role("button", name="Change the limit").click()
    dialog = page.get_by_role("dialog", name="Change the limit")
    dialog.locator("[name=share]").fill("20")
    dialog.get_by_role("button", name="Save").click()
    table.get_by_role("cell", name="20 per 10m").wait_for()
    table.get_by_role("button", name="Delete this limit").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.get_by_text("No limit: the project takes").wait_for()
    assert node.call("GET", "/traffic/x/limited/datalist").json["total"] == 0
