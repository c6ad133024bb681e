"""The tables of all configurations that a database has had count for one limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.core.errors import DatabaseConfigError
from fieldbrook.storage.sql.postgres import migration as postgres
from fieldbrook.storage.sql.room import COLUMNS_LIMIT, DEFAULTS_BYTES, TABLES_LIMIT
from fieldbrook.storage.sql.schema import INDEXES_LIMIT, Schema, Step, parse_schema
from fieldbrook.storage.sql.sqlite import migration as sqlite
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase
from fieldbrook.storage.sql.sqlite.files import FILE
from tests.contract.sql.databases import column, config

Found = Mapping[str, Mapping[str, str]]
"""The columns of each table, with their defaults."""
Plan = Callable[[Schema, Found, Iterable[str]], list[Step]]


def plan_for_sqlite(schema: Schema, found: Found, indexes: Iterable[str]) -> list[Step]:
    tables = {
        table: [sqlite.FoundColumn(name, "TEXT", 0, default, 0) for name, default in of.items()]
        for table, of in found.items()
    }
    return sqlite.plan(schema, tables, indexes)


def plan_for_postgres(schema: Schema, found: Found, indexes: Iterable[str]) -> list[Step]:
    tables = {
        table: [
            postgres.FoundColumn(name, "text", f"text DEFAULT {default}" if default else "text", 0)
            for name, default in of.items()
        ]
        for table, of in found.items()
    }
    return postgres.plan(schema, "p1", tables, indexes)


PLANS: tuple[Plan, ...] = (plan_for_sqlite, plan_for_postgres)
ONE = {"name": "t", "cols": [column("a", "TEXT", null=True)], "keys": [{"columnNames": ["a"]}]}


def many(tables: int, columns: int, default: str = "") -> dict[str, dict[str, str]]:
    return {f"x{n}": {f"c{m}": default for m in range(columns)} for n in range(tables)}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(
    ("fits", "exceeds", "reason"),
    [
        (many(TABLES_LIMIT - 1, 1), many(TABLES_LIMIT, 1), "more than 1,000 tables"),
        (
            many(1, COLUMNS_LIMIT - 1),
            many(1, COLUMNS_LIMIT),
            "more than 5,000 columns, with the tables of earlier configurations",
        ),
        (
            many(2, 1, "'" + "x" * (DEFAULTS_BYTES // 2 - 2) + "'"),
            many(2, 1, "'" + "x" * (DEFAULTS_BYTES // 2 - 1) + "'"),
            "the defaults of all columns have more than 1,048,576 bytes",
        ),
    ],
)
def test_a_configuration_adds_nothing_that_makes_a_database_too_large(
    plan: Plan, fits: Found, exceeds: Found, reason: str
) -> None:
    schema = parse_schema(config(ONE))
    assert plan(schema, fits, ())
    with pytest.raises(DatabaseConfigError, match=reason):
        plan(schema, exceeds, ())


@pytest.mark.parametrize("plan", PLANS)
def test_keys_of_earlier_configurations_count(plan: Plan) -> None:
    schema = parse_schema(config(ONE))
    names = [f"key{n}" for n in range(INDEXES_LIMIT)]
    assert plan(schema, {}, names[1:])
    with pytest.raises(DatabaseConfigError, match="more than 2,000 keys that are not primary"):
        plan(schema, {}, names)


@pytest.mark.parametrize("plan", PLANS)
def test_a_database_that_is_too_large_already_is_used_as_it_is(plan: Plan) -> None:
    schema = parse_schema(config({"name": "x0", "cols": [column("c0", "TEXT", null=True)]}))
    assert plan(schema, many(1, COLUMNS_LIMIT + 100), ()) == []


def test_configurations_one_after_another_fill_a_database_to_its_limit(tmp_path: Path) -> None:
    def opened(number: int) -> None:
        given: list[dict[str, Any]] = [
            {"name": f"t{number}_{n}", "cols": [column(f"c{m}", "TEXT") for m in range(200)]}
            for n in range(10)
        ]
        database = SqliteDatabase(tmp_path / FILE, config(*given))
        try:
            database.open()
        finally:
            database.close()

    opened(0)
    opened(1)
    with pytest.raises(DatabaseConfigError, match="more than 5,000 columns"):
        opened(2)
    opened(1)
