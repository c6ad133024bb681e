"""Reads a project's tables on a PostgreSQL server, in a session other than the project's own.

Only the project's worker has the password of the project's role. So a reader logs in as the role of
the DSN, and then uses the rights of the project's role in a read-only transaction. The filter of
applets' statements refuses statements that could change the role or end the transaction.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fieldbrook.core.errors import StatementError
from fieldbrook.storage.sql.database import SqlLimits
from fieldbrook.storage.sql.postgres.connection import (
    AnswerTooLongError,
    Connection,
    ServerError,
    row_of,
)
from fieldbrook.storage.sql.postgres.namespace import (
    OWN_S,
    REPORT_S,
    SERVER_FAULTS,
    TIMED_OUT,
    namespace_of,
    refuse_while_running,
    server_errors,
    to_store_error,
)
from fieldbrook.storage.sql.postgres.setup import SETTINGS, TABLE_COLUMNS
from fieldbrook.storage.sql.postgres.statements import (
    FUNCTIONS,
    Statement,
    forbidden_functions,
    translate,
)
from fieldbrook.storage.sql.postgres.values import (
    UNTYPED,
    encode_parameter,
    reader_of,
    type_of,
)
from fieldbrook.storage.sql.reading import DatabaseReader, Result, ResultRows, Session
from fieldbrook.storage.sql.requests import Value
from fieldbrook.storage.sql.schema import PRIVATE_PREFIX
from fieldbrook.storage.sql.statements import parameter_count_error

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY"
_BUFFER_BYTES = 16 << 20  # a result that exceeds its limit by at most this is still read to its end


class PostgresReader(DatabaseReader):
    """Reads a project's tables on a server; see `DatabaseReader`."""

    def __init__(
        self, dsn: str, folder: Path, config: Mapping[str, Any], limits: SqlLimits
    ) -> None:
        """Store the arguments; `folder` is the project's folder, which has the name of its
        schema."""
        super().__init__(config, limits)
        self._dsn, self._folder = dsn, folder

    @contextmanager
    def _session(self) -> Iterator[Session | None]:
        namespace = namespace_of(self._folder)
        if not namespace:
            yield None
            return
        with server_errors():
            connection = Connection(self._dsn)
            try:
                session = _PostgresSession(connection, namespace, self._schema.names, self._limits)
                yield session if session.tables else None
            finally:
                connection.close()


class _PostgresSession(Session):
    def __init__(
        self, connection: Connection, namespace: str, schemas: frozenset[str], limits: SqlLimits
    ) -> None:
        self._connection, self._namespace = connection, namespace
        self._schemas, self._limits = schemas, limits
        refuse_while_running(connection, namespace, limits.statement_ms)
        ends_at = time.monotonic() + OWN_S
        connection.run(f"SET application_name = '{namespace}'", ends_at)
        connection.run(f'{SETTINGS}; SET search_path = pg_catalog, "{namespace}", pg_temp', ends_at)
        self._forbidden = forbidden_functions(connection.rows(FUNCTIONS, ends_at))
        found: dict[str, list[tuple[str, str]]] = {}
        for row in connection.rows(TABLE_COLUMNS.format(namespace), ends_at):
            table, column, kind = (cell or "" for cell in row[:3])
            if not table.startswith(PRIVATE_PREFIX):
                found.setdefault(table.lower(), []).append((column, kind))
        self.tables = found

    def run(self, statement: str, values: Sequence[Value], ends_at: float) -> Result:
        """See `Session.run`."""
        translated = translate(statement, self._schemas, self._forbidden)
        if translated.changes:
            raise StatementError("queries may not use INSERT, UPDATE, DELETE or MERGE")
        if len(values) != translated.params:
            raise parameter_count_error(translated.params, len(values))
        for typed in (False, True):
            types = [type_of(value) for value in values] if typed else [0] * len(values)
            try:
                return self._execute(translated, values, types, ends_at)
            except ServerError as error:
                if typed or not values or error.state not in UNTYPED:
                    raise _failure(error) from error
            except AnswerTooLongError as error:
                raise StatementError(str(error)) from error
        raise AssertionError("two attempts, each of which ends")

    def _execute(
        self, statement: Statement, values: Sequence[Value], types: Sequence[int], ends_at: float
    ) -> Result:
        """Run a statement in a transaction of its own, which can change nothing."""
        left_ms = math.ceil((ends_at - time.monotonic()) * 1_000)
        if left_ms <= 0:
            raise StatementError("the statement exceeded its time limit")
        encoded = [encode_parameter(value, number) for number, value in enumerate(values, 1)]
        run, own_s = self._connection.run, OWN_S
        begin = f'SET LOCAL statement_timeout = {left_ms}; SET LOCAL ROLE "{self._namespace}"'
        run(f"{_BEGIN}; {begin}", time.monotonic() + own_s)
        try:
            return self._read(statement.text, encoded, types, ends_at)
        finally:
            if not self._connection.closed:
                run("ROLLBACK", time.monotonic() + own_s)

    def _read(
        self, text: str, values: Sequence[bytes | None], types: Sequence[int], ends_at: float
    ) -> Result:
        collected, names, refused = ResultRows(self._limits), list[str](), ""
        most_bytes = self._limits.result_bytes + _BUFFER_BYTES
        answer = self._connection.execute(text, values, types, ends_at + REPORT_S, most_bytes)
        for result in answer:
            columns = range(result.nfields)
            names = [(result.fname(column) or b"").decode() for column in columns] or names
            if not result.ntuples or refused:
                continue
            readers = [reader_of(result.ftype(column)) for column in columns]
            row = zip(readers, row_of(result), strict=True)
            try:
                collected.add(None if cell is None else read(cell) for read, cell in row)
            except StatementError as error:  # the remaining rows must still be read
                refused = str(error)
        if refused:
            raise StatementError(refused)
        return Result(names, collected.rows)


def _failure(error: ServerError) -> Exception:
    if error.state == TIMED_OUT:
        return StatementError("the statement exceeded its time limit")
    if error.state == "25006":
        return StatementError(f"queries may not change anything: {error}")
    if error.state.startswith(SERVER_FAULTS):
        return to_store_error(error)
    return StatementError(str(error))
