"""Traces of events: the host calls of their handlers, in order, for a bounded time."""

from __future__ import annotations

import base64
import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.applets import SENDER, TALLY
from tests.support.nodes import StartNode, message, parts, strategies, until
from tests.support.shell import Shell

MODULES = Path(__file__).parents[1] / "modules"
TABLE = {"name": "t", "cols": [{"name": "f_n", "constrains": {"datatype": "INT64"}}]}
INSERT = b'{"statement": "insert into t (f_n) values (?)", "params": [{"int64": 7}]}'
# `keys` reads the key "k", writes it twice, reads it, asks for the variable PLACE and logs;
# `many` writes one key 500 times, with 2 KiB each time, and returns; `pub` publishes to nowhere.
KEYS = b"""
(module
  (import "env" "ws_log" (func $log (param i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_get_db" (func $get (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_get_env" (func $env (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_send_mqtt_msg" (func $send (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 32) "k")
  (data (i32.const 40) "one")
  (data (i32.const 48) "\\ff\\fe")
  (data (i32.const 64) "PLACE")
  (data (i32.const 80) "$SYS/x")
  (func (export "alloc") (param $size i32) (result i32) (i32.const 4096))
  (func (export "keys") (param $rid i32) (result i32)
    (drop (call $get (i32.const 32) (i32.const 1) (i32.const 8) (i32.const 12)))
    (drop (call $set (i32.const 32) (i32.const 1) (i32.const 40) (i32.const 3)))
    (drop (call $get (i32.const 32) (i32.const 1) (i32.const 8) (i32.const 12)))
    (drop (call $set (i32.const 32) (i32.const 1) (i32.const 48) (i32.const 2)))
    (drop (call $env (i32.const 64) (i32.const 5) (i32.const 8) (i32.const 12)))
    (drop (call $log (i32.const 4) (i32.const 40) (i32.const 3)))
    (i32.const 0))
  (func (export "many") (param $rid i32) (result i32) (local $n i32)
    (loop $more
      (drop (call $set (i32.const 32) (i32.const 1) (i32.const 8192) (i32.const 2048)))
      (local.set $n (i32.add (local.get $n) (i32.const 1)))
      (br_if $more (i32.lt_u (local.get $n) (i32.const 500))))
    (i32.const 0))
  (func (export "pub") (param $rid i32) (result i32)
    (call $send (i32.const 80) (i32.const 6) (i32.const 40) (i32.const 3))))
"""


class Tracing:
    """A node with a project of four applets, each for event types of its own."""

    def __init__(self, start: StartNode) -> None:
        self.node = start()
        self.call = self.node.call
        self.node.create_project("t")
        config = {"schemas": [{"schema": "public", "tables": [TABLE]}]}
        assert self.call("POST", "/project_config/x/t/PROJECT_DATABASE", config).status == 201
        variables = {"env": [["PLACE", "cellar"]]}
        assert self.call("POST", "/project_config/x/t/PROJECT_ENV", variables).status == 201
        sql = (MODULES / "sql.wat").read_bytes()
        self.node.deploy("t", KEYS, "keys", strategies=strategies("keys", "many", "pub"))
        self.node.deploy("t", sql, "sql", strategies=strategies("set", "get"))
        self.node.deploy("t", SENDER, "sender", strategies=strategies("publish", "call"))
        self.node.deploy(
            *("t", TALLY, "tally"), strategies=strategies("start", "fail"), isolation="BATCH"
        )
        self.publisher = self.node.add_publisher("t", "p")

    def trace(self, **body: Any) -> Any:
        answer = self.call("POST", "/event_log/t/trace", body)
        assert answer.status == 201, answer
        return answer.json

    def noted(self, status: int) -> list[Any]:
        """Return the rows of the audit log on traces with this status."""
        rows = self.call("GET", "/audit?operation=StartTrace").json["data"]
        return [row for row in rows if row["status"] == status]

    def state(self) -> Any:
        return self.call("GET", "/event_log/t/trace").json

    def send(self, event_type: str, payload: bytes = b"x", *, publisher: Any = None) -> str:
        answer = self.node.send("t", message(publisher or self.publisher, payload, event_type))
        assert answer.status == 201, answer
        event_id: str = answer.headers["X-Event-Id"]
        return event_id

    def row(self, event_id: str) -> Any:
        (row,) = self.call("GET", f"/event_log/t?eventID={event_id}").json["data"]
        return row

    def details(self, event_id: str) -> Any:
        return self.call("GET", f"/event_log/t/at/{self.row(event_id)['place']}").json

    def calls(self, event_id: str) -> list[tuple[str, str, Any, Any]]:
        """Return function, subject, old value, and result or refusal of each call."""
        return [
            (c["function"], c["subject"]["value"], value(c, "before"), value(c, "result"))
            for c in self.details(event_id)["trace"]["calls"]
        ]


