"""The SQL database of one project in SQLite, behind `ws_set_sql_db` and `ws_get_sql_db`.

The database is a file in the project's folder, which the first statement opens. Applets can
access the rows of the configured tables and nothing else. Each call executes one statement,
within limits of time and size. Applets cannot change the schema or control transactions.

The events of a batch share one transaction. Each has a savepoint, so that a failed event undoes
its own writes only. `commit(number)` stores the number of the batch in the same transaction as
its rows. The project's store uses this number to commit both stores atomically
(`ProjectStore.commit`): it first stages its own part under the number. After a crash the staged
part is valid exactly if the number in this database has reached it.

In a cluster the record of a batch contains its writes (`SqlWrites`), with those that migrate the
database to its configuration. So another host can repeat them in its copy of the file.

SQLite rolls back the whole transaction when it interrupts a write, runs out of space, or
executes `OR ROLLBACK`. The earlier writes of the batch must survive that. They are replayed
from a journal with the same clock and the same random numbers, so the results are the same. The
replay takes as long as the writes took, so it also has time limits: see `SqliteDatabase._replay`.
"""

from __future__ import annotations

import math
import os
import random
import re
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fieldbrook.core.errors import (
    DatabaseConfigError,
    JournalDamagedError,
    StatementError,
    StoreError,
)
from fieldbrook.storage.sql.database import ProjectDatabase, SqlLimits
from fieldbrook.storage.sql.requests import Value, stored_time
from fieldbrook.storage.sql.results import Rows, TimeText, check_row, row_encoder
from fieldbrook.storage.sql.schema import PRIVATE_PREFIX, parse_schema
from fieldbrook.storage.sql.sqlite.failures import failure_of
from fieldbrook.storage.sql.sqlite.files import BUSY_S, STATE, committed_number, read_number
from fieldbrook.storage.sql.sqlite.functions import AppletFunctions, compare_decimals, decode_text
from fieldbrook.storage.sql.sqlite.guard import (
    LIMITS,
    STATEMENT_ERRORS,
    Guard,
    bound_memory,
    create_table_functions,
)
from fieldbrook.storage.sql.sqlite.migration import (
    DECIMAL_COLLATION,
    existing_columns,
    existing_names,
    plan,
)
from fieldbrook.storage.sql.sqlite.preparation import (
    CACHED_STATEMENTS,
    EFFORT_LIMIT,
    created_by,
    forget_statement,
    trials,
)
from fieldbrook.storage.sql.sqlite.statements import translate
from fieldbrook.storage.sql.writes import SqlWrite, SqlWrites

_EVENT = f"{PRIVATE_PREFIX}event"
# The sqlite3 module caches prepared statements by text. This prefix keeps an applet from using a
# cached statement of the node, which was prepared without the guard.
_APPLETS = "/*applet*/ "

_PROGRESS_STEPS = 1_000  # instructions of SQLite's virtual machine, about ten microseconds
# How long a replay may continue after the run's deadline. The watchdog ends a process 3 s after the
# deadline.
_REPLAY_S = 1.5

# MemoryError: the memory limit is shared with the statements of other projects.
_ERRORS = (sqlite3.Error, MemoryError)

_STORED_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


