"""Reading of a project's tables by users, and what their statements cannot do."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

from fieldbrook.core.errors import StatementError
from fieldbrook.storage.sql.database import SqlLimits
from fieldbrook.storage.sql.postgres.namespace import namespace_of
from fieldbrook.storage.sql.postgres.reader import PostgresReader
from fieldbrook.storage.sql.reading import DatabaseReader, NoSuchNameError, Page
from fieldbrook.storage.sql.requests import Value
from fieldbrook.storage.sql.sqlite import files
from fieldbrook.storage.sql.sqlite.reader import SqliteReader
from tests.contract.sql import databases as d

NOTES = {
    "name": "t_note",
    "cols": [d.column("f_key", "TEXT"), d.column("f_text", "TEXT", null=True)],
    "keys": [{"name": "primary", "isUnique": True, "columnNames": ["f_key"]}],
}
LARGEST = 2**63 - 1


def reader(backend: d.Backend, folder: Path, **limits: int) -> DatabaseReader:
    made = SqlLimits(**{"statement_ms": 60_000, **limits})
    config = d.config(d.READINGS, NOTES)
    if backend.dsn:
        return PostgresReader(backend.dsn, folder, config, made)
    return SqliteReader(folder / files.FILE, config, made)


@pytest.fixture
def database(backend: d.Backend, tmp_path: Path) -> Iterator[d.Database]:
    """A database whose batches the tests commit."""
    made = backend.database(tmp_path, d.config(d.READINGS, NOTES))
    yield made
    made.close()


def committed(database: d.Database, *devices: str) -> None:
    database.begin_event()
    for device in devices:
        d.insert(database, device)
    database.keep_event()
    database.commit(database.number() + 1)


@pytest.fixture
def filled(backend: d.Backend, database: d.Database, tmp_path: Path) -> DatabaseReader:
    database.begin_event()
    statement = "INSERT INTO t_reading (f_device, f_value, f_on, f_at, f_amount) VALUES (?,?,?,?,?)"
    for device, value, on, at, amount in [
        ("b", 1.5, True, 1767323045, "10.50"),
        ("a", -2.0, False, 1767323046, "9.9"),
    ]:
        d.do(
            database,
            statement,
            {"string": device},
            {"float64": value},
            {"bool": on},
            {"int64": at},
            {"string": amount},
        )
    d.do(database, "INSERT INTO t_note VALUES ('k', NULL)")
    database.keep_event()
    database.commit(1)
    return reader(backend, tmp_path)


def test_times_and_bytes_are_shown_as_texts_and_found_by_them(tmp_path: Path) -> None:
    """SQLite only: a time column of PostgreSQL holds numbers, and a text column no other bytes."""
    backend = d.Backend()
    database = backend.database(tmp_path)
    database.begin_event()
    statement = "INSERT INTO t_reading (f_device, f_at) VALUES (?, ?)"
    d.do(database, statement, {"bytes": "/wA="}, {"time": "2026-01-02T04:04:05.25+01:00"})
    database.keep_event()
    database.commit(1)
    database.close()
    page = Page(equal=[("f_at", "2026-01-02T03:04:05.250Z")])
    ((_, device, _, _, at, _, _),) = reader(backend, tmp_path).rows("t_reading", page).rows
    assert (device, at) == ("\\xff00", "2026-01-02T03:04:05.25Z")


def test_before_the_first_statement_tables_are_those_configured_and_empty(
    backend: d.Backend, tmp_path: Path
) -> None:
    new = reader(backend, tmp_path)
    names = [(table.name, table.rows, table.more) for table in new.tables()]
    assert names == [("t_reading", 0, False), ("t_note", 0, False)]
    assert new.rows("t_note", Page()).rows == []
    assert new.rows("t_note", Page()).columns == ["f_key", "f_text"]
    with pytest.raises(StatementError, match="no tables yet"):
        new.query("SELECT 1", ())


def test_tables_are_told_with_their_columns_and_counts(filled: DatabaseReader) -> None:
    readings, notes = filled.tables()
    assert (readings.name, readings.rows, notes.rows) == ("t_reading", 2, 1)
    assert [(c.name, c.kind, c.primary) for c in readings.columns[:4]] == [
        ("f_id", "INTEGER", True),
        ("f_device", "TEXT", False),
        ("f_value", "REAL", False),
        ("f_on", "BOOLEAN", False),
    ]
    assert [(c.kind, c.null) for c in readings.columns[4:6]] == [
        ("TIMESTAMPTZ", True),
        ("DECIMAL", True),
    ]


def test_rows_have_their_values_in_the_order_of_the_columns(filled: DatabaseReader) -> None:
    result = filled.rows("T_Reading", Page())
    assert result.columns[:4] == ["f_id", "f_device", "f_value", "f_on"]
    assert result.rows == [
        [1, "b", 1.5, True, 1767323045, "10.50", 7],
        [2, "a", -2.0, False, 1767323046, "9.9", 7],
    ]
    assert filled.rows("t_note", Page()).rows == [["k", None]]


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (Page(order="f_device"), ["a", "b"]),
        (Page(order="F_DEVICE", descending=True), ["b", "a"]),
        (Page(order="f_amount"), ["a", "b"]),  # as numbers, not as texts
        (Page(limit=1), ["b", "a"]),  # one more tells that there are more
        (Page(offset=1), ["a"]),
        (Page(equal=[("f_id", "2")]), ["a"]),
        (Page(equal=[("f_value", "1.50")]), ["b"]),
        (Page(equal=[("f_on", "TRUE")]), ["b"]),
        (Page(equal=[("f_at", "1767323045")]), ["b"]),
        (Page(equal=[("f_amount", "10.5")]), ["b"]),
        (Page(equal=[("f_device", "a"), ("f_count", "7")]), ["a"]),
        (Page(equal=[("f_device", "x' OR '1'='1")]), []),
        (Page(equal=[("f_device", "?")]), []),
    ],
)
def test_pages_are_sorted_and_filtered_by_columns(
    filled: DatabaseReader, page: Page, found: list[str]
) -> None:
    assert [row[1] for row in filled.rows("t_reading", page).rows] == found


@pytest.mark.parametrize(
    ("table", "page"),
    [
        ("t_other", Page()),
        ("fieldbrook_state", Page()),
        ("sqlite_master", Page()),
        ("pg_class", Page()),
        ('t_note" UNION SELECT 1 --', Page()),
        ("t_note", Page(order="f_none")),
        ("t_note", Page(order="f_key; DROP TABLE t_note")),
        ("t_note", Page(equal=[('f_key" = f_key OR "f_key', "1")])),
        ("t_note", Page(equal=[("", "1")])),
    ],
)
def test_names_that_the_project_does_not_have_are_no_part_of_a_statement(
    filled: DatabaseReader, table: str, page: Page
) -> None:
    with pytest.raises(NoSuchNameError):
        filled.rows(table, page)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("f_on", "maybe"),
        ("f_at", "yesterday"),
        ("f_id", "one"),
        ("f_amount", "1e"),
        ("f_value", ""),
    ],
)
def test_a_filter_that_does_not_fit_its_column_is_refused(
    filled: DatabaseReader, column: str, text: str
) -> None:
    with pytest.raises(StatementError):
        filled.rows("t_reading", Page(equal=[(column, text)]))


@pytest.mark.parametrize(
    ("statement", "args", "rows"),
    [
        ("SELECT f_device FROM t_reading WHERE f_value > $1", [0], [["b"]]),
        ("select count(*) from public.t_reading", [], [[2]]),
        ("WITH x AS (SELECT f_id FROM t_reading) SELECT max(f_id) FROM x", [], [[2]]),
        ("SELECT f_text FROM t_note WHERE f_key = ?", ["k"], [[None]]),
        ("VALUES (1, 'x')", [], [[1, "x"]]),
        (f"SELECT {LARGEST}", [], [[str(LARGEST)]]),
        ("SELECT f_device FROM t_reading WHERE f_on = ?", [1], [["b"]]),
        ("SELECT 1 WHERE 1 = 0", [], []),
    ],
)
def test_a_select_gets_its_rows(
    filled: DatabaseReader, statement: str, args: Sequence[Value], rows: list[object]
) -> None:
    assert filled.query(statement, args).rows == rows


@pytest.mark.parametrize(
    "statement",
    [
        "",
        "INSERT INTO t_note VALUES ('x', 'y')",
        "UPDATE t_note SET f_text = 'x'",
        "DELETE FROM t_note",
        "REPLACE INTO t_note VALUES ('x', 'y')",
        "INSERT INTO t_note VALUES ('x', 'y') RETURNING f_key",
        "WITH x AS (INSERT INTO t_note VALUES ('x', 'y') RETURNING f_key) SELECT * FROM x",
        "WITH x AS (SELECT 1) DELETE FROM t_note",
        "SELECT 1; DELETE FROM t_note",
        "SELECT * INTO t_new FROM t_note",
        "SELECT f_key FROM t_note FOR UPDATE",
        "DROP TABLE t_note",
        "CREATE TABLE t_new (a int)",
        "CREATE TEMP TABLE t_new AS SELECT 1",
        "ALTER TABLE t_note ADD a int",
        "VACUUM INTO '/tmp/copy'",
        "ATTACH DATABASE '/tmp/x' AS x",
        "DETACH DATABASE main",
        "PRAGMA query_only = OFF",
        "PRAGMA table_info(t_note)",
        "SELECT * FROM pragma_table_info('t_note')",
        "SELECT * FROM sqlite_master",
        "SELECT * FROM fieldbrook_state",
        "SELECT load_extension('x')",
        "SELECT readfile('/etc/passwd')",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT set_config('role', 'none', false)",
        "SELECT pg_sleep(1)",
        "SELECT * FROM pg_catalog.pg_class",
        "SELECT * FROM information_schema.tables",
        "SELECT session_user",
        "SELECT SYSTEM_USER",
        "SELECT \"set_config\"('role', 'none', false)",
        "SELECT query_to_xml('DELETE FROM t_note', true, true, '')",
        "EXPLAIN ANALYZE DELETE FROM t_note",
        "RESET ROLE",
        "SET ROLE none",
        "SET TRANSACTION READ WRITE",
        "BEGIN",
        "COMMIT",
        "COPY t_note TO PROGRAM 'id'",
        "SELECT ?",
        "SELECT f_none FROM t_note",
        "SELECT 'unfinished",
    ],
)
def test_a_statement_that_is_no_single_select_is_refused_and_changes_nothing(
    filled: DatabaseReader, statement: str
) -> None:
    with pytest.raises(StatementError):
        filled.query(statement, ())
    assert filled.query("SELECT f_key, f_text FROM t_note", ()).rows == [["k", None]]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (f"{d.ENDLESS} SELECT max(n) FROM x", "time limit"),
        (f"{d.ENDLESS} SELECT count(*) FROM x a, x b", "time limit"),
        (f"{d.ENDLESS} SELECT n FROM x LIMIT 50", "more than 20 rows"),
        (f"{d.ENDLESS} SELECT repeat('y', 3000) FROM x LIMIT 5", "bytes|no such function"),
        ("SELECT " + "9" * 3_000, "bytes|finite|out of range"),
    ],
)
def test_endless_and_huge_statements_end_at_their_limits(
    backend: d.Backend, database: d.Database, tmp_path: Path, statement: str, reason: str
) -> None:
    committed(database, "a")
    limits = {"statement_ms": 300, "rows": 20, "result_bytes": 10_000, "request_bytes": 2_000}
    limited = reader(backend, tmp_path, **limits)
    began = time.monotonic()
    with pytest.raises(StatementError, match=reason):
        limited.query(statement, ())
    assert time.monotonic() - began < 5


def test_few_instructions_that_make_much_end_at_their_limit_too(tmp_path: Path) -> None:
    sqlite = d.Backend()
    database = sqlite.database(tmp_path, d.config(d.READINGS, NOTES))
    committed(database, "a")
    limited = reader(sqlite, tmp_path, statement_ms=300)
    blobs = """WITH RECURSIVE x (n, b) AS (SELECT 1, randomblob(1000000)
        UNION ALL SELECT n + 1, randomblob(1000000) FROM x LIMIT 2000)"""
    began = time.monotonic()
    with pytest.raises(StatementError, match="time limit"):
        limited.query(f"{blobs} SELECT n FROM x ORDER BY b", ())
    assert time.monotonic() - began < 5
    database.close()


def test_a_reader_sees_each_commit_and_none_before_it(
    backend: d.Backend, database: d.Database, tmp_path: Path
) -> None:
    committed(database, "a")
    people = reader(backend, tmp_path)
    database.begin_event()
    d.insert(database, "b")
    assert people.query("SELECT f_device FROM t_reading", ()).rows == [["a"]]
    database.keep_event()
    database.commit(2)
    assert people.query("SELECT count(*) FROM t_reading", ()).rows == [[2]]
    database.close()  # SQLite removes its log with the last connection
    assert people.query("SELECT count(*) FROM t_reading", ()).rows == [[2]]
    assert people.tables()[0].rows == 2


def test_rows_are_counted_up_to_a_limit(
    backend: d.Backend, database: d.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fieldbrook.storage.sql.reading.COUNT_LIMIT", 3)
    committed(database, "a", "b", "c")
    table = reader(backend, tmp_path).tables()[0]
    assert (table.rows, table.more) == (3, False)
    committed(database, "d")
    table = reader(backend, tmp_path).tables()[0]
    assert (table.rows, table.more) == (3, True)


def test_a_reader_of_one_project_reaches_no_table_of_another_on_the_same_server(
    backend: d.Backend, database: d.Database, tmp_path: Path
) -> None:
    if not backend.dsn:
        pytest.skip("SQLite projects have files of their own")
    committed(database, "a")
    other = tmp_path / "other"
    other.mkdir()
    second = backend.database(other, d.config(NOTES))
    second.begin_event()
    d.do(second, "INSERT INTO t_note VALUES ('secret', 'x')")
    second.keep_event()
    second.commit(1)
    second.close()
    name = namespace_of(other)
    people = reader(backend, tmp_path)
    for statement in (
        f'SELECT * FROM "{name}".t_note',
        f"SELECT * FROM {name}.t_note",
        "SELECT f_key FROM t_note WHERE EXISTS (SELECT FROM pg_roles)",
        # A call without a bracket, of a function that runs any statement.
        (
            "SELECT ('SELECT to_tsvector(set_config(''role'', ''none'', false))'::text).ts_stat, "
            f"('SELECT to_tsvector(f_key) FROM \"{name}\".t_note'::text).ts_stat"
        ),
    ):
        with pytest.raises(StatementError):
            shown = people.query(statement, ()).rows
            pytest.fail(f"it has read {shown}")
    # Even past the filter, the rights of the project's role end there.
    assert isinstance(people, PostgresReader)
    with people._session() as session, psycopg.connect(backend.dsn) as plain:
        assert session is not None
        own = namespace_of(tmp_path)
        plain.execute("SET TRANSACTION READ ONLY")
        plain.execute(f'SET LOCAL ROLE "{own}"')
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            plain.execute(f'SELECT * FROM "{name}".t_note')
