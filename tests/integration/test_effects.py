"""Effects of handlers: messages, API calls and metrics are sent after the commit of their event, or
never."""

from __future__ import annotations

import base64
import http.server
import json
import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.applets import SENDER
from tests.support.brokers import Subscriber
from tests.support.nodes import StartNode, message, parts, strategies, until

HANDLERS = ("publish", "loopback", "twice", "submit", "call", "result", "transact")


class Sending:
    """A node whose project "sender" has the sending applet."""

    def __init__(self, start: StartNode, *flags: str) -> None:
        self.node = start(*flags)
        self.node.create_project("sender")
        applet = self.node.deploy("sender", SENDER, strategies=strategies(*HANDLERS))
        self.applet_id: str = applet["appletID"]
        self.publisher = self.node.add_publisher("sender", "d")

    def send(self, handler: str, payload: bytes) -> int:
        answer = self.node.send("sender", message(self.publisher, payload, handler.upper()))
        assert answer.status == 201, answer
        code: int = answer.json["results"][0]["code"]
        return code

    def accepts(self, payload: bytes) -> bool:
        """Return whether the node accepts an event that publishes its payload."""
        event = message(self.publisher, payload, "PUBLISH")
        return self.node.send("sender", event).status == 201

    def stored(self, key: bytes) -> bytes:
        return self.node.kv("sender", self.applet_id, key)

    def logged(self) -> list[str]:
        return [row["msg"] for row in self.node.call("GET", "/applet_log/sender").json["data"]]


class Hook(http.server.BaseHTTPRequestHandler):
    """Answers every POST with the body of the request."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(202)
        self.send_header("X-Seen", self.headers["X-Sent"])
        self.end_headers()
        self.wfile.write(b"seen:" + body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def hook() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def sending(start_module_node: StartNode) -> Sending:
    return Sending(start_module_node, "--api-hosts", "127.0.0.1, example.org")


@pytest.mark.thorough
def test_a_handlers_messages_are_published_in_order_once_it_is_committed(
    sending: Sending,
) -> None:
    subscriber = Subscriber(sending.node, "out/readings")
    for number in range(20):
        assert sending.send("publish", b"reading %d" % number) == 0
    expected = [f"reading {number}" for number in range(20)]
    until(lambda: len(subscriber.received("out/readings")) >= 20, "all messages")
    assert subscriber.received("out/readings") == expected
    subscriber.close()


def test_a_handler_that_traps_has_published_nothing(sending: Sending) -> None:
    subscriber = Subscriber(sending.node, "out/readings")
    assert sending.send("twice", b"never") == -1
    assert sending.send("publish", b"after") == 0
    until(lambda: "after" in subscriber.received("out/readings"), "the next message")
    assert "never" not in subscriber.received("out/readings")
    subscriber.close()


def test_a_topic_where_a_project_takes_events_is_refused_to_handlers(sending: Sending) -> None:
    assert sending.send("loopback", b"again and again") == -1
    reason = "ws_send_mqtt_msg: topic 'sender' is where project sender takes events"
    until(lambda: reason in sending.logged(), "the record")


def test_metrics_are_kept_with_their_event(sending: Sending) -> None:
    assert sending.send("submit", b'{"celsius": 21.5}') == 0
    assert sending.send("submit", b"[1]") == -1
    assert sending.send("submit", b"not json") == -1
    rows = sending.node.call("GET", "/applet_metrics/sender").json["data"]
    assert [row["value"] for row in rows] == [{"celsius": 21.5}]
    assert rows[0]["appletName"] == "applet"
    assert rows[0]["eventID"]


def test_a_transaction_on_a_chain_that_is_not_configured_is_minus_1_and_recorded(
    sending: Sending,
) -> None:
    assert sending.send("transact", b'{"to":"0x00","value":"0","data":""}') == -1
    record = "ws_send_tx: chain 4690 is not configured"
    until(lambda: record in sending.logged(), "the record")


def request(url: str, method: str = "POST", **header: str) -> bytes:
    headers = {name.replace("_", "-"): [text] for name, text in header.items()}
    body = base64.b64encode(b"hello").decode()
    return json.dumps({"Method": method, "Url": url, "Header": headers, "Body": body}).encode()


def test_an_api_call_is_accepted_at_once_and_its_response_comes_as_an_event(
    sending: Sending, hook: int
) -> None:
    url = f"http://127.0.0.1:{hook}/x"
    assert sending.send("call", request(url, Eventtype="RESULT", X_Sent="7")) == 0
    assert json.loads(sending.stored(b"answer"))["StatusCode"] == 200
    until(lambda: b"202" in sending.stored(b"result"), "the response")
    response = json.loads(sending.stored(b"result"))
    assert base64.b64decode(response["Body"]) == b"seen:hello"
    assert response["Header"]["X-Seen"] == ["7"]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"not json", 400),
        (request("http://10.0.0.1/", Eventtype="RESULT"), 403),
        (request("http://localhost/", Eventtype="RESULT"), 403),
        (request("w3bstream://w3bstream.com/system/nothing", Eventtype="RESULT"), 404),
        (request("w3bstream://w3bstream.com/system/send_tx", Eventtype="RESULT"), 501),
        (request("w3bstream://w3bstream.com/system/gen_zk_proof", Eventtype="RESULT"), 501),
        (request("file:///etc/passwd", Eventtype="RESULT"), 404),
        (request("w3bstream://w3bstream.com/system/hello", "GET"), 200),
    ],
)
def test_an_impossible_api_call_is_refused_at_once(
    sending: Sending, sent: bytes, status: int
) -> None:
    assert sending.send("call", sent) == 0
    assert json.loads(sending.stored(b"answer"))["StatusCode"] == status


def test_a_failed_api_call_is_reported_by_an_event(sending: Sending, hook: int) -> None:
    url = "http://127.0.0.1:1/closed"
    assert sending.send("call", request(url, Eventtype="RESULT")) == 0
    until(lambda: b"502" in sending.stored(b"result"), "the failure")


@pytest.mark.parametrize("victim", ["fb-mqtt:0", "project"])
def test_messages_are_delivered_although_the_process_that_carries_them_is_killed(
    start_node: StartNode, victim: str
) -> None:
    sending = Sending(start_node)
    subscriber = Subscriber(sending.node, "out/readings")
    sending.send("publish", b"first")
    until(lambda: subscriber.received("out/readings"), "the first message")
    pid = parts(sending.node)[victim]
    for number in range(50):
        if number == 25:
            os.kill(pid, signal.SIGKILL)
        payload = b"reading %d" % number
        if not sending.accepts(payload):  # lost with the project: the device sends it again
            until(partial(sending.accepts, payload), "the project")
    expected = {f"reading {number}" for number in range(26, 50)}
    until(lambda: expected <= set(subscriber.received("out/readings")), "every message")
    subscriber.close()
