"""Statements of applets on the real database: the same through every host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module.abi import LOG_ERROR, SOURCE_HOST
from fieldbrook.wasm.run import Run
from tests.contract.hosts import harness as h
from tests.contract.hosts.harness import Outcome
from tests.contract.sql.databases import BACKENDS, Backend, Database

CONFIG = {"tables": [{"name": "t", "cols": [{"name": "n", "constrains": {"datatype": "INT64"}}]}]}
ENDLESS = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT sum(n) FROM x"


def request(statement: str, *params: dict[str, Any]) -> bytes:
    return json.dumps({"statement": statement, "params": list(params)}).encode()


INSERT = request("INSERT INTO t (n) VALUES (?)", {"int64": 7})
SELECT = request("SELECT n FROM t")


@pytest.fixture(params=h.HOSTS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=BACKENDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    postgres = request.param == "postgres"
    backend = Backend(request.getfixturevalue("postgres").dsn if postgres else "")
    opened = backend.database(tmp_path, CONFIG, statement_ms=10_000)
    yield opened
    opened.close()


def perform(
    kind: str, handler: str, payload: bytes, database: Database, limits: Limits = h.LIMITS
) -> Outcome:
    """Make one run, and keep or undo it like a project."""
    given = Run(payload, sql=database)
    database.begin_event()
    code, reason = h.host(kind, "sql", limits).run(handler, given)
    if reason:
        database.undo_event()
    else:
        database.keep_event()
    return Outcome(code, reason, given.writes, given.logs)


def test_rows_that_were_set_are_got(kind: str, database: Database) -> None:
    assert perform(kind, "get", SELECT, database) == (0, "", {b"rows": b""}, [])
    assert perform(kind, "set", INSERT, database) == (0, "", {}, [])
    assert perform(kind, "get", SELECT, database) == (0, "", {b"rows": b'{"n":7}'}, [])


def test_rows_of_a_run_that_trapped_are_not_there(kind: str, database: Database) -> None:
    assert perform(kind, "set_and_trap", INSERT, database).code == -1
    assert perform(kind, "get", SELECT, database).writes == {b"rows": b""}


@pytest.mark.parametrize("handler", ["set", "get"])
def test_a_project_without_a_database_is_code_9(kind: str, handler: str) -> None:
    outcome = h.run(kind, "sql", handler, INSERT)
    assert outcome.code == 9
    text = f"ws_{handler}_sql_db: the project has no database"
    assert outcome.logs == [(LOG_ERROR, SOURCE_HOST, text)]


@pytest.mark.parametrize("handler", ["set", "get"])
@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"no JSON", "the request cannot be read"),
        (request("SELECT n n n FROM t"), "syntax error"),
        (request("DROP TABLE t"), "applets may not run DROP statements"),
        (request("SELECT number FROM fieldbrook_state"), "fieldbrook_state"),
    ],
)
def test_a_statement_that_fails_is_code_minus_1_with_its_cause_in_the_log(
    kind: str, database: Database, handler: str, payload: bytes, reason: str
) -> None:
    outcome = perform(kind, handler, payload, database)
    assert outcome[:3] == (-1, "", {})
    ((level, source, text),) = outcome.logs
    assert (level, source) == (LOG_ERROR, SOURCE_HOST)
    assert text.startswith(f"ws_{handler}_sql_db: ")
    assert reason in text


@pytest.mark.parametrize(
    ("handler", "code"), [("set_wild", 2), ("get_wild", 2), ("get_into_the_wild", 5)]
)
def test_a_pointer_outside_memory_is_a_code_and_a_record(
    kind: str, database: Database, handler: str, code: int
) -> None:
    outcome = perform(kind, handler, SELECT, database)
    assert outcome.code == code
    assert "beyond the memory of 131072 bytes" in outcome.logs[0][2]


@pytest.mark.parametrize("handler", ["set", "get"])
def test_a_statement_that_outlives_its_run_ends_it(
    kind: str, database: Database, handler: str
) -> None:
    outcome = perform(kind, handler, request(ENDLESS), database, h.SHORT)
    assert outcome == (-1, "deadline of 50 ms exceeded", {}, [])


def test_a_database_that_fails_ends_the_run_with_its_own_error(kind: str, tmp_path: Path) -> None:
    (tmp_path / "sql.db").write_bytes(b"foreign" * 1000)
    broken = SqliteDatabase(tmp_path / "sql.db", CONFIG)
    broken.begin_event()
    with pytest.raises(StoreError, match=r"sql\.db"):
        h.host(kind, "sql").run("set", Run(INSERT, sql=broken))


def test_an_applet_that_uses_sql_runs_event_by_event(database: Database) -> None:
    runs = [Run(INSERT, sql=database)] * 10
    assert h.host("raw", "sql").run_batch("set", runs) == []


_STATEMENTS = st.sampled_from(
    [
        INSERT,
        SELECT,
        b"",
        request("SELECT count(*) c FROM t"),
        request("UPDATE t SET n = n + ?", {"int32": 1}),
        request("INSERT OR ROLLBACK INTO t (n) VALUES (?)", {"string": "x"}),
        request("DELETE FROM t"),
        request("ROLLBACK"),
    ]
)
_HANDLERS = st.sampled_from(["set", "get", "set_and_trap"])


@given(st.lists(st.tuples(_HANDLERS, _STATEMENTS), max_size=12))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sequence_of_statements_has_one_outcome(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, bytes]]
) -> None:
    outcomes = []
    for kind in h.HOSTS:
        database = SqliteDatabase(tmp_path_factory.mktemp("sql") / "sql.db", CONFIG)
        outcomes.append([perform(kind, handler, payload, database) for handler, payload in events])
        database.close()
    assert outcomes[0] == outcomes[1] == outcomes[2]
