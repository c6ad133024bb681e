"""What happened to an event can be asked, and what failed can be run again."""

from __future__ import annotations

import base64
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.applets import TALLY
from tests.integration.nodes import RunningNode, message, parts, until

HANDLERS = ("start", "echo", "fail", "seven")


class Keeping:
    """A node with a project whose handlers succeed and fail by event type."""

    def __init__(self, folder: Path) -> None:
        self.node = RunningNode(folder / "n")
        self.node.log_in()
        self.node.create_project("kept")
        strategies = [{"eventType": name.upper(), "handler": name} for name in HANDLERS]
        self.applet = self.node.deploy("kept", TALLY, strategies=strategies)
        self.publisher = self.node.add_publisher("kept", "d")

    def send(self, event_type: str, payload: bytes = b"x", event_id: str = "") -> Any:
        sent = message(self.publisher, payload, event_type)
        if event_id:
            sent["header"]["event_id"] = event_id
        answer = self.node.send("kept", sent)
        assert answer.status in (201, 404), answer
        return answer

    def letters(self) -> list[dict[str, Any]]:
        data: list[dict[str, Any]] = self.node.call("GET", "/dead_letter/kept").json["data"]
        return data

    def letter_of(self, event_id: str) -> dict[str, Any]:
        return next(row for row in self.letters() if row["eventID"] == event_id)

    def history(self, event_id: str) -> Any:
        path = f"/event_log/kept?eventID={event_id}"
        return until(lambda: self.node.call("GET", path).json["data"], f"history of {event_id}")

    def replay(self, *letters: str) -> Any:
        return self.node.call("POST", "/dead_letter/kept/replay", {"letterIDs": list(letters)})


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keeping]:
    made = Keeping(tmp_path_factory.mktemp("journal"))
    yield made
    made.node.stop()


def test_an_event_can_be_asked_what_became_of_it(kept: Keeping) -> None:
    kept.send("SEVEN", b"12345", "asked-1")
    (record,) = kept.history("asked-1")
    assert record["eventType"] == "SEVEN"
    assert record["publisherID"] == kept.publisher["publisherID"]
    assert record["size"] == 5
    assert [part["code"] for part in record["results"]] == [7]
    assert record["receivedAt"] <= record["handledAt"]


def test_an_events_log_lines_come_with_its_history(kept: Keeping) -> None:
    kept.send("START", b"a line", "logged-1")
    kept.history("logged-1")
    answer = kept.node.call("GET", "/event_log/kept?eventID=logged-1").json
    assert [row["msg"] for row in answer["logs"]] == ["a line"]


def test_an_event_that_no_strategy_matched_is_in_the_history_too(kept: Keeping) -> None:
    assert kept.send("NOBODY", b"", "unmatched-1").status == 404
    (record,) = kept.history("unmatched-1")
    assert record["results"] == []


def test_a_handler_that_traps_leaves_a_dead_letter_with_its_event(kept: Keeping) -> None:
    kept.send("FAIL", b"\x00raw\xff", "dead-1")
    letter = kept.letter_of("dead-1")
    assert letter["handler"] == "fail"
    assert letter["attempts"] == 1
    assert "unreachable" in letter["reason"]
    whole = kept.node.call("GET", f"/dead_letter/kept/{letter['letterID']}").json
    assert base64.b64decode(whole["payload"]) == b"\x00raw\xff"


def test_a_replay_that_fails_again_is_a_new_letter_of_one_more_attempt(kept: Keeping) -> None:
    kept.send("FAIL", b"again", "dead-2")
    first = kept.letter_of("dead-2")
    (result,) = kept.replay(first["letterID"]).json["results"]
    assert result["code"] == -1
    assert "unreachable" in result["errMsg"]
    assert not any(row["letterID"] == first["letterID"] for row in kept.letters())
    second = kept.letter_of("dead-2#r1")
    assert second["attempts"] == 2
    kept.replay(second["letterID"])
    assert kept.letter_of("dead-2#r2")["attempts"] == 3


def test_a_replay_after_a_repair_runs_that_handler_alone(kept: Keeping) -> None:
    kept.send("FAIL", b"mended", "dead-3")
    letter = kept.letter_of("dead-3")
    strategy = f"/strategy/kept/{letter['strategyID']}"
    body = {"appletID": kept.applet["appletID"], "eventType": "FAIL", "handler": "echo"}
    assert kept.node.call("PUT", strategy, body).status == 204
    (result,) = kept.replay(letter["letterID"]).json["results"]
    assert (result["code"], result["errMsg"]) == (0, "")
    assert kept.node.kv("kept", kept.applet["appletID"], b"last") == b"mended"
    assert not any(row["letterID"] == letter["letterID"] for row in kept.letters())
    assert kept.history("dead-3%23r1")[0]["results"][0]["code"] == 0
    assert kept.node.call("PUT", strategy, {**body, "handler": "fail"}).status == 204


def test_a_letter_can_be_discarded(kept: Keeping) -> None:
    kept.send("FAIL", b"away", "dead-4")
    letter = kept.letter_of("dead-4")
    path = f"/dead_letter/kept?letterID={letter['letterID']}"
    assert kept.node.call("DELETE", path).status == 204
    assert not any(row["letterID"] == letter["letterID"] for row in kept.letters())
    assert kept.node.call("DELETE", path).status == 204


def test_letters_survive_the_death_of_their_project(kept: Keeping) -> None:
    kept.send("FAIL", b"lasting", "dead-5")
    pid = next(p for name, p in parts(kept.node).items() if name == "fb-project")
    os.kill(pid, signal.SIGKILL)
    assert kept.letter_of("dead-5")
    until(lambda: kept.node.send("kept", message(kept.publisher, b"", "SEVEN")).status == 201, "it")
    (result,) = kept.replay(kept.letter_of("dead-5")["letterID"]).json["results"]
    assert result["code"] == -1


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "key"),
    [
        ("GET", "/dead_letter/nobody", None, 404, "ProjectNotFound"),
        ("GET", "/dead_letter/kept/1", None, 404, "DeadLetterNotFound"),
        ("GET", "/dead_letter/kept/abc", None, 400, "badRequest"),
        ("GET", "/dead_letter/kept?limit=0", None, 400, "badRequest"),
        ("GET", "/dead_letter/kept?before=x", None, 400, "badRequest"),
        ("GET", "/event_log/kept?limit=1001", None, 400, "badRequest"),
        ("POST", "/dead_letter/kept/replay", {}, 400, "badRequest"),
        ("POST", "/dead_letter/kept/replay", {"letterIDs": [1]}, 400, "badRequest"),
        ("POST", "/dead_letter/kept/replay", {"letterIDs": ["1"] * 101}, 400, "badRequest"),
        ("DELETE", "/dead_letter/kept", None, 400, "badRequest"),
    ],
)
def test_what_cannot_be_is_named(
    kept: Keeping, method: str, path: str, body: Any, status: int, key: str
) -> None:
    answer = kept.node.call(method, path, body)
    assert (answer.status, answer.json["key"]) == (status, key)


def test_a_letter_that_is_gone_is_a_result_of_its_own(kept: Keeping) -> None:
    (result,) = kept.replay("12345").json["results"]
    assert (result["code"], result["errMsg"]) == (-1, "there is no such dead letter")
