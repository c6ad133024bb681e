"""`/stream` for clients that read slowly, lose a project, or whose token expires."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from fieldbrook.gateway.management.live.page import WAITING_LIMIT
from fieldbrook.security import tokens
from fieldbrook.security.node_secrets import load_or_create_key
from tests.support.applets import TALLY
from tests.support.nodes import PREFIX, RunningNode, StartNode, flood, message, strategies
from tests.support.streams import StreamClient

REFUSED = 1008
_AT_ONCE = 30  # fewer than the rows of a message, so that nothing is left out for clients that read
_ROUNDS = 24


@pytest.fixture(scope="module")
def node(start_module_node: StartNode) -> RunningNode:
    return start_module_node()


def token_of(node: RunningNode, life_s: int) -> str:
    """A token of the node's administrator that expires soon."""
    key = load_or_create_key(node.data / "secrets", "token.key")
    login, now_s = tokens.new_login(int(time.time())), int(time.time())
    account_id = tokens.read_account_token(key, node.token).account_id
    return tokens.issue_account_token(key, account_id, now_s + life_s, login)


def counted(client: StreamClient, enough: Callable[[int], bool]) -> tuple[list[Any], int]:
    """Read messages of topic 1 until their totals are enough; return them and the sum."""
    found: list[Any] = []
    total = 0
    while not enough(total):
        found.append(client.next())
        assert found[-1]["total"] == len(found[-1]["rows"]) + found[-1]["left_out"]
        total += found[-1]["total"]
    return found, total


@pytest.mark.thorough
def test_a_client_that_stops_reading_gets_few_messages_with_exact_counts(node: RunningNode) -> None:
    node.create_project("room")
    node.deploy("room", TALLY, strategies=strategies("quiet"))
    sent = message(node.add_publisher("room", "p"), b"x", "QUIET")
    sent["header"]["event_id"] = ""
    with (
        contextlib.closing(StreamClient(node.http_port, node.token)) as fast,
        contextlib.closing(StreamClient(node.http_port, node.token, slow=True)) as slow,
    ):
        for client in (fast, slow):
            client.follow(1, "events", project="room")
            assert client.next()["total"] == 0
        for number in range(_ROUNDS):
            for each in range(_AT_ONCE):
                sent["header"]["event_id"] = f"{number}-{each}-{'x' * 110}"
                assert node.send("room", sent).status == 201
            found, total = counted(fast, lambda total: total >= _AT_ONCE)
            assert total == _AT_ONCE
            assert not any(each["left_out"] for each in found)
        everything = _ROUNDS * _AT_ONCE
        found, total = counted(slow, lambda total: total >= everything)
        assert total == everything
        assert WAITING_LIMIT <= len(found) < _ROUNDS
        assert sum(each["left_out"] for each in found) > 0
        assert found[-1]["rows"][-1]["eventID"].startswith(f"{_ROUNDS - 1}-{_AT_ONCE - 1}-")
        body = json.dumps(message({"key": "p", "token": sent["header"]["token"]}, b"", "QUIET"))
        assert flood(node.http_port, "room", body.encode(), _AT_ONCE, depth=1) == _AT_ONCE
        found, total = counted(slow, lambda total: total >= _AT_ONCE)
        assert total == _AT_ONCE
        assert not any(each["left_out"] for each in found), "the client reads again"


@pytest.mark.thorough
def test_a_project_that_is_removed_ends_its_topics_and_no_others(node: RunningNode) -> None:
    node.create_project("gone")
    node.deploy("gone", TALLY, strategies=strategies("quiet"))
    assert node.send("gone", message(node.add_publisher("gone", "p"), b"", "QUIET")).status == 201
    with contextlib.closing(StreamClient(node.http_port, node.token)) as client:
        topics = ("events", "logs", "letters", "series")
        for number, topic in enumerate(topics):
            client.follow(number, topic, project="gone")
            client.until(number, lambda found: True)
        client.follow(8, "health")
        client.until(8, lambda found: True)
        assert node.call("DELETE", "/project/gone").status == 204
        for number, _ in enumerate(topics):
            (*_, last) = client.until(number, lambda found: "error" in found)
            assert last["error"]["key"] == "ProjectNotFound"
        node.create_project("gone")
        client.follow(1, "events", project="gone")
        assert client.until(1, lambda found: True)[0]["total"] == 0, "it is another project"


def test_a_stream_ends_when_its_token_expires_unless_another_one_comes(node: RunningNode) -> None:
    long = StreamClient(node.http_port, token_of(node, 3))
    short = StreamClient(node.http_port, token_of(node, 3))
    for client in (long, short):
        client.follow(1, "health")
        client.until(1, lambda found: True)
    long.send(token=token_of(node, 60))
    found, code = short.end()
    assert (code, found[-1]["error"]["code"] // 10**6) == (REFUSED, 401)
    long.follow(2, "health")
    assert long.until(2, lambda found: True)[0]["healthy"] is True
    long.close()


def test_server_sent_events_end_when_their_token_expires(node: RunningNode) -> None:
    node.create_project("followed")
    connection = node.connection(node.http_port)
    for path in ("/stream?topic=health", "/applet_log/followed?follow=true"):
        headers = {"Authorization": token_of(node, 2)}
        connection.request("GET", PREFIX + path, headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200
        answer.read()  # returns when the node has ended the answer
    connection.close()
