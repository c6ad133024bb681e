"""The SQL database of a project, on a real SQLite."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.errors import DatabaseConfigError, StatementError, StoreError
from fieldbrook.storage import sql_text
from fieldbrook.storage.sql import SqlDatabase, SqlLimits, committed_number


def column(name: str, datatype: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "constrains": {"datatype": datatype, **more}}


def config(*tables: dict[str, Any], schema: str = "public") -> dict[str, Any]:
    return {"dialect": "POSTGRES", "schemas": [{"schema": schema, "tables": list(tables)}]}


READINGS = {
    "name": "t_reading",
    "cols": [
        column("f_id", "UINT64", autoincrement=True),
        column("f_device", "TEXT", length=255),
        column("f_value", "FLOAT64", null=True),
        column("f_on", "BOOL", null=True),
        column("f_at", "TIMESTAMP", null=True),
        column("f_amount", "DECIMAL", length=78, decimal=18, null=True),
        column("f_count", "INT32", default="7"),
    ],
    "keys": [
        {"name": "primary", "isUnique": True, "columnNames": ["f_id"]},
        {"name": "device", "isUnique": True, "columnNames": ["f_device"]},
    ],
}
ENDLESS = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x)"


def request(statement: str, *params: dict[str, Any]) -> bytes:
    return json.dumps({"statement": statement, "params": list(params)}).encode()


def opened(path: Path, **limits: int) -> SqlDatabase:
    database = SqlDatabase(path / "sql.db", config(READINGS), SqlLimits(**limits))
    database.begin_event()
    return database


@pytest.fixture
def db(tmp_path: Path) -> Iterator[SqlDatabase]:
    database = opened(tmp_path)
    yield database
    database.close()


def ask(database: SqlDatabase, statement: str, *params: dict[str, Any]) -> Any:
    """What the applet gets, as JSON, or None for nothing."""
    answer = database.query(request(statement, *params))
    return json.loads(answer) if answer else None


def do(database: SqlDatabase, statement: str, *params: dict[str, Any]) -> None:
    database.execute(request(statement, *params))


def insert(database: SqlDatabase, device: str) -> None:
    do(database, "INSERT INTO t_reading (f_device) VALUES (?)", {"string": device})


def devices(database: SqlDatabase) -> list[str]:
    rows = ask(database, "SELECT f_device FROM t_reading ORDER BY f_id")
    if rows is None:
        return []
    return [row["f_device"] for row in (rows if isinstance(rows, list) else [rows])]


def stored(path: Path) -> list[str]:
    """The committed devices, as another program sees them."""
    with sqlite3.connect(path / "sql.db") as connection:
        rows = connection.execute("SELECT f_device FROM t_reading ORDER BY f_id").fetchall()
    connection.close()
    return [row[0] for row in rows]


# ---------------------------------------------------------------- requests and results


def test_no_row_is_no_bytes_one_an_object_several_an_array(db: SqlDatabase) -> None:
    select = request("SELECT f_device FROM t_reading")
    assert db.query(select) == b""
    insert(db, "a")
    assert db.query(select) == b'{"f_device":"a"}'
    insert(db, "b")
    assert db.query(select) == b'[{"f_device":"a"},{"f_device":"b"}]'


@pytest.mark.parametrize(
    ("param", "shown"),
    [
        ({"int32": -5}, "-5"),
        ({"int64": 2**63 - 1}, "9223372036854775807"),
        ({"float32": 1.5}, "1.5"),
        ({"float64": 20.0}, "20"),
        ({"float64": 1e21}, "1e+21"),
        ({"float64": 1e20}, "100000000000000000000"),
        ({"float64": 2.5e-7}, "2.5e-7"),
        ({"float64": 2.5e-6}, "0.0000025"),
        ({"float64": 123456789.125}, "123456789.125"),
        ({"string": 'grün <b>&\u2028"\\\n\x01'}, r'"grün \u003cb\u003e\u0026\u2028\"\\\n\u0001"'),
        ({"bool": True}, "1"),
        ({"bytes": "aGVsbG8="}, '"hello"'),
        ({"bytes": "aGVsbG8"}, '"hello"'),
        ({"bytes": "AP8="}, r'"\\x00ff"'),
        ({"bytes": ""}, '""'),
        ({"time": "2024-02-29T12:00:00+02:00"}, '"2024-02-29T10:00:00.000000Z"'),
        ({"string": "first", "time": "second", "int32": None}, '"first"'),
    ],
)
def test_a_parameter_of_each_type_is_bound(
    db: SqlDatabase, param: dict[str, Any], shown: str
) -> None:
    assert db.query(request("SELECT ? AS v", param)).decode() == f'{{"v":{shown}}}'


def test_each_column_shows_its_own_type_with_keys_in_order(db: SqlDatabase) -> None:
    do(
        db,
        "INSERT INTO public.t_reading (f_device, f_value, f_on, f_at, f_amount) "
        "VALUES ($1, $2, $3, $4, $5)",
        {"string": "a"},
        {"float64": 20.0},
        {"bool": True},
        {"time": "2024-01-02T03:04:05.5Z"},
        {"string": "123456789012345678901234567890.10"},
    )
    insert(db, "b")
    first, second = db.query(request("SELECT * FROM t_reading ORDER BY f_id")).split(b",{")
    assert first == (
        b'[{"f_amount":"123456789012345678901234567890.10",'
        b'"f_at":{"Time":"2024-01-02T03:04:05.5Z","Valid":true},"f_count":7,"f_created_at":0,'
        b'"f_device":"a","f_id":1,"f_on":true,"f_updated_at":0,"f_value":20}'
    )
    assert second == (
        b'"f_amount":null,"f_at":null,"f_count":7,"f_created_at":0,"f_device":"b",'
        b'"f_id":2,"f_on":null,"f_updated_at":0,"f_value":null}]'
    )


def test_decimals_are_compared_as_numbers_however_long(db: SqlDatabase) -> None:
    for device, amount in (("a", "9"), ("b", "10.0"), ("c", "123456789012345678901")):
        do(
            db,
            "INSERT INTO t_reading (f_device, f_amount) VALUES (?, ?)",
            {"string": device},
            {"string": amount},
        )
    rows = ask(db, "SELECT f_device d FROM t_reading ORDER BY f_amount DESC")
    assert [row["d"] for row in rows] == ["c", "b", "a"]
    assert ask(db, "SELECT f_device d FROM t_reading WHERE f_amount = 10") == {"d": "b"}


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"{}",
        b'{"statement":"SELECT 1"}',
        b'{"params":[]}',
        b'{"statement":1,"params":[]}',
        b'{"statement":"SELECT ?","params":[{}]}',
        b'{"statement":"SELECT ?","params":[{"int32":2147483648}]}',
        b'{"statement":"SELECT ?","params":[{"int64":9223372036854775808}]}',
        b'{"statement":"SELECT ?","params":[{"bytes":"*"}]}',
        b'{"statement":"SELECT ?","params":[{"bytes":"a"}]}',
        b'{"statement":"SELECT ?","params":[{"time":"yesterday"}]}',
        b'{"statement":"SELECT ?","params":[{"time":"2024-01-01T00:00:00"}]}',
        b'{"statement":"SELECT ?","params":[{"time":"0001-01-01T00:00:00+14:00"}]}',
        b'{"statement":"SELECT \xff","params":[]}',
        b'{"statement":"SELECT 1","params":' + b"[" * 100_000,
        b'{"statement":"","params":[]}',
        b'{"statement":" -- nothing","params":[]}',
        b'{"statement":"SELECT ?","params":[]}',
        b'{"statement":"SELECT 1","params":[{"int32":1}]}',
        b'{"statement":"SELECT ?, $1","params":[{"int32":1}]}',
        b'{"statement":"SELECT :a","params":[{"int32":1}]}',
        b'{"statement":"SELECT ?2","params":[{"int32":1}]}',
        b'{"statement":"SELECT $0","params":[]}',
        b'{"statement":"SELECT $99999999999","params":[]}',
        b'{"statement":"SELECT 1\\u0000","params":[]}',
        b'{"statement":"SELECT \'\\ud800\'","params":[]}',
        b'{"statement":"SELECT FROM","params":[]}',
        b'{"statement":"SELECT * FROM nowhere","params":[]}',
        b'{"statement":"SELECT 1; SELECT 2","params":[]}',
        b'{"statement":"SELECT 9e999","params":[]}',
    ],
)
def test_a_request_that_is_none_is_refused_and_the_next_one_answered(
    db: SqlDatabase, sent: bytes
) -> None:
    with pytest.raises(StatementError):
        db.query(sent)
    assert ask(db, "SELECT 1 AS one") == {"one": 1}


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_refused(sent: bytes) -> None:
    try:
        sql_text.parse_request(sent)
    except StatementError:
        return


@given(st.text(alphabet="ab'\"?$1.-/* ;:\n", max_size=40))
def test_any_text_is_translated_or_refused(text: str) -> None:
    try:
        statement = sql_text.translate("SELECT " + text, frozenset({"public"}))
    except StatementError:
        return
    assert len(statement.order) <= statement.text.count("?")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_shown_as_json_that_reads_back_the_same(value: float) -> None:
    (row,) = sql_text.encode_rows(["v"], [(value,)])
    assert float(json.loads(row)["v"]) == value


@given(st.text())
def test_a_text_is_shown_as_json_that_reads_back_the_same(value: str) -> None:
    (row,) = sql_text.encode_rows(["v"], [(value,)])
    assert json.loads(row)["v"] == value
    assert not set("<>&\u2028\u2029") & set(row)


def test_placeholders_and_schema_names_inside_literals_stay(db: SqlDatabase) -> None:
    insert(db, "a")
    statement = (
        """SELECT 'public.x ? $1' AS "public.y?", /* ? */ public.t_reading.f_device -- ?\n """
        """FROM "public".t_reading WHERE f_device = $2 AND $1 < $2"""
    )
    answer = ask(db, statement, {"string": ""}, {"string": "a"})
    assert answer == {"public.y?": "public.x ? $1", "f_device": "a"}


def test_a_value_that_does_not_fit_its_column_is_refused_by_name(db: SqlDatabase) -> None:
    for name in ("f_value", "f_on", "f_amount", "f_count"):
        with pytest.raises(StatementError, match=f"{name} is a"):
            do(
                db,
                f"INSERT INTO t_reading (f_device, {name}) VALUES ('a', ?)",
                {"string": "word"},
            )
    assert devices(db) == []


# ---------------------------------------------------------------- what applets cannot reach


@pytest.mark.parametrize(
    "statement",
    [
        "ATTACH ':memory:' AS other",
        "DETACH main",
        "PRAGMA user_version",
        "VACUUM",
        "VACUUM INTO '/tmp/copy.db'",
        "BEGIN",
        "COMMIT",
        "END",
        "ROLLBACK",
        "SAVEPOINT fieldbrook_event",
        "RELEASE fieldbrook_event",
        "ROLLBACK TO fieldbrook_event",
        "CREATE TABLE t (a)",
        "CREATE TEMP TABLE t (a)",
        "CREATE VIRTUAL TABLE t USING fts5(a)",
        "CREATE TRIGGER t AFTER INSERT ON t_reading BEGIN SELECT 1; END",
        "DROP TABLE t_reading",
        "ALTER TABLE t_reading ADD COLUMN a",
        "REINDEX",
        "ANALYZE",
        "SELECT * FROM sqlite_master",
        "SELECT * FROM main.sqlite_schema",
        "SELECT * FROM temp.sqlite_master",
        "SELECT * FROM sqlite_sequence",
        "SELECT count(*) FROM sqlite_sequence",
        "UPDATE sqlite_sequence SET seq = 1",
        "DELETE FROM sqlite_master",
        "SELECT * FROM fieldbrook_state",
        "SELECT (SELECT number FROM fieldbrook_state)",
        "UPDATE fieldbrook_state SET number = 9",
        "INSERT INTO t_reading (f_device) SELECT sql FROM sqlite_master",
        "DELETE FROM fieldbrook_state",
        "SELECT * FROM pragma_table_info('t_reading')",
        "SELECT * FROM pragma_database_list",
        "SELECT * FROM dbstat",
        "SELECT load_extension('x')",
        "SELECT readfile('/etc/passwd')",
        "SELECT writefile('/tmp/x', 'y')",
        "SELECT fts3_tokenizer('simple')",
        "SELECT sqlite_compileoption_get(0)",
        "SELECT sqlite_version()",
        "SELECT total_changes()",
        "WITH x AS (SELECT 1) SELECT * FROM x, sqlite_master",
    ],
)
def test_a_statement_that_reaches_beyond_the_tables_is_refused(
    db: SqlDatabase, statement: str
) -> None:
    insert(db, "a")
    for _ in range(2):
        with pytest.raises(StatementError):
            db.query(request(statement))
        with pytest.raises(StatementError):
            db.execute(request(f"EXPLAIN {statement}"))
    db.keep_event()
    db.commit(1)
    db.begin_event()
    assert devices(db) == ["a"]


def test_statements_of_the_node_itself_are_not_found_ready_by_an_applet(db: SqlDatabase) -> None:
    insert(db, "a")
    db.undo_event()
    db.begin_event()
    insert(db, "b")
    for text in (
        "ROLLBACK TO fieldbrook_event",
        " ROLLBACK",
        "SELECT number FROM fieldbrook_state",
    ):
        with pytest.raises(StatementError):
            db.query(request(text))
    assert devices(db) == ["b"]


def test_json_and_window_functions_and_returning_are_there(db: SqlDatabase) -> None:
    assert ask(db, "SELECT sum(value) s FROM json_each('[1,2]')") == {"s": 3}
    rows = ask(db, "INSERT INTO t_reading (f_device) VALUES ('a'), ('b') RETURNING f_id, f_device")
    assert rows == [{"f_id": 1, "f_device": "a"}, {"f_id": 2, "f_device": "b"}]
    assert ask(db, "SELECT max(n) m FROM (SELECT row_number() OVER () n FROM t_reading)") == {
        "m": 2
    }


# ---------------------------------------------------------------- limits


def test_a_statement_that_never_ends_is_stopped_and_earlier_writes_stay(tmp_path: Path) -> None:
    db = opened(tmp_path, statement_ms=50)
    insert(db, "kept")
    db.keep_event()
    db.begin_event()
    insert(db, "own")
    for statement in (
        f"{ENDLESS} SELECT count(*) FROM x",
        f"INSERT INTO t_reading (f_device) {ENDLESS} SELECT n FROM x",
        f"UPDATE t_reading SET f_count = ({ENDLESS} SELECT count(*) FROM x)",
    ):
        with pytest.raises(StatementError, match="time is over"):
            db.query(request(statement))
        assert devices(db) == ["kept", "own"]
    db.undo_event()
    db.begin_event()
    assert devices(db) == ["kept"]
    db.keep_event()
    db.commit(1)
    db.close()
    assert stored(tmp_path) == ["kept"]


def test_long_writes_of_others_outlive_a_statement_that_never_ends(tmp_path: Path) -> None:
    db = opened(tmp_path)
    long = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x LIMIT 20000)"
    do(db, f"INSERT INTO t_reading (f_device) {long} SELECT n FROM x")
    db.keep_event()
    db.begin_event()
    with pytest.raises(StatementError, match="time is over"):
        db.execute(
            request(f"INSERT INTO t_reading (f_device) {ENDLESS} SELECT -n FROM x"),
            time.monotonic() + 0.05,
        )
    assert ask(db, "SELECT count(*) c FROM t_reading") == {"c": 20_000}
    db.close()


def test_a_statement_ends_with_the_time_of_its_run(db: SqlDatabase) -> None:
    with pytest.raises(StatementError, match="time is over"):
        db.query(request(f"{ENDLESS} SELECT count(*) FROM x"), time.monotonic() + 0.05)


@pytest.mark.parametrize(("limit", "value"), [("rows", 10), ("result_bytes", 100)])
def test_a_result_over_its_limit_is_refused_and_changes_nothing(
    tmp_path: Path, limit: str, value: int
) -> None:
    db = opened(tmp_path, **{limit: value})
    insert(db, "before")
    bounded = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x LIMIT 50)"
    for statement in (
        f"{bounded} SELECT n FROM x",
        f"INSERT INTO t_reading (f_device) {bounded} SELECT n FROM x RETURNING f_id",
    ):
        with pytest.raises(StatementError, match=f"more than {value}"):
            db.query(request(statement))
    assert devices(db) == ["before"]
    db.close()


def test_a_request_over_its_limit_is_refused(tmp_path: Path) -> None:
    db = opened(tmp_path, request_bytes=100, event_bytes=300)
    with pytest.raises(StatementError, match="limit is 100"):
        db.query(request("SELECT ?", {"string": "x" * 100}))
    for device in "abc":
        insert(db, device)
    with pytest.raises(StatementError, match="more than 300"):
        insert(db, "d")
    assert devices(db) == ["a", "b", "c"]
    db.close()


def test_a_full_database_refuses_the_write_and_goes_on(tmp_path: Path) -> None:
    db = opened(tmp_path, database_bytes=200_000)
    insert(db, "kept")
    db.keep_event()
    db.begin_event()
    with pytest.raises(StatementError, match="limit of 200000 bytes"):
        for number in range(100):
            insert(db, f"{number}" * 5_000)
    db.undo_event()
    db.begin_event()
    insert(db, "next")
    db.keep_event()
    db.commit(1)
    db.close()
    assert stored(tmp_path) == ["kept", "next"]


@pytest.mark.parametrize(
    "statement",
    ["SELECT zeroblob(100000000)", "SELECT randomblob(100000000)"],
)
def test_a_value_that_is_too_long_is_refused(db: SqlDatabase, statement: str) -> None:
    with pytest.raises(StatementError):
        db.query(request(statement))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("instr('grün', 'n')", 4),
        ("instr(x'0102', x'02')", 2),
        ("instr('a', 'b')", 0),
        ("instr(NULL, 'b')", None),
        ("instr(12.5, 5)", 4),
        ("replace('banana', 'an', 'AN')", "bANANa"),
        ("replace('a', '', 'b')", "a"),
        ("replace('a', NULL, 'b')", None),
        ("trim('  a ')", "a"),
        ("trim('xay', 'xy')", "a"),
        ("ltrim('xax', 'x')", "ax"),
        ("rtrim('xax', 'x')", "xa"),
        ("trim('a', '')", "a"),
        ("trim(NULL)", None),
        ("upper(substr('abc', 2)) || length('xy')", "BC2"),
        ("date('2024-02-29', '+1 year')", "2025-03-01"),
        ("strftime('%Y', '2024-02-29T10:00:00.000000Z')", "2024"),
    ],
)
def test_a_function_gives_what_it_gives_in_sqlite(
    db: SqlDatabase, expression: str, value: object
) -> None:
    assert ask(db, f"SELECT {expression} v") == {"v": value}
    plain = sqlite3.connect(":memory:")
    assert plain.execute(f"SELECT {expression}").fetchone() == (value,)
    plain.close()


_LONG, _HALF = "hex(zeroblob(400000))", "hex(zeroblob(200000)) || 'x'"


@pytest.mark.parametrize(
    "expression",
    [
        f"instr({_LONG}, {_HALF})",
        f"replace({_LONG}, {_HALF}, '')",
        f"replace({_LONG}, '0', {_HALF})",
        f"trim({_LONG}, {_HALF})",
        f"{_LONG} LIKE '%0%0%0%0%0%0%0%0%1'",
        f"{_LONG} GLOB '*0*0*0*0*0*0*0*0*1'",
    ],
)
def test_no_function_works_beyond_its_time_on_long_values(db: SqlDatabase, expression: str) -> None:
    start = time.process_time()
    with contextlib.suppress(StatementError):
        ask(db, f"SELECT length({expression}) v")
    assert time.process_time() - start < 2


# ---------------------------------------------------------------- transactions


def test_an_event_that_fails_takes_only_its_own_writes_along(
    db: SqlDatabase, tmp_path: Path
) -> None:
    insert(db, "a")
    db.keep_event()
    db.begin_event()
    insert(db, "b")
    assert devices(db) == ["a", "b"]
    db.undo_event()
    db.begin_event()
    assert devices(db) == ["a"]
    insert(db, "c")
    db.keep_event()
    wrote = [db.wrote]
    assert stored(tmp_path) == []
    assert db.number() == 0
    db.commit(1)
    assert [*wrote, db.wrote] == [True, False]
    assert stored(tmp_path) == ["a", "c"]
    assert (db.number(), committed_number(tmp_path / "sql.db")) == (1, 1)


def test_a_batch_that_is_rolled_back_leaves_nothing(db: SqlDatabase, tmp_path: Path) -> None:
    insert(db, "a")
    db.keep_event()
    db.rollback()
    assert not db.wrote
    assert stored(tmp_path) == []
    assert db.number() == 0


def test_a_batch_without_statements_opens_nothing(tmp_path: Path) -> None:
    db = opened(tmp_path)
    db.keep_event()
    db.begin_event()
    db.undo_event()
    assert not db.wrote
    db.rollback()
    assert db.number() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_batch_that_only_reads_has_nothing_to_commit(db: SqlDatabase) -> None:
    assert devices(db) == []
    do(db, "DELETE FROM t_reading")
    db.keep_event()
    assert not db.wrote


def test_a_number_is_committed_once(db: SqlDatabase) -> None:
    for number in (1, 2):
        insert(db, str(number))
        db.keep_event()
        db.commit(number)
        db.begin_event()
    insert(db, "again")
    db.keep_event()
    with pytest.raises(StoreError, match="committed already"):
        db.commit(2)
    db.begin_event()
    assert devices(db) == ["1", "2"]


def test_or_rollback_of_one_event_leaves_the_others_alone(db: SqlDatabase) -> None:
    insert(db, "kept")
    db.keep_event()
    db.begin_event()
    insert(db, "own")
    with pytest.raises(StatementError, match="UNIQUE"):
        do(db, "INSERT OR ROLLBACK INTO t_reading (f_device) VALUES ('kept')")
    assert devices(db) == ["kept", "own"]
    db.undo_event()
    db.begin_event()
    assert devices(db) == ["kept"]


def test_writes_that_are_carried_out_again_come_out_the_same(db: SqlDatabase) -> None:
    times = "now(), CURRENT_TIMESTAMP, datetime('now'), strftime('%f'), julianday(), date('NOW')"
    for _ in range(3):
        do(
            db,
            "INSERT INTO t_reading (f_device, f_value) VALUES "
            "(hex(randomblob(8)) || now() || strftime('%f') || julianday('now'), random())",
        )
        assert ask(db, f"SELECT {times}") == ask(db, f"SELECT {times}")
    before = ask(db, "SELECT * FROM t_reading")
    assert len({row["f_value"] for row in before}) == 3
    db.keep_event()
    db.begin_event()
    with pytest.raises(StatementError):
        do(db, "INSERT OR ROLLBACK INTO t_reading (f_id, f_device) VALUES (1, 'x')")
    assert ask(db, "SELECT * FROM t_reading") == before


def test_the_clock_is_that_of_the_batch(db: SqlDatabase) -> None:
    first = ask(db, "SELECT now() n, current_date d, date('now', '+1 day') e")
    time.sleep(0.002)
    assert ask(db, "SELECT now() n, current_date d, date('now', '+1 day') e") == first
    db.keep_event()
    db.rollback()
    db.begin_event()
    assert ask(db, "SELECT now() n")["n"] > first["n"]


def test_a_database_locked_by_another_program_is_the_nodes_failure(
    db: SqlDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fieldbrook.storage.sql._BUSY_S", 0.01)
    db.open()
    other = sqlite3.connect(tmp_path / "sql.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        insert(db, "a")
    other.execute("ROLLBACK")
    other.close()
    insert(db, "a")
    assert devices(db) == ["a"]


def test_a_file_that_is_no_database_is_the_nodes_failure(tmp_path: Path) -> None:
    (tmp_path / "sql.db").write_bytes(b"not a database, but long enough to be one" * 100)
    db = opened(tmp_path)
    with pytest.raises(StoreError, match=r"sql\.db"):
        insert(db, "a")
    with pytest.raises(StoreError, match=r"sql\.db"):
        db.number()
    db.close()


def test_the_file_is_readable_by_its_owner_only(db: SqlDatabase, tmp_path: Path) -> None:
    insert(db, "a")
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_a_configuration_that_cannot_be_applied_is_told_to_the_applet(tmp_path: Path) -> None:
    db = SqlDatabase(tmp_path / "sql.db", config({"name": "t", "cols": [column("a", "MONEY")]}))
    db.begin_event()
    for _ in range(2):
        with pytest.raises(StatementError, match="unknown datatype 'MONEY'"):
            do(db, "SELECT 1")
    with pytest.raises(DatabaseConfigError, match="table t, column a"):
        db.open()
    db.close()


_RESTARTS = (  # whatever makes SQLite give up a transaction, and what does not
    "INSERT OR ROLLBACK INTO t_reading (f_device) VALUES (?)",
    "INSERT OR FAIL INTO t_reading (f_device) VALUES (?)",
    "INSERT OR REPLACE INTO t_reading (f_device) VALUES (?)",
    "INSERT INTO t_reading (f_device) VALUES (?)",
    "UPDATE OR ROLLBACK t_reading SET f_device = ?",
    "DELETE FROM t_reading WHERE f_device < ?",
)
_writes = st.lists(st.tuples(st.sampled_from(_RESTARTS), st.sampled_from("abcde")), max_size=5)


@given(st.lists(st.tuples(_writes, st.booleans()), max_size=6))
def test_what_is_kept_is_what_the_kept_events_did_alone(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[list[tuple[str, str]], bool]]
) -> None:
    path = tmp_path_factory.mktemp("sql")
    db = SqlDatabase(path / "sql.db", config(READINGS))
    db.open()
    plain = sqlite3.connect(":memory:", isolation_level=None)
    plain.execute("CREATE TABLE t_reading (f_id INTEGER PRIMARY KEY, f_device TEXT UNIQUE)")
    for writes, keep in events:
        db.begin_event()
        for statement, device in writes:
            failed = [False, False]
            try:
                do(db, statement, {"string": device})
            except StatementError:
                failed[0] = True
            if keep:
                try:
                    plain.execute(statement, (device,))
                except sqlite3.IntegrityError:
                    failed[1] = True
                assert failed[0] == failed[1]
        if keep:
            db.keep_event()
        else:
            db.undo_event()
    if db.wrote:
        db.commit(1)
    db.close()
    kept = plain.execute("SELECT f_device FROM t_reading ORDER BY f_id").fetchall()
    plain.close()
    assert stored(path) == [row[0] for row in kept]
