"""The SQL database of one project on a PostgreSQL server, if the settings name one.

Each project has a schema (namespace) and a role of the same name. The role of the DSN creates
both, owns the tables and reads the batch's number after a lost connection. Statements of applets
run in a session that logged in as the project's role. That role owns nothing and may only read
and write the project's tables, so a session cannot regain any other rights. Its password is
generated each time the database is opened, and is kept in this process only.

The events of a batch share a transaction. Each event has a savepoint, and each statement within
it another. The batch's number is a row beside the tables that the same transaction updates, so
its COMMIT is the commit of the batch. When the connection is lost during a COMMIT, the number
tells whether the batch was committed, once all earlier sessions of the role have ended
(`committed_number`).

Unlike with SQLite, writes are not replayed, because other clients may have written to the server in
between. A batch whose connection is lost is refused as a whole, and its events are sent again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fieldbrook.core.errors import DatabaseUnreachableError, StatementError, StoreError
from fieldbrook.storage.sql.database import ProjectDatabase, SqlLimits
from fieldbrook.storage.sql.postgres.connection import (
    AnswerTooLongError,
    Connection,
    ConnectionLostError,
    ServerError,
    row_of,
)
from fieldbrook.storage.sql.postgres.namespace import (
    BEGIN,
    OWN_S,
    REPORT_S,
    RETRY_S,
    SERVER_FAULTS,
    STATE,
    TIMED_OUT,
    UNREACHABLE,
    CommittedNumber,
    create_namespace,
    namespace_of,
    server_errors,
    to_store_error,
)
from fieldbrook.storage.sql.postgres.setup import open_session, prepare_namespace
from fieldbrook.storage.sql.postgres.statements import Forbidden, Statement, translate
from fieldbrook.storage.sql.postgres.values import (
    UNTYPED,
    encode_parameter,
    reader_of,
    type_of,
)
from fieldbrook.storage.sql.requests import Value
from fieldbrook.storage.sql.results import Rows, row_encoder
from fieldbrook.storage.sql.schema import parse_schema
from fieldbrook.storage.sql.statements import parameter_count_error
from fieldbrook.storage.sql.writes import SqlWrites

_EVENT, _STATEMENT = "fieldbrook_event", "fieldbrook_statement"
_LEAST_MS = 50  # shortest statement_timeout; it also applies to the node's next statements
_TYPED_LIMIT = 256
_SIZE_STEP = 1 << 20  # bytes written between two measurements of the size
_ROW_BYTES = 100  # estimate per changed row: a short statement may write many
_BUFFER_BYTES = 16 << 20  # a result that exceeds its limit by at most this is still read to its end

_SIZE = """SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{0}' AND c.relkind = 'r'"""


