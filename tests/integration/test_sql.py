"""Handlers that use their project's SQL tables, over real HTTP."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.management import User, holder
from tests.support.nodes import StartNode, alive, message, parts, strategies, until
from tests.support.shell import Shell

MODULE = (Path(__file__).parents[1] / "modules" / "sql.wat").read_bytes()
TABLE = {
    "name": "t_readings",
    "cols": [
        {"name": "f_device", "constrains": {"datatype": "TEXT"}},
        {"name": "f_celsius", "constrains": {"datatype": "FLOAT64"}},
    ],
}
INSERT = "INSERT INTO t_readings (f_device, f_celsius) VALUES (?, ?)"
COUNT = "SELECT count(*) AS n FROM t_readings WHERE f_device = ?"


class Querying:
    """A node whose project has a table and an applet that runs its payload as SQL."""

    def __init__(self, start: StartNode) -> None:
        self.node = start()
        self.node.create_project("sql")
        config = {"schemas": [{"schema": "public", "tables": [TABLE]}]}
        answer = self.node.call("POST", "/project_config/x/sql/PROJECT_DATABASE", config)
        assert answer.status == 201, answer
        handlers = ("set", "get", "set_and_trap")
        self.applet_id = self.node.deploy("sql", MODULE, strategies=strategies(*handlers))[
            "appletID"
        ]
        self.publisher = self.node.add_publisher("sql", "d")

    def events(self, *requests: tuple[str, str, list[Any]]) -> list[int]:
        """Send statements as one batch of events; return their codes."""
        messages = [
            message(
                self.publisher, json.dumps({"statement": text, "params": values}).encode(), kind
            )
            for kind, text, values in requests
        ]
        answer = self.node.send("sql", {"events": messages})
        assert answer.status == 201, answer
        return [item["wasmResults"][0]["code"] for item in answer.json]

    def insert(self, device: str) -> tuple[str, str, list[Any]]:
        return "SET", INSERT, [{"string": device}, {"float64": 21.5}]

    def count(self, device: str) -> int:
        assert self.events(("GET", COUNT, [{"string": device}])) == [0]
        found: int = json.loads(self.node.kv("sql", self.applet_id, b"rows"))["n"]
        return found


@pytest.fixture(scope="module")
def querying(start_module_node: StartNode) -> Querying:
    return Querying(start_module_node)


def test_rows_of_a_batch_are_there_for_the_next_statement(querying: Querying) -> None:
    assert querying.events(*[querying.insert("a")] * 7) == [0] * 7
    assert querying.count("a") == 7


def test_an_event_that_traps_leaves_no_row_and_its_neighbours_do(querying: Querying) -> None:
    kind, text, values = querying.insert("b")
    trapping = ("SET_AND_TRAP", text, values)
    codes = querying.events((kind, text, values), trapping, (kind, text, values))
    assert codes == [0, -1, 0]
    assert querying.count("b") == 2


def test_an_invalid_statement_is_minus_1_and_is_logged(querying: Querying) -> None:
    assert querying.events(("SET", "ATTACH 'other.db' AS o", [])) == [-1]
    assert querying.events(("SET", "INSERT INTO nowhere VALUES (1)", [])) == [-1]
    path = "/applet_log/sql"

    def recorded() -> bool:
        rows = [row["msg"] for row in querying.node.call("GET", path).json["data"]]
        return any("nowhere" in row for row in rows)

    until(recorded, "the record")


def test_tables_and_rows_are_read_over_http_and_on_the_command_line(
    querying: Querying, tmp_path: Path
) -> None:
    call = querying.node.call
    assert querying.events(querying.insert("read 1"), querying.insert("read 2")) == [0, 0]
    (table,) = (t for t in call("GET", "/sql/sql").json["data"] if t["name"] == "t_readings")
    assert table["columns"][0] == {
        "name": "f_device", "type": "TEXT", "nullable": False, "primaryKey": False,
    }  # fmt: skip
    assert (table["rows"] >= 2, table["more"]) == (True, False)
    path = "/sql/sql/t_readings?filter=f_celsius=21.5&order=f_device&desc=true"
    page = call("GET", f"{path}&filter=f_device=read%202").json
    assert page == {"columns": ["f_device", "f_celsius"], "data": [["read 2", 21.5]], "more": False}
    first = call("GET", f"{path}&limit=1").json
    assert (len(first["data"]), first["more"]) == (1, True)
    assert call("GET", f"{path}&limit=1&offset=1").json["data"] != first["data"]
    query = {"statement": "SELECT count(*) AS n FROM t_readings WHERE f_device = ?"}
    answer = call("POST", "/sql/sql/query", {**query, "args": ["read 1"]})
    assert (answer.status, answer.json["columns"], answer.json["data"]) == (201, ["n"], [[1]])
    shell = Shell(tmp_path / "home", querying.node)
    assert shell.json("sql", "query", "sql", query["statement"], "read 2") == [{"n": 1}]
    assert "t_readings" in shell.text("sql", "tables", "sql")
    found = shell.json("sql", "rows", "sql", "t_readings", "--filter", "f_device=read 1")
    assert found == [{"f_device": "read 1", "f_celsius": 21.5}]


def test_what_is_wrong_with_a_query_is_named(querying: Querying) -> None:
    call = querying.node.call
    assert call("GET", "/sql/sql/t_none").json["key"] == "NotFound"
    assert call("GET", "/sql/sql/t_readings?order=f_none").json["key"] == "NotFound"
    for path, body, field in [
        ("/sql/sql/t_readings?filter=f_device", None, "filter"),
        ("/sql/sql/t_readings?filter=f_celsius=x", None, "filter"),
        ("/sql/sql/t_readings?limit=0", None, "limit"),
        ("/sql/sql/t_readings?offset=-1", None, "offset"),
        ("/sql/sql/query", {"statement": "DELETE FROM t_readings"}, "statement"),
        ("/sql/sql/query", {"statement": "SELECT f_none FROM t_readings"}, "statement"),
        ("/sql/sql/query", {"statement": "SELECT ?", "args": [{"a": 1}]}, "args[0]"),
        ("/sql/sql/query", {"statement": "SELECT ?", "args": [1] * 1_001}, "args"),
        ("/sql/sql/query", {}, "statement"),
    ]:
        answer = call("GET" if body is None else "POST", path, body)
        assert answer.status == 400, (path, answer)
        assert [each["field"] for each in answer.json["fields"]] == [field]
    querying.node.create_project("tableless")
    assert call("GET", "/sql/tableless").json == {"data": []}
    refused = call("POST", "/sql/tableless/query", {"statement": "SELECT 1"})
    assert "no tables yet" in refused.json["fields"][0]["msg"]


def test_slow_queries_of_one_account_leave_the_gateway_and_others_their_share(
    querying: Querying,
) -> None:
    endless = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT max(n) FROM x"
    answers: list[Any] = []

    def run() -> None:
        answers.append(querying.node.call("POST", "/sql/sql/query", {"statement": endless}))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: answers, "some were refused at once")
    assert querying.node.call("GET", "/project/sql").status == 200
    assert any(thread.is_alive() for thread in threads), "no query holds up the gateway's loop"
    for thread in threads:
        thread.join()
    assert {answer.status for answer in answers} == {400, 429}
    assert all("time limit" in str(a.json["fields"]) for a in answers if a.status == 400)


def test_who_may_not_read_the_tables_of_a_project(ada: User, bob: User) -> None:
    ada.project()
    body = {"statement": "SELECT 1"}
    assert bob("GET", "/sql/NftMinter").key == "ProjectNotFound"
    assert bob("GET", "/sql/NftMinter/t").key == "ProjectNotFound"
    assert bob("POST", "/sql/NftMinter/query", body).key == "ProjectNotFound"
    reader = holder(ada, "reader", 0, **{"Wasm Log": "READONLY"})
    assert reader("GET", "/sql/NftMinter").json == {"data": []}
    assert "no tables yet" in str(reader("POST", "/sql/NftMinter/query", body).json["fields"])
    other = holder(ada, "other", Project="READ_WRITE")
    assert other("POST", "/sql/NftMinter/query", body).status == 403


def test_acknowledged_rows_survive_the_death_of_the_project(querying: Querying) -> None:
    for _ in range(5):
        assert querying.events(*[querying.insert("c")] * 20) == [0] * 20
    pid = next(p for name, p in parts(querying.node).items() if name == "project")
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), "its end")
    until(
        lambda: (
            querying.node.send(
                "sql", message(querying.publisher, b'{"statement":"SELECT 1","params":[]}', "GET")
            ).status
            == 201
        ),
        "the project",
    )
    assert querying.count("c") == 100


def test_a_table_that_is_added_is_there_for_the_next_event(querying: Querying) -> None:
    added = {**TABLE, "name": "t_more"}
    config = {"schemas": [{"schema": "public", "tables": [TABLE, added]}]}
    answer = querying.node.call("POST", "/project_config/x/sql/PROJECT_DATABASE", config)
    assert answer.status == 201, answer
    text = "INSERT INTO t_more (f_device, f_celsius) VALUES (?, ?)"
    assert querying.events(("SET", text, [{"string": "x"}, {"float64": 1}])) == [0]
