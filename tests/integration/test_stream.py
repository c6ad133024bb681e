"""`/stream` of a running node, as WebSocket and as server-sent events, plain and over TLS."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from fieldbrook.gateway.management.unauthenticated import UNAUTHENTICATED_LIMIT
from tests.support.applets import TALLY
from tests.support.nodes import PREFIX, RunningNode, StartNode, flood, message, strategies, until
from tests.support.streams import StreamClient
from tests.support.tls import TlsNode
from tests.support.tools import LIMIT_S

REFUSED = 1008


@pytest.fixture(scope="module")
def node(start_module_node: StartNode) -> RunningNode:
    running = start_module_node()
    running.create_project("room")
    running.deploy("room", TALLY, strategies=strategies("quiet", "fail", START="start"))
    return running


@pytest.fixture(scope="module")
def publisher(node: RunningNode) -> Any:
    return node.add_publisher("room", "p")


@pytest.fixture
def client(node: RunningNode) -> Iterator[StreamClient]:
    with contextlib.closing(StreamClient(node.http_port, node.token)) as opened:
        yield opened


def send(node: RunningNode, publisher: Any, kind: str, count: int = 1) -> None:
    for _ in range(count):
        assert node.send("room", message(publisher, b"hi", kind)).status == 201


def test_events_and_logs_come_as_they_happen(
    node: RunningNode, publisher: Any, client: StreamClient
) -> None:
    client.follow(1, "events", project="room")
    client.follow(2, "logs", project="room")
    client.follow(3, "letters", project="room")
    client.follow(4, "health")
    client.follow(5, "series")
    assert client.until(4, lambda found: True)[0]["healthy"] is True
    stored = client.until(3, lambda found: True)[0]["stored"]
    assert client.until(1, lambda found: True)[0]["total"] == 0
    assert client.until(2, lambda found: True)[0]["rows"] == []
    send(node, publisher, "START")
    send(node, publisher, "FAIL")
    total = failed = 0
    rows: list[Any] = []
    seen: dict[int, list[Any]] = {}
    while total < 2 or not {2, 3, 5} <= set(seen):
        found = client.next()
        seen.setdefault(found["id"], []).append(found)
        if found["id"] == 1:
            total, failed = total + found["total"], failed + found["failed"]
            rows += found["rows"]
    assert (total, failed) == (2, 1)
    assert [(row["eventType"], row["outcome"]) for row in rows] == [
        ("START", "ok"),
        ("FAIL", "failed"),
    ]
    assert seen[2][0]["rows"][0]["msg"]
    assert seen[3][0]["stored"] == stored + 1
    assert seen[3][0]["rows"][0]["eventType"] == "FAIL"
    figures = client.until(5, lambda found: "room" in found["projects"])[-1]
    assert len(figures["columns"]) == 1 + len(figures["names"])


def test_a_flood_is_thinned_with_exact_counts_and_failures_first(
    node: RunningNode, publisher: Any, client: StreamClient
) -> None:
    client.follow(1, "events", project="room")
    client.follow(2, "events", project="room", filter={"outcome": "failed"})
    client.until(1, lambda found: True)
    client.until(2, lambda found: True)
    body = json.dumps(message(publisher, b"x", "QUIET")).encode()
    assert flood(node.http_port, "room", body, 3_000, depth=200) == 3_000
    send(node, publisher, "FAIL", 3)
    counts = {1: [0, 0, 0], 2: [0, 0, 0]}
    failures = 0
    while counts[1][0] < 3_003 or counts[2][0] < 3:
        found = client.next()
        if (count := counts.get(found["id"])) is None:
            continue
        assert len(found["rows"]) <= 40
        assert found["total"] == len(found["rows"]) + found["left_out"]
        for at, name in enumerate(("total", "failed", "left_out")):
            count[at] += found[name]
        if found["id"] == 1:
            failures += sum(row["outcome"] == "failed" for row in found["rows"])
    assert counts[1][:2] == [3_003, 3]
    assert counts[1][2] > 1_000
    assert counts[2] == [3, 3, 0]
    assert failures == 3


def test_a_page_goes_on_where_it_was(node: RunningNode, publisher: Any) -> None:
    first = StreamClient(node.http_port, node.token)
    first.follow(1, "events", project="room")
    first.until(1, lambda found: True)
    send(node, publisher, "START")
    place = first.until(1, lambda found: found["rows"])[-1]["place"]
    first.close()
    send(node, publisher, "START", 5)
    listed = node.call("GET", "/event_log/room?limit=3").json["data"]
    again = StreamClient(node.http_port, node.token)
    again.follow(7, "events", project="room", after=place)
    again.follow(8, "events", project="room", after=listed[-1]["place"])
    for number, count in ((7, 5), (8, 2)):
        total = 0
        while total < count:
            found = again.next()
            total += found["total"] if found.get("id") == number else 0
        assert total == count
    again.close()


def test_without_a_token_or_with_a_wrong_one_a_stream_ends(node: RunningNode) -> None:
    for token in ("", "wrong"):
        opened = StreamClient(node.http_port, token)
        if not token:
            opened.follow(1, "health")
        found, code = opened.end()
        assert code == REFUSED
        assert (
            found[-1]["error"]["key"] == "InvalidAuthValue"
            or found[-1]["error"]["code"] // 10**6 == 401
        )


def test_a_stream_that_sends_no_token_ends_after_five_seconds(node: RunningNode) -> None:
    found, code = StreamClient(node.http_port, "").end()
    assert code == REFUSED
    assert "5 s" in found[-1]["error"]["desc"]


def test_whoever_opens_streams_without_a_token_keeps_nobody_out(node: RunningNode) -> None:
    with contextlib.ExitStack() as opened:
        first = opened.enter_context(contextlib.closing(StreamClient(node.http_port, "")))
        for _ in range(UNAUTHENTICATED_LIMIT - 1):
            opened.enter_context(contextlib.closing(StreamClient(node.http_port, "")))
        late = opened.enter_context(contextlib.closing(StreamClient(node.http_port, node.token)))
        late.follow(1, "health")
        assert late.next()["id"] == 1
        with pytest.raises(ConnectionClosed):
            first.socket.recv(LIMIT_S)


def test_a_flood_of_frames_that_are_no_messages_ends_the_stream(
    node: RunningNode, client: StreamClient
) -> None:
    client.follow(1, "health")
    assert client.next()["id"] == 1
    flood = StreamClient(node.http_port, node.token)
    # Each of them is empty, so that a limit of bytes would not stop them.
    with pytest.raises(ConnectionClosed):
        for _ in range(100_000):
            flood.socket.ping()
    flood.close()
    client.follow(2, "health")
    assert client.until(2, lambda found: True), "other streams go on"


def test_a_wrong_place_ends_only_the_topic_of_who_gave_it(
    node: RunningNode, publisher: Any, client: StreamClient
) -> None:
    for number, topic in enumerate(("events", "logs", "letters")):
        client.follow(number, topic, project="room")
        client.until(number, lambda found: "error" not in found)
    with contextlib.closing(StreamClient(node.http_port, node.token)) as wrong:
        for number, topic in enumerate(("events", "logs", "letters")):
            wrong.follow(number, topic, project="room", after="never")
            assert wrong.next()["error"]["fields"][0]["field"] == "after"
    send(node, publisher, "FAIL")
    assert client.until(0, lambda found: found["total"])[-1]["failed"] == 1


def test_what_cannot_be_followed_is_refused_and_the_stream_goes_on(client: StreamClient) -> None:
    def refused(**follow: Any) -> Any:
        client.send(follow={"id": 9, **follow})
        return client.next()["error"]

    assert refused(topic="events", project="absent")["key"] == "ProjectNotFound"
    assert refused(topic="events")["fields"][0]["field"] == "follow.project"
    wrong = refused(topic="events", project="room", filter={"outcome": "best"})
    assert "outcome" in wrong["fields"][0]["msg"]
    assert (
        "unknown field"
        in refused(topic="logs", project="room", filter={"x": 1})["fields"][0]["msg"]
    )
    assert (
        refused(topic="events", project="room", filter={"publisher": "no"})["key"]
        == "PublisherNotFound"
    )
    assert refused(topic="events", project="room", after="-1")["fields"][0]["field"] == "after"
    client.socket.send("no JSON")
    assert client.next()["error"]["code"] // 10**6 == 400
    for number in range(9):
        client.follow(number, "letters", project="room")
    errors = [found for found in (client.next() for _ in range(9)) if "error" in found]
    assert [(error["id"], error["error"]["code"] // 10**6) for error in errors] == [(8, 429)]
    client.follow(1, "health")
    assert (
        "in use" in client.until(1, lambda found: "error" in found)[-1]["error"]["fields"][0]["msg"]
    )


def test_another_account_follows_its_own_projects_alone_and_no_health(node: RunningNode) -> None:
    node.call("POST", "/register/admin", {"username": "bob", "role": "DEVELOPER"})
    made = node.call("POST", "/register/admin", {"username": "eve", "role": "DEVELOPER"}).json
    login = node.call("PUT", "/login", {"username": "eve", "password": made["password"]}).json
    bob = StreamClient(node.http_port, login["token"])
    bob.follow(1, "events", project="room")
    assert bob.next()["error"]["key"] == "ProjectNotFound"
    bob.follow(2, "health")
    assert bob.next()["error"]["key"] == "NoAdminPermission"
    bob.follow(3, "series")
    assert bob.next()["names"] == ["events", "failed"]
    bob.close()


def test_a_login_that_ends_ends_the_stream(node: RunningNode) -> None:
    own = node.call("PUT", "/login", {"username": "admin", "password": "correct horse"}).json
    opened = StreamClient(node.http_port, own["token"])
    opened.follow(1, "health")
    opened.until(1, lambda found: True)
    assert node.call("DELETE", "/login", token=own["token"]).status == 204
    opened.follow(2, "health")  # wakes it up; else a ping does
    found, code = opened.end()
    assert (code, found[-1]["error"]["code"] // 10**6) == (REFUSED, 401)


def test_a_page_of_another_host_cannot_open_a_stream(node: RunningNode) -> None:
    for origin in ("http://evil.example", "http://["):
        with pytest.raises(InvalidStatus) as refused:
            StreamClient(node.http_port, node.token, origin=origin)
        assert refused.value.response.status_code == 403
    own = f"http://127.0.0.1:{node.dashboard_port}"
    opened = StreamClient(node.dashboard_port, node.token, origin=own)
    opened.follow(1, "health")
    assert opened.next()["healthy"] is True
    opened.close()


def test_a_message_that_is_too_long_ends_the_stream(client: StreamClient) -> None:
    client.socket.send("x" * 17_000)
    _, code = client.end()
    assert code in (1006, 1009)


def test_a_frame_that_comes_with_the_request_is_not_lost(node: RunningNode) -> None:
    """The fast path has already read the frame when it hands over the connection."""
    text = json.dumps({"token": node.token}).encode()
    mask = b"\1\2\3\4"
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(text))
    frame = b"\x81" + bytes([0x80 | 126]) + struct.pack(">H", len(text)) + mask + masked
    head = (
        f"GET {PREFIX}/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()
    ask = json.dumps({"follow": {"id": 1, "topic": "health"}}).encode()
    asked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(ask))
    second = b"\x81" + bytes([0x80 | len(ask)]) + mask + asked
    with socket.create_connection(("127.0.0.1", node.http_port), LIMIT_S) as raw:
        raw.sendall(head + frame + second)
        got = b""
        while b'"healthy":true' not in got:
            piece = raw.recv(65_536)
            assert piece, got
            got += piece
    assert got.startswith(b"HTTP/1.1 101")


@pytest.mark.thorough
def test_streams_work_over_tls(tmp_path: Path) -> None:
    node = TlsNode(tmp_path)
    try:
        node.log_in()
        node.create_project("room")
        node.deploy("room", TALLY, strategies=strategies("quiet"))
        device = node.add_publisher("room", "p")
        tls = ssl.create_default_context(cafile=node.files.ca)
        opened = StreamClient(node.http_port, node.token, tls=tls, host="localhost")
        opened.follow(1, "events", project="room")
        opened.until(1, lambda found: True)
        assert node.send("room", message(device, b"", "QUIET")).status == 201
        assert opened.until(1, lambda found: found["rows"])[-1]["total"] == 1
        opened.close()
    finally:
        node.stop()


class Follower:
    """A client of server-sent events."""

    def __init__(self, node: RunningNode, query: str, **headers: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=LIMIT_S)
        sent = {"Authorization": node.token, "Accept": "text/event-stream", **headers}
        self.connection.request("GET", f"{PREFIX}/stream?{query}", headers=sent)
        self.answer = self.connection.getresponse()

    def next(self) -> tuple[str, Any]:
        place = ""
        for line in iter(self.answer.readline, b""):
            name, _, value = line.decode().strip().partition(": ")
            if name == "id":
                place = value
            if name == "data":
                return place, json.loads(value)
        pytest.fail("the node ended the stream")

    def close(self) -> None:
        self.answer.close()
        self.connection.close()


def followed(node: RunningNode, query: str, **headers: str) -> tuple[str, Any]:
    """Return the first message of a stream."""
    with contextlib.closing(Follower(node, query, **headers)) as follower:
        assert follower.answer.status == 200
        return follower.next()


def test_the_same_messages_come_as_server_sent_events(node: RunningNode, publisher: Any) -> None:
    send(node, publisher, "START")
    before = node.call("GET", "/event_log/room?limit=1").json["data"][0]["place"]
    send(node, publisher, "START", 2)
    query = f"topic=events&project=room&type=START&after={before}"
    place, found = followed(node, query)
    assert place == found["place"]
    assert {row["eventType"] for row in found["rows"]} == {"START"}
    send(node, publisher, "START")
    until(
        lambda: followed(node, "topic=events&project=room", **{"Last-Event-ID": place})[1]["total"],
        "the event after the place is there",
    )
    assert node.call("GET", "/stream?topic=events&project=absent").status == 404
    assert node.call("GET", "/stream?topic=other").status == 400


def test_twelve_pages_of_one_account_follow_at_once(node: RunningNode, publisher: Any) -> None:
    pages = [StreamClient(node.http_port, node.token) for _ in range(12)]
    for page in pages:
        page.follow(1, "events", project="room")
    for page in pages:
        page.until(1, lambda found: True)
    send(node, publisher, "START")
    for page in pages:
        assert page.until(1, lambda found: found["total"])[-1]["total"] == 1
        page.close()
    until(lambda: node.call("GET", "/version").status == 200, "the node answers")
