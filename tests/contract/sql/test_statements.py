"""Statements of applets and their results: the same for both kinds of databases."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fieldbrook.core.errors import DatabaseConfigError, StatementError, StoreError
from tests.contract.sql.databases import (
    ENDLESS,
    READINGS,
    Backend,
    Database,
    ask,
    column,
    config,
    devices,
    do,
    insert,
    request,
)


def test_no_row_is_no_bytes_one_an_object_several_an_array(db: Database) -> None:
    select = request("SELECT f_device FROM t_reading ORDER BY f_id")
    assert db.query(select) == b""
    insert(db, "a")
    assert db.query(select) == b'{"f_device":"a"}'
    insert(db, "b")
    assert db.query(select) == b'[{"f_device":"a"},{"f_device":"b"}]'


_KEPT = [  # column, parameter, what the applet gets back
    ("f_device", {"string": "grün <b>&\u2028"}, r'"grün \u003cb\u003e\u0026\u2028"'),
    ("f_device", {"string": '"\\\n\x01'}, r'"\"\\\n\u0001"'),
    ("f_device", {"bytes": "aGVsbG8="}, '"hello"'),
    ("f_device", {"bytes": "aGVsbG8"}, '"hello"'),
    ("f_device", {"bytes": "AP8="}, r'"\\x00ff"'),
    ("f_device", {"bytes": ""}, '""'),
    ("f_device", {"string": "first", "time": "second", "int32": None}, '"first"'),
    ("f_device", {"int32": 12}, '"12"'),
    ("f_count", {"int32": -5}, "-5"),
    ("f_count", {"int64": 2**63 - 1}, "9223372036854775807"),
    ("f_count", {"int64": -(2**63)}, "-9223372036854775808"),
    ("f_count", {"float64": 20.0}, "20"),
    ("f_value", {"float32": 1.5}, "1.5"),
    ("f_value", {"float64": 20.0}, "20"),
    ("f_value", {"float64": 1e21}, "1e+21"),
    ("f_value", {"float64": 1e20}, "100000000000000000000"),
    ("f_value", {"float64": 2.5e-7}, "2.5e-7"),
    ("f_value", {"float64": 123456789.125}, "123456789.125"),
    ("f_value", {"int64": 3}, "3"),
    ("f_on", {"bool": True}, "true"),
    ("f_on", {"bool": False}, "false"),
    ("f_at", {"int64": 1_700_000_000}, "1700000000"),
    ("f_amount", {"string": "123456789012345678901.10"}, '"123456789012345678901.10"'),
    ("f_amount", {"int64": 7}, '"7"'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "param", "shown"), _KEPT)
def test_what_is_kept_in_a_column_comes_back_as_its_type_says(
    db: Database, name: str, param: dict[str, Any], shown: str
) -> None:
    names = "f_device" if name == "f_device" else f"f_device, {name}"
    values = "?" if name == "f_device" else "'x', ?"
    do(db, f"INSERT INTO public.t_reading ({names}) VALUES ({values})", param)
    assert db.query(request(f"SELECT {name} AS v FROM t_reading")).decode() == f'{{"v":{shown}}}'
    assert ask(db, f"SELECT count(*) c FROM t_reading WHERE {name} = $1", param) == {"c": 1}


def test_each_column_shows_its_own_type_with_keys_in_order(db: Database) -> None:
    do(
        db,
        "INSERT INTO public.t_reading (f_device, f_value, f_on, f_at, f_amount) "
        "VALUES ($1, $2, $3, $4, $5)",
        {"string": "a"},
        {"float64": 20.0},
        {"bool": True},
        {"int64": 99},
        {"string": "1.10"},
    )
    insert(db, "b")
    first, second = db.query(request("SELECT * FROM t_reading ORDER BY f_id")).split(b",{")
    assert first == (
        b'[{"f_amount":"1.10","f_at":99,"f_count":7,"f_device":"a","f_id":1,'
        b'"f_on":true,"f_value":20}'
    )
    assert second == (
        b'"f_amount":null,"f_at":null,"f_count":7,"f_device":"b","f_id":2,"f_on":null,'
        b'"f_value":null}]'
    )


def test_decimals_are_compared_as_numbers_however_long(db: Database) -> None:
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
        b'{"statement":"SELECT 1"}',
        b'{"statement":"SELECT ?","params":[{}]}',
        b'{"statement":"SELECT ?","params":[{"bytes":"*"}]}',
        b'{"statement":"SELECT ?","params":[{"time":"yesterday"}]}',
        b'{"statement":"SELECT \xff","params":[]}',
        b'{"statement":" -- nothing","params":[]}',
        b'{"statement":"SELECT ?","params":[]}',
        b'{"statement":"SELECT 1","params":[{"int32":1}]}',
        b'{"statement":"SELECT ?, $1","params":[{"int32":1}]}',
        b'{"statement":"SELECT ?2","params":[{"int32":1}]}',
        b'{"statement":"SELECT $0","params":[]}',
        b'{"statement":"SELECT $99999999999","params":[]}',
        b'{"statement":"SELECT 1\\u0000","params":[]}',
        b'{"statement":"SELECT \'\\ud800\'","params":[]}',
        b'{"statement":"SELECT * FROM nowhere","params":[]}',
        b'{"statement":"SELECT 1; SELECT 2","params":[]}',
        b'{"statement":"SELECT \'","params":[]}',
    ],
)
def test_a_request_that_is_none_is_refused_and_the_next_one_answered(
    db: Database, sent: bytes
) -> None:
    insert(db, "before")
    with pytest.raises(StatementError):
        db.query(sent)
    assert devices(db) == ["before"]


def test_placeholders_and_schema_names_inside_literals_stay(db: Database) -> None:
    insert(db, "a")
    statement = (
        """SELECT 'public.x ? $1' AS "public.y?", /* ? */ public.t_reading.f_device -- ?\n """
        """FROM "public".t_reading WHERE f_device = $2 AND $1 < $2"""
    )
    answer = ask(db, statement, {"string": ""}, {"string": "a"})
    assert answer == {"public.y?": "public.x ? $1", "f_device": "a"}


def test_a_value_that_does_not_fit_its_column_is_refused(db: Database) -> None:
    for name in ("f_value", "f_on", "f_amount", "f_count"):
        with pytest.raises(StatementError):
            do(db, f"INSERT INTO t_reading (f_device, {name}) VALUES ('a', ?)", {"string": "word"})
    with pytest.raises(StatementError):
        do(db, "INSERT INTO t_reading (f_device, f_amount) VALUES ('a', ?)", {"string": "NaN"})
    assert devices(db) == []


def test_on_conflict_returning_and_window_functions_are_there(db: Database) -> None:
    rows = ask(db, "INSERT INTO t_reading (f_device) VALUES ('a'), ('b') RETURNING f_id, f_device")
    assert rows == [{"f_id": 1, "f_device": "a"}, {"f_id": 2, "f_device": "b"}]
    do(
        db,
        "INSERT INTO t_reading (f_device, f_count) VALUES ('a', 1) "
        "ON CONFLICT (f_device) DO UPDATE SET f_count = excluded.f_count",
    )
    assert ask(db, "SELECT f_count c FROM t_reading WHERE f_device = 'a'") == {"c": 1}
    number = "SELECT max(n) m FROM (SELECT row_number() OVER (ORDER BY f_id) n FROM t_reading) x"
    assert ask(db, number) == {"m": 2}


# ---------------------------------------------------------------- limits


def test_a_statement_that_never_ends_is_stopped_and_earlier_writes_stay(
    backend: Backend, tmp_path: Path
) -> None:
    db = backend.database(tmp_path, statement_ms=100)
    db.begin_event()
    insert(db, "kept")
    db.keep_event()
    db.begin_event()
    insert(db, "own")
    for statement in (
        f"{ENDLESS} SELECT count(*) FROM x",
        f"UPDATE t_reading SET f_count = ({ENDLESS} SELECT count(*) FROM x)",
    ):
        with pytest.raises(StatementError, match="exceeded its time limit"):
            db.query(request(statement))
        assert devices(db) == ["kept", "own"]
    db.undo_event()
    db.begin_event()
    assert devices(db) == ["kept"]
    db.keep_event()
    db.commit(1)
    db.close()
    assert backend.stored(tmp_path, "SELECT f_device FROM t_reading") == [("kept",)]


def test_a_statement_ends_with_the_time_of_its_run(db: Database) -> None:
    insert(db, "a")
    with pytest.raises(StatementError, match="exceeded its time limit"):
        db.query(request(f"{ENDLESS} SELECT count(*) FROM x"), time.monotonic() + 0.1)
    with pytest.raises(StatementError, match="exceeded its time limit"):
        db.query(request(f"{ENDLESS} SELECT count(*) FROM x"), time.monotonic() - 1)
    assert devices(db) == ["a"]


@pytest.mark.parametrize(("limit", "value"), [("rows", 10), ("result_bytes", 100)])
def test_a_result_over_its_limit_is_refused_and_changes_nothing(
    backend: Backend, tmp_path: Path, limit: str, value: int
) -> None:
    limits: dict[str, Any] = {limit: value}
    db = backend.database(tmp_path, **limits)
    db.begin_event()
    insert(db, "before")
    bounded = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x WHERE n < 50)"
    for statement in (
        f"{bounded} SELECT n FROM x",
        f"INSERT INTO t_reading (f_device) {bounded} SELECT CAST(n AS TEXT) FROM x RETURNING f_id",
    ):
        with pytest.raises(StatementError, match=f"more than {value}"):
            db.query(request(statement))
    assert devices(db) == ["before"]
    db.close()


def test_a_request_over_its_limit_is_refused(backend: Backend, tmp_path: Path) -> None:
    db = backend.database(tmp_path, request_bytes=100, event_bytes=300)
    db.begin_event()
    with pytest.raises(StatementError, match="limit is 100"):
        db.query(request("SELECT ?", {"string": "x" * 100}))
    for device in "abc":
        insert(db, device)
    with pytest.raises(StatementError, match="more than 300"):
        insert(db, "d")
    assert devices(db) == ["a", "b", "c"]
    db.close()


def test_a_full_database_refuses_the_write_and_keeps_what_it_has(
    backend: Backend, tmp_path: Path
) -> None:
    db = backend.database(tmp_path, database_bytes=400_000)
    db.begin_event()
    insert(db, "kept")
    db.keep_event()
    db.begin_event()
    with pytest.raises(StatementError, match="limit of 400000 bytes"):
        for number in range(10_000):
            insert(db, f"{number:0>1000}")
    db.undo_event()
    db.begin_event()
    assert devices(db) == ["kept"]
    do(db, "DELETE FROM t_reading")
    db.keep_event()
    db.commit(1)
    db.close()
    assert backend.stored(tmp_path, "SELECT f_device FROM t_reading") == []


# ---------------------------------------------------------------- transactions


def test_an_event_that_fails_takes_only_its_own_writes_along(
    db: Database, backend: Backend, tmp_path: Path
) -> None:
    select = "SELECT f_device FROM t_reading ORDER BY f_id"
    insert(db, "a")
    db.keep_event()
    db.begin_event()
    insert(db, "b")
    assert devices(db) == ["a", "b"]
    db.undo_event()
    db.begin_event()
    assert devices(db) == ["a"]
    insert(db, "c")
    with pytest.raises(StatementError, match=r"(?i)unique"):
        insert(db, "a")
    db.keep_event()
    wrote = [db.wrote]
    assert backend.stored(tmp_path, select) == []
    assert db.number() == 0
    db.commit(1)
    assert [*wrote, db.wrote] == [True, False]
    assert backend.stored(tmp_path, select) == [("a",), ("c",)]
    assert (db.number(), backend.committed(tmp_path)) == (1, 1)


def test_a_batch_that_is_rolled_back_leaves_nothing(
    db: Database, backend: Backend, tmp_path: Path
) -> None:
    insert(db, "a")
    db.keep_event()
    db.rollback()
    assert not db.wrote
    assert backend.stored(tmp_path, "SELECT * FROM t_reading") == []
    assert db.number() == 0


def test_a_batch_without_statements_opens_nothing(backend: Backend, tmp_path: Path) -> None:
    db = backend.database(tmp_path)
    db.begin_event()
    db.keep_event()
    db.begin_event()
    db.undo_event()
    assert not db.wrote
    db.rollback()
    assert db.number() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_batch_that_only_reads_has_nothing_to_commit(db: Database) -> None:
    assert devices(db) == []
    do(db, "DELETE FROM t_reading")
    db.keep_event()
    assert not db.wrote


def test_a_number_is_committed_once(db: Database) -> None:
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


# ---------------------------------------------------------------- tables


def test_tables_and_columns_and_indexes_are_added_and_nothing_is_changed(
    backend: Backend, tmp_path: Path
) -> None:
    first = backend.database(tmp_path)
    first.begin_event()
    insert(first, "a")
    first.keep_event()
    first.commit(1)
    first.close()
    more = {
        **READINGS,
        "cols": [*READINGS["cols"], column("f_note", "TEXT", default="it's new")],
        "keys": [*READINGS["keys"], {"name": "note", "columnNames": ["f_note", "f_device"]}],
    }
    for _ in range(2):
        second = backend.database(tmp_path, config(more, {"name": "t_more", "cols": []}))
        second.begin_event()
        assert ask(second, "SELECT f_note n FROM t_reading") == {"n": "it's new"}
        assert ask(second, "SELECT count(*) c FROM t_more") == {"c": 0}
        second.close()
    for changed, reason in (
        ([column("f_device", "INT32")], "f_device"),
        ([column("f_new", "TEXT")], "f_new: a column that is added needs a default or null"),
        ([column("f_count", "INT32", default="8")], "f_count"),
        ([column("f_value", "FLOAT64")], "f_value"),
    ):
        names = {given["name"] for given in changed}
        cols = [c for c in READINGS["cols"] if c["name"] not in names] + changed
        third = backend.database(tmp_path, config({**READINGS, "cols": cols}))
        with pytest.raises(DatabaseConfigError, match=reason):
            third.open()
        third.close()


def test_tables_of_other_schemas_and_soft_deletion_and_primary_keys(
    backend: Backend, tmp_path: Path
) -> None:
    table = {
        "name": "T_Item",
        "cols": [column("f_Name", "TEXT")],
        "keys": [{"name": "name", "isUnique": True, "columnNames": ["f_Name"]}],
        "withSoftDeletion": True,
        "withPrimaryKey": True,
    }
    db = backend.database(tmp_path, config(table, schema="shop"))
    db.begin_event()
    for deleted_at in (0, 1):
        do(
            db,
            "INSERT INTO shop.t_item (f_name, f_deleted_at) VALUES ('a', ?)",
            {"int64": deleted_at},
        )
    with pytest.raises(StatementError, match=r"(?i)unique"):
        do(db, "INSERT INTO shop.t_item (f_name) VALUES ('a')")
    assert ask(db, "SELECT count(*) c FROM shop.t_item") == {"c": 2}
    with pytest.raises(StatementError):
        do(db, "INSERT INTO shop.t_item (f_name, f_id) VALUES ('b', 1)")
    with pytest.raises(StatementError):
        do(db, "INSERT INTO shop.t_item (f_name) VALUES (NULL)")
    db.close()


def test_a_primary_key_that_names_a_column_twice_is_the_same_when_it_is_opened_again(
    backend: Backend, tmp_path: Path
) -> None:
    key = {"name": "primary", "isUnique": True, "columnNames": ["a", "b", "a"]}
    table = {"name": "t", "cols": [column("a", "TEXT"), column("b", "TEXT")], "keys": [key]}
    for rows in range(2):
        db = backend.database(tmp_path, config(table))
        db.begin_event()
        assert ask(db, "SELECT count(*) c FROM t") == {"c": rows}
        do(db, "INSERT INTO t (a, b) VALUES (?, 'b')", {"string": str(rows)})
        db.keep_event()
        db.commit(rows + 1)
        db.close()


def test_a_configuration_that_cannot_be_applied_is_told_to_the_applet(
    backend: Backend, tmp_path: Path
) -> None:
    db = backend.database(tmp_path, config({"name": "t", "cols": [column("a", "MONEY")]}))
    db.begin_event()
    for _ in range(2):
        with pytest.raises(StatementError, match="unknown datatype 'MONEY'"):
            do(db, "SELECT 1")
    with pytest.raises(DatabaseConfigError, match="table t, column a"):
        db.open()
    db.close()


_WRITES = (
    "INSERT INTO t_reading (f_device) VALUES (?)",
    "INSERT INTO t_reading (f_device) VALUES (?) ON CONFLICT DO NOTHING",
    "UPDATE t_reading SET f_device = ?",
    "DELETE FROM t_reading WHERE f_device < ?",
)
_writes = st.lists(st.tuples(st.sampled_from(_WRITES), st.sampled_from("abcde")), max_size=5)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(_writes, st.booleans()), max_size=6))
@pytest.mark.thorough
def test_any_events_leave_the_same_rows_in_both(
    postgres: Any, tmp_path_factory: pytest.TempPathFactory, events: list[Any]
) -> None:
    kept = []
    for backend in (Backend(), Backend(postgres.dsn)):
        path = tmp_path_factory.mktemp("sql")
        db = backend.database(path)
        refused = []
        for writes, keep in events:
            db.begin_event()
            for statement, device in writes:
                try:
                    do(db, statement, {"string": device})
                except StatementError:
                    refused.append((statement, device))
            if keep:
                db.keep_event()
            else:
                db.undo_event()
        db.begin_event()
        rows = ask(db, "SELECT f_device FROM t_reading ORDER BY f_device")
        db.close()
        kept.append((rows, refused))
    assert kept[0] == kept[1]
