"""The page for users of W3bstream is right: each row of its tables, and each testable statement of
its text, has a test, here or in the file that `migrating.txt` names."""

from __future__ import annotations

import ast
import contextlib
import json
import queue
import re
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.support.applets import TALLY
from tests.support.brokers import Device
from tests.support.nodes import RunningNode, StartNode, message
from tests.support.tools import LIMIT_S

TESTS = Path(__file__).parents[1]
[PAGE] = (TESTS.parent / "docs").rglob("migrat*.md")
TABLE = Path(__file__).with_name("migrating.txt").read_text()
HELD = dict(line.split(" => ") for line in TABLE.splitlines() if line and not line.startswith("#"))
LIMIT_BYTES = 1 << 20


def first_cells(page: str) -> set[str]:
    """Return the first cells of all rows of the tables of a page."""
    tables = re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()[2:]]
    return {row.split("|")[1].strip() for row in rows}


def test_every_row_of_the_page_has_a_test() -> None:
    assert first_cells(PAGE.read_text()) - HELD.keys() == set()


@pytest.mark.parametrize("words", HELD)
def test_a_statement_of_the_table_is_on_the_page_and_its_test_exists(words: str) -> None:
    assert words in " ".join(PAGE.read_text().split())
    file, _, name = HELD[words].partition("::")
    tree = ast.parse((TESTS / file).read_text())
    assert not name or name in {node.name for node in tree.body if hasattr(node, "name")}


# ---------------------------------------------------------------- what no other test says


@pytest.fixture(scope="module")
def node(start_module_node: StartNode) -> RunningNode:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SRV_APPLET_MGR__HTTP_PORT", "1")
        environment.setenv("SRV_APPLET_MGR__Server__Port", "1")
        node = start_module_node()
    node.create_project("p")
    node.deploy("p", TALLY)
    return node


@pytest.fixture(scope="module")
def publisher(node: RunningNode) -> Any:
    return node.add_publisher("p", "d")


def test_the_start_is_logged_with_the_words_of_the_original(node: RunningNode) -> None:
    assert f"listen on :{node.http_port}" in node.log


def test_variables_of_the_original_are_not_read(node: RunningNode) -> None:
    assert node.call("GET", "/version").status == 200
    assert "SRV_APPLET_MGR" not in node.log


def test_management_is_served_on_the_port_of_events_and_on_the_dashboards(
    node: RunningNode,
) -> None:
    for port in (node.http_port, node.dashboard_port):
        assert node.call("GET", "/project", port=port).status == 200


def test_no_port_serves_what_the_original_shows_to_debuggers(node: RunningNode) -> None:
    for port in (node.http_port, node.dashboard_port):
        with contextlib.closing(node.connection(port)) as connection:
            connection.request("GET", "/debug/pprof/")
            assert connection.getresponse().status == 404


def test_an_answer_has_the_id_of_its_event_and_none_of_a_trace(
    node: RunningNode, publisher: Any
) -> None:
    headers = node.send("p", message(publisher)).headers
    assert headers["X-Event-Id"]
    assert "B3" not in {name.upper() for name in headers}


@pytest.mark.parametrize(
    ("field", "limit"), [("event_id", 128), ("event_type", 256), ("token", 1_024)]
)
def test_a_field_of_an_event_beyond_its_limit_is_a_bad_request(
    node: RunningNode, publisher: Any, field: str, limit: int
) -> None:
    for length, status in ((limit, {201, 401, 404}), (limit + 1, {400})):
        event = message(publisher)
        event["header"][field] = "x" * length
        answer = node.send("p", event)
        assert answer.status in status, answer
    assert answer.json["key"] == "badRequest"


def test_the_duration_of_a_traffic_limit_has_at_most_64_characters(node: RunningNode) -> None:
    for parts, status in ((32, 201), (33, 400)):
        body = {"threshold": 10**9, "duration": "1h" * parts, "apiType": "EVENT"}
        answer = node.call("POST", "/traffic/x/p", body)
        assert answer.status == status, answer


def test_a_message_beyond_the_limit_is_413_and_ends_the_connection_of_a_device(
    node: RunningNode, publisher: Any
) -> None:
    answer = node.send("p", message(publisher, bytes(LIMIT_BYTES)))
    assert (answer.status, answer.json["key"]) == (413, "RequestEntityTooLarge")
    assert str(LIMIT_BYTES) in answer.body.decode(), "the answer names the limit"
    with Device(node.mqtt_port, "large") as device, pytest.raises(ConnectionError):
        device.publish("p/push/t/T", bytes(2 * LIMIT_BYTES))


def test_clients_of_mqtt_3_1_are_served(node: RunningNode, publisher: Any) -> None:
    raw = f"p/push/{publisher['token']}/DEFAULT"
    answers: queue.Queue[bytes] = queue.Queue()
    client = paho.Client(CallbackAPIVersion.VERSION2, "old", protocol=MQTTProtocolVersion.MQTTv31)
    client.username_pw_set("d", publisher["token"])
    client.on_message = lambda _client, _data, got: answers.put(bytes(got.payload))

    def connected(*_: Any) -> None:
        client.subscribe("ack/d", 1)

    def subscribed(*_: Any) -> None:
        client.publish(raw, b"x", 1)

    client.on_connect, client.on_subscribe = connected, subscribed
    client.connect("127.0.0.1", node.mqtt_port)
    client.loop_start()
    try:
        answer = json.loads(answers.get(timeout=LIMIT_S))
    finally:
        client.disconnect()
        client.loop_stop()
    assert answer["results"][0]["code"] == 0
