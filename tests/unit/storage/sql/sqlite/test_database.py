"""The SQL database of a project, on a real SQLite."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.errors import StatementError, StoreError
from fieldbrook.storage.sql.database import SqlLimits
from fieldbrook.storage.sql.requests import parse_request
from fieldbrook.storage.sql.results import row_encoder
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase
from fieldbrook.storage.sql.sqlite.preparation import EFFORT_LIMIT
from fieldbrook.storage.sql.sqlite.reader import SqliteReader
from fieldbrook.storage.sql.sqlite.statements import translate
from tests.contract.sql.databases import (
    ENDLESS,
    READINGS,
    ask,
    column,
    config,
    devices,
    do,
    insert,
    request,
)


def opened(path: Path, **limits: int) -> SqliteDatabase:
    made = SqlLimits(**{"statement_ms": 10_000, **limits})  # a busy machine may take a second
    database = SqliteDatabase(path / "sql.db", config(READINGS), made)
    database.begin_event()
    return database


@pytest.fixture
def db(tmp_path: Path) -> Iterator[SqliteDatabase]:
    database = opened(tmp_path)
    yield database
    database.close()


def stored(path: Path) -> list[str]:
    """Return the committed devices, as another program sees them."""
    with sqlite3.connect(path / "sql.db") as connection:
        rows = connection.execute("SELECT f_device FROM t_reading ORDER BY f_id").fetchall()
    connection.close()
    return [row[0] for row in rows]


# ---------------------------------------------------------------- requests and results


@pytest.mark.parametrize(
    ("param", "shown"),
    [
        ({"float64": 2.5e-6}, "0.0000025"),
        ({"bool": True}, "1"),
        ({"bytes": "AP8="}, r'"\\x00ff"'),
        ({"time": "2024-02-29T12:00:00+02:00"}, '"2024-02-29T10:00:00.000000Z"'),
    ],
)
def test_a_parameter_that_meets_no_column_has_its_own_type(
    db: SqliteDatabase, param: dict[str, Any], shown: str
) -> None:
    assert db.query(request("SELECT ? AS v", param)).decode() == f'{{"v":{shown}}}'


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_refused(sent: bytes) -> None:
    try:
        parse_request(sent)
    except StatementError:
        return


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_shown_as_json_that_reads_back_the_same(value: float) -> None:
    row = row_encoder(["v"])([value])
    assert float(json.loads(row)["v"]) == value


@given(st.text())
def test_a_text_is_shown_as_json_that_reads_back_the_same(value: str) -> None:
    row = row_encoder(["v"])([value])
    assert json.loads(row)["v"] == value
    assert not set("<>&\u2028\u2029") & set(row)


def test_a_value_that_does_not_fit_its_column_is_refused_by_name(db: SqliteDatabase) -> None:
    for name in ("f_value", "f_on", "f_amount", "f_count"):
        with pytest.raises(StatementError, match=f"{name} is a"):
            do(
                db,
                f"INSERT INTO t_reading (f_device, {name}) VALUES ('a', ?)",
                {"string": "word"},
            )
    assert devices(db) == []


# ---------------------------------------------------------------- what applets cannot reach


def test_statements_of_the_node_itself_are_not_found_ready_by_an_applet(db: SqliteDatabase) -> None:
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


def test_json_and_window_functions_and_returning_are_there(db: SqliteDatabase) -> None:
    assert ask(db, "SELECT sum(value) s FROM json_each('[1,2]')") == {"s": 3}
    rows = ask(db, "INSERT INTO t_reading (f_device) VALUES ('a'), ('b') RETURNING f_id, f_device")
    assert rows == [{"f_id": 1, "f_device": "a"}, {"f_id": 2, "f_device": "b"}]
    assert ask(db, "SELECT max(n) m FROM (SELECT row_number() OVER () n FROM t_reading)") == {
        "m": 2
    }


def test_a_table_with_the_name_of_a_function_is_there_after_a_restart(tmp_path: Path) -> None:
    given = config({"name": "JSON_each", "cols": [column("f_word", "TEXT")]})
    for count in (1, 2):
        database = SqliteDatabase(tmp_path / "sql.db", given)
        database.begin_event()
        do(database, "INSERT INTO json_each (f_word) VALUES ('a')")
        assert ask(database, "SELECT count(*) n FROM json_each") == {"n": count}
        database.keep_event()
        database.commit(count)
        database.close()
    reader = SqliteReader(tmp_path / "sql.db", given, SqlLimits())
    assert [table.name for table in reader.tables()] == ["JSON_each"]


# ---------------------------------------------------------------- limits


def test_long_writes_of_others_outlive_a_statement_that_never_ends(tmp_path: Path) -> None:
    db = opened(tmp_path)
    long = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x LIMIT 20000)"
    do(db, f"INSERT INTO t_reading (f_device) {long} SELECT n FROM x")
    db.keep_event()
    db.begin_event()
    with pytest.raises(StatementError, match="exceeded its time limit"):
        db.execute(
            request(f"INSERT INTO t_reading (f_device) {ENDLESS} SELECT -n FROM x"),
            time.monotonic() + 0.05,
        )
    assert ask(db, "SELECT count(*) c FROM t_reading") == {"c": 20_000}
    db.close()


@pytest.mark.parametrize(
    "statement",
    ["SELECT zeroblob(100000000)", "SELECT randomblob(100000000)"],
)
def test_a_value_that_is_too_long_is_refused(db: SqliteDatabase, statement: str) -> None:
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
        ("printf('%.2f %s %c%% %05d', 1.239, 'a.c', 'b', 7)", "1.24 a.c b% 00007"),
        ("printf(NULL)", None),
        ("printf('%.1f c', 2)", "2.0 c"),
        ("upper(substr('abc', 2)) || length('xy')", "BC2"),
        ("date('2024-02-29', '+1 year')", "2025-03-01"),
        ("strftime('%Y', '2024-02-29T10:00:00.000000Z')", "2024"),
    ],
)
def test_a_function_gives_what_it_gives_in_sqlite(
    db: SqliteDatabase, expression: str, value: object
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
        "printf('%.*c', 2000000000, 'x')",
        "format('%d: %-.2000000000c', 1, 'x')",
        f"printf({_LONG})",
    ],
)
def test_no_function_works_beyond_its_time_on_long_values(
    db: SqliteDatabase, expression: str
) -> None:
    start = time.process_time()
    with contextlib.suppress(StatementError):
        ask(db, f"SELECT length({expression}) v")
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    "expression",
    [
        " + ".join([f"({_LONG} GLOB '*[xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx0]c')"] * 21),
        " + ".join([f"({_LONG} LIKE '%00000000000000000000000000000001')"] * 21),
        " || ".join([f"json_array({', '.join(['hex(1)'] * 99)})"] * 11),
        " || ".join(["json_patch('{}', '{}')"] * 2),
    ],
)
def test_a_row_has_no_more_slow_functions_than_end_within_seconds(
    db: SqliteDatabase, expression: str
) -> None:
    """The time limit cannot interrupt within a row."""
    with pytest.raises(StatementError, match="so often in one statement"):
        ask(db, f"SELECT {expression} v")
    assert ask(db, "SELECT 'abc' LIKE '%b%' v") == {"v": 1}
    assert ask(db, "SELECT json_patch('{}', '{\"a\":1}') v") == {"v": '{"a":1}'}


@pytest.mark.parametrize(
    "statement",
    [
        f"VALUES {','.join(['(1)'] * 90_000)}",
        f"SELECT 1 WHERE 1 IN ({','.join(map(str, range(100_000)))})",
    ],
)
def test_a_statement_with_too_many_steps_is_refused_in_words(
    tmp_path: Path, statement: str
) -> None:
    db = opened(tmp_path, statement_ms=60_000)  # a busy machine may take long to prepare it
    with pytest.raises(StatementError, match="the statement is too large"):
        ask(db, statement)
    limits = SqlLimits(statement_ms=60_000)
    reader = SqliteReader(tmp_path / "sql.db", config(READINGS), limits)
    with pytest.raises(StatementError, match="the statement is too large"):
        reader.query(statement, [])
    assert ask(db, "SELECT 1 v") == {"v": 1}
    db.close()


# ---------------------------------------------------------------- transactions


def test_or_rollback_of_one_event_leaves_the_others_alone(db: SqliteDatabase) -> None:
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


def test_writes_that_are_carried_out_again_come_out_the_same(db: SqliteDatabase) -> None:
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


def test_the_clock_is_that_of_the_batch(db: SqliteDatabase) -> None:
    first = ask(db, "SELECT now() n, current_date d, date('now', '+1 day') e")
    time.sleep(0.002)
    assert ask(db, "SELECT now() n, current_date d, date('now', '+1 day') e") == first
    db.keep_event()
    db.rollback()
    db.begin_event()
    assert ask(db, "SELECT now() n")["n"] > first["n"]


def test_a_database_locked_by_another_program_is_the_nodes_failure(
    db: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fieldbrook.storage.sql.sqlite.database.BUSY_S", 0.01)
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


def test_the_file_is_readable_by_its_owner_only(db: SqliteDatabase, tmp_path: Path) -> None:
    insert(db, "a")
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


_RESTARTS = (  # conditions under which SQLite ends a transaction, and others
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
    db = SqliteDatabase(path / "sql.db", config(READINGS))
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


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("reading", [False, True])
def test_a_row_of_many_large_values_is_refused_before_it_is_copied(
    tmp_path: Path, reading: bool
) -> None:
    db = opened(tmp_path, statement_ms=60_000)
    insert(db, "a")
    db.keep_event()
    db.commit(1)
    db.begin_event()
    statement = f"SELECT {', '.join(['zeroblob(1000000)'] * 40)}"
    reader = SqliteReader(tmp_path / "sql.db", config(READINGS), SqlLimits(statement_ms=60_000))
    tracemalloc.start()
    try:
        with pytest.raises(StatementError, match="the result has more than"):
            reader.query(statement, []) if reading else db.query(request(statement))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * 40_000_000
    db.close()


def test_a_result_cannot_have_a_thousand_large_columns(db: SqliteDatabase) -> None:
    with pytest.raises(StatementError, match="too many columns"):
        db.query(request(f"SELECT {', '.join(['zeroblob(1000000)'] * 251)}"))


_EXHAUST = """
import sqlite3, sys
from pathlib import Path
from fieldbrook.core.errors import StatementError
from fieldbrook.storage.sql.database import SqlLimits
from fieldbrook.storage.sql.sqlite import guard
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase
from tests.contract.sql.databases import READINGS, config, devices, insert, request

