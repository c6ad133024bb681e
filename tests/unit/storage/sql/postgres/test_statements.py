"""Statements of applets in the form for PostgreSQL."""

from __future__ import annotations

import time

import pytest

from fieldbrook.core.errors import StatementError
from fieldbrook.storage.sql.postgres.statements import Forbidden, translate


def translated(statement: str) -> str:
    return translate(statement, frozenset({"public"}), Forbidden()).text


@pytest.mark.parametrize("statement", ["SELECT $$a", "SELECT $t$ $$ $u$", "SELECT $t$a$T$"])
def test_a_text_in_dollars_that_does_not_end_is_refused(statement: str) -> None:
    with pytest.raises(StatementError, match="a text that does not end"):
        translated(statement)


def test_a_text_in_dollars_stays_as_it_is() -> None:
    for statement in ("SELECT $$ ? $1 $$", "SELECT $t$ $$ $u$ ? $t$", "SELECT a$b$c"):
        assert translated(statement) == statement


def test_many_beginnings_of_texts_cost_no_more_than_their_length() -> None:
    before = time.process_time()
    with pytest.raises(StatementError):
        translated("SELECT " + " ".join(f"$t{number}$" for number in range(100_000)))
    assert time.process_time() - before < 5
