"""Dry runs of applets and inspection of modules: their answers, and that they have no effects."""

from __future__ import annotations

import base64
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import wasmtime

from tests.support.management import UNLINKABLE_WAT, User, holder, wasm
from tests.support.nodes import Answer, RunningNode, StartNode, message, strategies, until
from tests.support.shell import Shell

MODULES = Path(__file__).parents[1] / "modules"
TABLE = {
    "name": "t_readings",
    "cols": [
        {"name": "f_device", "constrains": {"datatype": "TEXT"}},
        {"name": "f_celsius", "constrains": {"datatype": "FLOAT64"}},
    ],
}
# `start` logs its payload, adds one to the byte under `n`, publishes to a topic and calls an API.
# `spin` never ends, `grow` takes memory until it gets none, `trap` writes a key and traps.
EVERYTHING = b"""
(module
  (import "env" "ws_log" (func $log (param i32 i32 i32) (result i32)))
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_get_db" (func $get_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_get_env" (func $get_env (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_send_mqtt_msg" (func $send (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_send_tx" (func $tx (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 32) "n")
  (data (i32.const 64) "out/dry")
  (data (i32.const 96) "PLACE")
  (data (i32.const 128)
    "{\\"to\\":\\"0x0000000000000000000000000000000000000001\\",\\"value\\":\\"1\\",\\"data\\":\\"\\"}")
  (func (export "alloc") (param $size i32) (result i32) (i32.const 4096))
  (func (export "start") (param $rid i32) (result i32)
    (drop (call $get_data (local.get $rid) (i32.const 0) (i32.const 4)))
    (drop (call $log (i32.const 4) (i32.load (i32.const 0)) (i32.load (i32.const 4))))
    (drop (call $send (i32.const 64) (i32.const 7)
      (i32.load (i32.const 0)) (i32.load (i32.const 4))))
    (i32.store8 (i32.const 48) (i32.const 0))
    (if (i32.eqz (call $get_db (i32.const 32) (i32.const 1) (i32.const 8) (i32.const 12)))
      (then (i32.store8 (i32.const 48) (i32.load8_u (i32.load (i32.const 8))))))
    (i32.store8 (i32.const 48) (i32.add (i32.load8_u (i32.const 48)) (i32.const 1)))
    (drop (call $set_db (i32.const 32) (i32.const 1) (i32.const 48) (i32.const 1)))
    (if (i32.eqz (call $get_env (i32.const 96) (i32.const 5) (i32.const 8) (i32.const 12)))
      (then (drop (call $log (i32.const 4) (i32.load (i32.const 8)) (i32.load (i32.const 12))))))
    (i32.load8_u (i32.const 48)))
  (func (export "pay") (param $rid i32) (result i32)
    (call $tx (i32.const 4690) (i32.const 128) (i32.const 71) (i32.const 8) (i32.const 12)))
  (func (export "spin") (param i32) (result i32) (loop $l (br $l)) (i32.const 0))
  (func (export "grow") (param i32) (result i32) (local $at i32)
    (loop $more
      (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
    (loop $touch
      (i32.store8 (local.get $at) (i32.const 1))
      (local.set $at (i32.add (local.get $at) (i32.const 4096)))
      (br_if $touch
        (i32.lt_u (local.get $at) (i32.mul (memory.size) (i32.const 65536)))))
    (memory.size))
  (func (export "trap") (param i32) (result i32)
    (drop (call $set_db (i32.const 32) (i32.const 1) (i32.const 48) (i32.const 1)))
    (unreachable)))
"""


MINT = b"""(module (memory (export "memory") 1)
  (func (export "mint") (param i32) (result i32) (i32.const 0)))"""


class Trying:
    """A node with an applet that uses everything, and one that runs its payload as SQL."""

    def __init__(self, start: StartNode) -> None:
        self.node = start("--deadline-ms", "1000")
        self.node.create_project("dry")
        self.call = self.node.call
        config = {"schemas": [{"schema": "public", "tables": [TABLE]}]}
        assert self.call("POST", "/project_config/x/dry/PROJECT_DATABASE", config).status == 201
        variables = {"env": [["PLACE", "cellar"]]}
        assert self.call("POST", "/project_config/x/dry/PROJECT_ENV", variables).status == 201
        deploy = self.node.deploy
        self.applet_id = deploy("dry", EVERYTHING, strategies=strategies(DEFAULT="start"))[
            "appletID"
        ]
        sql = (MODULES / "sql.wat").read_bytes()
        given = strategies("set", "get", "set_and_trap")
        self.sql_id = deploy("dry", sql, "sql", strategies=given)["appletID"]
        self.publisher = self.node.add_publisher("dry", "p")

    def send(self, payload: bytes, event_type: str = "DEFAULT") -> int:
        answer = self.node.send("dry", message(self.publisher, payload, event_type))
        assert answer.status == 201, answer
        code: int = answer.json["results"][0]["code"]
        return code

    def try_(self, handler: str, payload: bytes = b"", applet: str = "", **more: Any) -> Answer:
        body = {"handler": handler, "payload": base64.b64encode(payload).decode(), **more}
        return self.call("POST", f"/applet/data/{applet or self.applet_id}/run", body)

    def report(self, handler: str, payload: bytes = b"", applet: str = "", **more: Any) -> Any:
        answer = self.try_(handler, payload, applet, **more)
        assert answer.status == 201, answer
        return answer.json

    def state(self) -> Any:
        """Return everything that a real run could have changed."""
        return [
            self.call("GET", f"/kv/dry?appletID={self.applet_id}&values=true").json["data"],
            self.call("GET", "/sql/dry/t_readings").json["data"],
            self.call("GET", "/applet_log/dry?limit=1000").json["data"],
            self.call("GET", "/event_log/dry").json["data"],
            self.call("GET", "/dead_letter/dry").json["data"],
        ]