class PostgresDatabase(ProjectDatabase):
    """A project's database on a PostgreSQL server."""

    def __init__(
        self,
        dsn: str,
        folder: Path,
        project_id: int,
        config: Mapping[str, Any],
        limits: SqlLimits | None = None,
    ) -> None:
        """Store the arguments; the first statement connects.

        Args:
            dsn: the DSN of the role that creates schemas and roles.
            folder: the project's folder, which holds the name of its schema.
            project_id: the project's id, a part of that name.
            config: the value of PROJECT_DATABASE or PROJECT_SCHEMA.
            limits: see `SqlLimits`; its defaults when None.
        """
        super().__init__(config, limits)
        self._dsn = dsn
        self._folder = folder
        self._project_id = project_id
        self._connection: Connection | None = None
        self._namespace = ""
        self._forbidden = Forbidden()
        self._typed: set[str] = set()  # statements whose parameters need types
        self._committed = CommittedNumber(dsn, folder)
        self._retry_at = 0.0
        self._unmeasured_bytes = _SIZE_STEP
        self._full = False

    # ------------------------------------------------------------ batches and events

    def writes(self) -> SqlWrites:
        """See `ProjectDatabase.writes`."""
        raise StoreError(reason="projects of a cluster cannot write to PostgreSQL")

    def commit(self, number: int) -> None:
        """See `ProjectDatabase.commit`."""
        connection = self._connection
        if self._lost or connection is None or not connection.in_transaction:
            self.rollback()
            raise DatabaseUnreachableError(reason="PostgreSQL: the batch's SQL writes were lost")
        limit = time.monotonic() + OWN_S
        try:
            with server_errors():
                # The answer comes before COMMIT is sent. From then on this transaction holds the
                # row's lock, so `committed_number` has to wait for its end.
                update = f"UPDATE {self._state} SET number = {number} WHERE number < {number}"  # noqa: S608
                done = connection.run(f"SET LOCAL statement_timeout = 0; {update}", limit)
                if done.command_tuples != 1:
                    raise StoreError(
                        reason=f"PostgreSQL: batch {number} has been committed already"
                    )
                ended = connection.run("COMMIT", limit)
                if ended.command_status != b"COMMIT":
                    raise StoreError(reason=f"PostgreSQL: batch {number} was rolled back")
        except DatabaseUnreachableError:
            self.close()
            raise
        except StoreError:
            self.rollback()
            raise
        self._forget_batch()

    def rollback(self) -> None:
        """See `ProjectDatabase.rollback`."""
        connection = self._connection
        self._forget_batch()
        if connection is not None and connection.in_transaction:
            try:
                connection.run("ROLLBACK", time.monotonic() + OWN_S)
            except (ConnectionLostError, ServerError):
                self.close()  # the server rolls back as well

    def number(self) -> int:
        """See `ProjectDatabase.number`."""
        if self._connection is None or self._connection.closed:
            return self._committed()
        with self._connection_errors():
            select = f"SELECT number FROM {self._state}"  # noqa: S608
            rows = self._connection.rows(select, time.monotonic() + OWN_S)
            return int(rows[0][0] or 0)

    def close(self) -> None:
        """See `ProjectDatabase.close`."""
        connection, self._connection = self._connection, None
        self._forget_batch()
        if connection is not None:
            connection.close()

    # ------------------------------------------------------------ statements

    def _perform(self, request: bytes, ends_at: float, *, wanted: bool) -> bytes:
        text, params = self._parse(request)
        size = len(request)
        self._open_connection()
        statement = translate(text, self._schema.names, self._forbidden)
        if len(params) != statement.params:
            raise parameter_count_error(statement.params, len(params))
        encoded = [encode_parameter(value, number) for number, value in enumerate(params, 1)]
        self._check_size(statement, size)
        ends_at = min(ends_at, time.monotonic() + self._limits.statement_ms / 1000)
        try:
            with self._connection_errors():
                result, changed = self._run_with_types(statement, params, encoded, ends_at, wanted)
                if changed:
                    self._count_write(size)
                    self._measure(size + changed * _ROW_BYTES)
        except StatementError:
            self._roll_back_statement()
            raise
        return result

    def _run_with_types(
        self,
        statement: Statement,
        params: Sequence[Value],
        encoded: Sequence[bytes | None],
        ends_at: float,
        wanted: bool,
    ) -> tuple[bytes, int]:
        """Execute a statement, and once more with explicit parameter types if necessary.

        The server infers the types of parameters from their places. When it cannot, the second
        attempt names the types of the values that were sent.
        """
        typed = statement.text in self._typed
        for attempt in (1, 2):
            types = [type_of(value) for value in params] if typed else [0] * len(params)
            self._set_savepoints(ends_at)
            try:
                outcome = self._run_statement(statement, encoded, types, ends_at, wanted)
            except ServerError as error:
                if attempt == 1 and not typed and params and error.state in UNTYPED:
                    self._roll_back_statement()
                    typed = True
                    continue
                raise self._failure(error) from error
            if typed:
                if len(self._typed) >= _TYPED_LIMIT:
                    self._typed.clear()
                self._typed.add(statement.text)
            return outcome
        raise AssertionError("two attempts, each of which ends")

    def _run_statement(
        self,
        statement: Statement,
        encoded: Sequence[bytes | None],
        types: Sequence[int],
        ends_at: float,
        wanted: bool,
    ) -> tuple[bytes, int]:
        """Execute a statement; return its result and the number of changed rows."""
        assert self._connection is not None
        rows = Rows(self._limits.rows, self._limits.result_bytes)
        refused = ""
        encode: Callable[[Sequence[bytes | None]], str] | None = None
        answer = self._connection.execute(
            statement.text,
            encoded,
            types,
            ends_at + REPORT_S,
            self._limits.result_bytes + _BUFFER_BYTES,
        )
        tuples, status = 0, b""
        for result in answer:
            if result.ntuples == 0:
                status, tuples = result.command_status or b"", result.command_tuples or 0
                continue
            if not wanted or refused:
                continue
            if encode is None:
                columns = range(result.nfields)
                encode = _encoder(
                    [(result.fname(column) or b"").decode() for column in columns],
                    [reader_of(result.ftype(column)) for column in columns],
                )
            try:
                rows.add([encode(row_of(result))])
            except StatementError as error:  # the remaining rows must still be read
                refused = str(error)
        if refused:
            raise StatementError(refused)
        if not statement.changes:
            return rows.encode(), 0
        counted = status.split(b" ")[0] in (b"INSERT", b"UPDATE", b"DELETE")
        # The status of a WITH does not count the rows that it changes inside: assume one.
        return rows.encode(), tuples if counted and statement.command != "WITH" else 1

    def _check_size(self, statement: Statement, size: int) -> None:
        """Measure the size before a change if it is due; a full database accepts only DELETE."""
        if not statement.changes or statement.command == "DELETE":
            return
        if self._full:
            self._unmeasured_bytes = _SIZE_STEP
        if self._unmeasured_bytes + size >= _SIZE_STEP:
            with self._connection_errors():
                self._set_savepoints(math.inf)
                self._measure(_SIZE_STEP)

    def _measure(self, written: int) -> None:
        """Count written bytes, and measure the tables once enough was written.

        Raises:
            StatementError: the database is larger than its limit.
        """
        self._unmeasured_bytes += written
        room = min(_SIZE_STEP, self._limits.database_bytes // 8)
        if self._unmeasured_bytes < room:
            return
        assert self._connection is not None
        rows = self._connection.rows(_SIZE.format(self._namespace), time.monotonic() + OWN_S)
        self._unmeasured_bytes = 0
        self._full = int(rows[0][0] or 0) > self._limits.database_bytes
        if self._full:
            limit = self._limits.database_bytes
            raise StatementError(f"the database has reached its limit of {limit} bytes")

    def _failure(self, error: ServerError) -> Exception:
        if error.state == TIMED_OUT:
            return StatementError("the statement exceeded its time limit")
        if error.state.startswith(SERVER_FAULTS):
            return to_store_error(error)
        if error.state == "42501":
            return StatementError(f"applets may not do this: {error}")
        return StatementError(str(error))

    # ------------------------------------------------------------ the transaction

    @property
    def _state(self) -> str:
        return f'"{self._namespace}".{STATE}'

    @contextmanager
    def _connection_errors(self) -> Iterator[None]:
        """Translate failures of the connection; a lost one also loses the batch's writes."""
        try:
            yield
        except AnswerTooLongError as error:
            harmless = self._writes == 0
            self._drop_connection()
            if harmless:  # no writes were lost with the session
                raise StatementError(str(error)) from error
            raise DatabaseUnreachableError(reason=f"PostgreSQL: {error}") from error
        except ConnectionLostError as error:
            self._drop_connection()
            raise DatabaseUnreachableError(reason=f"PostgreSQL: {error}") from error
        except ServerError as error:
            raise to_store_error(error) from error

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        self._lost = self._kept_writes > 0
        self._has_savepoint = False
        if connection is not None:
            connection.close()

    def _set_savepoints(self, ends_at: float) -> None:
        """Open the transaction and the event's savepoint if missing, and set the statement's."""
        if self._lost:
            raise DatabaseUnreachableError(reason="PostgreSQL: the batch's SQL writes were lost")
        now = time.monotonic()
        milliseconds = math.ceil((min(ends_at, now + OWN_S * 10) - now) * 1000)
        if milliseconds <= 0:
            raise StatementError("the statement exceeded its time limit")
        connection = self._open_connection()
        limit = max(milliseconds, _LEAST_MS)
        parts = [f"SET LOCAL statement_timeout = {limit}", f"SAVEPOINT {_STATEMENT}"]
        if self._has_savepoint:
            parts.insert(0, f"RELEASE {_STATEMENT}")
        else:
            parts.insert(0, f"SAVEPOINT {_EVENT}")
        if not connection.in_transaction:
            parts.insert(0, BEGIN)
        try:
            connection.run("; ".join(parts), now + OWN_S)
        except ConnectionLostError:
            if parts[0] != BEGIN:
                raise
            # The idle connection was lost, for example by a restart of the server.
            self._connection = None
            self._open_connection().run("; ".join(parts), now + 2 * OWN_S)
        self._has_savepoint = True

    def _release_event(self) -> None:
        self._execute_own(f"RELEASE {_EVENT}")

    def _roll_back_event(self) -> None:
        if self._connection is not None:
            self._execute_own(f"ROLLBACK TO {_EVENT}; RELEASE {_EVENT}")

    def _roll_back_statement(self) -> None:
        if self._has_savepoint and self._connection is not None:
            self._execute_own(f"ROLLBACK TO {_STATEMENT}")

    def _execute_own(self, statements: str) -> None:
        """Execute statements of the node itself."""
        assert self._connection is not None
        with self._connection_errors():
            self._connection.run(statements, time.monotonic() + OWN_S)

    # ------------------------------------------------------------ opening

    def open(self) -> None:
        """See `ProjectDatabase.open`."""
        if self._connection is not None:
            return
        if time.monotonic() < self._retry_at:
            raise DatabaseUnreachableError(reason=UNREACHABLE)
        self._schema = parse_schema(self._config)
        self._namespace = namespace_of(self._folder) or create_namespace(
            self._folder, self._project_id
        )
        try:
            with server_errors():
                password = prepare_namespace(
                    self._dsn, self._namespace, self._schema, self._limits.statement_ms
                )
                self._connection, self._forbidden = open_session(
                    self._dsn, self._namespace, password
                )
        except DatabaseUnreachableError:
            self._retry_at = time.monotonic() + RETRY_S
            raise

    def _open_connection(self) -> Connection:
        if self._connection is None:
            self._open_for_statement()
        assert self._connection is not None
        return self._connection


def _encoder(
    names: Sequence[str], readers: Sequence[Callable[[bytes], Any]]
) -> Callable[[Sequence[bytes | None]], str]:
    """Return the function that encodes a row of the server's texts as a JSON object."""
    encode = row_encoder(names)

    def encode_cells(cells: Sequence[bytes | None]) -> str:
        return encode(
            [
                None if cell is None else read(cell)
                for read, cell in zip(readers, cells, strict=True)
            ]
        )

    return encode_cells
