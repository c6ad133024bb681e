"""The two kinds of SQL databases of applets, for the same tests."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from fieldbrook.storage.sql.database import SqlLimits
from fieldbrook.storage.sql.postgres import namespace as postgres
from fieldbrook.storage.sql.postgres.database import PostgresDatabase
from fieldbrook.storage.sql.sqlite import files as sql
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase

BACKENDS = ("sqlite", "postgres")
PROJECT = 7
# Each call of a statement that takes longer than any test waits.
ENDLESS = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x)"

Database = SqliteDatabase | PostgresDatabase


def column(name: str, datatype: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "constrains": {"datatype": datatype, **more}}


READINGS: dict[str, Any] = {
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


def config(*tables: dict[str, Any], schema: str = "public") -> dict[str, Any]:
    return {"schemas": [{"schema": schema, "tables": list(tables)}]}


def request(statement: str, *params: dict[str, Any]) -> bytes:
    return json.dumps({"statement": statement, "params": list(params)}).encode()


class Backend(NamedTuple):
    """The place of databases of one kind; `dsn` is empty for files."""

    dsn: str = ""

    def database(
        self, folder: Path, given: dict[str, Any] | None = None, **limits: int
    ) -> Database:
        """Return the database of the project in a folder; its statements have a limit of ten
        seconds."""
        made = SqlLimits(**{"statement_ms": 10_000, **limits})
        wanted = config(READINGS) if given is None else given
        if self.dsn:
            return PostgresDatabase(self.dsn, folder, PROJECT, wanted, made)
        return SqliteDatabase(folder / sql.FILE, wanted, made)

    def committed(self, folder: Path) -> int:
        """Return the number of the last batch."""
        if self.dsn:
            return postgres.committed_number(self.dsn, folder)
        return sql.committed_number(folder / sql.FILE)

    def stored(self, folder: Path, statement: str) -> list[tuple[Any, ...]]:
        """Return committed rows, as another program sees them."""
        if self.dsn:
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                connection.execute(f'SET search_path = "{postgres.namespace_of(folder)}"')
                return connection.execute(statement).fetchall()
        plain = sqlite3.connect(folder / sql.FILE)
        try:
            return plain.execute(statement).fetchall()
        finally:
            plain.close()


def ask(database: Database, statement: str, *params: dict[str, Any]) -> Any:
    """Return what the applet gets, as JSON; None for nothing."""
    answer = database.query(request(statement, *params))
    return json.loads(answer) if answer else None


def do(database: Database, statement: str, *params: dict[str, Any]) -> None:
    database.execute(request(statement, *params))


def insert(database: Database, device: str) -> None:
    do(database, "INSERT INTO t_reading (f_device) VALUES (?)", {"string": device})


def devices(database: Database) -> list[str]:
    rows = ask(database, "SELECT f_device FROM t_reading ORDER BY f_id")
    if rows is None:
        return []
    return [row["f_device"] for row in (rows if isinstance(rows, list) else [rows])]
