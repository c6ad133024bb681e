"""What applets cannot reach on a PostgreSQL server, with the check of statements and without it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.errors import DatabaseUnreachableError, StatementError, StoreError
from fieldbrook.storage.sql.database import SqlLimits
from fieldbrook.storage.sql.postgres.database import PostgresDatabase
from fieldbrook.storage.sql.postgres.namespace import RETRY_S, namespace_of
from fieldbrook.storage.sql.postgres.reader import PostgresReader
from fieldbrook.storage.sql.postgres.setup import prepare_namespace
from fieldbrook.storage.sql.postgres.statements import Forbidden, translate
from fieldbrook.storage.sql.schema import parse_schema
from tests.contract.sql.databases import READINGS, ask, column, config, devices, insert, request
from tests.support.postgres import PostgresServer
from tests.support.tools import LIMIT_S


@pytest.fixture
def db(postgres: PostgresServer, tmp_path: Path) -> Iterator[PostgresDatabase]:
    database = PostgresDatabase(postgres.dsn, tmp_path, 1, config(READINGS))
    database.begin_event()
    yield database
    database.close()


@pytest.fixture(scope="module")
def standing(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PostgresDatabase]:
    """One database for tests that do not change it."""
    folder = tmp_path_factory.mktemp("standing")
    database = PostgresDatabase(postgres.dsn, folder, 6, config(READINGS))
    yield database
    database.close()


@pytest.mark.parametrize(
    "statement",
    [
        "BEGIN",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT fieldbrook_event",
        "RELEASE fieldbrook_event",
        "SET ROLE node",
        "RESET ROLE",
        "SET SESSION AUTHORIZATION node",
        "SET statement_timeout = 0",
        "COPY t_reading TO PROGRAM 'id'",
        "COPY t_reading FROM '/etc/passwd'",
        "CREATE TABLE t (a int)",
        "CREATE TEMP TABLE t AS SELECT 1",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "DROP TABLE t_reading",
        "ALTER TABLE t_reading ADD a int",
        "TRUNCATE t_reading",
        "LOCK TABLE t_reading",
        "DO $$BEGIN PERFORM 1; END$$",
        "CALL p()",
        "LISTEN x",
        "NOTIFY x",
        "VACUUM",
        "PREPARE p AS SELECT 1",
        "DECLARE c CURSOR FOR SELECT 1",
        "GRANT ALL ON t_reading TO PUBLIC",
        "TABLE t_reading",
        "EXPLAIN ANALYZE SELECT 1",
        "EXPLAIN (ANALYZE) DELETE FROM t_reading",
        "SELECT * INTO t FROM t_reading",
        "SELECT 1 INTO TEMP t",
        "WITH x AS (SELECT 1) SELECT * INTO t FROM x",
        "SELECT * FROM pg_catalog.pg_class",
        "SELECT * FROM pg_class",
        'SELECT * FROM "pg_class"',
        "SELECT rolname FROM pg_roles",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM pg_stat_activity",
        "SELECT * FROM fieldbrook_state",
        "UPDATE fieldbrook_state SET number = 99",
        'UPDATE "fieldbrook_state" SET number = 99',
        "WITH x AS (UPDATE fieldbrook_state SET number = 99 RETURNING 1) SELECT * FROM x",
        "SELECT pg_sleep(1)",
        "SELECT pg_catalog.pg_sleep(1)",
        'SELECT "pg_sleep"(1)',
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT pg_ls_dir('/')",
        "SELECT lo_import('/etc/passwd')",
        "SELECT lo_creat(-1)",
        "SELECT lo_create (0)",
        "SELECT dblink('host=127.0.0.1', 'SELECT 1')",
        "SELECT set_config('role', 'node', false)",
        "SELECT SET_CONFIG('statement_timeout', '0', false)",
        "SELECT \"set_config\"('statement_timeout', '0', false)",
        "SELECT set_config/**/('statement_timeout', '0', false)",
        "SELECT set_config --\n('statement_timeout', '0', false)",
        "SELECT U&\"set\\005fconfig\"('statement_timeout', '0', false)",
        "SELECT U&\"set!005fconfig\" UESCAPE '!' ('statement_timeout', '0', false)",
        "SELECT * FROM set_config('statement_timeout', '0', false)",
        "SELECT E'\\'' , set_config('statement_timeout', '0', false) --'",
        "SELECT e'a'\n'\\', set_config('statement_timeout','0',false), '",
        "SELECT 1 /* /* */ , set_config('statement_timeout', '0', false) /* */ */",
        "SELECT 1, $a$ ' $a$, set_config('statement_timeout', '0', false), $a$ ' $a$",
        "SELECT current_setting('data_directory')",
        "SELECT version()",
        "SELECT current_database()",
        "SELECT inet_server_addr()",
        "SELECT query_to_xml('SELECT * FROM pg_class', true, false, '')",
        "SELECT table_to_xml('pg_class', true, false, '')",
        "SELECT database_to_xml(true, false, '')",
        "SELECT ts_stat('SELECT 1')",
        "SELECT nextval('t_reading_f_id_seq')",
        "SELECT setval('t_reading_f_id_seq', 1)",
        "SELECT has_table_privilege('t_reading', 'SELECT')",
        "SELECT txid_current()",
        "SELECT 1259::regclass",
        "SELECT CAST(1259 AS regclass)",
        "SELECT 'pg_authid'::regclass",
        "SELECT 10::oid::regrole",
        "SELECT '{1259}'::_regclass",
        'SELECT ARRAY[10::oid]::"_regrole"',
        "SELECT '=r/node'::aclitem",
        "SELECT 1 OPERATOR(pg_catalog.+) 1",
        "SELECT ('SELECT to_tsvector(rolname) FROM pg_roles'::text).ts_stat",
        "SELECT ('SELECT to_tsvector(1::text)'::text).TS_STAT",
        "SELECT ('search_path'::text).current_setting",
        "SELECT ('search_path'::text) . /**/ \"current_setting\"",
        "SELECT (12345::oid).lo_create",
        "SELECT (x::oid).lo_create FROM generate_series(1, 9) x",
        "SELECT x.lo_create FROM unnest(ARRAY[12345::oid]) x",
        "SELECT (ARRAY[12345::oid])[1].lo_create",
        "SELECT ((12345::oid) . public.lo_create)",
        "SELECT (12345::oid).lo_unlink",
        "SELECT ('t_reading_f_id_seq'::text).nextval",
        "SELECT ('t_reading'::text).to_regclass",
        "SELECT TREAT('search_path' AS current_setting)",
        "SELECT treat /**/ ('SELECT to_tsvector(rolname) FROM pg_roles'::text AS ts_stat)",
        "SELECT TREAT(12345::oid AS lo_create)",
        "SELECT TREAT('<a/>'::text AS xml)",
        "SELECT '<a/>'::xml",
        "SELECT '<a/>' :: \"xml\"",
        "SELECT '{<a/>}'::xml[]",
        "SELECT '{<a/>}'::_xml",
        "SELECT CAST('<a/>' AS xml)",
        "SELECT cast(('<a/>') AS /**/ XML)",
        "SELECT ('<a/>'::text).xml",
        "SELECT x.xml FROM unnest(ARRAY['<a/>'::text]) x",
        "SELECT xml '<a/>'",
        "SELECT xml $x$<a/>$x$",
        "SELECT XMLPARSE(DOCUMENT '<a/>')",
        "SELECT XMLSERIALIZE(CONTENT '<a/>' AS text)",
        "SELECT XMLROOT('<a/>', VERSION '1.0')",
        "SELECT '<a/>' IS DOCUMENT",
        "SELECT '<a/>' IS NOT DOCUMENT",
        "SELECT * FROM XMLTABLE('/a' PASSING '<a/>' COLUMNS x text PATH '.')",
        "SELECT * FROM json_to_record('{}') AS x(a xml)",
        "SELECT * FROM json_to_record('{}') AS x(a int, b xml)",
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_terminate_backend(1)",
        "SELECT 1; SELECT 2",
        "SELECT 1; COMMIT",
    ],
)
def test_a_statement_that_reaches_beyond_the_tables_is_refused(
    standing: PostgresDatabase, statement: str
) -> None:
    db = standing
    db.begin_event()
    insert(db, "a")
    for text in (statement, f"EXPLAIN {statement}", f"/* SELECT */ {statement}"):
        with pytest.raises(StatementError):
            db.query(request(text))
    assert devices(db) == ["a"]
    assert ask(db, "SELECT count(*) c FROM t_reading") == {"c": 1}
    db.undo_event()
    db.rollback()


def test_words_within_texts_and_names_that_look_alike_are_not_refused(
    db: PostgresDatabase,
) -> None:
    texts = (
        "SELECT 'pg_sleep(1)' a, $x$ set_config('?') $x$ b, E'it\\'s pg_class' c, 'SELECT INTO' d"
    )
    assert ask(db, texts) == {
        "a": "pg_sleep(1)",
        "b": " set_config('?') ",
        "c": "it's pg_class",
        "d": "SELECT INTO",
    }
    assert ask(db, "SELECT x.version FROM (SELECT 1 AS version) x") == {"version": 1}
    names = "name", "path", "host", "text", "area", "height", "money", "point", "network"
    given = ", ".join(f"{n} AS {name}" for n, name in enumerate(names))
    shown = ", ".join(f"x.{name}" for name in names)
    wanted = {name: n for n, name in enumerate(names)}
    assert ask(db, f"SELECT {shown} FROM (SELECT {given}) x") == wanted
    columns = "SELECT xml, xml + 1 AS b, (xml) AS c FROM (SELECT 1 AS xml) x WHERE xml = 1"
    assert ask(db, f"{columns} ORDER BY xml") == {"xml": 1, "b": 2, "c": 1}
    documents = "SELECT document FROM (SELECT false AS document) x WHERE NOT document"
    assert ask(db, documents) == {"document": False}


def test_a_statement_whose_row_the_server_could_compute_for_hours_is_refused(
    standing: PostgresDatabase,
) -> None:
    db = standing
    db.begin_event()
    large = "FROM (SELECT 9::numeric x OFFSET 0) s"
    for terms, reason in (
        (["div(x, 7)"] * 251, "the statement has 251 functions, the limit is 250"),
        (["length(lpad(x, 9))"] * 10, "the statement has 260 functions"),
        (["length(1::char(9))"] * 10, "the statement has 260 functions"),
        (["x * x"] * 1_001, "the statement has 1001 of the operators"),
        (["x / x"] * 501 + ["x % x"] * 500, "the statement has 1001 of the operators"),
    ):
        with pytest.raises(StatementError, match=reason):
            db.query(request(f"SELECT {' + '.join(terms)} {large}"))
    rows = ", ".join(["(now(), 1::bigint + 2)"] * 1_500)
    assert ask(db, f"SELECT count(*) c FROM (VALUES {rows}) v") == {"c": 1_500}
    db.undo_event()
    db.rollback()


@pytest.fixture(scope="module")
def bare(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[psycopg.Connection, dict[str, str]]]:
    """A session with the rights of an applet, without the check of statements, and the names of its
    own schema and another one."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("own", "other")}
    made = [PostgresDatabase(postgres.dsn, f, 8, config(READINGS)) for f in folders.values()]
    for database in made:
        database.open()
        database.close()
    names = {name: namespace_of(folder) for name, folder in folders.items()}
    password = prepare_namespace(postgres.dsn, names["own"], parse_schema(config(READINGS)), 1_000)
    connection = psycopg.connect(
        postgres.dsn, user=names["own"], password=password, autocommit=True
    )
    yield connection, names
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "SET ROLE node",
        "SET SESSION AUTHORIZATION node",
        "SET SESSION AUTHORIZATION DEFAULT; RESET ROLE; CREATE TABLE t (a int)",
        "SELECT set_config('role', 'node', false)",
        "CREATE TABLE t (a int)",
        "CREATE TABLE public.t (a int)",
        "CREATE SCHEMA s",
        "CREATE ROLE r",
        "CREATE EXTENSION dblink",
        "DROP TABLE {own}.t_reading",
        "ALTER TABLE {own}.t_reading ADD a int",
        "TRUNCATE {own}.t_reading",
        "DELETE FROM {own}.fieldbrook_state",
        "INSERT INTO {own}.fieldbrook_state VALUES (0, 1)",
        "SELECT * FROM {other}.t_reading",
        "UPDATE {other}.fieldbrook_state SET number = 9",
        "SELECT 1 FROM pg_authid",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT pg_ls_dir('/')",
        "COPY {own}.t_reading TO PROGRAM 'id'",
        "COPY {own}.t_reading FROM '/etc/passwd'",
        "COPY {own}.t_reading TO '/tmp/out'",
        "SELECT lo_import('/etc/passwd')",
        "ALTER ROLE node PASSWORD 'x'",
        "ALTER SYSTEM SET fsync = off",
        "SELECT pg_reload_conf()",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'node' LIMIT 1",
        "GRANT node TO CURRENT_USER",
    ],
)
def test_the_role_itself_may_nothing_beyond_its_tables(
    bare: tuple[psycopg.Connection, dict[str, str]], statement: str, postgres: PostgresServer
) -> None:
    connection, names = bare
    with (
        psycopg.connect(postgres.dsn),  # somebody whose session could be ended
        pytest.raises(psycopg.Error) as refused,
    ):
        connection.execute(statement.format(**names).encode())
    # No right to it, or no such thing without the right to make it.
    assert refused.value.sqlstate in ("42501", "42939", "42883", "0P000", "0LP01"), refused.value


