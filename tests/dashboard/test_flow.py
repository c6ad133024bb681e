"""The flow page of a project: connections, failures, and events without a handler."""

from __future__ import annotations

import pytest

from tests.dashboard.conftest import Open
from tests.support.management import wasm
from tests.support.nodes import RunningNode, message, strategies, until
from tests.support.projects import MODULE

pytestmark = pytest.mark.timeout(300)


@pytest.mark.thorough
def test_an_empty_project_says_what_to_do_first(node: RunningNode, signed_in: Open) -> None:
    node.create_project("flow_empty")
    page = signed_in(node, "/projects/flow_empty/flow").page
    picture = page.get_by_role("group", name="Picture of the flow")
    picture.get_by_role("link", name="Deploy an applet").wait_for()
    publisher = picture.get_by_role("link", name="Add publisher")
    assert publisher.get_attribute("href") == "/projects/flow_empty/publishers"


@pytest.mark.thorough
def test_the_picture_and_the_table_show_where_events_go(node: RunningNode, signed_in: Open) -> None:
    node.create_project("flow")
    rules = strategies("start", DOOR="start")
    node.deploy("flow", wasm(MODULE.decode()), "meter", strategies=rules)
    sensor = node.add_publisher("flow", "sensor-1")
    for event_type, payload in (("START", b"ck"), ("START", b"t"), ("WIND", b"ck")):
        node.send("flow", message(sensor, payload, event_type))
    until(
        lambda: len(node.call("GET", "/event_log/flow/flow").json["types"]) == 2,
        "the events are counted",
    )
    page = signed_in(node, "/projects/flow/flow").page
    picture = page.get_by_role("group", name="Picture of the flow")
    picture.get_by_role("link", name="sensor-1").wait_for()
    picture.get_by_role("link", name="START").get_by_text("1 failed").wait_for()
    picture.get_by_role("link", name="WIND").get_by_text("no handler").wait_for()
    picture.get_by_role("link", name="Dead letters").get_by_text("1 kept").wait_for()
    wires = picture.locator("path.wire")
    assert picture.locator("path.wire.bad").count() == 2, "to the handler and to the dead letters"
    idle = picture.locator("path.wire.idle").count()
    assert idle == 3, "DOOR has no events, and nothing was sent to a chain or over MQTT"
    assert wires.count() >= 5

    table = page.get_by_role("region", name="Event types")
    start = table.get_by_role("row").filter(has=page.get_by_role("link", name="START"))
    start.get_by_text("meter").wait_for()
    start.get_by_text("sensor-1").wait_for()
    table.get_by_role("row").filter(has_text="WIND").get_by_text("no handler").wait_for()
    picture.get_by_role("link", name="WIND").click()
    page.wait_for_url("**/projects/flow/events?type=WIND")


@pytest.mark.thorough
def test_many_senders_and_types_are_grouped_and_a_phone_shows_the_table(
    node: RunningNode, signed_in: Open
) -> None:
    node.create_project("flow_many")
    rules = [{"eventType": f"TYPE_{n:02}", "handler": "start"} for n in range(40)]
    node.deploy("flow_many", wasm(MODULE.decode()), "meter", strategies=rules)
    for number in range(40):
        node.add_publisher("flow_many", f"truck-{number:02}")
    page = signed_in(node, "/projects/flow_many/flow").page
    picture = page.get_by_role("group", name="Picture of the flow")
    picture.get_by_role("link", name="31 more types").wait_for()
    picture.get_by_role("link", name="32 more sources").wait_for()
    assert picture.get_by_role("link").count() < 30

    phone = signed_in(node, "/projects/flow_many/flow", width=390).page
    phone.get_by_role("region", name="Event types").get_by_text("TYPE_39").wait_for()
    assert not phone.get_by_role("group", name="Picture of the flow").is_visible()
    root = phone.locator("html")
    assert root.evaluate("(e) => e.scrollWidth <= e.clientWidth")
