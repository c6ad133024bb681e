"""The SQL tables of a project: lists of tables, pages of rows, and SELECT statements.

All data is read in threads, on the gateway's own connections, which can change nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec

from fieldbrook.core.errors import (
    BadRequestError,
    DatabaseConfigError,
    FieldError,
    NotFoundError,
    StatementError,
)
from fieldbrook.core.model import PROJECT_DATABASE
from fieldbrook.gateway.management.framework.binding import RowLimit
from fieldbrook.gateway.management.framework.ownership import own_project
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.storage.sql.reading import (
    Cell,
    DatabaseReader,
    NoSuchNameError,
    Page,
    TableReport,
)

_OFFSET_LIMIT = 10_000_000
_ARGS_LIMIT = 1_000
_T = TypeVar("_T")


class ReadRows(msgspec.Struct, frozen=True, kw_only=True):
    """Filters: `filter` is `column=value`, repeatable; all must hold. Without `order` rows are in
    the order of the primary key."""

    order: str = ""
    desc: bool = False
    offset: Annotated[int, msgspec.Meta(ge=0, le=_OFFSET_LIMIT)] = 0
    limit: RowLimit = 100
    filter: list[str] = msgspec.field(default_factory=list)


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A SELECT with `?` or `$1` for each of `args`: texts, numbers, booleans or null."""

    statement: str
    args: list[Any] = msgspec.field(default_factory=list)


class ColumnReply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A column of a table, with its declared type."""

    name: str
    type: str
    nullable: bool
    primary_key: bool


class TableReply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A table. Rows are counted up to 10,000; `more` says that there are more.

    `rows` is null if they could not be counted in time.
    """

    name: str
    columns: list[ColumnReply]
    rows: int | None
    more: bool


class TableList(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of a project."""

    data: list[TableReply]


class RowPage(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a table, with their values in the order of `columns`; `more` follow this page.

    Integers from 2^53 on are texts, times RFC 3339, bytes `\\\\x` and hexadecimal digits.
    """

    columns: list[str]
    data: list[list[Cell]]
    more: bool


class QueryReply(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a statement, as in `RowPage`, and its duration in milliseconds."""

    columns: list[str]
    data: list[list[Cell]]
    ms: float


async def list_tables(call: Call[None, None]) -> TableList:
    """The SQL tables of a project with their columns and numbers of rows."""
    reader = await _reader(call)
    if reader is None:
        return TableList(data=[])
    return TableList(data=[_table(report) for report in await _run(call, reader.tables)])


async def list_rows(call: Call[None, ReadRows]) -> RowPage:
    """Rows of a table, sorted and in pages."""
    reader, table, query = await _reader(call), call.path["table"], call.query
    page = Page(
        equal=[_condition(text) for text in query.filter],
        order=query.order,
        descending=query.desc,
        offset=query.offset,
        limit=query.limit,
    )
    if reader is None:
        raise NotFoundError(what=f"table {table}")
    result = await _run(call, lambda: reader.rows(table, page))
    rows = result.rows[: query.limit]
    return RowPage(columns=result.columns, data=rows, more=len(result.rows) > len(rows))


async def run_query(call: Call[Query, None]) -> QueryReply:
    """Run one SELECT on a connection that can change nothing.

    The statement passes the filter of applets' statements and has their limits (the settings
    `sql_statement_ms`, `sql_result_rows`, `sql_result_bytes`).
    """
    reader = await _reader(call)
    args = call.body.args
    if len(args) > _ARGS_LIMIT:
        raise BadRequestError(FieldError("args", f"more than {_ARGS_LIMIT} values", "body"))
    for place, value in enumerate(args):
        if not isinstance(value, (str, int, float, type(None))):
            reason = "expected a text, a number, a boolean or null"
            raise BadRequestError(FieldError(f"args[{place}]", reason, "body"))
    if reader is None:
        raise NotFoundError(what="the project has no SQL tables")
    values = [int(value) if isinstance(value, bool) else value for value in args]
    began = time.monotonic()
    result = await _run(call, lambda: reader.query(call.body.statement, values))
    took_ms = round((time.monotonic() - began) * 1_000, 1)
    return QueryReply(columns=result.columns, data=result.rows, ms=took_ms)


async def _reader(call: Call[Any, Any]) -> DatabaseReader | None:
    """Return the reader of the project's database; None for a project without a database."""
    project_id = own_project(call).project_id
    if call.context.cluster.is_member:
        # Only the host that owns the project, and has opened it, has all rows.
        await call.context.flush_project(project_id)
    config = call.context.reader.config(project_id, PROJECT_DATABASE)
    if config is None:
        return None
    return call.context.database_reader(project_id, msgspec.json.decode(config.value))


async def _run(call: Call[Any, Any], work: Callable[[], _T]) -> _T:
    """Run a reader's method in a thread of the pool for queries.

    Raises:
        NotFoundError: there is no such table or column.
        BadRequestError: the statement failed.
        TooManyRequestsError: too many queries wait, in total or of this account.
    """
    try:
        return await call.workers.queries.run(call.account.account_id, work)
    except NoSuchNameError as error:
        raise NotFoundError(what=str(error)) from None
    except StatementError as error:
        field = "statement" if call.body is not None else "filter"
        at = "body" if call.body is not None else "query"
        raise BadRequestError(FieldError(field, str(error), at)) from None
    except DatabaseConfigError as error:
        raise BadRequestError(desc=str(error)) from None


def _condition(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not equals:
        raise BadRequestError(FieldError("filter", f"{text[:80]!r} is not COLUMN=VALUE", "query"))
    return column, value


def _table(report: TableReport) -> TableReply:
    columns = [
        ColumnReply(name=c.name, type=c.kind, nullable=c.null, primary_key=c.primary)
        for c in report.columns
    ]
    return TableReply(name=report.name, columns=columns, rows=report.rows, more=report.more)


ROUTES: tuple[Route, ...] = (
    Route("GET", "/sql/{projectName}", "ListTables", list_tables),
    Route("GET", "/sql/{projectName}/{table}", "ListRows", list_rows),
    Route("POST", "/sql/{projectName}/query", "QueryTables", run_query, reads=True),
)
