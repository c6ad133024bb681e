"""Limits on the total size of all tables of a database, including those of earlier configurations.

A migration drops nothing, so the tables of all configurations of a database add up. Opening the
database reads the definitions of all tables and keeps them in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fieldbrook.storage.sql.schema import INDEXES_LIMIT, Schema, refuse_if

TABLES_LIMIT, COLUMNS_LIMIT = 1_000, 5_000
DEFAULTS_BYTES = 1 << 20

_TOGETHER = "with the tables of earlier configurations"


def require_room(
    schema: Schema, found: Mapping[str, Mapping[str, str]], indexes: Collection[str]
) -> None:
    """Check the limits for a database with the tables of `schema` and the existing ones.

    Args:
        schema: the tables of the configuration.
        found: the columns of each existing table with their defaults, by names in lower case.
        indexes: the names of all indexes, both of existing tables and of `schema`.

    Raises:
        DatabaseConfigError: there would be too many tables, or they would be too large.
    """
    together = {table: dict(columns) for table, columns in found.items()}
    for table in schema.tables:
        columns = together.setdefault(table.name.lower(), {})
        for column in table.columns:
            columns.setdefault(column.name.lower(), column.default)
    sizes = [len(columns) for columns in together.values()]
    defaults = sum(len(each.encode()) for of in together.values() for each in of.values())
    refuse_if(len(sizes) > TABLES_LIMIT, f"more than {TABLES_LIMIT:,} tables, {_TOGETHER}")
    refuse_if(sum(sizes) > COLUMNS_LIMIT, f"more than {COLUMNS_LIMIT:,} columns, {_TOGETHER}")
    refuse_if(
        len(indexes) > INDEXES_LIMIT,
        f"more than {INDEXES_LIMIT:,} keys that are not primary, {_TOGETHER}",
    )
    refuse_if(
        defaults > DEFAULTS_BYTES,
        f"the defaults of all columns have more than {DEFAULTS_BYTES:,} bytes, {_TOGETHER}",
    )
