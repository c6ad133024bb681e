"""Commands on events, logs and dead letters with their filters, against a node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, StartNode, message, strategies
from tests.support.shell import Shell


@pytest.fixture(scope="module")
def node(start_module_node: StartNode) -> RunningNode:
    node = start_module_node()
    node.create_project("room")
    node.deploy("room", TALLY, strategies=strategies("start", "fail", "seven"))
    publisher = node.add_publisher("room", "sensor")
    for number in range(3):
        node.send("room", message(publisher, b"Line %d" % number, "START"))
        node.send("room", message(publisher, b"%d" % number, "FAIL"))
    node.send("room", message(publisher, b"x", "NOBODY"))
    return node


@pytest.fixture
def shell(node: RunningNode, tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home", node)


@pytest.mark.thorough
def test_events_are_listed_by_what_became_of_them(shell: Shell) -> None:
    def types(*options: str) -> list[str]:
        return [row["eventType"] for row in shell.json("event", "room", *options)["data"]]

    assert types("--outcome", "failed") == ["FAIL"] * 3
    assert types("--outcome", "unhandled") == ["NOBODY"]
    assert types("--type", "START", "--publisher", "sensor", "--source", "http") == ["START"] * 3
    first = shell.json("event", "room", "--type", "START", "--limit", "1")
    assert len(types("--type", "START", "--before", first["next"])) == 2
    received = first["data"][0]["receivedAt"]
    assert types("--from", received, "--type", "START") == ["START"]
    assert len(types("--to", received, "--type", "START")) == 2


def test_events_are_listed_by_the_word_that_lists_dead_letters(shell: Shell) -> None:
    listed = shell.text("event", "list", "room")
    assert listed == shell.text("event", "room")
    assert listed.count("applet v1 start") == listed.count("applet v1 fail") == 3
    assert "NOBODY" not in shell.text("event", "list", "room", "--outcome", "ok")
    nothing = shell("event", "list", "room", "--type", "OTHER")
    assert b"no such events in the history" in nothing.stdout + nothing.stderr
    said = shell.fails("event", "list", "room", "--follow", "--before", "1", code=2)
    assert "--follow shows new events" in said


def test_an_event_is_shown_by_its_place(shell: Shell) -> None:
    (row,) = shell.json("event", "room", "--type", "START", "--limit", "1")["data"]
    where = ("event", "show", "room", "--place", row["place"])
    assert shell.text(*where, "--payload") == "Line 2"
    assert "Line 2" in shell.text(*where)
    assert shell.json(*where)["eventID"] == row["eventID"]
    assert "--place" in shell.fails("event", "show", "room", "--payload", code=2)


def test_log_rows_are_printed_by_level_text_and_event(shell: Shell) -> None:
    def texts(*options: str) -> list[str]:
        out = shell.text("--json", "logs", "room", *options)
        return [json.loads(line)["msg"] for line in out.splitlines()]

    assert texts("--contains", "LINE") == ["Line 0", "Line 1", "Line 2"]
    assert texts("--contains", "line", "--after", "0") == ["Line 0", "Line 1", "Line 2"]
    assert texts("--contains", "line", "--tail", "1") == ["Line 2"]
    assert len(texts("--level", "error")) == 3
    (row,) = shell.json("event", "room", "--type", "START", "--limit", "1")["data"]
    assert texts("--event", row["eventID"]) == ["Line 2"]
    assert texts("--from", "2999-01-01T00:00:00Z") == []


def test_publishers_are_shown_by_their_keys(shell: Shell) -> None:
    (row, *_) = shell.json("dead-letter", "list", "room")
    shown = shell.text("dead-letter", "show", "room", row["letterID"])
    assert "publisher  sensor\n" in shown
    assert row["publisherID"] not in shown
    flow = shell.text("event", "flow", "room")
    assert flow.count(" sensor ") == 3


def test_dead_letters_are_grouped_and_replayed_and_discarded_together(shell: Shell) -> None:
    (group,) = shell.json("dead-letter", "list", "room", "--group")
    assert (group["handler"], group["count"]) == ("fail", 3)
    assert group["reason"] in shell.text("dead-letter", "list", "room", "--group")
    chosen = ("--reason", group["reason"], "--applet", "applet", "--version", "1")
    assert shell.json("dead-letter", "replay", "room", *chosen, "--dry-run")["found"] == 3
    done = shell("--json", "dead-letter", "replay", "room", *chosen, code=1)
    assert json.loads(done.stdout) == {
        "found": 3,
        "replayed": 3,
        "failed": 3,
        "notReplayable": 0,
    }
    letters = shell.json("dead-letter", "list", "room", "--handler", "fail", "--type", "FAIL")
    assert [row["attempts"] for row in letters] == [2, 2, 2]
    for wrong in ((), (letters[0]["letterID"], "--all")):
        shell.fails("dead-letter", "discard", "room", *wrong, code=2)
    assert shell.json("dead-letter", "discard", "room", "--all")["discarded"] == 3
    assert shell.json("dead-letter", "list", "room") == []
