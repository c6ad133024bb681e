"""Reads a project's SQL database for users: its tables, pages of rows, and SELECT statements.

The project writes in its worker; readers run in other processes, on connections of their own that
can change nothing. Their statements pass the same filter as those of applets, and have the
same limits.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from fieldbrook.core.errors import StatementError
from fieldbrook.storage.sql.database import SqlLimits
from fieldbrook.storage.sql.requests import Value, parse_time
from fieldbrook.storage.sql.results import TimeText, check_row, shown_time
from fieldbrook.storage.sql.schema import (
    BOOLEAN,
    DECIMAL,
    RESERVED,
    TIMESTAMP,
    Table,
    parse_schema,
    quoted,
)

COUNT_LIMIT = 10_000
"""Rows of a table are counted up to this number."""
_EXACT = 1 << 53  # from this integer on, JavaScript's numbers are not exact
_ROW_BYTES = 16  # estimate for a row without its cells
_NUMBER_CHARACTERS = 500

Cell = None | bool | int | float | str
"""A value in a result. Integers from 2^53 on, and numbers that JSON lacks, become texts; times are
RFC 3339, bytes `\\x` and hexadecimal digits."""

FoundTables = Mapping[str, Sequence[tuple[str, str]]]
"""The tables in a database: by the name of a table in lower case, the name and the type of each
column."""


class Result(msgspec.Struct, frozen=True):
    """The columns and the rows of a statement, in the order of the database."""

    columns: list[str]
    rows: list[list[Cell]]


class TableColumn(msgspec.Struct, frozen=True):
    """A column of a table; `kind` is the declared type."""

    name: str
    kind: str
    null: bool
    primary: bool


class TableReport(msgspec.Struct, frozen=True):
    """A table and the number of its rows.

    `more` is set if there are more rows than `COUNT_LIMIT`. `rows` is None when they could not be
    counted in time.
    """

    name: str
    columns: list[TableColumn]
    rows: int | None
    more: bool


class Page(msgspec.Struct, frozen=True):
    """A page of a table: the rows that match every pair in `equal` (column and text), sorted by
    `order`."""

    equal: Sequence[tuple[str, str]] = ()
    order: str = ""
    descending: bool = False
    offset: int = 0
    limit: int = 100


class NoSuchNameError(Exception):
    """The project has no table or no column of this name."""


class Session(ABC):
    """A connection for reading; `tables` has the tables in the database."""

    tables: FoundTables

    @abstractmethod
    def run(self, statement: str, values: Sequence[Value], ends_at: float) -> Result:
        """Run one statement that reads.

        Raises:
            StatementError: the statement failed, or does more than read.
            StoreError: a failure of the node: disk, file, lock or server.
        """


class DatabaseReader(ABC):
    """Reads one project's database. Every call blocks, and opens a new connection."""

    def __init__(self, config: Mapping[str, Any], limits: SqlLimits) -> None:
        """Read the configuration.

        Raises:
            DatabaseConfigError: the configuration is invalid.
        """
        self._schema = parse_schema(config)
        self._limits = limits

    def tables(self) -> list[TableReport]:
        """Return all tables with their columns, and count their rows up to `COUNT_LIMIT`.

        Tables that the project has not created yet have no rows.

        Raises:
            StoreError: the database cannot be read.
        """
        ends_at = self._deadline()
        with self._session() as session:
            found = session.tables if session else {}
            reports = []
            for name in self._names(found):
                columns = self._columns(name, found)
                rows: int | None = 0
                if session is not None and name.lower() in found:
                    rows = _count(session, name, ends_at)
                more = rows is not None and rows > COUNT_LIMIT
                reports.append(TableReport(name, columns, COUNT_LIMIT if more else rows, more))
        return reports

    def rows(self, table: str, page: Page) -> Result:
        """Return rows of a table: at most `page.limit` and one more, which shows that there are
        further rows.

        Raises:
            NoSuchNameError: there is no such table or column.
            StatementError: the rows exceed a limit of size or time.
            StoreError: the database cannot be read.
        """
        with self._session() as session:
            found = session.tables if session else {}
            names = {name.lower(): name for name in self._names(found)}
            name = names.get(table.lower())
            if name is None:
                raise NoSuchNameError(f"table {table}")
            columns = {column.name.lower(): column for column in self._columns(name, found)}
            statement, values = _select(name, columns, page)
            if session is None or name.lower() not in found:
                return Result([column.name for column in columns.values()], [])
            return session.run(statement, values, self._deadline())

    def query(self, statement: str, args: Sequence[Value]) -> Result:
        """Run a SELECT with the rules for applets, with `?` or `$1` for each of `args`.

        Raises:
            StatementError: the statement failed, exceeds a limit, or is not a single statement that
                reads.
            StoreError: the database cannot be read.
        """
        if len(statement) > self._limits.request_bytes:
            raise StatementError(f"the statement has more than {self._limits.request_bytes} bytes")
        with self._session() as session:
            if session is None:
                raise StatementError("no tables yet: an applet's first statement creates them")
            return session.run(statement, args, self._deadline())

    @abstractmethod
    def _session(self) -> AbstractContextManager[Session | None]:
        """Connect; return None if the project has not created the database yet."""

    def _deadline(self) -> float:
        return time.monotonic() + self._limits.statement_ms / 1_000

    def _names(self, found: FoundTables) -> list[str]:
        """Return the names of all tables of present and earlier configurations; a migration drops
        none."""
        configured = [table.name for table in self._schema.tables]
        known = {name.lower() for name in configured}
        others = [name for name in found if name not in known and not name.startswith(RESERVED)]
        return [*configured, *sorted(others)]

    def _columns(self, name: str, found: FoundTables) -> list[TableColumn]:
        """Return the columns of a table; those of the configuration if the table does not exist
        yet."""
        tables = {table.name.lower(): table for table in self._schema.tables}
        table = tables.get(name.lower(), Table(name, (), (), ()))
        known = {column.name.lower(): column for column in table.columns}
        primary = {column.lower() for column in table.primary}
        there = found.get(name.lower(), [(c.name, c.kind) for c in table.columns])
        columns = []
        for column, kind in there:
            wanted = known.get(column.lower())
            label = wanted.kind if wanted else kind
            columns.append(
                TableColumn(
                    wanted.name if wanted else column,
                    "DECIMAL" if label == DECIMAL else label,
                    wanted.null if wanted else True,
                    column.lower() in primary,
                )
            )
        return columns


