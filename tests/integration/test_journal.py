"""The event history, dead letters, and replay of stored events."""

from __future__ import annotations

import base64
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.applets import TALLY
from tests.support.nodes import StartNode, message, parts, strategies, until
from tests.support.shell import Shell

HANDLERS = ("start", "echo", "fail", "seven")
DAY = "2026-01-01T00:00:00Z"


class Keeping:
    """A node with a project whose handlers succeed and fail by event type."""

    def __init__(self, start: StartNode) -> None:
        self.node = start()
        self.node.create_project("kept")
        self.applet = self.node.deploy("kept", TALLY, strategies=strategies(*HANDLERS))
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
def kept(start_module_node: StartNode) -> Keeping:
    return Keeping(start_module_node)


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


def test_letters_are_grouped_replayed_and_discarded_by_what_failed(kept: Keeping) -> None:
    applet = kept.applet["appletID"]
    body = {"appletID": applet, "eventType": "GROUPED", "handler": "fail"}
    assert kept.node.call("POST", "/strategy/x/kept", body).status == 201
    for number in range(5):
        kept.send("GROUPED", b"x", f"grouped-{number}")
    letter = kept.letter_of("grouped-0")
    assert (letter["appletID"], letter["appletVersion"]) == (applet, 1)

    def read(query: str) -> Any:
        return kept.node.call("GET", f"/dead_letter/kept?eventType=GROUPED&{query}").json

    (group,) = read(f"groupBy=reason&version=1&appletID={applet}")["groups"]
    assert (group["reason"], group["handler"], group["count"]) == (letter["reason"], "fail", 5)
    assert group["oldest"] == letter["failedAt"] <= group["newest"]
    assert [row["eventID"] for row in read("limit=2")["data"]] == ["grouped-4", "grouped-3"]
    assert [
        row["eventID"] for row in read(f"before={read('limit=2')['next']}&limit=1")["data"]
    ] == ["grouped-2"]
    assert read("version=2")["data"] == read("handler=start")["data"] == []

    def replay(**more: Any) -> Any:
        body = {"eventType": "GROUPED", "reason": letter["reason"], **more}
        return kept.node.call("POST", "/dead_letter/kept/replay", body).json

    counted = replay(dryRun=True)
    assert counted == {
        "found": 5,
        "replayed": 0,
        "failed": 0,
        "notReplayable": 0,
        "next": "",
    }
    first = replay(limit=3)
    assert (first["replayed"], first["failed"]) == (3, 3)
    rest = replay(limit=3, after=first["next"])
    assert (rest["replayed"], rest["next"]) == (2, "")
    assert {row["attempts"] for row in read("")["data"]} == {2}  # new letters are left alone
    path = "/dead_letter/kept?eventType=GROUPED"
    assert kept.node.call("DELETE", f"{path}&dryRun=true").json["found"] == 5
    gone = kept.node.call("DELETE", f"{path}&limit=4").json
    assert (gone["discarded"], bool(gone["next"])) == (4, True)
    last = kept.node.call("DELETE", f"{path}&after={gone['next']}").json
    assert last == {"found": 1, "discarded": 1, "next": ""}
    assert read("")["data"] == []