class SqliteDatabase(ProjectDatabase):
    """A project's SQLite database. `Run.sql` is this object: a run uses it as its session."""

    def __init__(
        self,
        path: Path,
        config: Mapping[str, Any],
        limits: SqlLimits | None = None,
        *,
        is_replicated: bool = False,
        moment: Callable[[], datetime] = lambda: datetime.now(UTC),
        draw: Callable[[int], int] = random.getrandbits,
    ) -> None:
        """Store the arguments; the first statement opens the file.

        Args:
            path: the file, `<project's folder>/sql.db`.
            config: the value of PROJECT_DATABASE or PROJECT_SCHEMA.
            limits: see `SqlLimits`; its defaults when None.
            is_replicated: whether other hosts repeat the writes of batches. If so, the database is
                migrated to its configuration by its next batch, and not when it is opened.
            moment: returns the time that is `now` for all statements of a batch.
            draw: returns a number with the given number of random bits, which seeds a statement.
        """
        super().__init__(config, limits)
        self._moment, self._draw = moment, draw
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._guard = Guard(frozenset())
        self._functions = AppletFunctions()
        self._journal: list[SqlWrite] = []
        self._is_replicated = is_replicated
        self._steps: list[str] = []  # statements of a migration that no batch has committed yet
        self._has_migrated = False  # whether they are part of the current transaction
        self._ends_at = math.inf
        self._gave_up = False  # whether writes of the current event were given up

    # ------------------------------------------------------------ batches and events

    @property
    def wrote(self) -> bool:
        """See `ProjectDatabase.wrote`."""
        return self._has_migrated or super().wrote

    def writes(self) -> SqlWrites:
        """See `ProjectDatabase.writes`."""
        steps = self._steps if self._has_migrated else []
        return SqlWrites(self.number() + 1, self._functions.now, steps, self._journal)

    def keep_event(self) -> None:
        """Keep the writes of a successful run as part of the batch."""
        self._lost = self._lost or self._gave_up
        super().keep_event()

    def undo_event(self) -> None:
        """Undo the writes of a failed run."""
        try:
            super().undo_event()
        finally:
            del self._journal[self._kept_writes :]
            self._gave_up = False

    def commit(self, number: int) -> None:
        """See `ProjectDatabase.commit`."""
        lost = self._lost
        connection = self._connection
        if lost or connection is None or not connection.in_transaction:
            self.rollback()
            raise StoreError(reason=f"{self._path}: the batch's SQL writes were lost")
        try:
            changed = connection.execute(
                f"UPDATE {STATE} SET number = ? WHERE number < ?",  # noqa: S608
                (number, number),
            ).rowcount
            if changed != 1:
                raise StoreError(reason=f"{self._path}: batch {number} has been committed already")
            connection.execute("COMMIT")
            if self._has_migrated:
                self._steps = []
        except _ERRORS as error:
            self.close()
            raise StoreError(reason=f"{self._path}: {error}") from error
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
                connection.execute("ROLLBACK")
            except _ERRORS:
                self.close()  # closing rolls back as well

    def number(self) -> int:
        """See `ProjectDatabase.number`."""
        if self._connection is None:
            return committed_number(self._path)
        try:
            return read_number(self._connection)
        except _ERRORS as error:
            raise StoreError(reason=f"{self._path}: {error}") from error

    def close(self) -> None:
        """See `ProjectDatabase.close`."""
        connection, self._connection = self._connection, None
        self._forget_batch()
        if connection is not None:
            connection.close()
        self._functions.close()

    def _forget_batch(self) -> None:
        super()._forget_batch()
        self._journal = []
        self._gave_up = self._has_migrated = False

    def repeat(self, writes: SqlWrites) -> None:
        """Repeat the writes of a batch that was committed on another host, or before a crash.

        A batch that the database contains is skipped.

        Raises:
            JournalDamagedError: a batch before this one is missing, or a write has another result
                than before.
            StoreError: the file cannot be opened or written.
        """
        number = self.number()
        if writes.number <= number:
            return
        if writes.number != number + 1:
            raise JournalDamagedError(
                reason=f"{self._path}: the journal continues with batch {writes.number} of the "
                f"database, and the file ends with batch {number}"
            )
        self.open()
        connection = self._connection
        assert connection is not None
        try:
            connection.execute("BEGIN IMMEDIATE")
            if writes.schema:
                for statement in writes.schema:
                    connection.execute(statement)
                self._protect_tables(connection)
            self._functions.now = writes.now
            self._repeat(connection, writes.statements, math.inf)
            connection.execute(f"UPDATE {STATE} SET number = ?", (writes.number,))  # noqa: S608
            connection.execute("COMMIT")
        except STATEMENT_ERRORS as error:
            self.close()
            failure = self._failure(error)
            if isinstance(failure, StoreError) or isinstance(error, MemoryError):
                raise StoreError(reason=f"{self._path}: {error}") from error
            reason = f"{self._path}: batch {writes.number} of the database cannot be repeated"
            raise JournalDamagedError(reason=f"{reason}: {failure}") from error
        except StoreError as error:  # a statement has another result
            self.close()
            raise JournalDamagedError(reason=str(error.details["reason"])) from error

    # ------------------------------------------------------------ statements

    def _perform(self, request: bytes, ends_at: float, *, wanted: bool) -> bytes:
        text, params = self._parse(request)
        connection = self._open_connection()
        statement = translate(text, self._schema.names)
        values = statement.arrange(params)
        if statement.effort > EFFORT_LIMIT:
            trials.require(lambda: created_by(connection), statement.text, self._path.parent)
        self._set_savepoint(connection)
        seed = self._draw(64)
        self._ends_at = min(ends_at, time.monotonic() + self._limits.statement_ms / 1000)
        before = connection.total_changes
        own = _APPLETS + statement.text
        try:
            result, changed = self._run_statement(
                connection, own, values, seed, statement.effort, wanted=wanted
            )
            if changed:
                self._count_write(len(request))
                self._journal.append(SqlWrite(own, values, seed, changed, statement.effort))
        except StatementError:
            # The statement has changed rows before it failed, for example by too many results.
            if connection.total_changes != before:
                self._replay(connection, ends_at)
            raise
        except STATEMENT_ERRORS as error:
            failure = self._failure(error)
            if not connection.in_transaction:
                self._replay(connection, ends_at)
            raise failure from error
        finally:
            self._ends_at = math.inf
        return result

    def _run_statement(
        self,
        connection: sqlite3.Connection,
        text: str,
        values: list[Value],
        seed: int,
        effort: int,
        *,
        wanted: bool,
    ) -> tuple[bytes, int]:
        """Execute a statement; return its result and the number of changed rows."""
        functions = self._functions
        functions.seed, functions.generator = seed, None
        self._guard.begin()
        self._guard.active = True
        before = connection.total_changes
        try:
            cursor = connection.execute(text, values)
            try:
                result = self._result(cursor) if wanted else b""
                changed = connection.total_changes - before
                if changed:
                    for _ in cursor:  # a change with RETURNING ends with its last row
                        pass
                return result, changed
            finally:
                cursor.close()
        finally:
            self._guard.active = False
            forget_statement(connection, effort, text)

    def _result(self, cursor: sqlite3.Cursor) -> bytes:
        if cursor.description is None:
            return b""
        rows = Rows(self._limits.rows, self._limits.result_bytes)
        encode = row_encoder([column[0] for column in cursor.description])
        for row in cursor:
            check_row(row, self._limits.result_bytes)
            rows.add((encode(row),))
        return rows.encode()

    def _failure(self, error: Exception) -> Exception:
        return failure_of(error, self._path, self._limits.database_bytes, self._guard.denied)

    # ------------------------------------------------------------ the transaction

    def _set_savepoint(self, connection: sqlite3.Connection) -> None:
        """Open the batch's transaction and the event's savepoint, unless they are open."""
        if self._lost:
            raise StoreError(reason=f"{self._path}: the batch's SQL writes were lost")
        if not connection.in_transaction:
            self._functions.now = stored_time(self._moment())
            self._execute_own("BEGIN IMMEDIATE")
            self._take_steps(connection)
        if not self._has_savepoint:
            self._execute_own(f"SAVEPOINT {_EVENT}")
            self._has_savepoint = True

    def _take_steps(self, connection: sqlite3.Connection) -> None:
        """Migrate the database as part of the batch whose transaction has begun."""
        try:
            for step in self._steps:
                self._execute_own(step)
        except StoreError:
            with suppress(*_ERRORS):
                connection.execute("ROLLBACK")
            raise
        self._has_migrated = bool(self._steps)

    def _release_event(self) -> None:
        self._execute_own(f"RELEASE {_EVENT}")

    def _roll_back_event(self) -> None:
        self._execute_own(f"ROLLBACK TO {_EVENT}")
        self._execute_own(f"RELEASE {_EVENT}")

    def _execute_own(self, statement: str) -> None:
        """Execute a statement of the node itself."""
        assert self._connection is not None
        try:
            self._connection.execute(statement)
        except _ERRORS as error:
            self._lost = bool(self._journal)
            raise StoreError(reason=f"{self._path}: {error}") from error

    def _replay(self, connection: sqlite3.Connection, ends_at: float) -> None:
        """Start a new transaction and replay the writes of the batch so far.

        If the deadline of the run passes meanwhile, the writes of its event are given up, because
        the run ends without them. The replay of earlier events' writes may take `_REPLAY_S` longer.

        Args:
            connection: the open database.
            ends_at: the deadline of the run.

        Raises:
            StoreError: a replayed write had another result, or there was too little time; the batch
                cannot be committed.
        """
        self._lost = True  # until all writes are replayed
        kept, own = self._journal[: self._kept_writes], self._journal[self._kept_writes :]
        last = max(ends_at, time.monotonic()) + _REPLAY_S
        try:
            self._begin_again(connection, kept, last)
            try:
                self._repeat(connection, own, ends_at)
            except _ERRORS:
                if time.monotonic() <= ends_at:
                    raise
                self._gave_up = True
                del self._journal[self._kept_writes :]
                self._begin_again(connection, kept, last)
        except _ERRORS as error:
            raise StoreError(reason=f"{self._path}: {error}") from error
        self._lost = False

    def _begin_again(
        self, connection: sqlite3.Connection, kept: Sequence[SqlWrite], ends_at: float
    ) -> None:
        """Start a new transaction, repeat the writes of earlier events, and set the savepoint."""
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")
        for step in self._steps:
            connection.execute(step)
        self._repeat(connection, kept, ends_at)
        connection.execute(f"SAVEPOINT {_EVENT}")

    def _repeat(
        self, connection: sqlite3.Connection, writes: Sequence[SqlWrite], ends_at: float
    ) -> None:
        self._ends_at = ends_at
        try:
            for write in writes:
                _, changed = self._run_statement(
                    *(connection, write.text, write.values, write.seed, write.effort), wanted=False
                )
                if changed != write.changed:
                    reason = f"a replayed write changed {changed} rows instead of {write.changed}"
                    raise StoreError(reason=f"{self._path}: {reason}")
        finally:
            self._ends_at = math.inf

    def _is_overdue(self) -> bool:
        return time.monotonic() > self._ends_at

    # ------------------------------------------------------------ opening

    def open(self) -> None:
        """See `ProjectDatabase.open`."""
        if self._connection is not None:
            return
        self._schema = parse_schema(self._config)
        connection: sqlite3.Connection | None = None
        try:
            connection = self._connect()
            self._migrate(connection)
            connection.set_progress_handler(self._is_overdue, _PROGRESS_STEPS)
            for limit, value in LIMITS.items():
                connection.setlimit(limit, value)
        except (sqlite3.Error, OSError) as error:
            if connection is not None:
                connection.close()
            raise StoreError(reason=f"{self._path}: {error}") from error
        except DatabaseConfigError:
            if connection is not None:
                connection.close()
            raise
        self._connection = connection

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            self._open_for_statement()
        assert self._connection is not None
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(
            self._path,
            timeout=BUSY_S,
            isolation_level=None,
            detect_types=sqlite3.PARSE_DECLTYPES,
            check_same_thread=False,
            cached_statements=CACHED_STATEMENTS,
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA trusted_schema = OFF")
            bound_memory(connection)
            page = int(connection.execute("PRAGMA page_size").fetchone()[0])
            pages = max(self._limits.database_bytes // page, 16)
            connection.execute(f"PRAGMA max_page_count = {pages}")
            connection.text_factory = decode_text
            connection.create_collation(DECIMAL_COLLATION, compare_decimals)
            self._functions.install(connection)
            create_table_functions(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _protect_tables(self, connection: sqlite3.Connection) -> None:
        """Let statements of applets use the tables that are there, and nothing else."""
        tables = existing_columns(connection)
        self._guard = Guard(frozenset(t for t in tables if not t.startswith(PRIVATE_PREFIX)))
        connection.set_authorizer(self._guard.authorize)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Migrate the database to its configuration; if it is replicated, only try that."""
        connection.execute("BEGIN IMMEDIATE")
        try:
            # The CHECK limits the table to one row.
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {STATE} "
                "(id INTEGER PRIMARY KEY CHECK (id = 0), number INTEGER NOT NULL)"
            )
            connection.execute(f"INSERT OR IGNORE INTO {STATE} VALUES (0, 0)")  # noqa: S608
            if self._is_replicated:
                connection.execute("COMMIT")
                connection.execute("BEGIN IMMEDIATE")
            indexes = existing_names(connection, "index")
            steps = list(plan(self._schema, existing_columns(connection), indexes))
            for what, statement in steps:
                try:
                    connection.execute(statement)
                except _ERRORS as error:
                    if isinstance(self._failure(error), StoreError):
                        raise
                    raise DatabaseConfigError(reason=f"{what}: {error}") from error
            self._protect_tables(connection)
            self._steps = [statement for _, statement in steps] if self._is_replicated else []
            connection.execute("ROLLBACK" if self._is_replicated else "COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _parse_boolean(raw: bytes) -> object:
    return {b"0": False, b"1": True}.get(raw, decode_text(raw))


def _parse_time(raw: bytes) -> object:
    """Convert a value of a time column: a stored time, or an integer."""
    if _STORED_TIME.fullmatch(raw):
        return TimeText(raw.decode())
    try:
        return int(raw)
    except ValueError:
        return decode_text(raw)


# sqlite3 chooses a converter by the first word of a column's type, and registers per process.
sqlite3.register_converter("BOOLEAN", _parse_boolean)
sqlite3.register_converter("TIMESTAMPTZ", _parse_time)