class ResultRows:
    """Collects the rows of a result, within the limits of applets' results."""

    def __init__(self, limits: SqlLimits) -> None:
        self._limits = limits
        self._left = limits.result_bytes
        self.rows: list[list[Cell]] = []

    def add(self, values: Iterable[object]) -> None:
        """Add a row.

        Raises:
            StatementError: the result exceeds a limit.
        """
        values = list(values)
        check_row(values, self._left)
        cells = [to_cell(value) for value in values]
        self._left -= _ROW_BYTES + sum(len(c) if isinstance(c, str) else 8 for c in cells)
        if self._left < 0:
            raise StatementError(f"the result has more than {self._limits.result_bytes} bytes")
        if len(self.rows) >= self._limits.rows:
            raise StatementError(f"the result has more than {self._limits.rows} rows")
        self.rows.append(cells)


def to_cell(value: object) -> Cell:
    """Return a database's value as a `Cell`."""
    match value:
        case None | bool():
            return value
        case int():
            return value if -_EXACT < value < _EXACT else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case TimeText():
            return shown_time(value)
        case bytes():
            return "\\x" + value.hex()
        case _:
            return str(value).encode("utf-8", "replace").decode()


def _count(session: Session, name: str, ends_at: float) -> int | None:
    inner = f"SELECT 1 FROM {quoted(name)} LIMIT {COUNT_LIMIT + 1}"  # noqa: S608 - quoted
    try:
        result = session.run(f"SELECT count(*) FROM ({inner}) AS counted", (), ends_at)  # noqa: S608
    except StatementError:
        return None
    (count,) = result.rows[0]
    return int(count or 0)


def _select(
    name: str, columns: Mapping[str, TableColumn], page: Page
) -> tuple[str, Sequence[Value]]:
    """Return the statement for a page and its parameters; names are checked and quoted.

    Raises:
        NoSuchNameError: there is no such column.
        StatementError: a value does not fit its column.
    """
    conditions, values = [], []
    for column, text in page.equal:
        found = _find(columns, column)
        conditions.append(f"{quoted(found.name)} = ?")
        values.append(_operand(found, text))
    order = [_find(columns, page.order).name] if page.order else []
    order += [c.name for c in columns.values() if c.primary and c.name not in order]
    statement = f"SELECT {', '.join(quoted(c.name) for c in columns.values())} FROM {quoted(name)}"  # noqa: S608
    if conditions:
        statement += f" WHERE {' AND '.join(conditions)}"
    if order:
        way = " DESC" if page.descending else ""
        statement += f" ORDER BY {', '.join(quoted(column) + way for column in order)}"
    return f"{statement} LIMIT {page.limit + 1} OFFSET {page.offset}", values


def _find(columns: Mapping[str, TableColumn], name: str) -> TableColumn:
    column = columns.get(name.lower())
    if column is None:
        raise NoSuchNameError(f"column {name}")
    return column


def _operand(column: TableColumn, text: str) -> Value:
    """Return the value with which a column is compared. Numbers stay texts, because the database
    converts them.

    Raises:
        StatementError: the text is no value of the column.
    """
    if column.kind == BOOLEAN:
        known = {"true": 1, "false": 0, "1": 1, "0": 0}.get(text.lower())
        if known is None:
            raise StatementError(f"column {column.name}: {text[:40]!r} is not true or false")
        return known
    if column.kind == TIMESTAMP and not text.lstrip("+-").isdecimal():
        return parse_time(text, 1)
    if column.kind in ("INTEGER", "REAL", "DECIMAL") and not _is_number(text):
        raise StatementError(f"column {column.name}: {text[:40]!r} is not a number")
    return text


def _is_number(text: str) -> bool:
    try:
        return len(text) <= _NUMBER_CHARACTERS and Decimal(text).is_finite()
    except InvalidOperation:
        return False
