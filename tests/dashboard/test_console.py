"""The console of a project: events are sent, run without effects, and shown with their effects."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest

from tests.dashboard.conftest import Open
from tests.dashboard.test_applets import EXAMPLE
from tests.support.nodes import RunningNode, until
from tests.support.tools import require_tool

pytestmark = pytest.mark.timeout(300)


def counted(node: RunningNode, project: str, applet: Any) -> str:
    """Return the count that the example stores."""
    return node.kv(project, applet["appletID"], b"count").decode()


def test_an_event_is_sent_and_its_story_shown(node: RunningNode, signed_in: Open) -> None:
    node.create_project("trying")
    applet = node.deploy("trying", EXAMPLE, "counter")
    page = signed_in(node, "/projects/trying/console").page
    page.get_by_role("button", name="Add the publisher").click()
    payload = page.get_by_role("textbox", name="Payload")
    payload.fill('{"celsius": 21.5')
    page.get_by_text("Not JSON").wait_for()
    payload.fill('{"celsius":21.5}')
    page.get_by_text("Valid JSON, 16 B").wait_for()
    page.get_by_role("button", name="Format").click()
    assert payload.input_value() == '{\n  "celsius": 21.5\n}'

    payload.press("Control+Enter")
    page.get_by_text("answered in").wait_for()
    page.get_by_text("count=1 payload=").wait_for()
    page.get_by_text("Committed and answered").wait_for()
    assert counted(node, "trying", applet) == "1"

    page.get_by_label("Event type").fill("OTHER")
    payload.fill("plain text")
    page.get_by_role("button", name="Send", exact=True).click()
    page.get_by_text("count=2 payload=plain text").wait_for()
    history = page.get_by_role("region", name="Last events")
    assert history.get_by_role("row").count() == 3
    history.get_by_role("button").last.click()
    first = '{\n  "celsius": 21.5\n}'
    until(lambda: payload.input_value() == first, "the first payload is in the editor")
    page.get_by_text("count=1 payload=").wait_for()

    page.get_by_role("link", name="Publishers").click()
    page.get_by_text("1 publisher").wait_for()
    page.get_by_role("link", name="Console").click()
    history.wait_for()
    assert history.get_by_role("row").count() == 3

    page.get_by_text("As curl").first.click()
    command = page.get_by_role("region", name="curl command").inner_text()
    run = f"{command} --fail --silent --noproxy '*'"
    done = subprocess.run(["sh", "-c", run], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done
    assert counted(node, "trying", applet) == "3"
    require_tool("mosquitto_pub")
    page.get_by_role("button", name="Over MQTT").click()
    command = page.get_by_role("region", name="Over MQTT").inner_text()
    subprocess.run(["sh", "-c", command], timeout=60, check=True)
    until(lambda: counted(node, "trying", applet) == "4", "the broker's event is handled")


@pytest.mark.thorough
def test_a_dry_run_keeps_nothing(node: RunningNode, signed_in: Open) -> None:
    node.create_project("dry")
    applet = node.deploy("dry", EXAMPLE, "counter")
    node.redeploy(applet["appletID"], EXAMPLE.replace(b'"count="', b'"total="'))
    publisher = node.add_publisher("dry", "sensor")
    header = {"pub_id": "sensor", "token": publisher["token"]}
    sent = node.send("dry", {"header": header, "payload": "NDI="})
    assert sent.status == 201
    (row,) = node.call("GET", "/event_log/dry").json["data"]

    page = signed_in(node, f"/projects/dry/console?from={row['place']}").page
    payload = page.get_by_role("textbox", name="Payload")
    until(lambda: payload.input_value() == "42", "the payload of the event is in the editor")
    page.get_by_label("Version").select_option("1")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("count=2 payload=42").wait_for()
    writes = page.get_by_role("region", name="Key-value writes")
    cells = writes.get_by_role("row").nth(1).get_by_role("cell").all_inner_texts()
    assert cells == ["count", "1", "2"]
    page.get_by_label("With the stored data").uncheck()
    page.get_by_label("Version").select_option("2")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("total=1 payload=42").wait_for()
    assert counted(node, "dry", applet) == "1"
    assert node.call("GET", "/event_log/dry").json["data"] == [row]


CHOOSE_AT_ONCE = """
new MutationObserver((_, own) => {
  const option = document.querySelector('#main select > option[value="1"]');
  if (!option) return;
  own.disconnect();
  option.selected = true;
  option.parentElement.dispatchEvent(new Event('change', { bubbles: true }));
}).observe(document, { childList: true, subtree: true });
"""


def test_a_version_that_is_chosen_as_soon_as_it_is_listed_stays_chosen(
    node: RunningNode, signed_in: Open
) -> None:
    node.create_project("quick")
    applet = node.deploy("quick", EXAMPLE, "counter")
    node.redeploy(applet["appletID"], EXAMPLE.replace(b'"count="', b'"total="'))
    node.add_publisher("quick", "sensor")
    page = signed_in(node, "/projects/quick/console").page
    page.get_by_role("button", name="Dry run").wait_for()
    page.evaluate(CHOOSE_AT_ONCE)
    page.get_by_role("button", name="Dry run").click()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("count=1").wait_for()
    assert page.get_by_label("Version").input_value() == "1"


def test_a_refused_event_says_why(node: RunningNode, signed_in: Open) -> None:
    node.create_project("strict")
    node.deploy("strict", EXAMPLE, "counter")
    body = {"name": "gate", "key": "gate", "eventTypes": ["OPENED"]}
    node.call("POST", "/publisher/x/strict", body)
    page = signed_in(node, "/projects/strict/console", expected=["403"]).page
    page.get_by_label("Event type").fill("CLOSED")
    page.get_by_role("button", name="Send", exact=True).click()
    page.get_by_role("alert").filter(has_text="EventTypeNotAllowed").wait_for()
    page.get_by_role("region", name="Last events").get_by_text("refused").wait_for()


def test_the_place_of_an_event_in_the_address_leads_to_no_other_route(
    node: RunningNode, signed_in: Open
) -> None:
    node.create_project("elsewhere")
    node.add_publisher("elsewhere", "sensor")
    path = "/projects/elsewhere/console?from=..%2F..%2F..%2Faccount"
    seen = signed_in(node, "/projects", expected=["status of 4"])
    with seen.page.expect_request(re.compile("/srv-applet-mgr/.*account$")) as asked:
        seen.page.goto(seen.address + path)
    assert asked.value.url.endswith("/event_log/elsewhere/at/..%2F..%2F..%2Faccount")
