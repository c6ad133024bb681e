"""Which kind of database a project has, depending on the settings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fieldbrook.core.errors import StatementError
from fieldbrook.core.settings import Settings, load
from fieldbrook.storage.sql.access import database_access
from fieldbrook.storage.sql.postgres.database import PostgresDatabase
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase

CONFIG = {"tables": [{"name": "t", "cols": [{"name": "n", "constrains": {"datatype": "INT64"}}]}]}
NUMBERS = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x{}) SELECT n, 0, 0 FROM x"

ENDLESS = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT sum(n) FROM x"


def query(settings: Settings, folder: Path, statement: str) -> bytes:
    """Run a statement in the database of a project with these settings."""
    database = database_access(settings, folder, 1).open(CONFIG)
    database.begin_event()
    try:
        return database.query(json.dumps({"statement": statement, "params": []}).encode(), 1e99)
    finally:
        database.undo_event()
        database.close()


def test_the_settings_say_which_database_it_is(tmp_path: Path) -> None:
    plain = database_access(load(), tmp_path, 1)
    assert isinstance(plain.open(CONFIG), SqliteDatabase)
    assert plain.committed is None
    served = database_access(load(postgres_dsn="postgresql://node@db/x"), tmp_path, 1)
    assert isinstance(served.open(CONFIG), PostgresDatabase)
    assert served.committed is not None
    assert served.committed() == 0, "it never had a schema, so nobody is asked"


def test_the_limits_of_the_settings_are_those_of_statements(tmp_path: Path) -> None:
    ten = NUMBERS.format(" LIMIT 10")
    assert query(load(sql_result_rows=10), tmp_path, ten).count(b'"n":') == 10
    with pytest.raises(StatementError, match="more than 9 rows"):
        query(load(sql_result_rows=9), tmp_path, ten)
    with pytest.raises(StatementError, match="more than 1024 bytes"):
        query(load(sql_result_bytes=1024), tmp_path, NUMBERS.format(" LIMIT 500"))
    with pytest.raises(StatementError, match="exceeded its time limit"):
        query(load(sql_statement_ms=10), tmp_path, ENDLESS)
    with pytest.raises(StatementError, match="limit of 1048576 bytes"):
        query(
            load(sql_database_bytes=1 << 20),
            tmp_path,
            f"INSERT INTO t (n, f_created_at, f_updated_at) {NUMBERS.format(' LIMIT 200000')}",
        )


def test_the_library_is_not_loaded_without_a_server(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from fieldbrook.storage.sql.access import database_access;"
        "from fieldbrook.core.settings import load;"
        f"database_access(load(), Path({str(tmp_path)!r}), 1).open({{}});"
        "print('psycopg' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "False\n"
