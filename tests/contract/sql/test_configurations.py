"""A configuration that the node accepts is one with which the project's database can be opened."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fieldbrook.gateway.management.routes.projects.configurations.database import (
    Database,
    check_database,
)
from tests.contract.sql.databases import Backend, ask, column, config, do

NAMES = (
    *("a", "B", "t", "t_i_a", "rowid", "oid", "select", "order", "user", "new", "excluded"),
    *("ctid", "xmin", "tableoid", "sqlite", "json_each", "pg_class", "generate_series", "dbstat"),
    *("f_id", "f_deleted_at", "f_created_at", "public", "main", "x" * 63, "y" * 62 + "z"),
)
DATATYPES = ("INT", "UINT64", "FLOAT32", "FLOAT64", "TEXT", "BOOL", "TIMESTAMP", "DECIMAL")
DEFAULTS = (
    *(
        0,
        -1,
        True,
        1.5,
        (1 << 63) - 1,
        1 << 63,
        -(1 << 63),
        -(1 << 63) - 1,
        "9" * 19,
        "-" + "9" * 19,
    ),
    *("00012", "+5", "1e308", "1e309", "1e-999", "0e-999", "9" * 400, "'; DROP TABLE t; --", "\\"),
    *("é", "", "NULL", "CURRENT_TIMESTAMP", "$1", "?", "true"),
)


def is_accepted(given: dict[str, Any]) -> bool:
    return not check_database(msgspec.json.decode(json.dumps(given), type=Database))


def opened_twice(backend: Backend, folder: Path, given: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    for _ in range(2):
        database = backend.database(folder, given)
        try:
            database.open()
        finally:
            database.close()


def random_table(rng: random.Random, name: str) -> dict[str, Any]:
    cols = []
    for each in rng.sample(NAMES, rng.randint(1, 3)):
        more: dict[str, Any] = {"null": rng.random() < 0.3}
        if rng.random() < 0.6:
            more["default"] = rng.choice(DEFAULTS)
        if rng.random() < 0.1:
            more["autoincrement"] = True
        cols.append(column(each, rng.choice(DATATYPES), **more))
    known = [each["name"] for each in cols]
    keys = [
        {
            "name": rng.choice(("primary", "t_pkey", "x")),
            "isUnique": rng.random() < 0.5,
            "columnNames": rng.choices(known, k=rng.randint(1, 2)),
        }
        for _ in range(rng.randint(0, 2))
    ]
    flags = {
        flag: rng.random() < 0.2 for flag in ("withSoftDeletion", "withPrimaryKey", "withTimes")
    }
    return {"name": name, "cols": cols, "keys": keys, **flags}


def test_every_accepted_configuration_can_be_opened_and_opened_again(
    backend: Backend, tmp_path: Path
) -> None:
    rng = random.Random(20)
    accepted = 0
    for number in range(400):
        names = rng.sample(NAMES, rng.randint(1, 2))
        given = config(*(random_table(rng, name) for name in names))
        if is_accepted(given):
            accepted += 1
            opened_twice(backend, tmp_path / str(number), given)
    assert accepted > 30


@pytest.mark.parametrize("name", ["ctid", "TABLEOID", "xmin", "xmax", "cmin", "cmax"])
def test_a_system_column_of_postgresql_is_refused_for_both(name: str) -> None:
    assert not is_accepted(config({"name": "t", "cols": [column(name, "INT")]}))


@pytest.mark.parametrize(
    ("datatype", "default", "good"),
    [
        ("INT64", (1 << 63) - 1, True),
        ("INT64", 1 << 63, False),
        ("UINT64", "9" * 19, False),
        ("TIMESTAMP", -(1 << 63), True),
        ("TIMESTAMP", -(1 << 63) - 1, False),
        ("FLOAT64", "1e308", True),
        ("FLOAT64", "1e309", False),
        ("FLOAT64", "-1e-999", False),
        ("FLOAT64", "0e-999", True),
        ("DECIMAL", "9" * 400, True),
    ],
)
def test_a_default_is_within_the_range_of_its_datatype(
    datatype: str, default: str | int, good: bool
) -> None:
    assert (
        is_accepted(config({"name": "t", "cols": [column("a", datatype, default=default)]})) is good
    )


def test_a_key_whose_index_has_a_taken_name_is_refused() -> None:
    key = {"name": "k", "isUnique": False, "columnNames": ["a"]}
    cols = [column("a", "INT")]
    assert not is_accepted(config({"name": "sqlite", "cols": cols, "keys": [key]}))
    assert is_accepted(config({"name": "sqlite", "cols": cols}))
    both = {"name": "t", "cols": cols, "keys": [key]}, {"name": "T_i_A", "cols": cols}
    assert not is_accepted(config(*both))


def test_a_table_with_a_counting_column_may_have_another_primary_key(
    backend: Backend, tmp_path: Path
) -> None:
    key = {"name": "primary", "isUnique": True, "columnNames": ["a"]}
    given = config(
        {"name": "t", "cols": [column("a", "INT")], "keys": [key], "withPrimaryKey": True}
    )
    opened_twice(backend, tmp_path / "p", given)
    database = backend.database(tmp_path / "p", given)
    try:
        database.begin_event()
        do(database, "INSERT INTO t (a) VALUES (7)")
        assert ask(database, "SELECT f_id, a FROM t") == {"f_id": 1, "a": 7}
        with pytest.raises(Exception, match=r"(?i)unique"):
            do(database, "INSERT INTO t (a) VALUES (7)")
    finally:
        database.close()