guard._MEMORY_BYTES = 64 << 20
db = SqliteDatabase(Path(sys.argv[1]), config(READINGS), SqlLimits(statement_ms=60_000))
db.begin_event()
insert(db, "before")
numbers = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x LIMIT 200)"
try:
    db.query(request(f"{numbers} SELECT json_group_array(printf('%1000000s', n)) FROM x"))
except StatementError as error:
    print(error)
insert(db, "after")
db.keep_event()
db.commit(1)
db.begin_event()
print(devices(db))
"""


def test_an_aggregate_ends_at_the_limit_of_memory_and_the_next_statement_works(
    tmp_path: Path,
) -> None:
    # In a process of its own, because the limit is per process and cannot be raised again.
    done = subprocess.run(
        [sys.executable, "-c", _EXHAUST, str(tmp_path / "sql.db")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "the statement is too large" in done.stdout
    assert "['before', 'after']" in done.stdout


_HEAVY = (
    "UPDATE t_reading SET f_count = (WITH RECURSIVE x(n) AS "
    "(SELECT 1 UNION ALL SELECT n + 1 FROM x LIMIT 400000) SELECT count(*) FROM x)"
)


def test_writes_are_not_repeated_past_the_deadline_of_their_run(tmp_path: Path) -> None:
    db = opened(tmp_path, statement_ms=60_000)
    insert(db, "kept")
    db.keep_event()
    db.begin_event()
    began = time.process_time()
    while time.process_time() - began < 1.0:
        do(db, _HEAVY)
    # The next write is interrupted, which undoes the whole batch. A repetition takes a second.
    written = time.process_time()
    ends_at = time.monotonic() + 0.1
    endless = f"INSERT INTO t_reading (f_device, f_count) {ENDLESS} SELECT n, n FROM x"
    with pytest.raises(StatementError, match="time limit"):
        db.execute(request(endless), ends_at)
    assert time.process_time() - written < 0.7, "the run's own writes are given up"
    db.undo_event()
    db.commit(1)
    assert stored(tmp_path) == ["kept"]
    db.close()


def test_an_event_whose_writes_were_given_up_cannot_be_kept(tmp_path: Path) -> None:
    db = opened(tmp_path, statement_ms=60_000)
    do(db, "INSERT INTO t_reading (f_device) VALUES ('a')")
    do(db, _HEAVY)
    endless = f"INSERT INTO t_reading (f_device, f_count) {ENDLESS} SELECT n, n FROM x"
    with pytest.raises(StatementError, match="time limit"):
        db.execute(request(endless), time.monotonic() + 0.01)
    db.keep_event()
    with pytest.raises(StoreError, match="lost"):
        db.commit(1)
    assert stored(tmp_path) == []
    db.close()


@pytest.mark.parametrize("function", ["json_patch", "jsonb_patch"])
def test_documents_that_take_seconds_to_merge_are_refused(
    db: SqliteDatabase, function: str
) -> None:
    numbers = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x LIMIT 60000)"
    for sign in ("", "-"):
        do(
            db,
            f"INSERT INTO t_reading (f_device) {numbers} "
            f"SELECT json_group_object({sign}n, 1) FROM x",
        )
    began = time.process_time()
    with pytest.raises(StatementError):
        db.query(
            request(
                f"SELECT {function}(a.f_device, b.f_device) AS v FROM t_reading AS a, "
                "t_reading AS b WHERE a.f_id = 1 AND b.f_id = 2"
            )
        )
    assert time.process_time() - began < 2


def test_a_statement_that_sorts_much_writes_no_file_outside_the_data_folder(
    tmp_path: Path,
) -> None:
    db = opened(tmp_path, statement_ms=60_000)
    do(db, "DELETE FROM t_reading")
    seen: set[str] = set()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            for each in Path("/proc/self/fd").iterdir():
                with contextlib.suppress(OSError):
                    seen.add(str(each.readlink()))

    watch = threading.Thread(target=look)
    watch.start()
    try:
        numbers = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x LIMIT 60)"
        sort = "(SELECT zeroblob(900000) AS b, n FROM x ORDER BY b, n DESC LIMIT 100 OFFSET 1)"
        assert ask(db, f"{numbers} SELECT count(*) AS n FROM {sort}") == {"n": 59}
    finally:
        over.set()
        watch.join()
        db.close()
    assert [path for path in seen if "etilqs" in path] == []  # SQLite's name for such files


# ---------------------------------------------------------------- what SQLite makes of a statement


def _referring(levels: int, body: str) -> str:
    """Return a statement of tables, each of which refers to the previous one."""
    tables = [f"c{n} AS ({body.replace('?', f'c{n - 1}')})" for n in range(1, levels + 1)]
    return f"WITH c0 AS (SELECT 1 x), {', '.join(tables)} SELECT count(*) v FROM c{levels}"


def _nested(levels: int, uses: int) -> str:
    """Return a statement of queries, each of which uses the column of the next one."""
    text = "SELECT f_count x FROM t_reading"
    for _ in range(levels):
        text = f"SELECT {' + '.join(['x'] * uses)} x FROM ({text})"
    return text


@pytest.mark.parametrize(
    "statement",
    [
        _referring(30, "SELECT 1 x FROM ? a, ? b"),
        _referring(30, "SELECT 1 x FROM '?' a, '?' b"),
        _referring(30, "SELECT 1 x FROM [?] a, `?` b"),
        _referring(30, "SELECT x FROM ? UNION ALL SELECT x FROM ?"),
        _referring(30, "SELECT (SELECT x FROM ?) + (SELECT x FROM ?) x"),
        _nested(4, 60),
    ],
)
def test_a_statement_that_grows_before_it_runs_is_refused_within_seconds(
    db: SqliteDatabase, tmp_path: Path, statement: str
) -> None:
    """The time limit cannot interrupt SQLite there, so such a statement would end the worker of all
    projects."""
    insert(db, "a")
    db.keep_event()
    db.commit(1)
    db.begin_event()
    reader = SqliteReader(tmp_path / "sql.db", config(READINGS), SqlLimits(statement_ms=10_000))
    began = time.thread_time()
    with pytest.raises(StatementError, match="to be prepared"):
        ask(db, statement)
    with pytest.raises(StatementError, match="to be prepared"):
        reader.query(statement, [])
    assert time.thread_time() - began < 1  # the work is done in a child with limits
    assert ask(db, "SELECT 1 v") == {"v": 1}


def test_a_query_of_many_parts_runs_after_its_trial(db: SqliteDatabase, tmp_path: Path) -> None:
    insert(db, "a")
    db.keep_event()
    db.commit(1)
    db.begin_event()
    parts = ", ".join(
        f"p{n} AS (SELECT f_id i, f_device d, f_count c, {n} n FROM t_reading WHERE f_id > $1)"
        for n in range(12)
    )
    columns = ", ".join(f"count(p{n}.n) AS c{n}" for n in range(12))
    joined = " ".join(f"JOIN p{n} ON p{n}.i = p0.i AND p{n}.d = p0.d" for n in range(1, 12))
    statement = f"WITH {parts} SELECT {columns} FROM p0 {joined}"
    assert translate(statement, frozenset()).effort > EFFORT_LIMIT
    assert ask(db, statement, {"int32": 0}) == {f"c{n}": 1 for n in range(12)}
    reader = SqliteReader(tmp_path / "sql.db", config(READINGS), SqlLimits(statement_ms=10_000))
    assert reader.query(statement, [0]).rows == [[1] * 12]


def test_usual_statements_need_no_trial() -> None:
    rows = ", ".join(["(?, ?, ?, ?)"] * 5_000)
    inner = "SELECT b FROM t_b WHERE b = r.b AND d = ?"
    joined = "SELECT r.a, r.b, max(s.c) AS m FROM t_r r JOIN t_s s ON s.a = r.a"
    for statement in (
        f"INSERT INTO t_reading VALUES {rows}",
        "SELECT a, b, c, d, e, f, g, h FROM t_a WHERE a = ? AND b > ? ORDER BY c DESC LIMIT 10",
        f"{joined} WHERE r.b IN ({inner}) GROUP BY r.a, r.b HAVING m > 1 ORDER BY m",
    ):
        assert translate(statement, frozenset()).effort <= EFFORT_LIMIT


def test_long_statements_are_not_kept_in_memory() -> None:
    tracemalloc.start()
    try:
        for number in range(300):
            translate(f"SELECT {number} -- \U0001f600 {'a' * 100_000}", frozenset())
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 20_000_000  # all of them have 240 MB


_LARGE = """
import sys
from pathlib import Path
from fieldbrook.storage.sql.database import SqlLimits
from fieldbrook.storage.sql.sqlite import guard
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase
from tests.contract.sql.databases import READINGS, config, devices, do, insert

guard._MEMORY_BYTES = 10 << 20
folder = Path(sys.argv[1])
large = SqliteDatabase(folder / "a.db", config(READINGS), SqlLimits(statement_ms=60_000))
large.begin_event()
cases = " ".join(f"WHEN f_count = {n} THEN {n}" for n in range(3_000))
for number in range(20):
    do(large, f"UPDATE t_reading SET f_count = CASE {cases} END WHERE f_id = {number}")
other = SqliteDatabase(folder / "b.db", config(READINGS))
other.begin_event()
insert(other, "works")
print(devices(other))
"""


def test_the_large_statements_of_a_project_leave_memory_to_the_others(tmp_path: Path) -> None:
    # In a process of its own, as above. SQLite makes 0.7 MB of each statement.
    done = subprocess.run(
        [sys.executable, "-c", _LARGE, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "['works']" in done.stdout, done.stderr