def value(call: Any, key: str) -> Any:
    return call.get("error") or (call[key]["value"] if key in call else None)


def access_key(tracing: Tracing, name: str, privileges: dict[str, str]) -> str:
    granted = [{"name": group, "perm": permission} for group, permission in privileges.items()]
    answer = tracing.call("POST", "/account_access_key", {"name": name, "privileges": granted})
    assert answer.status == 201, answer
    key: str = answer.json["accessKey"]
    return key


@pytest.fixture(scope="module")
def tracing(start_module_node: StartNode) -> Tracing:
    return Tracing(start_module_node)


@pytest.fixture(autouse=True)
def off(tracing: Tracing) -> None:
    assert tracing.call("DELETE", "/event_log/t/trace").status == 204


@pytest.mark.thorough
def test_a_traced_event_tells_keys_with_their_values_before_and_after_variables_and_log_lines(
    tracing: Tracing,
) -> None:
    assert "traced" not in tracing.row(tracing.send("KEYS"))
    assert tracing.trace(events=1)["remaining"] == 1
    traced = tracing.send("KEYS")
    old = base64.b64encode(b"\xff\xfe").decode()
    assert tracing.calls(traced) == [
        ("ws_get_db", "k", None, old),
        ("ws_set_db", "k", old, "one"),
        ("ws_get_db", "k", None, "one"),
        ("ws_set_db", "k", "one", old),
        ("ws_get_env", "PLACE", None, "cellar"),
        ("ws_log", "info", None, "one"),
    ]
    details = tracing.details(traced)
    assert (details["traced"], details["trace"]["omitted"]) == (True, 0)
    times = [call["atUs"] for call in details["trace"]["calls"]]
    assert times == sorted(times)
    (result,) = details["results"]
    assert {call["strategyID"] for call in details["trace"]["calls"]} == {result["strategyID"]}
    (ran,) = details["trace"]["runs"]
    assert ran["strategyID"] == result["strategyID"]
    assert ran["us"] >= times[-1]
    assert ran["memoryBytes"] == 65_536
    assert tracing.row(traced)["traced"] is True


def test_statements_messages_and_calls_are_traced_with_results_and_refusals(
    tracing: Tracing,
) -> None:
    tracing.trace(events=5)
    inserted = tracing.send("SET", INSERT)
    selected = tracing.send("GET", b'{"statement": "select f_n from t", "params": []}')
    wrong, sent = tracing.send("SET", b"{}"), tracing.send("PUBLISH", b"21.5")
    refused = tracing.send("PUB")
    assert tracing.calls(inserted) == [("ws_set_sql_db", INSERT.decode(), None, "")]
    query, *writes = tracing.calls(selected)
    assert query[0] == "ws_get_sql_db"
    assert json.loads(query[3]) == {"f_n": 7}
    assert writes == [("ws_set_db", "rows", None, query[3])]
    ((function, subject, _, error),) = tracing.calls(wrong)
    assert (function, subject) == ("ws_set_sql_db", "{}")
    assert error
    assert tracing.calls(sent) == [("ws_send_mqtt_msg", "out/readings", None, "21.5")]
    ((function, _, _, error),) = tracing.calls(refused)
    assert function == "ws_send_mqtt_msg"
    assert "broker" in error
    took = tracing.details(inserted)["trace"]["calls"][0]["us"]
    assert 0 < took < 1e7