@pytest.fixture(scope="module")
def trying(start_module_node: StartNode) -> Trying:
    return Trying(start_module_node)


@pytest.mark.thorough
def test_a_dry_run_tells_what_a_handler_does_with_the_present_keys_and_changes_nothing(
    trying: Trying,
) -> None:
    before_code = trying.send(b"real")
    known = trying.state()
    report = trying.report("start", b"tried")
    assert (report["code"], report["error"]) == (before_code + 1, "")
    assert [(log["level"], log["text"]) for log in report["logs"]] == [
        ("info", "tried"),
        ("info", "cellar"),
    ]
    (write,) = report["writes"]
    assert write["key"]["value"] == "n"
    assert (ord(write["before"]["value"]), ord(write["after"]["value"])) == (
        before_code,
        before_code + 1,
    )
    (effect,) = report["effects"]
    assert effect == {
        "kind": "mqtt", "target": "out/dry",
        "body": {"value": "tried", "encoding": "text", "size": 5},
    }  # fmt: skip
    assert report["elapsedUs"] > 0
    assert trying.state() == known
    assert trying.report("start", withState=False)["writes"][0]["before"] is None
    assert trying.send(b"real") == before_code + 1


def test_a_dry_run_of_sql_works_on_a_copy_of_the_tables(trying: Trying) -> None:
    def statement(text: str, *params: dict[str, Any]) -> bytes:
        return json.dumps({"statement": text, "params": list(params)}).encode()

    insert = "INSERT INTO t_readings (f_device, f_celsius) VALUES (?, ?)"
    values = {"string": "a"}, {"float64": 1.5}
    assert trying.send(statement(insert, *values), "SET") == 0
    known = trying.state()
    count = statement("SELECT count(*) AS n FROM t_readings")
    tried = trying.report("set", statement(insert, *values), trying.sql_id)
    assert [(s["error"], insert in s["request"]["value"]) for s in tried["statements"]] == [
        ("", True)
    ]
    seen = trying.report("get", count, trying.sql_id)["statements"][0]
    assert json.loads(seen["result"]["value"]) == {"n": 1}
    empty = trying.report("get", count, trying.sql_id, withState=False)["statements"][0]
    assert json.loads(empty["result"]["value"]) == {"n": 0}
    wrong = trying.report("set", statement("INSERT INTO nowhere VALUES (1)"), trying.sql_id)
    assert "nowhere" in wrong["statements"][0]["error"]
    failed = trying.report("set_and_trap", statement(insert, *values), trying.sql_id)
    assert failed["error"]
    assert "undone" in failed["notes"][0]
    assert trying.state() == known


def test_a_dry_run_that_traps_spins_or_grows_ends_at_the_limits_of_a_run(trying: Trying) -> None:
    trapped = trying.report("trap")
    assert "unreachable" in trapped["error"]
    assert trapped["writes"] == []
    began = time.monotonic()
    assert "deadline of 1000 ms" in trying.report("spin")["error"]
    assert time.monotonic() - began < 20
    grown = trying.report("grow")
    assert 1_024 - 16 <= grown["code"] <= 1_024, "the limit of 64 MiB, in pages"
    assert grown["memoryBytes"] == grown["code"] << 16
    assert trying.report("pay")["code"] == -1, "the node has no chain"


def test_what_is_wrong_with_a_dry_run_is_named(trying: Trying) -> None:
    path = f"/applet/data/{trying.applet_id}/run"
    for body, field in [
        ({}, "handler"),
        ({"handler": "nothing"}, "handler"),
        ({"handler": "start", "payload": "!"}, "payload"),
        ({"handler": "start", "eventType": "x" * 257}, "eventType"),
        ({"handler": "start", "version": "one"}, "version"),
        ({"handler": "start", "withState": 3}, "withState"),
    ]:
        answer = trying.call("POST", path, body)
        assert answer.status == 400, body
        assert [each["field"] for each in answer.json["fields"]] == [field]
    assert trying.try_("start", version=7).json["key"] == "NotFound"
    assert trying.try_("start", version=1).status == 201
    assert trying.try_("start", applet="5").json["key"] == "AppletNotFound"