def test_letters_survive_the_death_of_their_project(kept: Keeping) -> None:
    kept.send("FAIL", b"lasting", "dead-5")
    pid = next(p for name, p in parts(kept.node).items() if name == "project")
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
        ("GET", "/event_log/kept?outcome=lost", None, 400, "badRequest"),
        ("GET", "/event_log/kept?source=post", None, 400, "badRequest"),
        ("GET", "/event_log/kept?before=-1", None, 400, "badRequest"),
        ("GET", "/event_log/kept?begin=today", None, 400, "badRequest"),
        ("GET", f"/event_log/kept?begin={DAY}&end={DAY}", None, 400, "badRequest"),
        ("GET", "/event_log/kept?publisher=nobody", None, 404, "PublisherNotFound"),
        ("GET", "/event_log/nobody/at/65536", None, 404, "ProjectNotFound"),
        ("GET", "/event_log/kept/at/1", None, 404, "EventNotFound"),
        ("GET", "/event_log/kept/at/first", None, 400, "badRequest"),
        ("POST", "/dead_letter/kept/replay", {}, 400, "badRequest"),
        ("POST", "/dead_letter/kept/replay", {"letterIDs": [1]}, 400, "badRequest"),
        ("POST", "/dead_letter/kept/replay", {"letterIDs": ["1"] * 101}, 400, "badRequest"),
        ("POST", "/dead_letter/kept/replay", {"all": True, "reason": "x"}, 400, "badRequest"),
        ("POST", "/dead_letter/kept/replay", {"all": True, "after": "1"}, 400, "badRequest"),
        ("POST", "/dead_letter/kept/replay", {"letterIDs": ["1"], "all": True}, 400, "badRequest"),
        ("POST", "/dead_letter/nobody/replay", {"all": True}, 404, "ProjectNotFound"),
        ("DELETE", "/dead_letter/kept", None, 400, "badRequest"),
        ("DELETE", "/dead_letter/kept?letterID=1&handler=x", None, 400, "badRequest"),
        ("GET", "/dead_letter/kept?groupBy=size", None, 400, "badRequest"),
        ("GET", "/dead_letter/kept?version=0", None, 400, "badRequest"),
    ],
)
def test_an_invalid_request_is_answered_with_the_field(
    kept: Keeping, method: str, path: str, body: Any, status: int, key: str
) -> None:
    answer = kept.node.call(method, path, body)
    assert (answer.status, answer.json["key"]) == (status, key)


def test_a_letter_that_is_gone_is_a_result_of_its_own(kept: Keeping) -> None:
    (result,) = kept.replay("12345").json["results"]
    assert (result["code"], result["errMsg"]) == (-1, "there is no such dead letter")


# ---------------------------------------------------------------- searching the history


def test_the_history_is_filtered_and_read_page_by_page(kept: Keeping) -> None:
    for number in range(3):
        kept.send("SEVEN", b"x", f"paged-{number}")
        kept.send("FAIL", b"x", f"paged-bad-{number}")
    kept.send("NOBODY", b"x", "paged-none")
    begin = moment(kept, "paged-0")

    def page(query: str) -> Any:
        answer = kept.node.call("GET", f"/event_log/kept?begin={begin}&{query}")
        assert answer.status == 200, answer
        return answer.json

    def ids(query: str) -> list[str]:
        return [row["eventID"] for row in page(query)["data"]]

    assert ids("outcome=failed") == ["paged-bad-2", "paged-bad-1", "paged-bad-0"]
    assert ids("type=SEVEN&outcome=ok") == ["paged-2", "paged-1", "paged-0"]
    assert ids("outcome=unhandled&publisher=d&source=http") == ["paged-none"]
    assert ids("source=mqtt") == []
    first = page("limit=4")
    rest = page(f"limit=4&before={first['next']}")
    assert (len(first["data"]), len(rest["data"]), rest["next"]) == (4, 3, "")
    places = [int(row["place"]) for row in first["data"] + rest["data"]]
    assert places == sorted(places, reverse=True)
    assert first["keptSince"] <= rest["data"][-1]["handledAt"]


def test_an_event_is_shown_by_its_place_with_all_its_details(kept: Keeping) -> None:
    kept.send("START", b"a \x00 line", "placed-1")
    (row,) = kept.history("placed-1")
    shown = kept.node.call("GET", f"/event_log/kept/at/{row['place']}").json
    assert base64.b64decode(shown["payload"]) == b"a \x00 line"
    assert [line["eventID"] for line in shown["logs"]] == ["placed-1"]
    assert (shown["effects"], shown["transactions"], shown["refusals"]) == ([], [], [])
    assert {key: shown[key] for key in row} == row
    kept.send("SEVEN", b"x" * 9_000, "placed-large")
    (large,) = kept.history("placed-large")
    assert "payload" not in kept.node.call("GET", f"/event_log/kept/at/{large['place']}").json


def test_the_events_of_a_project_are_for_its_owner(kept: Keeping) -> None:
    kept.send("SEVEN", b"x", "private-1")
    (row,) = kept.history("private-1")
    person = {"username": "curious", "password": "long enough 1", "role": "DEVELOPER"}
    assert kept.node.call("POST", "/register/admin", person).status == 201
    other = kept.node.call("PUT", "/login", person).json["token"]
    for path in ("/event_log/kept", f"/event_log/kept/at/{row['place']}"):
        answer = kept.node.call("GET", path, token=other)
        assert (answer.status, answer.json["key"]) == (404, "ProjectNotFound")


