"""A project's tables in PostgreSQL: the same configuration and the same rules as for SQLite.

A migration only adds tables, columns and indexes. The definition of each column is stored as its
comment. A changed configuration is detected by comparing definitions, because PostgreSQL would
return a default in another form. This module only computes statements.

Source: interface document, 5.6: integers, `real` and `timestamp` have the types given there
(a TIMESTAMP is a `bigint`), lengths are not enforced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from fieldbrook.core.errors import DatabaseConfigError
from fieldbrook.storage.sql.room import require_room
from fieldbrook.storage.sql.schema import (
    BOOLEAN,
    DECIMAL,
    INTEGER,
    REAL,
    TEXT,
    TIMESTAMP,
    Column,
    Index,
    Schema,
    Step,
    Table,
    quoted,
)

NAME_BYTES = 63
STATE = "fieldbrook_state"

_TYPES = {
    INTEGER: "bigint",
    REAL: "double precision",
    TEXT: "text",
    BOOLEAN: "boolean",
    TIMESTAMP: "bigint",
    DECIMAL: "numeric",
}


class FoundColumn(NamedTuple):
    """A column on the server.

    `kind` is its type in the server's spelling. `comment` is the definition that it was created
    with. `primary` is its place in the primary key, 0 for none.
    """

    name: str
    kind: str
    comment: str
    primary: int


def plan(
    schema: Schema, namespace: str, found: Mapping[str, Iterable[FoundColumn]], have: Iterable[str]
) -> list[Step]:
    """Plan the migration of a namespace with `found` tables and `have` indexes to `schema`.

    Raises:
        DatabaseConfigError: an existing table would have to be changed by more than additions,
            a name is too long for PostgreSQL, or the database would become too large
            (`storage.sql.room`).
    """
    indexes = set(have)
    there = {name: list(columns) for name, columns in found.items()}
    steps: list[Step] = []
    for table in schema.tables:
        name = table.name.lower()
        if len(name) > NAME_BYTES:
            reason = f"{table.label}: with its schema the name has more than {NAME_BYTES} bytes"
            raise DatabaseConfigError(reason=reason)
        target = f"{quoted(namespace)}.{quoted(name)}"
        columns = there.get(name)
        if columns is None:
            steps.append(_create(table, target))
            new = table.columns
        else:
            new = tuple(_missing(table, columns))
            steps += [_add(table, target, column) for column in new]
        steps += [_comment(table, target, column) for column in new]
        for index in table.indexes:
            label = _index_name(index, table)
            if label not in indexes:
                steps.append(_create_index(table, target, index, label))
    if steps:
        defaults = {
            name: {column.name: column.comment.partition(" DEFAULT ")[2] for column in columns}
            for name, columns in there.items()
            if name != STATE
        }
        primary = {f"{name}_pkey" for name in there}
        wanted = {_index_name(index, table) for table in schema.tables for index in table.indexes}
        require_room(schema, defaults, (indexes - primary) | wanted)
    return steps


def _create(table: Table, target: str) -> Step:
    parts = [f"{_name(column.name)} {_definition(column)}" for column in table.columns]
    if table.primary:
        parts.append(f"PRIMARY KEY ({', '.join(map(_name, table.primary))})")
    return Step(table.label, f"CREATE TABLE {target} ({', '.join(parts)})")


def _add(table: Table, target: str, column: Column) -> Step:
    where = f"{table.label}, column {column.name}"
    if not column.null and not column.default and not column.autoincrement:
        reason = f"{where}: a column that is added needs a default or null"
        raise DatabaseConfigError(reason=reason)
    definition = f"{_name(column.name)} {_definition(column)}"
    return Step(where, f"ALTER TABLE {target} ADD COLUMN {definition}")


def _comment(table: Table, target: str, column: Column) -> Step:
    text = _definition(column).replace("'", "''")
    return Step(
        f"{table.label}, column {column.name}",
        f"COMMENT ON COLUMN {target}.{_name(column.name)} IS '{text}'",
    )


def _create_index(table: Table, target: str, index: Index, label: str) -> Step:
    unique = "UNIQUE " if index.unique else ""
    columns = ", ".join(map(_name, index.columns))
    return Step(
        f"{table.label}, index {index.name}",
        f"CREATE {unique}INDEX {quoted(label)} ON {target} ({columns})",
    )


def _name(name: str) -> str:
    """Quote a column's name in lower case, to which PostgreSQL folds unquoted names."""
    return quoted(name.lower())


def _index_name(index: Index, table: Table) -> str:
    """Return the name of an index; a name beyond 63 bytes ends in a hash.

    PostgreSQL would truncate it, and two truncated names may be the same. It gives the index of the
    primary key the name `TABLE_pkey` itself.
    """
    name = index.name.lower()
    if name == f"{table.name.lower()}_pkey":
        name += "1"
    if len(name) <= NAME_BYTES:
        return name
    return f"{name[: NAME_BYTES - 17]}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _definition(column: Column) -> str:
    if column.autoincrement:
        return "bigint GENERATED BY DEFAULT AS IDENTITY"
    parts = [_TYPES[column.kind]]
    if not column.null:
        parts.append("NOT NULL")
    if column.default:
        parts.append(f"DEFAULT {_default(column)}")
    if column.kind == DECIMAL:
        # A `numeric` column accepts NaN and infinities, which the check in SQLite refuses too.
        values = ", ".join(f"'{name}'::numeric" for name in ("NaN", "Infinity", "-Infinity"))
        title = quoted(f"{column.name.lower()} is a decimal"[:NAME_BYTES])
        parts.append(f"CONSTRAINT {title} CHECK ({_name(column.name)} NOT IN ({values}))")
    return " ".join(parts)


def _default(column: Column) -> str:
    if column.kind == BOOLEAN:
        return "true" if column.default == "1" else "false"
    return column.default


def _missing(table: Table, found: list[FoundColumn]) -> Iterator[Column]:
    ranked = sorted((column for column in found if column.primary), key=lambda c: c.primary)
    if tuple(column.name for column in ranked) != tuple(n.lower() for n in table.primary):
        reason = f"{table.label}: its primary key cannot be changed to ({', '.join(table.primary)})"
        raise DatabaseConfigError(reason=reason)
    there = {column.name: column for column in found}
    for column in table.columns:
        known = there.get(column.name.lower())
        wanted = _definition(column)
        if known is None:
            yield column
        elif (known.comment or known.kind) != wanted:
            was = known.comment or known.kind
            reason = f"{table.label}, column {column.name}: {was} cannot be changed to {wanted}"
            raise DatabaseConfigError(reason=reason)
