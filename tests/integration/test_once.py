"""Effectively once: a repeated event gets the stored result and does not run again."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.support.applets import TALLY
from tests.support.nodes import StartNode, long_id, message, named, parts, strategies, until

STRATEGIES = strategies("start", "seven", "fail")


class Counting:
    def __init__(self, start: StartNode) -> None:
        self.node = start()
        self.node.create_project("once")
        applet = self.node.deploy("once", TALLY, strategies=STRATEGIES)
        self.applet_id: str = applet["appletID"]
        self.publisher = self.node.add_publisher("once", "d")

    def send(self, event_id: str, event_type: str = "START", payload: bytes = b"x") -> Any:
        return self.node.send("once", named(message(self.publisher, payload, event_type), event_id))

    def count(self) -> int:
        return self.node.count("once", self.applet_id)


@pytest.fixture(scope="module")
def counting(start_module_node: StartNode) -> Counting:
    return Counting(start_module_node)


def test_an_event_sent_again_is_answered_alike_and_counted_once(counting: Counting) -> None:
    before = counting.count()
    answers = [counting.send("same-1") for _ in range(5)]
    assert {(answer.status, answer.body) for answer in answers} == {(201, answers[0].body)}
    replayed = [answer.headers.get("Idempotency-Replayed") for answer in answers]
    assert replayed == [None, *["true"] * 4]
    assert counting.count() == before + 1


def test_the_same_id_with_another_payload_or_none_is_another_event(counting: Counting) -> None:
    before = counting.count()
    counting.send("constant", payload=b"20.5")
    counting.send("constant", payload=b"20.6")
    counting.node.send("once", message(counting.publisher, b"20.6", "START"))
    counting.node.send("once", message(counting.publisher, b"20.6", "START"))
    assert counting.count() == before + 4


def test_a_duplicate_within_one_batch_is_counted_once(counting: Counting) -> None:
    before = counting.count()
    sent = named(message(counting.publisher, b"x", "START"), "batched")
    answer = counting.node.send("once", {"events": [sent] * 10})
    assert len({str(item["wasmResults"]) for item in answer.json}) == 1
    assert [item.get("replayed", False) for item in answer.json] == [False, *[True] * 9]
    assert "Idempotency-Replayed" not in answer.headers
    again = counting.node.send("once", {"events": [sent] * 2})
    assert again.headers["Idempotency-Replayed"] == "true"
    assert counting.count() == before + 1


def test_an_event_that_matched_nothing_may_match_when_it_comes_again(counting: Counting) -> None:
    assert counting.send("late", "LATER").status == 404
    node = counting.node
    rule = {"appletID": counting.applet_id, "eventType": "LATER", "handler": "seven"}
    assert node.call("POST", "/strategy/once", {"strategies": [rule]}).status == 204
    assert counting.send("late", "LATER").json["results"][0]["code"] == 7


def test_a_failed_event_that_is_sent_again_is_one_dead_letter(counting: Counting) -> None:
    for _ in range(3):
        assert counting.send("dead", "FAIL").json["results"][0]["code"] == -1
    letters = counting.node.call("GET", "/dead_letter/once").json["data"]
    assert [row["eventID"] for row in letters] == [long_id("dead")]


def test_an_acknowledged_event_is_known_after_its_project_was_killed(counting: Counting) -> None:
    before = counting.count()
    assert counting.send("lasting").status == 201
    pid = next(p for name, p in parts(counting.node).items() if name == "project")
    os.kill(pid, signal.SIGKILL)
    until(lambda: counting.send("lasting").status == 201, "the project")
    assert counting.count() == before + 1