# ---------------------------------------------------------------- a range of the history


def replayed(kept: Keeping, begin: str, end: str, **more: Any) -> Any:
    body = {"from": begin, "to": end, **more}
    return kept.node.call("POST", "/event_log/kept/replay", body)


def moment(kept: Keeping, event_id: str) -> str:
    received: str = kept.history(event_id)[0]["receivedAt"]
    return received


FOREVER = "2999-01-01T00:00:00Z"


def test_events_of_a_range_run_again_under_names_of_their_own(kept: Keeping) -> None:
    for number in range(12):
        kept.send("START", b"%d" % number, f"range-{number}")
    first, last = moment(kept, "range-0"), moment(kept, "range-11")
    before = kept.node.count("kept", kept.applet["appletID"])
    counted = replayed(kept, first, FOREVER, eventType="START", dryRun=True).json
    assert counted == {
        "found": 12,
        "replayed": 0,
        "failed": 0,
        "notReplayable": 0,
        "next": "",
    }
    assert kept.node.count("kept", kept.applet["appletID"]) == before
    page = replayed(kept, first, FOREVER, eventType="START", limit=7).json
    assert (page["replayed"], bool(page["next"])) == (7, True)
    rest = replayed(kept, first, FOREVER, eventType="START", after=page["next"]).json
    assert (rest["replayed"], rest["next"]) == (5, "")
    assert kept.node.count("kept", kept.applet["appletID"]) == before + 12
    (record,) = kept.history("range-3#r1")
    assert record["publisherID"] == kept.publisher["publisherID"]
    assert record["size"] == 1
    # Replayed events are not replayed again with the next range, and their numbers continue.
    kept.history("range-11#r1")
    again = replayed(kept, first, FOREVER, eventType="START", publisher="d").json
    assert (again["found"], again["replayed"]) == (12, 12)
    kept.history("range-11#r2")
    assert replayed(kept, last, last).status == 400


def test_only_the_events_that_are_meant_run_again(kept: Keeping) -> None:
    kept.send("SEVEN", b"a", "meant-0")
    kept.send("START", b"a", "meant-1")
    first = moment(kept, "meant-0")
    kept.history("meant-1")
    assert replayed(kept, first, FOREVER, eventType="SEVEN").json["found"] == 1
    assert replayed(kept, "2000-01-01T00:00:00Z", "2000-01-02T00:00:00Z").json["found"] == 0
    other = kept.node.add_publisher("kept", "silent")
    assert replayed(kept, first, FOREVER, publisher=other["key"]).json["found"] == 0
    assert replayed(kept, first, FOREVER, publisher="nobody").status == 404
    assert replayed(kept, "yesterday", FOREVER).status == 400


def test_a_payload_too_large_to_be_kept_is_counted_as_such(kept: Keeping) -> None:
    kept.send("SEVEN", b"x" * 9_000, "large-0")
    kept.send("SEVEN", b"", "empty-0")
    first = moment(kept, "large-0")
    kept.history("empty-0")
    done = replayed(kept, first, FOREVER, eventType="SEVEN").json
    assert (done["found"], done["replayed"], done["notReplayable"]) == (2, 1, 1)


def test_a_replay_that_fails_is_told_and_leaves_a_dead_letter(
    kept: Keeping, tmp_path: Path
) -> None:
    kept.send("FAIL", b"x", "failing-0")
    first = moment(kept, "failing-0")
    shell = Shell(tmp_path / "home", kept.node)
    options = ("--project", "kept", "--from", first, "--to", FOREVER, "--type", "FAIL")
    assert shell.json("event", "replay", *options, "--dry-run")["found"] == 1
    done = shell("--json", "event", "replay", *options, code=1)
    assert json.loads(done.stdout) == {
        "found": 1,
        "replayed": 1,
        "failed": 1,
        "notReplayable": 0,
    }
    assert kept.letter_of("failing-0#r1")["attempts"] == 2
    # Reading an event needs no reason.
    assert "failing-0" in shell.text("event", "kept", "failing-0")
    assert shell.text("event", "show", "kept", "failing-0") == shell.text(
        "event", "kept", "failing-0"
    )
