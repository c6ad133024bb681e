"""Traces of events reach an OpenTelemetry collector, with one span for each step."""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fieldbrook.core.settings import Settings
from fieldbrook.observability.span import Span
from fieldbrook.observability.span_export import Exporter
from fieldbrook.observability.spans import SERVER
from tests.support.applets import SENDER, TALLY
from tests.support.brokers import Subscriber
from tests.support.collector import Collector, collecting
from tests.support.metrics import one
from tests.support.nodes import PREFIX, RunningNode, StartNode, message, strategies, until
from tests.support.tools import LIMIT_S

SENT = strategies(PUBLISH="publish", TRAP="twice")
HEADERS = "Authorization=Bearer of the test, X-Scope=fields"


class Traced(NamedTuple):
    """A node with a collector, and a project with a publisher."""

    node: RunningNode
    collector: Collector
    publisher: Any
    applet: str


@pytest.fixture(scope="module")
def traced(start_module_node: StartNode) -> Iterator[Traced]:
    with collecting() as collector, pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("FIELDBROOK_OTLP_HEADERS", HEADERS)  # a secret: it has no option
        node = start_module_node("--otlp-endpoint", collector.url)
        yield prepared(node, collector)
        node.stop()


def prepared(node: RunningNode, collector: Collector) -> Traced:
    node.create_project("room")
    applet = node.deploy("room", SENDER, "sending", strategies=SENT)["appletID"]
    node.deploy("room", TALLY, "tally", strategies=strategies("start"))
    return Traced(node, collector, node.add_publisher("room", "d"), applet)


def traceparent(trace: str, span: str = "00f067aa0ba902b7", flags: str = "01") -> str:
    return f"00-{trace}-{span}-{flags}"


def send(traced: Traced, kind: str, parent: str = "", **headers: str) -> Any:
    """Send one event; `headers` that the fast path does not know bring it to Tornado."""
    connection = http.client.HTTPConnection("127.0.0.1", traced.node.http_port, timeout=LIMIT_S)
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    if parent:
        fields["traceparent"] = parent
    body = json.dumps(message(traced.publisher, b"21.5", kind))
    connection.request("POST", f"{PREFIX}/event/room", body, fields)
    answer = connection.getresponse()
    found = json.loads(answer.read())
    assert answer.status == 201, found
    connection.close()
    return answer.headers["X-Event-Id"]


@pytest.mark.parametrize("headers", [{}, {"Connection": "close"}], ids=["fast path", "Tornado"])
@pytest.mark.thorough("fast path")
def test_an_event_has_one_linked_span_for_each_step_below_that_of_its_sender(
    traced: Traced, headers: dict[str, str]
) -> None:
    trace, began_ns = secrets.token_hex(16), time.time_ns()
    subscriber = Subscriber(traced.node, "out/readings")
    try:
        event_id = send(traced, "PUBLISH", traceparent(trace), **headers)
        names = ("gateway.receive", "project.handle", "journal.commit", "outbox.publish")
        spans = traced.collector.of_trace(trace, *names)
    finally:
        subscriber.close()
    receive, handle, commit, publish = (spans[name] for name in names)
    assert {*spans} == {*names}
    assert receive.parent == "00f067aa0ba902b7"
    assert handle.parent == commit.parent == receive.span
    assert publish.parent == handle.span
    for span in spans.values():
        assert began_ns <= span.began_ns <= span.ended_ns <= time.time_ns()
        assert not span.failed
    assert receive.began_ns <= handle.began_ns <= handle.ended_ns <= commit.began_ns
    assert commit.ended_ns <= receive.ended_ns
    project_id = traced.node.call("GET", "/project/room").json["projectID"]
    assert receive.attributes == {
        "fieldbrook.project.id": project_id,
        "fieldbrook.publisher.id": traced.publisher["publisherID"],
        "fieldbrook.event.id": event_id,
        "fieldbrook.event.type": "PUBLISH",
        "fieldbrook.event.source": "http",
        "fieldbrook.event.size": 4,
        "fieldbrook.handlers": 1,
        "fieldbrook.repeated": False,
    }
    about = handle.attributes
    assert about["fieldbrook.handler"] == "publish"
    assert (about["fieldbrook.applet.id"], about["fieldbrook.applet.name"]) == (
        traced.applet,
        "sending",
    )
    assert (about["fieldbrook.applet.version"], about["fieldbrook.code"]) == (1, 0)
    assert commit.attributes["fieldbrook.batch.events"] >= 1
    assert publish.attributes["messaging.destination.name"] == "out/readings"
    parts = [span.part.partition(":")[0] for span in (receive, handle, commit, publish)]
    assert parts == ["http", "worker", "worker", "mqtt"]


def test_a_failed_handler_is_a_failed_span_with_its_reason(traced: Traced) -> None:
    trace = secrets.token_hex(16)
    send(traced, "TRAP", traceparent(trace))
    spans = traced.collector.of_trace(trace, "project.handle", "journal.commit", "gateway.receive")
    assert "unreachable" in spans["project.handle"].failed
    assert spans["project.handle"].attributes["fieldbrook.code"] == -1
    assert not spans["gateway.receive"].failed
    assert "outbox.publish" not in spans