def test_a_role_that_was_given_rights_is_not_used(postgres: PostgresServer, tmp_path: Path) -> None:
    db = PostgresDatabase(postgres.dsn, tmp_path, 3, config(READINGS))
    db.open()
    db.close()
    role = namespace_of(tmp_path)
    postgres.run(f'GRANT pg_read_server_files TO "{role}"', postgres.owner_dsn)
    with pytest.raises(StoreError, match="rights it must not have"):
        db.open()
    postgres.run(f'REVOKE pg_read_server_files FROM "{role}"', postgres.owner_dsn)
    db.open()
    db.close()


def test_two_nodes_of_one_server_have_tables_of_their_own(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    both = [PostgresDatabase(postgres.dsn, tmp_path / name, 4, config(READINGS)) for name in "ab"]
    for number, db in enumerate(both):
        db.begin_event()
        insert(db, str(number))
        db.keep_event()
        db.commit(1)
    for number, db in enumerate(both):
        db.begin_event()
        assert devices(db) == [str(number)]
        db.close()


def test_an_endless_answer_costs_the_session_and_not_the_memory(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fieldbrook.storage.sql.postgres.database._BUFFER_BYTES", 100_000)
    limits = SqlLimits(result_bytes=1_000, statement_ms=10_000)
    db = PostgresDatabase(postgres.dsn, tmp_path, 5, config(READINGS), limits)
    db.begin_event()
    long = request("SELECT repeat('x', 20000000) v")
    with pytest.raises(StatementError, match="result has more"):
        db.query(long)
    assert devices(db) == []  # in a session of its own
    insert(db, "a")
    with pytest.raises(DatabaseUnreachableError):  # or the write would be half of an event
        db.query(long)
    db.close()


def test_a_statement_that_the_server_does_not_end_is_the_only_one_of_its_project(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    limits = SqlLimits(statement_ms=100)
    db = PostgresDatabase(postgres.dsn, tmp_path, 7, config(READINGS), limits)
    db.open()
    reader = PostgresReader(postgres.dsn, tmp_path, config(READINGS), limits)
    namespace = namespace_of(tmp_path)
    with psycopg.connect(postgres.dsn, application_name=namespace) as busy:

        def run() -> None:
            with contextlib.suppress(psycopg.errors.QueryCanceled):
                busy.execute("SELECT pg_sleep(60)")

        running = threading.Thread(target=run)
        running.start()
        began = time.monotonic()
        with pytest.raises(DatabaseUnreachableError, match="is still running on the server"):
            while time.monotonic() < began + LIMIT_S:
                reader.query("SELECT 1", [])
        assert time.monotonic() - began > 0.3, "shorter statements may run beside it"
        db.close()
        with pytest.raises(DatabaseUnreachableError, match="is still running on the server"):
            db.open()
        busy.cancel()
        running.join()
    assert reader.query("SELECT 1", []).rows == [[1]]
    time.sleep(RETRY_S)
    db.open()
    db.close()


def test_a_server_that_stands_still_is_not_waited_for(
    postgres: PostgresServer, db: PostgresDatabase, tmp_path: Path
) -> None:
    insert(db, "a")
    db.keep_event()
    db.commit(1)
    other = psycopg.connect(postgres.dsn)
    other.execute(f'LOCK TABLE "{namespace_of(tmp_path)}".t_reading')
    db.begin_event()
    started = time.monotonic()
    with pytest.raises(StatementError, match="exceeded its time limit"):
        db.query(request("SELECT * FROM t_reading"), started + 0.2)
    assert time.monotonic() - started < 9, "less than a statement may take"
    other.rollback()
    other.close()
    assert devices(db) == ["a"]


@given(st.text(alphabet="eEuU&$a'\"/*-\n\\ ?1(;", max_size=30))
def test_any_text_is_translated_or_refused(text: str) -> None:
    try:
        forbidden = Forbidden(frozenset({"a"}), frozenset({"a"}))
        statement = translate(f"SELECT {text}", frozenset({"public"}), forbidden)
    except StatementError:
        return
    assert statement.text.startswith("SELECT ")


@pytest.fixture(scope="module")
def plain(postgres: PostgresServer) -> Iterator[psycopg.Connection]:
    connection = psycopg.connect(postgres.dsn, autocommit=True)
    yield connection
    connection.close()


@given(st.text(alphabet="eEnN$ag'\"/*-\n\\ ,", max_size=24))
def test_a_function_is_never_called_behind_the_readers_back(
    plain: psycopg.Connection, text: str
) -> None:
    """Whatever stands before it: what passes the reader does not call it on the server."""
    statement = f"SELECT 1 {text} , set_config('application_name', 'reached', false)"
    try:
        translated = translate(statement, frozenset(), Forbidden(frozenset({"set_config"})))
    except StatementError:
        return
    with contextlib.suppress(psycopg.Error):
        plain.execute(translated.text.encode())
    rows = plain.execute("SELECT current_setting('application_name')").fetchall()
    assert rows != [("reached",)]


def _table(name: str, *columns: tuple[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "cols": [column(each, kind) for each, kind in columns],
    }


def test_tables_that_are_named_as_the_servers_catalogue_hide_nothing_of_it(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """The node asks the server for sizes, rights and functions in sessions of the project."""
    tables = (
        READINGS,
        _table("pg_class", ("oid", "INT64"), ("relnamespace", "INT64"), ("relkind", "TEXT")),
        _table("pg_namespace", ("oid", "INT64"), ("nspname", "TEXT")),
        _table("pg_auth_members", ("member", "INT64")),
        _table("pg_proc", ("proname", "TEXT")),
        _table("text", ("c", "TEXT")),
    )
    limits = SqlLimits(database_bytes=400_000)
    db = PostgresDatabase(postgres.dsn, tmp_path, 7, config(*tables), limits)
    with contextlib.closing(db):
        db.begin_event()
        assert ask(db, "SELECT 'a'::text a") == {"a": "a"}
        with pytest.raises(StatementError, match="reached its limit"):
            for number in range(10_000):
                insert(db, f"{number:0>1000}")
        with pytest.raises(StatementError, match="function"):
            db.query(request("SELECT set_config('statement_timeout', '0', false)"))
