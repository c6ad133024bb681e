"""The SQL database of one project on a PostgreSQL server, if the settings name one.

Each project has a schema (namespace) and a role of the same name. The role of the DSN creates
both, owns the tables and reads the batch's number after a lost connection. Statements of applets
run in a session that logged in as the project's role. That role owns nothing and may only read
and write the project's tables, so a session cannot regain any other rights. Its password is
drawn anew whenever the database is opened, and is kept in this process only.

The events of a batch share a transaction. Each event has a savepoint, and each statement within
it another. The batch's number is a row beside the tables that the same transaction updates, so
its COMMIT is the commit of the batch. When the connection is lost during a COMMIT, the number
tells whether the batch was committed, once all earlier sessions of the role have ended
(`committed_number`).

Writes are not replayed as with SQLite, because others may have written to the server in between.
A batch whose connection is lost is refused as a whole, and its events are sent again.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fieldbrook.core.errors import (
    DatabaseConfigError,
    DatabaseUnreachableError,
    StatementError,
    StoreError,
)
from fieldbrook.storage.sql.batch import SqlBatch, SqlLimits
from fieldbrook.storage.sql.postgres.connection import (
    AnswerTooLongError,
    Link,
    LinkLostError,
    ServerError,
    row_of,
)
from fieldbrook.storage.sql.postgres.migration import STATE, FoundColumn, plan
from fieldbrook.storage.sql.postgres.statements import (
    HARMLESS,
    Translated,
    parameter,
    reader_of,
    translate,
    type_of,
)
from fieldbrook.storage.sql.schema import Schema, parse_schema
from fieldbrook.storage.sql.text import Value, encode_rows, join_rows
from fieldbrook.system.fsync import make_folder, sync_folder

FILE = "postgres"  # in the project's folder: the name of its schema and role

_EVENT, _STATEMENT = "fieldbrook_event", "fieldbrook_statement"
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_OWN_S = 2.0  # time limit for statements of the node itself
_LEAST_MS = 50  # shortest statement_timeout; it also applies to the node's next statements
_GRACE_S = 0.5  # for the server to report that a statement timed out
_RETRY_S = 1.0  # after a failed attempt, calls fail at once for this long
_AWAY = "PostgreSQL: it could not be reached just now"
_STATEMENTS_LIMIT = 256
_SIZE_STEP = 1 << 20  # bytes written between two measurements of the size
_ROW_BYTES = 100  # estimate per changed row: a short statement may write many
_BUFFER_BYTES = 16 << 20  # a result this far over its limit is still read to its end

_NAMESPACE = re.compile(r"fieldbrook_[0-9]+_[0-9a-f]{8}")
# The server could not infer a parameter's type from its place, or inferred a wrong one.
_UNTYPED = frozenset({"42P18", "42725", "42883", "42804"})
_OVERDUE = "57014"
# SQLSTATE prefixes of failures that no statement causes: 40 (transaction rolled back), 531 and 533
# (no disk space or connections), 58 (system error), XX (corruption), 25006 (a standby) and others.
_FAULTS_OF_THE_SERVER = ("08", "28", "40", "531", "533", "55P03", "57P", "58", "XX", "25006")
_PRIVILEGES = """SELECT rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls
    OR EXISTS (SELECT FROM pg_auth_members WHERE member = r.oid)
    FROM pg_roles r WHERE rolname = session_user"""
_SETTINGS = """SET TIME ZONE 'UTC'; SET datestyle = 'ISO, YMD'; SET intervalstyle = 'postgres';
    SET standard_conforming_strings = on; SET bytea_output = 'hex'; SET extra_float_digits = 1;
    SET idle_in_transaction_session_timeout = 0; SET lock_timeout = 0;
    SET client_min_messages = error; SET default_transaction_deferrable = off;
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off'"""
_STATE_COLUMNS = "(id integer PRIMARY KEY CHECK (id = 0), number bigint NOT NULL)"
_SIZE = """SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{0}' AND c.relkind = 'r'"""
_COLUMNS = """SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
    coalesce(col_description(c.oid, a.attnum), ''), coalesce(array_position(k.conkey, a.attnum), 0)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'p'
    WHERE n.nspname = '{0}' AND c.relkind = 'r' ORDER BY c.relname, a.attnum"""
