"""Running applets without a node: `applet run` and `applet test`."""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.workbench import files, results
from fieldbrook.workbench import runs as workbench
from fieldbrook.workbench.files import WorkbenchError
from fieldbrook.workbench.runs import Trial, Workbench
from tests.support.dev import run_applet

MODULES = Path(__file__).parents[2] / "modules"
SENDER = """
(module
  (import "env" "ws_send_mqtt_msg" (func $send (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_send_tx" (func $tx (param i32 i32 i32 i32 i32) (result i32)))
  (import "stat" "ws_submit_metrics" (func $submit (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "fan/1on\\ff{}")
  (func (export "start") (param i32) (result i32)
    (drop (call $submit (i32.const 8) (i32.const 2)))
    (call $send (i32.const 0) (i32.const 5) (i32.const 5) (i32.const 3)))
  (func (export "trap") (param i32) (result i32)
    (drop (call $send (i32.const 0) (i32.const 5) (i32.const 5) (i32.const 2)))
    unreachable)
  (func (export "pay") (param i32) (result i32)
    (call $tx (i32.const 1) (i32.const 8) (i32.const 2) (i32.const 64) (i32.const 68))))
"""
SCHEMA = {
    "schemas": [
        {"tables": [{"name": "t", "cols": [{"name": "c", "constrains": {"datatype": "TEXT"}}]}]}
    ]
}
QUERIER = """
(module
  (import "env" "ws_get_data" (func $data (param i32 i32 i32) (result i32)))
  (import "env" "ws_set_sql_db" (func $execute (param i32 i32) (result i32)))
  (import "env" "ws_get_sql_db" (func $query (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "rows")
  (global $top (mut i32) (i32.const 1024))
  (func (export "alloc") (param i32) (result i32)
    (global.get $top)
    (global.set $top (i32.add (global.get $top) (local.get 0))))
  (func $do (param i32) (result i32)
    (drop (call $data (local.get 0) (i32.const 0) (i32.const 4)))
    (call $execute (i32.load (i32.const 0)) (i32.load (i32.const 4))))
  (func (export "execute") (param i32) (result i32) (call $do (local.get 0)))
  (func (export "trap") (param i32) (result i32)
    (drop (call $do (local.get 0)))
    unreachable)
  (func (export "query") (param i32) (result i32)
    (drop (call $data (local.get 0) (i32.const 0) (i32.const 4)))
    (drop (call $query
      (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 8) (i32.const 12)))
    (call $set (i32.const 16) (i32.const 4) (i32.load (i32.const 8)) (i32.load (i32.const 12)))))
"""
GUEST = str(MODULES / "guest.wat")
FOUR = (4).to_bytes(4, "little")


def result(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any]:
    code, out, _ = run_applet(capsys, *arguments, "--json")
    return code, json.loads(out)


def lines(path: Path, *values: object) -> Path:
    path.write_text("".join(f"{json.dumps(value)}\n" for value in values))
    return path


# ---------------------------------------------------------------- run