def test_dry_runs_of_one_account_are_bounded_and_hold_up_no_other_request(trying: Trying) -> None:
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda: answers.append(trying.try_("spin"))) for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    until(lambda: answers, "some are refused at once")
    assert trying.call("GET", "/project/dry").status == 200
    assert len(answers) < len(threads), "it was answered before the runs ended"
    for thread in threads:
        thread.join()
    assert {answer.status for answer in answers} == {201, 429}


def test_no_file_of_a_dry_run_or_an_inspection_is_left(trying: Trying) -> None:
    trying.report("start")
    inspected(trying.node, EVERYTHING)
    uploads = trying.node.data / "uploads"
    assert list(uploads.iterdir()) == []


def test_the_command_line_shows_a_dry_run_and_an_inspection(trying: Trying, tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home", trying.node)
    shown = shell.text("applet", "dry-run", "dry", "applet", "--payload", "seen")
    assert "log      info: seen" in shown
    assert "effect   mqtt out/dry: seen" in shown
    module = tmp_path / "everything.wasm"
    module.write_bytes(wasmtime.wat2wasm(EVERYTHING))
    shown = shell.text("applet", "inspect", str(module))
    assert "start, pay, spin, grow, trap" in shown


# ---------------------------------------------------------------- inspection


def inspected(node: RunningNode, module: bytes) -> Any:
    answer = node._send_form("POST", "/resource/inspect", {}, module)
    assert answer.status == 201, answer
    return answer.json


def test_a_module_is_described_before_it_is_stored(trying: Trying) -> None:
    known = trying.call("GET", "/resource").json
    modules = sorted(path.name for path in (trying.node.data / "modules").iterdir())
    binary = bytes(wasmtime.wat2wasm(EVERYTHING))
    new = binary + b"\0\x05\x01x" + b"abc"  # a custom section makes it a module of its own
    found = inspected(trying.node, new)
    assert (found["size"], found["problems"], found["warnings"]) == (len(new), [], [])
    assert found["handlers"] == ["start", "pay", "spin", "grow", "trap"]
    assert found["imports"][0] == {
        "module": "env", "name": "ws_log", "kind": "function", "type": "(i32, i32, i32) -> (i32)",
    }  # fmt: skip
    exports = {
        each["name"]: (each["kind"], each["type"], each["handler"]) for each in found["exports"]
    }
    assert exports["memory"] == ("memory", "", False)
    assert exports["alloc"] == ("function", "(i32) -> (i32)", False)
    assert exports["start"] == ("function", "(i32) -> (i32)", True)
    assert trying.call("GET", "/resource").json == known
    assert sorted(path.name for path in (trying.node.data / "modules").iterdir()) == modules


@pytest.mark.thorough
def test_an_inspection_names_what_an_upload_would_be_refused_for(trying: Trying) -> None:
    for module in (UNLINKABLE_WAT.encode(), b"no module", b"\0asm\x01\0\0\0\xff", b"(module)"):
        upload = trying.node.upload("dry", module)
        assert upload.status in (400, 500), upload
        found = inspected(trying.node, module)
        assert found["problems"]
        said = [upload.json["desc"], *(field["msg"] for field in upload.json["fields"] or ())]
        for problem in found["problems"]:
            assert any(problem in text for text in said)
    unlinkable = inspected(trying.node, UNLINKABLE_WAT.encode())
    assert unlinkable["imports"][0]["name"] == "no_such_function"
    assert inspected(trying.node, b"no module")["exports"] == []
    warnings = " ".join(inspected(trying.node, MINT)["warnings"])
    assert "no handler start" in warnings
    assert "no alloc" in warnings


def test_who_may_not_try_an_applet_and_what_counts_as_reading(ada: User, bob: User) -> None:
    ada.project()
    applet_id = ada.applet()["appletID"]
    path = f"/applet/data/{applet_id}/run"
    assert bob("POST", path, {"handler": "start"}).key == "AppletNotFound"
    reader = holder(ada, "reader", Applet="READONLY", Resource="READONLY")
    assert reader("POST", path, {"handler": "start"}).status == 403
    assert ada("POST", "/resource/inspect", {}).fields == {"file": "missing required field"}
    large = ada.upload("POST", "/resource/inspect", wasm(UNLINKABLE_WAT) + bytes(1 << 20), {})
    assert large.status == 201
    assert "Upload File Size Limit" in large.json["problems"][0]
