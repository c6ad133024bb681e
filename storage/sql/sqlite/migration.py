"""Migration of a SQLite file to a configuration; it only adds tables, columns and indexes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from fieldbrook.storage.sql.room import require_room
from fieldbrook.storage.sql.schema import (
    BOOLEAN,
    DECIMAL,
    INTEGER,
    PRIVATE_PREFIX,
    REAL,
    TIMESTAMP,
    Column,
    Index,
    Schema,
    Step,
    Table,
    quoted,
    refuse_if,
    time_column,
)

DECIMAL_COLLATION = "fieldbrook_decimal"

# SQLite accepts any value in any column. PostgreSQL, for which the applets were written, does not.
# So these checks refuse a wrong value when it is written; otherwise it would only be noticed when
# it is read.
_CHECKS = {
    INTEGER: ("is an integer", "typeof({0}) = 'integer'"),
    REAL: ("is a number", "typeof({0}) = 'real'"),
    BOOLEAN: ("is a boolean", "{0} IN (0, 1)"),
    TIMESTAMP: ("is a time", "typeof({0}) IN ('integer', 'text')"),
    DECIMAL: ("is a decimal", "{0} GLOB '*[0-9]*' AND {0} NOT GLOB '*[^0-9.eE+-]*'"),
}


class FoundColumn(NamedTuple):
    """A column in the database: a row of `PRAGMA table_info` without its number."""

    name: str
    kind: str
    not_null: int
    default: str | None
    primary: int


def plan(
    schema: Schema, found: Mapping[str, Iterable[FoundColumn]], indexes: Iterable[str]
) -> list[Step]:
    """Plan the migration of a database with `found` tables and `indexes` to `schema`.

    Raises:
        DatabaseConfigError: an existing table would have to be changed by more than additions, or
            the database would become too large (`storage.sql.room`).
    """
    there = {name.lower(): list(columns) for name, columns in found.items()}
    have = {name.lower() for name in indexes}
    steps: list[Step] = []
    for table in schema.tables:
        columns = there.get(table.name.lower())
        steps += [_create(table)] if columns is None else _extend(table, columns)
        steps += [_create_index(table, i) for i in table.indexes if i.name.lower() not in have]
    if steps:
        defaults = {
            name: {column.name.lower(): column.default or "" for column in columns}
            for name, columns in there.items()
            if not name.startswith(PRIVATE_PREFIX)
        }
        wanted = {index.name.lower() for table in schema.tables for index in table.indexes}
        require_room(schema, defaults, have | wanted)
    return steps


def add_time(table: str, name: str) -> str:
    """Return the statement that adds one of the columns `TIMES` to a table."""
    definition = _definition(Table(table, (), (), ()), time_column(name))
    return f"ALTER TABLE {quoted(table)} ADD COLUMN {definition}"


def _create(table: Table) -> Step:
    parts = [_definition(table, column) for column in table.columns]
    if table.primary and not any(column.autoincrement for column in table.columns):
        parts.append(f"PRIMARY KEY ({', '.join(map(quoted, table.primary))})")
    return Step(table.label, f"CREATE TABLE {quoted(table.name)} ({', '.join(parts)})")


def _create_index(table: Table, index: Index) -> Step:
    unique = "UNIQUE " if index.unique else ""
    columns = ", ".join(map(quoted, index.columns))
    return Step(
        f"{table.label}, index {index.name}",
        f"CREATE {unique}INDEX {quoted(index.name)} ON {quoted(table.name)} ({columns})",
    )


def _definition(table: Table, column: Column) -> str:
    name = quoted(column.name)
    if column.autoincrement:
        return f"{name} INTEGER PRIMARY KEY AUTOINCREMENT"
    parts = [name, column.kind]
    if column.kind == DECIMAL:
        parts.append(f"COLLATE {DECIMAL_COLLATION}")
    if not column.null:
        parts.append("NOT NULL")
    if column.default:
        parts.append(f"DEFAULT {column.default}")
    check = _CHECKS.get(column.kind)
    # An integer that is the whole primary key is the row id, which SQLite checks itself.
    if check and not (table.primary == (column.name,) and column.kind == INTEGER):
        said, rule = check
        title = quoted(f"{column.name} {said}")
        parts.append(f"CONSTRAINT {title} CHECK ({name} IS NULL OR {rule.format(name)})")
    return " ".join(parts)


def _extend(table: Table, columns: list[FoundColumn]) -> Iterator[Step]:
    by_name = {column.name.lower(): column for column in columns}
    ranked = sorted((column for column in columns if column.primary), key=lambda c: c.primary)
    there = tuple(column.name for column in ranked)
    refuse_if(
        there != table.primary,
        f"{table.label}: its primary key cannot be changed to ({', '.join(table.primary)})",
    )
    for column in table.columns:
        where = f"{table.label}, column {column.name}"
        found = by_name.get(column.name.lower())
        if found is not None:
            _check_same(column, found, where)
            continue
        refuse_if(
            not column.null and not column.default,
            f"{where}: a column that is added needs a default or null",
        )
        statement = f"ALTER TABLE {quoted(table.name)} ADD COLUMN {_definition(table, column)}"
        yield Step(where, statement)


def _check_same(column: Column, found: FoundColumn, where: str) -> None:
    kind = found.kind.upper()
    refuse_if(kind != column.kind, f"{where}: its type {kind} cannot be changed to {column.kind}")
    if column.autoincrement:
        return
    refuse_if(
        bool(found.not_null) == column.null,
        f"{where}: the existing column {'forbids' if found.not_null else 'allows'} null",
    )
    old, new = found.default or "none", column.default or "none"
    refuse_if(old != new, f"{where}: its default {old} cannot be changed to {new}")


def existing_columns(connection: sqlite3.Connection) -> dict[str, list[FoundColumn]]:
    """Return the columns of each table, by its name in lower case."""
    return {
        name.lower(): [
            FoundColumn(*row[1:])
            for row in connection.execute(f"PRAGMA table_info({quoted(name)})")
        ]
        for name in existing_names(connection, "table")
    }


def existing_names(connection: sqlite3.Connection, kind: str) -> list[str]:
    """Return the names of all tables or indexes that SQLite does not use itself."""
    rows: Iterable[tuple[str]] = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = ? AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
        (kind,),
    )
    return [name for (name,) in rows]