def test_a_trace_ends_after_its_events_and_selects_them_by_type_publisher_and_source(
    tracing: Tracing,
) -> None:
    other = tracing.node.add_publisher("t", "other")
    wanted = {"type": "KEYS", "publisher": "other", "source": "http"}
    state = tracing.trace(events=2, minutes=5, filter=wanted)
    assert (state["remaining"], state["filter"]) == (2, wanted)
    assert state["until"] > time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    ids = [
        tracing.send("PUBLISH", publisher=other),
        tracing.send("KEYS"),
        *[tracing.send("KEYS", publisher=other) for _ in range(3)],
    ]
    assert ["traced" in tracing.row(each) for each in ids] == [False, False, True, True, False]
    after = tracing.state()
    assert (after["remaining"], "until" in after) == (0, False)
    assert after["kept"] == state["kept"] + 2


def test_a_trace_ends_after_its_time_and_when_it_is_stopped(tracing: Tracing) -> None:
    tracing.trace(minutes=0.005)
    until(lambda: tracing.state()["remaining"] == 0, "0.3 s are over")
    assert "traced" not in tracing.row(tracing.send("KEYS"))
    tracing.trace()
    assert tracing.state()["remaining"] == 100
    assert tracing.call("DELETE", "/event_log/t/trace").status == 204
    assert "traced" not in tracing.row(tracing.send("KEYS"))


def test_events_that_share_an_instance_run_alone_while_they_are_traced(tracing: Tracing) -> None:
    events = [message(tracing.publisher, b"%d" % n, "START") for n in range(40)]
    tracing.trace(events=3, filter={"type": "START"})
    answer = tracing.node.send("t", {"events": events})
    ids = [item["eventID"] for item in answer.json]
    assert all(item["wasmResults"][0]["code"] == 0 for item in answer.json)
    assert ["traced" in tracing.row(each) for each in ids] == [True] * 3 + [False] * 37
    assert {call[0] for call in tracing.calls(ids[2])} == {"ws_get_db", "ws_set_db", "ws_log"}


def test_a_failed_run_and_its_replay_are_traced(tracing: Tracing) -> None:
    tracing.trace(events=2)
    failed = tracing.send("FAIL")
    assert [call[0] for call in tracing.calls(failed)] == ["ws_get_db", "ws_set_db"]
    letters = tracing.call("GET", "/dead_letter/t").json["data"]
    letter = next(row for row in letters if row["eventID"] == failed)
    tracing.call("POST", "/dead_letter/t/replay", {"letterIDs": [letter["letterID"]]})
    assert tracing.calls(f"{failed}%23r1") == tracing.calls(failed)
    assert tracing.state()["remaining"] == 0


def test_calls_and_their_values_are_cut_to_limits(tracing: Tracing) -> None:
    tracing.trace(events=1)
    trace = tracing.details(tracing.send("MANY"))["trace"]
    assert len(trace["calls"]) + trace["omitted"] == 500
    assert len(trace["calls"]) < 64
    last = trace["calls"][-1]["result"]
    assert (len(last["value"]), last["size"]) == (1_024, 2_048)


BAD: Sequence[tuple[dict[str, Any], str]] = [
    ({"events": 0}, "events"),
    ({"events": 1_001}, "events"),
    ({"events": "many"}, "events"),
    ({"minutes": 0}, "minutes"),
    ({"minutes": 61}, "minutes"),
    ({"filter": []}, "filter"),
    ({"filter": {"type": "x" * 300}}, "filter.type"),
    ({"filter": {"source": "pigeon"}}, "filter.source"),
]


