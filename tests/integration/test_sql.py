"""Handlers that use their project's SQL tables, over real HTTP."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.nodes import StartNode, message, parts, strategies, until

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
    """A node whose project has a table and an applet that hands its payload to SQL."""

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
        """Send statements as one batch of events; their codes."""
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


def test_acknowledged_rows_survive_the_death_of_the_project(querying: Querying) -> None:
    for _ in range(5):
        assert querying.events(*[querying.insert("c")] * 20) == [0] * 20
    pid = next(p for name, p in parts(querying.node).items() if name == "fb-project")
    os.kill(pid, signal.SIGKILL)
    until(lambda: parts(querying.node).get("fb-project", pid) != pid or None, "its end")
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
