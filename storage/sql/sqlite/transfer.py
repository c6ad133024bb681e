"""Export and import of the rows of a project's SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.sql.schema import RESERVED, TIMES, quoted
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase
from fieldbrook.storage.sql.sqlite.files import connection_to, snapshot
from fieldbrook.storage.sql.sqlite.functions import compare_decimals
from fieldbrook.storage.sql.sqlite.migration import DECIMAL_COLLATION, add_time


def export_rows(path: Path) -> Iterator[tuple[str, list[str], list[Any]]]:
    """Yield every row of the applets' tables: the table, its columns and the values."""
    with snapshot(path) as opened:
        for table in _tables_in(opened.connection):
            cursor = opened.connection.execute(f"SELECT * FROM {quoted(table)}")  # noqa: S608
            columns = [str(column[0]) for column in cursor.description]
            for row in cursor:
                yield table, columns, list(row)


def import_rows(
    path: Path, config: Mapping[str, Any], exported: Iterable[tuple[str, list[str], list[Any]]]
) -> None:
    """Create a database for a configuration and insert rows in the form of `export_rows`.

    Tables of an earlier version have the columns `TIMES` even if the configuration does not
    name them. These columns are added when a row has them.

    Raises:
        DatabaseConfigError: the configuration is invalid.
        StoreError: a row does not fit, or the file cannot be written.
    """
    database = SqliteDatabase(path, config)
    database.open()
    database.close()
    try:
        with connection_to(path) as connection:
            connection.create_collation(DECIMAL_COLLATION, compare_decimals)
            known = {table: _columns_in(connection, table) for table in _tables_in(connection)}
            connection.execute("BEGIN")
            for table, columns, values in exported:
                if table not in known or len(columns) != len(values):
                    raise StoreError(reason=f"a row belongs to {table!r}, which is not configured")
                for name in TIMES:
                    if name in columns and name not in known[table]:
                        connection.execute(add_time(table, name))
                        known[table].add(name)
                names, marks = ", ".join(map(quoted, columns)), ", ".join("?" * len(columns))
                statement = f"INSERT INTO {quoted(table)} ({names}) VALUES ({marks})"  # noqa: S608
                connection.execute(statement, values)
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise StoreError(reason=f"{path.name}: {error}") from error


def _tables_in(connection: sqlite3.Connection) -> list[str]:
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    names = [str(row[0]) for row in connection.execute(tables)]
    return [name for name in names if not name.startswith(RESERVED)]


def _columns_in(connection: sqlite3.Connection, table: str) -> set[str]:
    found = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
    return {str(name).lower() for (name,) in found}
