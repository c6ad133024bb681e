"""Following and deleting applet logs in a running node."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.applets import TALLY
from tests.support.nodes import PREFIX, RunningNode, message, until
from tests.support.tools import LIMIT_S


class Follower:
    """A client of server-sent events."""

    def __init__(self, node: RunningNode, path: str, **headers: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=LIMIT_S)
        sent = {"Authorization": node.token, **headers}
        self.connection.request("GET", f"{PREFIX}{path}", headers=sent)
        self.answer = self.connection.getresponse()

    def row(self) -> tuple[str, Any]:
        """Return the id and the data of the next event."""
        name, value = "", ""
        for line in iter(self.answer.readline, b""):
            text = line.decode().rstrip("\n")
            if text.startswith("id: "):
                name = text.removeprefix("id: ")
            elif text.startswith("data: "):
                value = text.removeprefix("data: ")
            elif not text and value:
                return name, json.loads(value)
        pytest.fail("the node ended the stream")

    def close(self) -> None:
        self.answer.close()
        self.connection.close()


def project(node: RunningNode, name: str) -> tuple[Any, Any]:
    node.create_project(name)
    return node.deploy(name, TALLY), node.add_publisher(name, "p")


def say(node: RunningNode, name: str, publisher: Any, text: str) -> None:
    assert node.send(name, message(publisher, text.encode())).status == 201


def rows(node: RunningNode, name: str, query: str = "") -> list[str]:
    answer = node.call("GET", f"/applet_log/{name}{query}")
    return [row["msg"] for row in answer.json["data"]]


def test_the_log_is_filtered_in_pages_of_both_directions_and_while_it_is_followed(
    node: RunningNode,
) -> None:
    applet, publisher = project(node, "sought")
    for number in range(6):
        say(node, "sought", publisher, f"{'Odd' if number % 2 else 'even'} {number}")
    instance = applet["instance"]["instanceID"]
    assert rows(node, "sought", "?contains=oDD") == ["Odd 1", "Odd 3", "Odd 5"]
    assert rows(node, "sought", "?contains=odd&after=-2") == ["Odd 3", "Odd 5"]
    assert rows(node, "sought", "?before=0&limit=2") == ["even 4", "Odd 5"][::-1]
    assert len(rows(node, "sought", f"?level=info&instanceID={instance}")) == 6
    assert rows(node, "sought", "?level=error") == rows(node, "sought", "?instanceID=1") == []
    page = node.call("GET", "/applet_log/sought?before=0&limit=4").json
    rest = node.call("GET", f"/applet_log/sought?limit=4&before={page['next']}").json
    assert [row["msg"] for row in rest["data"]] == ["Odd 1", "even 0"]
    assert rest["next"] == ""
    oldest = rest["data"][-1]
    assert rows(node, "sought", f"?eventID={oldest['eventID']}") == ["even 0"]
    assert rows(node, "sought", f"?end={oldest['logTime']}") == []
    assert len(rows(node, "sought", f"?before=0&begin={oldest['logTime']}")) == 6
    for wrong in ("level=loud", "before=-1", "begin=now", "follow=true&before=0", "instanceID=x"):
        answer = node.call("GET", f"/applet_log/sought?{wrong}")
        assert (answer.status, answer.json["key"]) == (400, "badRequest")
    follower = Follower(node, "/applet_log/sought?follow=true&after=-2&contains=odd")
    try:
        assert follower.row()[1]["msg"] == "Odd 5"
        say(node, "sought", publisher, "even 6")
        say(node, "sought", publisher, "Odd 7")
        assert follower.row()[1]["msg"] == "Odd 7"
    finally:
        follower.close()


def test_rows_arrive_as_they_are_written(node: RunningNode) -> None:
    applet, publisher = project(node, "talk")
    follower = Follower(node, "/applet_log/talk?follow=true")
    try:
        assert follower.answer.status == 200
        assert follower.answer.headers["Content-Type"].startswith("text/event-stream")
        assert "ListAppletLog" in follower.answer.headers["X-Meta"]
        for number in range(3):
            say(node, "talk", publisher, f"line <{number}>")
            sequence, row = follower.row()
            assert (row["msg"], row["sequence"]) == (f"line <{number}>", sequence)
            assert row["instanceID"] == applet["instance"]["instanceID"]
    finally:
        follower.close()


def test_a_follower_that_comes_again_goes_on_where_it_was(node: RunningNode) -> None:
    _, publisher = project(node, "again")
    for number in range(5):
        say(node, "again", publisher, str(number))
    until(lambda: len(rows(node, "again")) == 5, "the log is written")
    for path, headers, expected in (
        ("?follow=1", {}, "0"),
        ("?follow=1&after=-2", {}, "3"),
        ("?follow=1&after=1", {"Last-Event-ID": "4"}, "4"),
        ("?follow=1&after=2", {"Last-Event-ID": "nonsense"}, "2"),
    ):
        follower = Follower(node, f"/applet_log/again{path}", **headers)
        assert follower.row()[1]["msg"] == expected
        follower.close()


def test_a_stream_ends_with_the_right_to_see_it(node: RunningNode) -> None:
    _, publisher = project(node, "gone")
    follower = Follower(node, "/applet_log/gone?follow=true")
    say(node, "gone", publisher, "last words")
    follower.row()
    assert node.call("DELETE", "/project/gone").status == 204
    assert follower.answer.read() == b""
    follower.close()
    refused = Follower(node, "/applet_log/gone?follow=true")
    assert refused.answer.status == 404
    refused.close()
    bad = node.call("GET", "/applet_log/gone?follow=perhaps")
    assert bad.json["fields"][0]["field"] == "follow"


def test_a_stream_ends_with_the_access_key_it_was_asked_for_with(node: RunningNode) -> None:
    _, publisher = project(node, "lent")
    body = {"name": "reader", "privileges": [{"name": "Wasm Log", "perm": "READONLY"}]}
    key = node.call("POST", "/account_access_key", body).json["accessKey"]
    follower = Follower(node, "/applet_log/lent?follow=true", Authorization=f"Bearer {key}")
    assert follower.answer.status == 200
    say(node, "lent", publisher, "seen")
    assert follower.row()[1]["msg"] == "seen"
    other = {"name": "other", "privileges": []}
    assert node.call("POST", "/account_access_key", other).status == 201
    say(node, "lent", publisher, "seen still")
    assert follower.row()[1]["msg"] == "seen still"
    assert node.call("DELETE", "/account_access_key/reader").status == 204
    assert follower.answer.read() == b""
    follower.close()


def test_a_stream_ends_with_the_login_it_was_asked_for_with(node: RunningNode) -> None:
    _, publisher = project(node, "ended")
    body = {"name": "kept", "privileges": [{"name": "Wasm Log", "perm": "READONLY"}]}
    key = node.call("POST", "/account_access_key", body).json["accessKey"]
    follower = Follower(node, "/applet_log/ended?follow=true")
    kept = Follower(node, "/applet_log/ended?follow=true", Authorization=f"Bearer {key}")
    say(node, "ended", publisher, "seen")
    assert follower.row()[1]["msg"] == kept.row()[1]["msg"] == "seen"
    passwords = {"oldPassword": "correct horse", "password": "battery staple"}
    answer = node.call("PUT", "/account", passwords)
    assert follower.answer.read() == b""
    node.token = answer.json["token"]
    say(node, "ended", publisher, "still seen")
    assert kept.row()[1]["msg"] == "still seen"
    passwords = {"oldPassword": "battery staple", "password": "correct horse"}
    node.token = node.call("PUT", "/account", passwords).json["token"]
    follower.close()
    kept.close()


def test_the_log_of_an_instance_is_deleted_and_goes_on(node: RunningNode) -> None:
    applet, publisher = project(node, "tidy")
    other = node.deploy("tidy", TALLY, "other")
    unheard = node.create_project("unheard") and node.deploy("unheard", TALLY)
    path = f"/wasmlog/{unheard['instance']['instanceID']}"
    assert node.call("DELETE", path).status == 204, "it has never logged"
    for number in range(3):
        say(node, "tidy", publisher, str(number))
    until(lambda: len(rows(node, "tidy")) == 6, "the log is written")
    highest = int(node.call("GET", "/applet_log/tidy?after=-1").json["next"])
    say(node, "tidy", publisher, "not yet written")
    assert node.call("DELETE", f"/wasmlog/{other['instance']['instanceID']}").status == 204
    assert node.call("DELETE", f"/wasmlog/{applet['instance']['instanceID']}").status == 204
    assert rows(node, "tidy") == rows(node, "tidy", "?after=-5") == []
    say(node, "tidy", publisher, "afresh")
    until(lambda: len(rows(node, "tidy")) == 2, "the log goes on")
    assert rows(node, "tidy") == ["afresh", "afresh"]
    assert int(node.call("GET", "/applet_log/tidy?after=-1").json["next"]) > highest


@pytest.mark.thorough
def test_followers_do_not_keep_a_node_from_ending(tmp_path: Path) -> None:
    node = RunningNode(tmp_path / "data")
    node.log_in()
    node.create_project("p")
    follower = Follower(node, "/applet_log/p?follow=true")
    node.stop()
    assert "did not stop within" not in node.log
    follower.close()
