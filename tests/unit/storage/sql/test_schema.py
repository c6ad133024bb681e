"""The tables of a database configuration, made and changed on a real SQLite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.core.errors import DatabaseConfigError, StoreError
from fieldbrook.storage.sql.schema import INDEXES_LIMIT, parse_schema
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase
from fieldbrook.storage.sql.sqlite.transfer import import_rows

INT = {"datatype": "INT"}


def table(name: str = "t", *columns: dict[str, Any], **more: Any) -> dict[str, Any]:
    cols = [{"name": n, "constrains": c} for column in columns for n, c in column.items()]
    return {"name": name, "cols": cols, **more}


def tables(*given: dict[str, Any]) -> dict[str, Any]:
    return {"schemas": [{"tables": list(given)}]}


def apply(path: Path, config: dict[str, Any], *statements: str) -> Any:
    """Open with a configuration, run statements, and return the result of the last one."""
    database = SqliteDatabase(path / "sql.db", config)
    try:
        database.open()
        database.begin_event()
        answer = b""
        for statement in statements:
            answer = database.query(json.dumps({"statement": statement, "params": []}).encode())
        database.keep_event()
        if database.wrote:
            database.commit(database.number() + 1)
        return json.loads(answer) if answer else None
    finally:
        database.close()


def test_tables_and_columns_are_added_and_rows_stay(tmp_path: Path) -> None:
    apply(tmp_path, tables(table("t", {"a": INT})), "INSERT INTO t (a) VALUES (1)")
    more = {"b": {"datatype": "TEXT", "default": "it's"}, "c": {"datatype": "BOOL", "null": True}}
    config = tables(table("t", {"a": INT}, more), table("u", {"a": INT}))
    row = apply(tmp_path, config, "INSERT INTO u (a) VALUES (2)", "SELECT a, b, c FROM t")
    assert row == {"a": 1, "b": "it's", "c": None}
    assert apply(tmp_path, config, "SELECT a FROM u") == {"a": 2}


def test_a_table_or_column_that_is_no_longer_asked_for_keeps_its_rows(tmp_path: Path) -> None:
    both = tables(table("t", {"a": INT, "b": {**INT, "default": 4}}), table("u", {"a": INT}))
    apply(tmp_path, both, "INSERT INTO t (a) VALUES (1)", "INSERT INTO u (a) VALUES (2)")
    apply(tmp_path, tables(table("t", {"a": INT})))
    assert apply(tmp_path, both, "SELECT t.a, t.b, u.a AS c FROM t, u") == {"a": 1, "b": 4, "c": 2}


def test_the_earlier_generations_shape_and_the_columns_of_every_table(tmp_path: Path) -> None:
    config = {"tables": [table("t", {"a": INT}, withPrimaryKey=True, withSoftDeletion=True)]}
    row = apply(tmp_path, config, "INSERT INTO t (a) VALUES (1)", "SELECT * FROM t")
    expected = {"f_id": 1, "a": 1, "f_created_at": 0, "f_updated_at": 0, "f_deleted_at": 0}
    assert row == expected


def test_rows_of_an_earlier_version_are_loaded_with_their_times(tmp_path: Path) -> None:
    config, columns = tables(table("t", {"a": INT})), ["a", "f_created_at", "f_updated_at"]
    import_rows(tmp_path / "sql.db", config, [("t", columns, [1, 7, 8]), ("t", columns, [2, 9, 0])])
    found = apply(tmp_path, config, "SELECT * FROM t")
    assert found == [
        {"a": 1, "f_created_at": 7, "f_updated_at": 8},
        {"a": 2, "f_created_at": 9, "f_updated_at": 0},
    ]


def test_other_columns_that_are_not_configured_are_not_loaded(tmp_path: Path) -> None:
    given = [("t", ["a", "f_other"], [1, 7])]
    with pytest.raises(StoreError, match="f_other"):
        import_rows(tmp_path / "sql.db", tables(table("t", {"a": INT})), given)


def test_soft_deletion_makes_room_for_the_same_key_again(tmp_path: Path) -> None:
    key = {"name": "a", "isUnique": True, "columnNames": ["a"]}
    config = tables(table("t", {"a": INT}, keys=[key], withSoftDeletion=True))
    insert = "INSERT INTO t (a) VALUES (1)"
    apply(tmp_path, config, insert, "UPDATE t SET f_deleted_at = 5", insert)
    with pytest.raises(Exception, match="UNIQUE"):
        apply(tmp_path, config, insert)


def test_tables_of_another_schema_are_kept_apart(tmp_path: Path) -> None:
    config = {
        "schemas": [
            {"tables": [table("t", {"a": INT})]},
            {"schema": "Other", "tables": [table("t", {"a": INT})]},
        ]
    }
    row = apply(
        tmp_path,
        config,
        "INSERT INTO t (a) VALUES (1)",
        'INSERT INTO other."t" (a) VALUES (2)',
        "SELECT x.a, other.t.a AS b FROM public.t x, other.t",
    )
    assert row == {"a": 1, "b": 2}


def test_keys_are_made_under_the_names_of_the_interface(tmp_path: Path) -> None:
    keys = [
        {"name": "t_pkey", "isUnique": True, "columnNames": ["a", "b"]},
        {"name": "x", "isUnique": True, "columnNames": ["b", "c"]},
        {"name": "y", "method": "BTREE", "columnNames": ["c"]},
    ]
    config = tables(table("t", {"a": INT, "b": INT, "c": INT}, keys=keys))
    (made,) = parse_schema(config).tables
    assert made.primary == ("a", "b")
    assert [index.name for index in made.indexes] == ["t_ui_b_c", "t_i_c"]
    for _ in range(2):
        apply(tmp_path, config)
    with pytest.raises(Exception, match=r"UNIQUE constraint failed: t\.a, t\.b"):
        apply(tmp_path, config, "INSERT INTO t (a, b, c) VALUES (1, 1, 1), (1, 1, 2)")


def test_a_counting_column_beside_another_primary_key_counts(tmp_path: Path) -> None:
    key = {"name": "primary", "isUnique": True, "columnNames": ["a"]}
    config = tables(
        table("t", {"id": {"datatype": "UINT64", "autoincrement": True}, "a": INT}, keys=[key])
    )
    for _ in range(2):
        apply(tmp_path, config)
    row = apply(tmp_path, config, "INSERT INTO t (a) VALUES (7)", "SELECT id, a FROM t")
    assert row == {"id": 1, "a": 7}
    with pytest.raises(Exception, match="UNIQUE"):
        apply(tmp_path, config, "INSERT INTO t (a) VALUES (7)")


OLD = table("t", {"a": INT, "b": {"datatype": "TEXT", "null": True}})


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (
            table("t", {"a": {"datatype": "TEXT"}}),
            "table t, column a: its type INTEGER cannot be changed to TEXT",
        ),
        (
            table("t", {"a": {**INT, "null": True}}),
            "table t, column a: the existing column forbids null",
        ),
        (
            table("t", {"b": {"datatype": "TEXT"}}),
            "table t, column b: the existing column allows null",
        ),
        (
            table("t", {"a": {**INT, "default": 5}}),
            "column a: its default none cannot be changed to 5",
        ),
        (table("t", {"a": INT, "c": INT}), "table t, column c: .* needs a default or null"),
        (
            table("t", {"a": INT}, keys=[{"name": "pkey", "isUnique": True, "columnNames": ["a"]}]),
            r"table t: its primary key cannot be changed to \(a\)",
        ),
        (
            table("t", {"a": INT}, keys=[{"isUnique": True, "columnNames": ["a"]}]),
            "table t, index t_ui_a: UNIQUE constraint failed",
        ),
    ],
)
def test_a_change_that_adding_cannot_make_is_refused_by_name_and_leaves_all_as_it_was(
    tmp_path: Path, new: dict[str, Any], reason: str
) -> None:
    apply(tmp_path, tables(OLD), "INSERT INTO t (a) VALUES (1), (1)")
    with pytest.raises(DatabaseConfigError, match=reason):
        apply(tmp_path, tables(table("another", {"a": INT}), new))
    rows = apply(tmp_path, tables(OLD), "SELECT a FROM t")
    assert rows == [{"a": 1}, {"a": 1}]
    with pytest.raises(Exception, match="no such table: another"):
        apply(tmp_path, tables(OLD), "SELECT * FROM another")


@pytest.mark.parametrize("datatype", ["INT", "INT8", "INT16", "INT32", "INT64", "UINT", "UINT64"])
def test_a_wider_integer_is_no_change(tmp_path: Path, datatype: str) -> None:
    apply(tmp_path, tables(table("t", {"a": INT})))
    apply(tmp_path, tables(table("t", {"a": {"datatype": datatype}})))


@pytest.mark.parametrize(
    ("datatype", "default", "shown"),
    [
        ("INT", "-5", -5),
        ("FLOAT64", 1.5, 1.5),
        ("FLOAT32", "2e3", 2000),
        ("TEXT", "now()", "now()"),
        ("TEXT", "", ""),
        ("BOOL", True, True),
        ("BOOL", "false", False),
        ("TIMESTAMP", 0, 0),
        ("DECIMAL", "1.10", "1.10"),
        ("NUMERIC", 3, "3"),
    ],
)
def test_a_default_of_each_type_is_filled_in(
    tmp_path: Path, datatype: str, default: Any, shown: Any
) -> None:
    config = tables(table("t", {"a": INT, "b": {"datatype": datatype, "default": default}}))
    for _ in range(2):
        apply(tmp_path, config)
    row = apply(tmp_path, config, "INSERT INTO t (a) VALUES (1)", "SELECT b FROM t")
    assert row == {"b": shown}


_COLUMNS = {f"c{n}": INT for n in range(9)}
_PAIRS = [{"columnNames": [a, b]} for a in _COLUMNS for b in _COLUMNS if a < b] + [
    {"columnNames": [a, b, "c0"]} for a in _COLUMNS for b in _COLUMNS if "c0" < a < b
]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"schemas": 1}, "schemas"),
        (tables({"cols": []}), "name"),
        (tables(table("t", {"a": {"datatype": "MONEY"}})), "unknown datatype 'MONEY'"),
        (tables(table("t", {"a b": INT})), "column 'a b'"),
        (tables(table('t"; DROP')), "table 't\"; DROP'"),
        (tables(table("")), "table ''"),
        (tables(table("sqlite_x")), "reserved"),
        (tables(table("Fieldbrook_state")), "reserved"),
        (tables(table("t"), table("T")), "table T exists twice"),
        (tables(table("t", {"a": INT}, {"A": INT})), "column A exists twice"),
        (tables(table("t", {"a": {**INT, "default": "x"}})), "'x' is not a default"),
        (tables(table("t", {"a": {**INT, "default": "0); DROP TABLE t"}})), "is not a default"),
        (tables(table("t", {"a": {**INT, "default": "\u0663"}})), "is not a default"),
        (tables(table("t", {"a": {"datatype": "BOOL", "default": "fal\u017fe"}})), "is not a"),
        (
            tables(table("t", {"a": {"datatype": "TEXT", "autoincrement": True}})),
            "only an integer can be autoincrement",
        ),
        (tables(table("t", keys=[{"columnNames": []}])), "it has no columns"),
        (tables(table("t", keys=[{"columnNames": ["x"]}])), "there is no column 'x'"),
        (tables(table("t", keys=[{"expr": "(a)"}])), "expressions are not supported"),
        (
            tables(table("t", {"a": INT}, keys=[{"method": "GIST", "columnNames": ["a"]}])),
            "the method 'GIST' is not supported",
        ),
        ({"schemas": [{"schema": "a.b"}]}, "schema 'a.b'"),
        (tables(*[table(f"t{n}") for n in range(201)]), "more than 200 tables"),
        (
            tables(*[table(f"t{n}", _COLUMNS, keys=_PAIRS) for n in range(INDEXES_LIMIT // 60)]),
            f"more than {INDEXES_LIMIT} keys",
        ),
    ],
)
def test_a_configuration_that_cannot_be_read_is_refused_by_name(
    config: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DatabaseConfigError) as refused:
        parse_schema(config)
    assert reason in str(refused.value)