@pytest.mark.parametrize("host", workbench.HOSTS)
def test_a_handler_runs_and_what_it_left_is_shown(
    host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--handler", "echo", "--payload", "21.5", "--host", host)
    code, left = result(capsys, "run", GUEST, *options)
    assert code == 0
    assert left.pop("elapsed_us") > 0
    assert left == {
        "event_type": "DEFAULT",
        "handler": "echo",
        "code": 0,
        "error": "",
        "logs": [],
        "writes": {"payload": "21.5"},
        "effects": [],
    }
    code, out, _ = run_applet(capsys, "run", GUEST, *options)
    assert code == 0
    assert out.startswith("code     0\nwrite    payload = 21.5\ntime     ")


@pytest.mark.parametrize("host", workbench.HOSTS)
def test_a_trap_is_told_with_its_log_and_its_writes_are_dropped(
    host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, left = result(capsys, "run", GUEST, "--handler", "trap", "--host", host)
    assert code == 1
    assert left["error"] == "wasm trap: wasm `unreachable` instruction executed"
    assert left["logs"] == [["info", "payload"]]
    assert left["writes"] == {}
    code, out, _ = run_applet(capsys, "run", GUEST, "--handler", "trap", "--host", host)
    assert code == 1
    assert out.startswith("trap     wasm trap: ")


def test_a_negative_code_is_a_failure_and_a_positive_one_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_applet(capsys, "run", GUEST, "--handler", "negative")[0] == 1
    code, left = result(capsys, "run", GUEST, "--handler", "count_twice")
    assert (code, left["code"]) == (0, 2)


def test_payloads_come_from_text_files_input_and_base64(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def echoed(*options: str) -> str:
        return str(result(capsys, "run", GUEST, "--handler", "echo", *options)[1]["writes"])

    raw = tmp_path / "payload.bin"
    raw.write_bytes(b"\0\xff")
    assert echoed() == str({"payload": ""})
    assert echoed("--payload", "grün") == str({"payload": "grün"})
    assert echoed("--payload", f"@{raw}") == str({"payload": "base64:AP8="})
    assert echoed("--payload", "AP8=", "--base64") == str({"payload": "base64:AP8="})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"AP8=\n")))
    assert echoed("--payload", "@-", "--base64") == str({"payload": "base64:AP8="})
    code, _, err = run_applet(capsys, "run", GUEST, "--payload", "?", "--base64")
    assert code == 2
    assert "not base64" in err
    code, _, err = run_applet(capsys, "run", GUEST, "--payload", "@/nowhere/at/all")
    assert code == 1
    assert "/nowhere/at/all" in err


def test_type_and_variables_reach_the_handler(capsys: pytest.CaptureFixture[str]) -> None:
    _, left = result(capsys, "run", GUEST, "--handler", "event_type", "--type", "HEAT")
    assert left["writes"] == {"type": "HEAT"}
    _, left = result(capsys, "run", GUEST, "--handler", "colour", "--env", "COLOUR=a=b")
    assert left["writes"] == {"COLOUR": "a=b"}


def test_a_store_in_a_file_is_carried_from_run_to_run_but_not_out_of_a_trap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store.json"
    for expected in (2, 4):
        _, left = result(capsys, "run", GUEST, "--handler", "count_twice", "--store", store)
        assert left["code"] == expected
    assert files.read_store(store) == {b"counter": FOUR}
    before = store.read_bytes()
    assert run_applet(capsys, "run", GUEST, "--handler", "trap", "--store", store)[0] == 1
    assert store.read_bytes() == before