_INDEXES = """SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = '{0}' AND c.relkind = 'i'"""
_END_SESSIONS = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE usename = '{0}' AND pid <> pg_backend_pid()"""


def namespace_of(folder: Path) -> str:
    """Return the name of the project's schema and role; empty when it never had one.

    Raises:
        StoreError: the file cannot be read or holds no such name.
    """
    try:
        name = (folder / FILE).read_text("ascii").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(reason=f"{folder / FILE}: {error}") from error
    if not _NAMESPACE.fullmatch(name):
        raise StoreError(reason=f"{folder / FILE}: {name[:40]!r} is no schema of a project")
    return name


def _name_namespace(folder: Path, project_id: int) -> str:
    """Choose a name that is unique among nodes, and store it durably before its first use."""
    name = f"fieldbrook_{project_id}_{secrets.token_hex(4)}"
    new = folder / f"{FILE}.new"
    try:
        make_folder(folder)
        with new.open("w", encoding="ascii") as file:
            file.write(name + "\n")
            os.fsync(file.fileno())
        new.rename(folder / FILE)
        sync_folder(folder)
    except OSError as error:
        raise StoreError(reason=f"{folder / FILE}: {error}") from error
    return name


def committed_number(dsn: str, folder: Path) -> int:
    """Return the number of the last batch that the project's database committed; 0 without one.

    The number is final: this ends the sessions that the project's role still has, and waits
    until each has committed or rolled back.

    Raises:
        DatabaseUnreachableError: the server cannot be reached now.
        StoreError: the name of the schema cannot be read, or the server has an internal error.
    """
    namespace = namespace_of(folder)
    if not namespace:
        return 0
    with _failures():
        link = Link(dsn)
        try:
            return _final_number(link, namespace)
        finally:
            link.close()


class CommittedNumber:
    """`committed_number` for repeated calls.

    While the server cannot be reached, only one call per second waits for it; the others fail
    at once.
    """

    def __init__(self, dsn: str, folder: Path) -> None:
        self._dsn = dsn
        self._folder = folder
        self._retry_at = 0.0

    def __call__(self) -> int:
        """See `committed_number`."""
        if time.monotonic() < self._retry_at:
            raise DatabaseUnreachableError(reason=_AWAY)
        try:
            return committed_number(self._dsn, self._folder)
        except DatabaseUnreachableError:
            self._retry_at = time.monotonic() + _RETRY_S
            raise


def _final_number(link: Link, namespace: str) -> int:
    limit = time.monotonic() + 2 * _OWN_S
    table = f'"{namespace}".{STATE}'
    if link.rows(f"SELECT to_regclass('{table}')", limit) == [[None]]:
        return 0
    with suppress(ServerError):  # without the right to end them, the row lock below waits
        link.run(_END_SESSIONS.format(namespace), limit)
    # A session that is committing holds the lock of this row until it has ended.
    number = f"SELECT number FROM {table} FOR UPDATE"  # noqa: S608
    link.run(f"{_BEGIN}; SET LOCAL lock_timeout = {int(_OWN_S * 1000)}", limit)
    rows = link.rows(number, limit)
    link.run("COMMIT", limit)
    return int(rows[0][0] or 0) if rows else 0


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except LinkLostError as error:
        raise DatabaseUnreachableError(reason=f"PostgreSQL: {error}") from error
    except ServerError as error:
        raise _fault(error) from error


def _fault(error: ServerError) -> StoreError:
    reason = f"PostgreSQL: {error} ({error.state})"
    if error.state.startswith(("58", "XX")):
        return StoreError(reason=reason)
    return DatabaseUnreachableError(reason=reason)


class PostgresDatabase(SqlBatch):
    """A project's database on a PostgreSQL server, owned by the project's data thread.

    See `SqlDatabase` and `SqlBatch` for the order of calls.
    """

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
        super().__init__(limits)
        self._dsn = dsn
        self._folder = folder
        self._project_id = project_id
        self._config = config
        self._link: Link | None = None
        self._namespace = ""
        self._schema = Schema((), frozenset())
        self._forbidden: frozenset[str] = frozenset()
        self._statements: dict[str, Translated] = {}
        self._typed: set[str] = set()  # statements whose parameters need types
        self._committed = CommittedNumber(dsn, folder)
        self._useless = ""  # why the configuration cannot be applied
        self._retry_at = 0.0
        self._unmeasured = _SIZE_STEP
        self._full = False

    # ------------------------------------------------------------ batches and events

    def commit(self, number: int) -> None:
        """Commit the batch and its number in one transaction; it must exceed `number()`.

        Raises:
            StoreError: the commit failed or its outcome is unknown. `number()` then tells
                whether the batch was committed.
        """
        link = self._link
        if self._lost or link is None or not link.in_transaction:
            self.rollback()
            raise DatabaseUnreachableError(reason="PostgreSQL: the batch's SQL writes were lost")
        limit = time.monotonic() + _OWN_S
        try:
            with _failures():
                # The answer comes before COMMIT is sent. From then on this transaction holds the
                # row's lock, so `committed_number` has to wait for its end.
                update = f"UPDATE {self._state} SET number = {number} WHERE number < {number}"  # noqa: S608
                done = link.run(f"SET LOCAL statement_timeout = 0; {update}", limit)
                if done.command_tuples != 1:
                    raise StoreError(reason=f"PostgreSQL: batch {number} is committed already")
                ended = link.run("COMMIT", limit)
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
        """Drop the writes of the batch and end its transaction."""
        link = self._link
        self._forget_batch()
        if link is not None and link.in_transaction:
            try:
                link.run("ROLLBACK", time.monotonic() + _OWN_S)
            except (LinkLostError, ServerError):
                self.close()  # the server rolls back as well

    def number(self) -> int:
        """Return the number of the last committed batch; 0 before the first.

        Raises:
            StoreError: the server cannot be queried.
        """
        if self._link is None or self._link.closed:
            return self._committed()
        with self._losses():
            select = f"SELECT number FROM {self._state}"  # noqa: S608
            rows = self._link.rows(select, time.monotonic() + _OWN_S)
            return int(rows[0][0] or 0)

    def close(self) -> None:
        """End the session and roll back an open batch. The next statement connects again."""
        link, self._link = self._link, None
        self._forget_batch()
        if link is not None:
            link.close()

    # ------------------------------------------------------------ statements

    def _perform(self, request: bytes, ends_at: float, *, wanted: bool) -> bytes:
        text, params = self._read(request)
        size = len(request)
        self._opened()
        statement = self._translated(text)
        if len(params) != statement.params:
            raise StatementError(
                f"the statement has {statement.params} placeholders, "
                f"the request {len(params)} params"
            )
        given = [parameter(value, number) for number, value in enumerate(params, 1)]
        self._check_room(statement, size)
        ends_at = min(ends_at, time.monotonic() + self._limits.statement_ms / 1000)
        try:
            with self._losses():
                result, changed = self._try_types(statement, params, given, ends_at, wanted)
                if changed:
                    self._count_write(size)
                    self._measure(size + changed * _ROW_BYTES)
        except StatementError:
            self._undo_statement()
            raise
        return result

    def _try_types(
        self,
        statement: Translated,
        params: Sequence[Value],
        given: Sequence[bytes | None],
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
            self._mark(ends_at)
            try:
                outcome = self._carry_out(statement, given, types, ends_at, wanted)
            except ServerError as error:
                if attempt == 1 and not typed and params and error.state in _UNTYPED:
                    self._undo_statement()
                    typed = True
                    continue
                raise self._failure(error) from error
            if typed:
                if len(self._typed) >= _STATEMENTS_LIMIT:
                    self._typed.clear()
                self._typed.add(statement.text)
            return outcome
        raise AssertionError("two attempts, each of which ends")

    def _carry_out(
        self,
        statement: Translated,
        given: Sequence[bytes | None],
        types: Sequence[int],
        ends_at: float,
        wanted: bool,
    ) -> tuple[bytes, int]:
        """Execute a statement; return its result and the number of changed rows."""
        assert self._link is not None
        rows: list[str] = []
        left, refused = self._limits.result_bytes, ""
        names: list[str] = []
        readers: list[Callable[[bytes], Any]] = []
        answer = self._link.ask(
            statement.text, given, types, ends_at + _GRACE_S, left + _BUFFER_BYTES
        )
        tuples, status = 0, b""
        for result in answer:
            if result.ntuples == 0:
                status, tuples = result.command_status or b"", result.command_tuples or 0
                continue
            if not wanted or refused:
                continue
            if not names:
                columns = range(result.nfields)
                names = [(result.fname(column) or b"").decode() for column in columns]
                readers = [reader_of(result.ftype(column)) for column in columns]
            try:
                row = _row(names, readers, row_of(result))
            except StatementError as error:  # the remaining rows must still be read
                refused = str(error)
                continue
            rows.append(row)
            left -= len(row)
            if left < 0:
                refused = f"the result has more than {self._limits.result_bytes} bytes"
            elif len(rows) > self._limits.rows:
                refused = f"the result has more than {self._limits.rows} rows"
        if refused:
            raise StatementError(refused)
        if not statement.changes:
            return join_rows(rows), 0
        counted = status.split(b" ")[0] in (b"INSERT", b"UPDATE", b"DELETE")
        # The status of a WITH does not count the rows that it changes inside: assume one.
        return join_rows(rows), tuples if counted and statement.command != "WITH" else 1

    def _translated(self, text: str) -> Translated:
        statement = self._statements.get(text)
        if statement is None:
            if len(self._statements) >= _STATEMENTS_LIMIT:
                self._statements.clear()
            statement = translate(text, self._schema.names, self._forbidden)
            self._statements[text] = statement
        return statement

    def _check_room(self, statement: Translated, size: int) -> None:
        """Measure the size before a change if it is due; a full database accepts only DELETE."""
        if not statement.changes or statement.command == "DELETE":
            return
        if self._full:
            self._unmeasured = _SIZE_STEP
        if self._unmeasured + size >= _SIZE_STEP:
            with self._losses():
                self._mark(math.inf)
                self._measure(_SIZE_STEP)

    def _measure(self, written: int) -> None:
        """Count written bytes, and measure the tables once enough was written.

        Raises:
            StatementError: the database is larger than its limit.
        """
        self._unmeasured += written
        room = min(_SIZE_STEP, self._limits.database_bytes // 8)
        if self._unmeasured < room:
            return
        assert self._link is not None
        rows = self._link.rows(_SIZE.format(self._namespace), time.monotonic() + _OWN_S)
        self._unmeasured = 0
        self._full = int(rows[0][0] or 0) > self._limits.database_bytes
        if self._full:
            limit = self._limits.database_bytes
            raise StatementError(f"the database has reached its limit of {limit} bytes")

    def _failure(self, error: ServerError) -> Exception:
        if error.state == _OVERDUE:
            return StatementError("the statement's time is over")
        if error.state.startswith(_FAULTS_OF_THE_SERVER):
            return _fault(error)
        if error.state == "42501":
            return StatementError(f"not for applets: {error}")
        return StatementError(str(error))

    # ------------------------------------------------------------ the transaction

    @property
    def _state(self) -> str:
        return f'"{self._namespace}".{STATE}'

    @contextmanager
    def _losses(self) -> Iterator[None]:
        """Translate failures of the link; a lost connection also loses the batch's writes."""
        try:
            yield
        except AnswerTooLongError as error:
            harmless = self._writes == 0
            self._drop()
            if harmless:  # no writes were lost with the session
                raise StatementError(str(error)) from error
            raise DatabaseUnreachableError(reason=f"PostgreSQL: {error}") from error
        except LinkLostError as error:
            self._drop()
            raise DatabaseUnreachableError(reason=f"PostgreSQL: {error}") from error
        except ServerError as error:
            raise _fault(error) from error

    def _drop(self) -> None:
        link, self._link = self._link, None
        self._lost = self._kept_writes > 0
        self._marked = False
        if link is not None:
            link.close()

    def _mark(self, ends_at: float) -> None:
        """Open the transaction and the event's savepoint if missing, and set the statement's."""
        if self._lost:
            raise DatabaseUnreachableError(reason="PostgreSQL: the batch's SQL writes were lost")
        now = time.monotonic()
        milliseconds = math.ceil((min(ends_at, now + _OWN_S * 10) - now) * 1000)
        if milliseconds <= 0:
            raise StatementError("the statement's time is over")
        link = self._opened()
        limit = max(milliseconds, _LEAST_MS)
        parts = [f"SET LOCAL statement_timeout = {limit}", f"SAVEPOINT {_STATEMENT}"]
        if self._marked:
            parts.insert(0, f"RELEASE {_STATEMENT}")
        else:
            parts.insert(0, f"SAVEPOINT {_EVENT}")
        if not link.in_transaction:
            parts.insert(0, _BEGIN)
        try:
            link.run("; ".join(parts), now + _OWN_S)
        except LinkLostError:
            if parts[0] != _BEGIN:
                raise
            # The idle connection was lost, for example by a restart of the server.
            self._link = None
            self._opened().run("; ".join(parts), now + 2 * _OWN_S)
        self._marked = True

    def _release_event(self) -> None:
        self._own(f"RELEASE {_EVENT}")

    def _roll_back_event(self) -> None:
        if self._link is not None:
            self._own(f"ROLLBACK TO {_EVENT}; RELEASE {_EVENT}")

    def _undo_statement(self) -> None:
        if self._marked and self._link is not None:
            self._own(f"ROLLBACK TO {_STATEMENT}")

    def _own(self, statements: str) -> None:
        """Execute statements of the node itself."""
        assert self._link is not None
        with self._losses():
            self._link.run(statements, time.monotonic() + _OWN_S)

    # ------------------------------------------------------------ opening

    def open(self) -> None:
        """Connect, and create the project's schema, its role and the configured tables.

        Raises:
            DatabaseConfigError: the configuration is invalid, or needs a change other than adding
                tables, columns and indexes; the reason names it.
            DatabaseUnreachableError: the server cannot be reached, or refuses.
        """
        if self._link is not None:
            return
        self._check_patience()
        self._schema = parse_schema(self._config)
        self._namespace = namespace_of(self._folder) or _name_namespace(
            self._folder, self._project_id
        )
        try:
            with _failures():
                self._link = self._session(self._prepare())
        except DatabaseUnreachableError:
            self._retry_at = time.monotonic() + _RETRY_S
            raise

    def _check_patience(self) -> None:
        if time.monotonic() < self._retry_at:
            raise DatabaseUnreachableError(reason=_AWAY)

    def _opened(self) -> Link:
        if self._link is None:
            if self._useless:
                raise StatementError(self._useless)
            try:
                self.open()
            except DatabaseConfigError as error:
                self._useless = str(error)
                raise StatementError(self._useless) from error
        assert self._link is not None
        return self._link

    def _session(self, password: str) -> Link:
        """Open a session of the project's role."""
        link = Link(self._dsn, self._namespace, password)
        limit = time.monotonic() + _OWN_S
        try:
            link.run(f'SET search_path = "{self._namespace}", pg_catalog, pg_temp', limit)
            link.run(_SETTINGS, limit)
            if link.rows(_PRIVILEGES, limit) != [["f"]]:
                reason = f"PostgreSQL: the role {self._namespace} has rights it must not have"
                raise StoreError(reason=reason)
            functions = link.rows("SELECT DISTINCT proname FROM pg_proc", limit)
            self._forbidden = frozenset(name or "" for (name,) in functions) - HARMLESS
        except BaseException:
            link.close()
            raise
        return link

    def _prepare(self) -> str:
        """Create role, schema and tables as the DSN's role; return the project role's password."""
        link = Link(self._dsn)
        password = secrets.token_urlsafe(24)
        try:
            self._give_role(link, password)
            limit = time.monotonic() + 5 * _OWN_S
            link.run(f"{_BEGIN}; SET LOCAL lock_timeout = {int(_OWN_S * 1000)}", limit)
            self._migrate(link, limit)
            link.run("COMMIT", limit)
        finally:
            link.close()
        return password

    def _give_role(self, link: Link, password: str) -> None:
        name, limit = self._namespace, time.monotonic() + 2 * _OWN_S
        sealed = link.sealed(password, name)
        there = link.rows(f"SELECT 1 FROM pg_roles WHERE rolname = '{name}'", limit)  # noqa: S608
        options = f"LOGIN CONNECTION LIMIT 8 PASSWORD '{sealed}'"
        link.run(f'{"ALTER" if there else "CREATE"} ROLE "{name}" {options}', limit)
        member = f"SELECT pg_has_role(current_user, '{name}', 'USAGE')"
        if link.rows(member, limit) == [["f"]]:
            link.run(f'GRANT "{name}" TO CURRENT_USER', limit)
        # Sessions of an earlier process would hold locks until the server notices its death.
        link.run(_END_SESSIONS.format(name), limit)

    def _migrate(self, link: Link, limit: float) -> None:
        space, role = self._namespace, f'"{self._namespace}"'
        for statement in (
            f"CREATE SCHEMA IF NOT EXISTS {role}",
            f"CREATE TABLE IF NOT EXISTS {self._state} {_STATE_COLUMNS}",
            f"INSERT INTO {self._state} VALUES (0, 0) ON CONFLICT DO NOTHING",  # noqa: S608
            f"GRANT USAGE ON SCHEMA {role} TO {role}",
            f"GRANT SELECT, UPDATE (number) ON {self._state} TO {role}",
            # Wait for sessions that were still committing: after this the number is final.
            f"SELECT number FROM {self._state} FOR UPDATE",  # noqa: S608
        ):
            link.run(statement, limit)
        found: dict[str, list[FoundColumn]] = {}
        for row in link.rows(_COLUMNS.format(space), limit):
            owner, name, kind, comment, place = (cell or "" for cell in row)
            found.setdefault(owner, []).append(FoundColumn(name, kind, comment, int(place)))
        have = [row[0] or "" for row in link.rows(_INDEXES.format(space), limit)]
        for what, statement in plan(self._schema, space, found, have):
            try:
                link.run(statement, limit)
            except ServerError as error:
                if error.state.startswith(_FAULTS_OF_THE_SERVER):
                    raise
                raise DatabaseConfigError(reason=f"{what}: {error}") from error
        for table in self._schema.tables:
            target = f'{role}."{table.name.lower()}"'
            link.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {target} TO {role}", limit)


def _row(
    names: Sequence[str], readers: Sequence[Callable[[bytes], Any]], cells: Sequence[bytes | None]
) -> str:
    values = [
        None if cell is None else read(cell) for read, cell in zip(readers, cells, strict=True)
    ]
    (row,) = encode_rows(names, [values])
    return row
