"""The columns of a table, in both kinds of databases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.sql.databases import Backend, ask, column, config, do

T_A: dict[str, Any] = {"name": "t_a", "cols": [column("a", "INT"), column("b", "TEXT")]}
BOTH = {"f_created_at": 0, "f_updated_at": 0}


def rows(
    backend: Backend, folder: Path, given: dict[str, Any], *statements: str, batch: int = 1
) -> Any:
    """Return the rows of the table after a batch of statements."""
    database = backend.database(folder, given)
    try:
        database.begin_event()
        for statement in statements:
            do(database, statement)
        found = ask(database, "SELECT * FROM t_a ORDER BY a")
        database.keep_event()
        if statements:
            database.commit(batch)
        return found
    finally:
        database.close()


def test_a_table_has_the_columns_it_is_given_in_their_order(
    backend: Backend, tmp_path: Path
) -> None:
    given = config(T_A)
    assert rows(backend, tmp_path, given, "INSERT INTO t_a VALUES (1, 'x')") == {"a": 1, "b": "x"}
    assert rows(backend, tmp_path, given) == {"a": 1, "b": "x"}


@pytest.mark.parametrize(
    "given",
    [{"tables": [T_A]}, config({**T_A, "withTimes": True})],
    ids=["early", "asked for"],
)
def test_the_times_of_a_row_are_added_in_the_early_form_and_where_asked_for(
    backend: Backend, tmp_path: Path, given: dict[str, Any]
) -> None:
    found = rows(backend, tmp_path, given, "INSERT INTO t_a (a, b) VALUES (1, 'x')")
    assert found == {"a": 1, "b": "x", **BOTH}


def test_a_key_of_a_time_adds_that_time_alone(backend: Backend, tmp_path: Path) -> None:
    keyed = config({**T_A, "keys": [{"columnNames": ["b", "f_created_at"]}]})
    found = rows(backend, tmp_path, keyed, "INSERT INTO t_a (a, b) VALUES (1, 'x')")
    assert found == {"a": 1, "b": "x", "f_created_at": 0}


def test_a_table_of_an_earlier_version_keeps_its_times_and_takes_rows(
    backend: Backend, tmp_path: Path
) -> None:
    earlier, now = {"tables": [T_A]}, config(T_A)
    rows(backend, tmp_path, earlier, "INSERT INTO t_a (a, b, f_created_at) VALUES (1, 'x', 7)")
    first = {"a": 1, "b": "x", "f_created_at": 7, "f_updated_at": 0}
    assert rows(backend, tmp_path, now) == first
    statements = (
        "INSERT INTO t_a (a, b) VALUES (2, 'y')",
        "UPDATE t_a SET f_updated_at = 8 WHERE a = 2",
    )
    second = {"a": 2, "b": "y", "f_created_at": 0, "f_updated_at": 8}
    assert rows(backend, tmp_path, now, *statements, batch=2) == [first, second]
    wider = config({**T_A, "cols": [*T_A["cols"], column("c", "INT", default=5)]})
    assert rows(backend, tmp_path, wider) == [{**first, "c": 5}, {**second, "c": 5}]