@pytest.mark.parametrize("host", workbench.HOSTS)
def test_what_a_handler_sends_is_shown_and_goes_nowhere(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "sender.wat"
    module.write_text(SENDER)
    _, left = result(capsys, "run", module, "--host", host)
    assert left["code"] == 0
    assert left["effects"] == [
        {"kind": "Metric", "value": "{}"},
        {"kind": "Message", "topic": "fan/1", "payload": "base64:b27/"},
    ]
    _, out, _ = run_applet(capsys, "run", module, "--host", host)
    assert "effect   Message: topic=fan/1, payload=base64:b27/\n" in out
    _, left = result(capsys, "run", module, "--handler", "trap", "--host", host)
    assert left["effects"] == []
    code, left = result(capsys, "run", module, "--handler", "pay", "--host", host)
    assert (code, left["code"]) == (1, -1)
    assert "chain 1 is not configured" in left["logs"][0][1]


@pytest.mark.parametrize("host", workbench.HOSTS)
def test_tables_are_those_of_the_schema_and_what_a_trap_did_to_them_is_undone(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, schema = tmp_path / "querier.wat", tmp_path / "schema.json"
    module.write_text(QUERIER)
    schema.write_text(json.dumps(SCHEMA))
    insert = {"statement": "INSERT INTO t (c) VALUES (?)", "params": [{"string": "a"}]}
    count = {"statement": "SELECT count(*) AS n FROM t", "params": []}
    events = lines(
        tmp_path / "events.jsonl",
        *({"event_type": kind, "payload": insert} for kind in ("execute", "trap", "execute")),
        {"event_type": "query", "payload": count},
    )
    strategies = [f"--strategy={name}={name}" for name in ("execute", "trap", "query")]
    options = ("test", module, events, *strategies, "--schema", schema, "--host", host)
    for _ in range(2):  # without a file nothing is stored
        _, left = result(capsys, *options)
        assert [item["code"] for item in left["runs"]] == [0, -1, 0, 0]
        assert left["runs"][3]["writes"] == {"rows": '{"n":2}'}
    for rows in (2, 4):
        _, left = result(capsys, *options, "--database", tmp_path / "sql.db")
        assert left["runs"][3]["writes"] == {"rows": json.dumps({"n": rows}, separators=(",", ":"))}


def test_a_handler_without_a_database_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, schema = tmp_path / "querier.wat", tmp_path / "schema.json"
    module.write_text(QUERIER)
    code, left = result(capsys, "run", module, "--handler", "execute", "--payload", "{}")
    assert (code, left["code"]) == (0, 9)
    code, _, err = run_applet(capsys, "run", module, "--handler", "query", "--database", "x")
    assert code == 2
    assert "--schema" in err
    schema.write_text("[]")
    code, _, err = run_applet(capsys, "run", module, "--handler", "query", "--schema", schema)
    assert code == 1
    assert "schema.json: not a JSON object" in err


def test_a_handler_that_never_ends_is_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    code, left = result(capsys, "run", GUEST, "--handler", "loop", "--deadline-ms", "50")
    assert (code, left["error"]) == (1, "deadline of 50 ms exceeded")


def test_what_is_no_applet_and_no_handler_is_told_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = lines(tmp_path / "events.jsonl", {"payload": ""})
    for words in (("run", GUEST), ("test", GUEST, events, "--record")):
        code, _, err = run_applet(capsys, *words, "--handler", "nowhere")
        assert code == 1
        assert "has no handler nowhere" in err
        assert "echo" in err
    bad = tmp_path / "bad.wasm"
    bad.write_bytes(b"MZ\0\xff")
    code, _, err = run_applet(capsys, "run", bad)
    assert code == 1
    assert "is not a WebAssembly module (it starts with " in err


def test_what_a_handler_logs_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_applet(
        capsys, "run", GUEST, "--handler", "log_payload", "--payload", "\x1b[2Jx\n"
    )
    assert code == 0
    assert "\x1b" not in out
    assert "log      info: \\x1b[2Jx\\n" in out


def test_a_store_that_is_none_is_told_with_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store.json"
    for text in ("[]", "{", '{"a": 1}', '{"a": "base64:?"}'):
        store.write_text(text)
        code, _, err = run_applet(capsys, "run", GUEST, "--handler", "echo", "--store", store)
        assert code == 1
        assert str(store) in err


# ---------------------------------------------------------------- test


@pytest.mark.parametrize("host", workbench.HOSTS)
def test_events_are_replayed_in_order_over_one_store(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = lines(tmp_path / "events.jsonl", *[{"payload": ""}] * 100)
    options = ("--handler", "count_twice", "--host", host)
    code, left = result(capsys, "test", GUEST, events, *options)
    assert code == 0
    assert [item["code"] for item in left["runs"]] == list(range(2, 202, 2))


@pytest.mark.parametrize("host", workbench.HOSTS)
def test_a_trap_among_events_costs_only_its_own(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = ["A", "A", "B", "A", "B", "B", "A"]
    events = lines(tmp_path / "e.jsonl", *({"event_type": k, "payload": "x"} for k in kinds))
    options = ("--strategy", "A=count_twice", "--strategy", "B=trap", "--host", host)
    code, left = result(capsys, "test", GUEST, events, *options)
    assert code == 1
    assert [item["code"] for item in left["runs"]] == [2, 4, -1, 6, -1, -1, 8]
    assert [item["run"] for item in left["problems"]] == [3, 5, 6]


def test_what_is_recorded_is_met_and_a_change_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = lines(tmp_path / "events.jsonl", {"payload": "a"}, {"payload": {"b": [1, "ü"]}})
    options = (GUEST, events, "--handler", "log_payload")
    assert run_applet(capsys, "test", *options, "--record")[0] == 0
    expected = tmp_path / "events.expected.jsonl"
    assert [json.loads(line)["logs"][0] for line in expected.read_text().splitlines()] == [
        ["info", "a"],
        ["info", '{"b":[1,"ü"]}'],
    ]
    code, out, _ = run_applet(capsys, "test", *options)
    assert code == 0
    assert "2 runs, 0 not as expected" in out

    lines(expected, {"code": 0}, {"logs": [], "code": 7})
    code, out, _ = run_applet(capsys, "test", *options)
    assert code == 1
    assert "   2  FAIL  DEFAULT log_payload" in out
    assert "code: expected 7, found 0" in out
    assert "2 runs, 1 not as expected" in out

    lines(expected, {"code": 0})
    code, left = result(capsys, "test", *options)
    assert code == 1
    assert left["problems"] == [
        {"run": 2, "problems": ["no expected result"]},
    ]
    code, out, _ = run_applet(capsys, "test", *options)
    assert "   1  ok    DEFAULT log_payload" in out
    assert "   2  new   DEFAULT log_payload" in out
    assert "2 runs, 0 not as expected, 1 without an expected result" in out
    lines(expected, {"code": 0}, {"code": 0}, {"code": 0})
    code, left = result(capsys, "test", *options)
    assert code == 1
    assert left["problems"] == [
        {"run": 0, "problems": ["there are 2 runs and 3 expected results"]},
    ]


CHANCE = str(MODULES / "chance.wat")


@pytest.mark.parametrize("host", workbench.HOSTS)
def test_a_recorded_test_stays_true_for_handlers_that_ask_for_time_and_chance(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = lines(tmp_path / "events.jsonl", *[{"payload": ""}] * 5)
    options = (CHANCE, events, "--handler", "all")
    assert run_applet(capsys, "test", *options, "--record")[0] == 0
    recorded = (tmp_path / "events.expected.jsonl").read_text().splitlines()
    assert len(set(recorded)) == 5
    assert run_applet(capsys, "test", *options, "--host", host)[0] == 0
    assert run_applet(capsys, "test", *options, "--host", host, "--seed", 1)[0] == 0
    assert run_applet(capsys, "test", *options, "--host", host, "--seed", 2)[0] == 1
    assert (
        run_applet(capsys, "test", *options, "--host", host, "--time", "2020-01-01T00:00:00Z")[0]
        == 1
    )


def test_each_run_begins_a_second_after_the_one_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = lines(tmp_path / "events.jsonl", *[{"payload": ""}] * 3)
    options = ("--handler", "all", "--time", "2020-01-01T00:00:00Z")
    _, left = result(capsys, "test", CHANCE, events, *options)
    kept = [files.store_from_json(item["writes"])[b"left"] for item in left["runs"]]
    seconds = [int.from_bytes(data[:8], "little") // 10**9 for data in kept]
    assert seconds == [1_577_836_800, 1_577_836_801, 1_577_836_802]


def test_time_and_chance_of_sql_are_the_same_in_every_run_of_a_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, schema = tmp_path / "querier.wat", tmp_path / "schema.json"
    module.write_text(QUERIER)
    schema.write_text(json.dumps(SCHEMA))
    text = "SELECT datetime('now') AS t, random() AS n"
    event = {"payload": {"statement": text, "params": []}}
    events = lines(tmp_path / "events.jsonl", event, event)
    options = ("test", module, events, "--handler", "query", "--schema", schema)
    _, first = result(capsys, *options)
    _, second = result(capsys, *options)
    assert first == second
    rows = [json.loads(item["writes"]["rows"]) for item in first["runs"]]
    assert [row["t"] for row in rows] == ["2026-01-01 00:00:00", "2026-01-01 00:00:01"]
    assert rows[0]["n"] != rows[1]["n"]
    _, other = result(capsys, *options, "--seed", 2)
    assert json.loads(other["runs"][0]["writes"]["rows"])["n"] != rows[0]["n"]


def test_a_trap_that_is_expected_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = lines(tmp_path / "events.jsonl", {"payload": "a"})
    options = (GUEST, events, "--handler", "trap", "--expect", tmp_path / "kept.jsonl")
    assert run_applet(capsys, "test", *options)[0] == 1  # there is no such file yet
    assert run_applet(capsys, "test", *options, "--record")[0] == 0
    assert run_applet(capsys, "test", *options)[0] == 0


def test_a_line_may_be_a_data_message_as_a_device_sends_it(tmp_path: Path) -> None:
    payload = base64.b64encode(b"\0\xff").decode()
    header = {"event_type": "HEAT", "pub_id": "d1", "token": "secret", "pub_time": 1700000000}
    blanked = {"event_type": "", "pub_id": "", "token": ""}
    path = lines(
        tmp_path / "events.jsonl",
        {"header": header, "payload": payload},
        {"header": blanked, "payload": payload},
        {"header": {}, "payload": payload},
        {"event_type": "COLD", "payload_base64": payload},
    )
    path.write_bytes(path.read_bytes() + b"\n  \n")
    events = files.read_events(path)
    assert events == [(kind, b"\0\xff") for kind in ("HEAT", "DEFAULT", "DEFAULT", "COLD")]


def test_a_message_without_a_payload_is_an_empty_event_as_on_a_node(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"header": {"event_type": "ALIVE"}}')
    assert files.read_events(path) == [("ALIVE", b"")]


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"7",
        b"{}",
        b"\xff",
        b'{"event_type": 7, "payload": ""}',
        b'{"payload_base64": "?"}',
        b'{"header": 7, "payload": ""}',
        b'{"header": {}, "payload": "?"}',
        b'{"payload": ' + b"[" * 100_000,
    ],
    ids=range(10),
)
def test_a_line_of_another_form_is_named_by_its_number(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"payload": ""}\n' + line)
    with pytest.raises(WorkbenchError, match=r"events\.jsonl:2: "):
        files.read_events(path)


def test_events_go_where_strategies_send_them() -> None:
    rules = [("DEFAULT", "start"), ("HEAT", "warm"), ("HEAT", "log")]
    assert workbench.route([("HEAT", b"1"), ("COLD", b"2")], rules) == [
        Trial("warm", b"1", "HEAT"),
        Trial("log", b"1", "HEAT"),
        Trial("start", b"2", "COLD"),
    ]
    assert workbench.route([("COLD", b"2")], [("HEAT", "warm")]) == []


def test_events_of_a_type_without_a_strategy_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    types = ["HEAT", "COLD", "COLD"]
    events = lines(
        tmp_path / "events.jsonl", *({"event_type": each, "payload": ""} for each in types)
    )
    code, _, err = run_applet(capsys, "test", GUEST, events, "--strategy", "HEAT=echo")
    assert code == 0
    assert "2 events of type COLD not run" in err
    assert "--strategy" in err
    code, out, err = run_applet(capsys, "test", GUEST, events, "--strategy", "RAIN=echo")
    assert code == 1
    assert "no event was run" in out
    assert "1 event of type HEAT not run" in err
    code, told = result(capsys, "test", GUEST, events, "--strategy", "RAIN=echo")
    assert (code, told["skipped"]) == (1, {"HEAT": 1, "COLD": 2})
    code, _, err = run_applet(capsys, "test", GUEST, events, "--handler", "echo")
    assert "not run" not in err


def test_handler_and_strategies_exclude_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = lines(tmp_path / "events.jsonl", {"payload": ""})
    code, _, err = run_applet(
        capsys, "test", GUEST, events, "--handler", "echo", "--strategy", "A=b"
    )
    assert code == 2
    assert "--strategy" in err


@given(st.dictionaries(st.binary(max_size=20), st.binary(max_size=20)))
def test_any_store_survives_its_way_through_json(store: dict[bytes, bytes]) -> None:
    assert files.store_from_json(json.loads(json.dumps(files.store_to_json(store)))) == store
    marked = {b"base64:" + key: b"base64:" + value for key, value in store.items()}
    assert files.store_from_json(files.store_to_json(marked)) == marked


@pytest.fixture(scope="module")
def benches() -> Iterator[list[Workbench]]:
    module = (MODULES / "guest.wat").read_bytes()
    made = [Workbench(module, host=host) for host in workbench.HOSTS]
    yield made
    for bench in made:
        bench.close()


@given(handlers=st.lists(st.sampled_from(["count_twice", "trap", "echo", "negative"]), max_size=12))
def test_all_hosts_leave_the_same(benches: list[Workbench], handlers: list[str]) -> None:
    left = []
    for bench in benches:
        bench.store.clear()
        outcomes = list(bench.perform([Trial(handler, b"x") for handler in handlers]))
        left.append([results.describe(outcome) for outcome in outcomes])
    assert left[0] == left[1] == left[2]
    assert len(left[0]) == len(handlers)