def test_events_of_an_instance_that_they_share_have_a_span_each(traced: Traced) -> None:
    body = [message(traced.publisher, b"%d" % number, "START") for number in range(20)]
    trace = secrets.token_hex(16)
    connection = http.client.HTTPConnection("127.0.0.1", traced.node.http_port, timeout=LIMIT_S)
    fields = {"traceparent": traceparent(trace)}
    connection.request("POST", f"{PREFIX}/event/room", json.dumps({"events": body}), fields)
    assert connection.getresponse().read()
    connection.close()

    def spans() -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for span in tuple(traced.collector.spans):
            if span.trace == trace:
                found.setdefault(span.name, []).append(span.span)
        return found

    until(lambda: [len(each) for each in spans().values()] == [20, 20, 20], "all have arrived")
    assert len({span for each in spans().values() for span in each}) == 60


def test_a_sender_decides_whether_its_event_is_traced(traced: Traced) -> None:
    silent, heard = secrets.token_hex(16), secrets.token_hex(16)
    send(traced, "PUBLISH", traceparent(silent, flags="00"))
    send(traced, "PUBLISH", traceparent(heard))
    traced.collector.of_trace(heard, "gateway.receive", "outbox.publish")
    assert silent not in {span.trace for span in traced.collector.spans}


@pytest.mark.parametrize("parent", ["", "00-0-0-0", f"00-{'0' * 32}-{'1' * 16}-01"])
def test_an_event_without_a_valid_parent_begins_a_trace(traced: Traced, parent: str) -> None:
    event_id = send(traced, "PUBLISH", parent)

    def first() -> Any:
        spans = tuple(traced.collector.spans)
        return [s for s in spans if s.attributes.get("fieldbrook.event.id") == event_id and s.trace]

    (receive, *_) = until(
        lambda: [span for span in first() if span.name == "gateway.receive"], "its first span"
    )
    assert receive.parent == ""
    assert set(receive.trace) != {"0"}
    traced.collector.of_trace(receive.trace, "project.handle", "journal.commit")


def test_the_collector_gets_the_header_fields_of_the_setting(traced: Traced) -> None:
    send(traced, "PUBLISH")
    until(lambda: traced.collector.headers, "a request")
    assert traced.collector.headers["authorization"] == "Bearer of the test"
    assert traced.collector.headers["x-scope"] == "fields"
    shown = traced.node.call("GET", "/setting").json["data"]
    (row,) = (row for row in shown if row["name"] == "otlp_headers")
    assert "Bearer" not in json.dumps(row)


def test_spans_are_counted(traced: Traced) -> None:
    send(traced, "PUBLISH")
    until(lambda: one(traced.node, "spans_total", outcome="exported") > 0, "exported spans")


@pytest.mark.thorough
def test_a_collector_that_does_not_answer_costs_spans_and_no_event(start_node: StartNode) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces"
        node = start_node("--otlp-endpoint", url, "--otlp-queue-spans", "64")
        node.create_project("room")
        applet = node.deploy("room", TALLY, "tally", strategies=strategies("start"))
        publisher = node.add_publisher("room", "d")
        events = [message(publisher, b"x", "START") for _ in range(1_000)]
        assert node.call("POST", "/event/room", {"events": events}, token="").status == 201
        assert node.call("POST", "/event/room", {"events": events}, token="").status == 201
        assert node.count("room", applet["appletID"]) == 2_000
        until(lambda: one(node, "spans_total", outcome="full") > 1_000, "spans are dropped")
        assert node.stop() < 20


def test_a_collector_whose_answer_has_no_end_costs_no_memory() -> None:
    sent = list[int]()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1 << 40))
                with suppress(OSError):
                    while True:
                        connection.sendall(bytes(1 << 20))
                        sent.append(1 << 20)

        answering = threading.Thread(target=answer)
        answering.start()
        host, port = listening.getsockname()
        settings = Settings(otlp_endpoint=f"http://{host}:{port}/v1/traces")
        span = Span("name", SERVER, bytes(range(24)), b"", 1, 2, {})
        assert Exporter(settings, "http:0").export([span])
        answering.join(LIMIT_S)
        assert not answering.is_alive(), "the connection has ended"
    assert sum(sent) < 64 << 20, "only the buffers of the system"


@pytest.mark.thorough
def test_a_collector_that_refuses_spans_is_logged_once(tmp_path: Path) -> None:
    with collecting() as collector:
        collector.closed = True
        node = RunningNode(tmp_path / "n", "--otlp-endpoint", collector.url)
        try:
            node.log_in()
            made = prepared(node, collector)
            for _ in range(2):
                send(made, "PUBLISH")
                before = one(node, "spans_total", outcome="failed")
                until(lambda: one(node, "spans_total", outcome="failed") > before, "spans fail")  # noqa: B023
            lines = [line for line in node.log.splitlines() if "do not reach the collector" in line]
            assert 1 <= len(lines) <= 3, "one line for each process"
            collector.closed = False
            trace = secrets.token_hex(16)
            send(made, "PUBLISH", traceparent(trace))
            collector.of_trace(trace, "gateway.receive", "project.handle", "journal.commit")
        finally:
            node.stop()


def test_a_node_that_traces_nothing_ignores_the_header(start_node: StartNode) -> None:
    node = start_node()
    with collecting() as collector:
        made = prepared(node, collector)
        send(made, "PUBLISH", traceparent(secrets.token_hex(16)))
        send(made, "PUBLISH", traceparent(secrets.token_hex(16)), Connection="close")
        assert collector.spans == []
    assert one(node, "spans_total", outcome="exported") == 0