@pytest.mark.parametrize(("body", "field"), BAD)
def test_a_trace_out_of_bounds_is_refused(
    tracing: Tracing, body: dict[str, Any], field: str
) -> None:
    answer = tracing.call("POST", "/event_log/t/trace", body)
    assert answer.status == 400
    assert [error["field"] for error in answer.json["fields"]] == [field]
    assert tracing.state()["remaining"] == 0


def test_only_who_owns_a_project_may_trace_it_and_the_audit_log_says_who_did(
    tracing: Tracing,
) -> None:
    unknown = tracing.call("POST", "/event_log/t/trace", {"filter": {"publisher": "nobody"}})
    assert unknown.status == 404
    stranger = {"username": "stranger", "password": "another horse", "role": "DEVELOPER"}
    assert tracing.call("POST", "/register/admin", stranger).status == 201
    token = tracing.call("PUT", "/login", stranger, token="").json["token"]
    for method in ("POST", "GET", "DELETE"):
        answer = tracing.call(method, "/event_log/t/trace", token=token)
        assert answer.status == 404, (method, answer)
    key = access_key(tracing, "reader", {"Wasm Log": "READONLY"})
    reads = tracing.call("GET", "/event_log/t/trace", token=key)
    assert reads.status == 200
    assert tracing.call("POST", "/event_log/t/trace", token=key).status == 403
    tracing.trace()
    assert until(lambda: tracing.noted(201), "it is noted")[0]["account"] == "admin"


def test_an_access_key_for_events_reads_no_stored_values_by_a_trace(tracing: Tracing) -> None:
    sends = access_key(tracing, "sends", {"Event": "READ_WRITE"})
    seen = dict.fromkeys(("Event", "Wasm Log", "Project Config"), "READONLY")
    reads = access_key(tracing, "reads", seen)
    for method in ("POST", "GET", "DELETE"):
        assert tracing.call(method, "/event_log/t/trace", {}, token=sends).status == 403
    tracing.trace()
    event_id = tracing.send("KEYS")
    place = tracing.row(event_id)["place"]
    path = f"/event_log/t/at/{place}"
    assert "trace" not in tracing.call("GET", path, token=sends).json
    assert tracing.call("GET", path, token=reads).json["trace"]["calls"]


def test_a_trace_of_a_project_without_a_process_is_off_and_starts_none(
    tracing: Tracing,
) -> None:
    tracing.node.create_project("asleep")
    before = tracing.node.processes()
    state = tracing.call("GET", "/event_log/asleep/trace").json
    assert state == {
        "remaining": 0,
        "filter": {"type": "", "publisher": "", "source": None},
        "kept": 0,
    }
    assert tracing.call("DELETE", "/event_log/asleep/trace").status == 204
    assert set(tracing.node.processes()) <= set(before)


def test_the_command_line_starts_shows_and_stops_a_trace_and_prints_calls(
    tracing: Tracing, tmp_path: Path
) -> None:
    shell = Shell(tmp_path, tracing.node)
    assert "2 events will be traced" in shell.text("event", "trace", "t", "--events", "2")
    traced = tracing.send("KEYS")
    shown = shell.text("event", "show", "t", traced)
    assert "ws_set_db" in shown
    assert "one -> base64:" in shown
    assert "1 event will be traced" in shell.text("event", "trace", "t", "--show")
    shell("event", "trace", "t", "--stop")
    assert "no event will be traced" in shell.text("event", "trace", "t", "--show")


def test_a_killed_project_loses_its_trace_and_nothing_else(tracing: Tracing) -> None:
    tracing.trace(events=10)
    kept = tracing.send("KEYS")
    calls = tracing.calls(kept)
    os.kill(parts(tracing.node)["project"], signal.SIGKILL)
    again = message(tracing.publisher, b"x", "KEYS")
    answer = until(
        lambda: (sent := tracing.node.send("t", again)).status == 201 and sent, "it is back"
    )
    assert "traced" not in tracing.row(answer.headers["X-Event-Id"])
    assert tracing.state()["remaining"] == 0
    assert tracing.calls(kept) == calls
