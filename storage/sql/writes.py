"""The writes of a batch to a project's SQL database, with all that is needed to repeat them."""

from __future__ import annotations

from typing import Any

import msgspec


class SqlWrite(msgspec.Struct, array_like=True, frozen=True):
    """A statement of an applet that changed rows.

    Attributes:
        text: the statement as the database executed it.
        values: its parameters, each a `requests.Value` (msgspec knows no union of str and bytes).
        seed: the seed of its random numbers.
        changed: the number of rows that it changed.
        effort: see `sqlite.preparation.effort`.
    """

    text: str
    values: list[Any]
    seed: int
    changed: int
    effort: int


class SqlWrites(msgspec.Struct, array_like=True, frozen=True):
    """All writes of one batch.

    Attributes:
        number: the number under which the database commits them. Numbers have no gaps.
        now: the time that the statements see as now.
        schema: statements that change the schema, before all others.
        statements: the writes of applets.
    """

    number: int
    now: str
    schema: list[str]
    statements: list[SqlWrite]
