"""The SQL database of one project in SQLite, behind `ws_set_sql_db` and `ws_get_sql_db`.

The database is a file in the project's folder, which the first statement opens. Applets can
access the rows of the configured tables and nothing else. Each call executes one statement,
within limits of time and size. Applets cannot change the schema or control transactions.

The events of a batch share one transaction. Each has a savepoint, so that a failed event undoes
its own writes only. `commit(number)` stores the number of the batch in the same transaction as
its rows. The project's store uses this number to commit both stores atomically
(`ProjectStore.commit`): it first stages its own part under the number. After a crash the staged
part is valid exactly if the number in this database has reached it.

SQLite rolls back the whole transaction when it interrupts a write, runs out of space, or
executes `OR ROLLBACK`. The earlier writes of the batch must survive that. They are replayed
from a journal with the same clock and the same random numbers, so the results are the same.
"""

from __future__ import annotations

import math
import os
import random
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple

from fieldbrook.core.errors import DatabaseConfigError, StatementError, StoreError
from fieldbrook.storage.sql.batch import SqlBatch, SqlLimits
from fieldbrook.storage.sql.schema import (
    DECIMAL_COLLATION,
    PRIVATE_PREFIX,
    RESERVED,
    TIMES,
    Found,
    Schema,
    add_time,
    parse_schema,
    plan,
    quoted,
)
from fieldbrook.storage.sql.text import (
    Moment,
    Statement,
    Value,
    encode_rows,
    join_rows,
    stored_time,
    translate,
)

FILE = "sql.db"

_STATE = f"{PRIVATE_PREFIX}state"
_EVENT = f"{PRIVATE_PREFIX}event"
# The sqlite3 module caches prepared statements by text. This prefix keeps an applet from using a
# cached statement of the node, which was prepared without the guard.
_APPLETS = "/*applet*/ "

_BUSY_S = 1.0
_PROGRESS_STEPS = 1_000  # instructions of SQLite's virtual machine, about ten microseconds
_STATEMENTS_LIMIT = 256
_WAL_MARK = slice(18, 20)  # file format versions in the file header: 2 and 2 in WAL mode
_ROOM_BYTES = 1 << 20  # with less free space, SQLITE_FULL is blamed on the disk, not the limit

_VALUE_LIMIT = 1 << 20
_TRIMMED_LIMIT = 256  # characters
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: _VALUE_LIMIT,
    sqlite3.SQLITE_LIMIT_COLUMN: 500,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 100_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 100,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    # A pattern is matched in one instruction, which the time limit cannot interrupt.
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 256,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 1_000,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 10,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}

_ON_TABLES = frozenset(
    {sqlite3.SQLITE_READ, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE}
)
_HARMLESS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE})
_TABLE_FUNCTIONS = frozenset({"json_each", "json_tree"})
# An allow-list: functions that a newer SQLite adds stay forbidden until they are known to be
# harmless and deterministic, given the same clock and random numbers.
_FUNCTION_NAMES = """abs changes char coalesce concat concat_ws format glob hex ifnull iif if instr
    last_insert_rowid length like likelihood likely lower ltrim max min nullif octet_length
    printf quote random randomblob replace round rtrim sign soundex substr substring trim
    typeof unhex unicode unistr unistr_quote unlikely upper zeroblob
    avg count group_concat string_agg sum total median percentile percentile_cont
    percentile_disc
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value
    nth_value
    acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log
    log10 log2 mod pi pow power radians sin sinh sqrt tan tanh trunc
    json jsonb json_array jsonb_array json_array_length json_error_position json_extract
    jsonb_extract json_insert jsonb_insert json_object jsonb_object json_patch jsonb_patch
    json_pretty json_remove jsonb_remove json_replace jsonb_replace json_set jsonb_set
    json_type json_valid json_quote json_group_array jsonb_group_array json_group_object
    jsonb_group_object -> ->>
    current_timestamp current_date current_time now date time datetime julianday unixepoch
    strftime"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_CLOCKS = ("date", "time", "datetime", "julianday", "unixepoch", "strftime")

_FAULTS_OF_THE_NODE = frozenset(
    {
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
    }
)

_STORED_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


class _Write(NamedTuple):
    """A statement that changed rows, with all that is needed to replay it."""

    text: str
    values: list[Value]
    seed: int
    changed: int


def committed_number(path: Path) -> int:
    """Return the number of the last batch committed to the database at `path`; 0 without one.

    Raises:
        StoreError: the file is not a database, or cannot be read.
    """
    if not path.exists():
        return 0
    try:
        with _copying(path) as connection:
            return _number_if_any(connection)
    except sqlite3.Error as error:
        raise StoreError(reason=f"{path}: {error}") from error


def is_made(path: Path) -> bool:
    """Whether the file is a database in WAL mode, which may hold data.

    A file that its owner is just creating is not one yet. Opening that would take a lock and
    could make the creation fail.
    """
    try:
        with path.open("rb") as file:
            return file.read(_WAL_MARK.stop)[_WAL_MARK] == b"\2\2"
    except FileNotFoundError:
        return False


def check(path: Path) -> list[str]:
    """Check the integrity of a whole database file; return its faults, none when it is sound."""
    try:
        with _copying(path) as connection:
            connection.create_collation(DECIMAL_COLLATION, _compare_decimals)
            rows = connection.execute("PRAGMA integrity_check(20)").fetchall()
    except sqlite3.Error as error:
        return [str(error)]
    return [str(row[0]) for row in rows if row[0] != "ok"]


def rows(path: Path) -> Iterator[tuple[str, list[str], list[Any]]]:
    """Yield every row of the applets' tables: the table, its columns and the values."""
    with snapshot(path) as taken:
        for table in _tables_in(taken.connection):
            cursor = taken.connection.execute(f"SELECT * FROM {quoted(table)}")  # noqa: S608
            columns = [str(column[0]) for column in cursor.description]
            for row in cursor:
                yield table, columns, list(row)


def load(
    path: Path, config: Mapping[str, Any], given: Iterable[tuple[str, list[str], list[Any]]]
) -> None:
    """Create a database for a configuration and insert rows in the form of `rows`.

    Tables of an earlier version have the columns `TIMES` even if the configuration does not
    name them. These columns are added when a row has them.

    Raises:
        DatabaseConfigError: the configuration is invalid.
        StoreError: a row does not fit, or the file cannot be written.
    """
    made = SqlDatabase(path, config)
    made.open()
    made.close()
    try:
        with _copying(path) as connection:
            connection.create_collation(DECIMAL_COLLATION, _compare_decimals)
            known = {table: _columns_in(connection, table) for table in _tables_in(connection)}
            connection.execute("BEGIN")
            for table, columns, values in given:
                if table not in known or len(columns) != len(values):
                    raise StoreError(reason=f"a row of {table!r}, which is not configured")
                for name in TIMES:
                    if name in columns and name not in known[table]:
                        connection.execute(add_time(table, name))
                        known[table].add(name)
                names, marks = ", ".join(map(quoted, columns)), ", ".join("?" * len(columns))
                statement = f"INSERT INTO {quoted(table)} ({names}) VALUES ({marks})"  # noqa: S608
                connection.execute(statement, values)
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise StoreError(reason=f"{path.name}: {error}") from error


def _tables_in(connection: sqlite3.Connection) -> list[str]:
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    names = [str(row[0]) for row in connection.execute(tables)]
    return [name for name in names if not name.startswith(RESERVED)]


def _columns_in(connection: sqlite3.Connection, table: str) -> set[str]:
    found = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
    return {str(name).lower() for (name,) in found}


@contextmanager
def snapshot(path: Path) -> Iterator[Snapshot]:
    """Open a read transaction: the block sees the database at one moment, and may copy it.

    Raises:
        StoreError: the file is not a database, or cannot be read.
    """
    try:
        with _copying(path) as connection:
            connection.execute("BEGIN")
            yield Snapshot(connection, _number_if_any(connection))
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        raise StoreError(reason=f"{path}: {error}") from error


@contextmanager
def without_commits(path: Path, wait_s: float) -> Iterator[None]:
    """Keep all others from committing to a database within the block. Keep the block short.

    Raises:
        StoreError: the write lock was not free within `wait_s`, or the file cannot be read.
    """
    try:
        with _copying(path, wait_s) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        raise StoreError(reason=f"{path}: {error}") from error


class Snapshot(NamedTuple):
    """A read transaction over a database, and the batch number that it sees."""

    connection: sqlite3.Connection
    number: int

    def copy(self, target: Path) -> None:
        """Copy the database to a new file that is complete by itself, without a WAL file."""
        copied = sqlite3.connect(target, isolation_level=None)
        try:
            self.connection.backup(copied)
            copied.execute("PRAGMA journal_mode = WAL")  # the close removes the WAL file
        finally:
            copied.close()


@contextmanager
def _copying(path: Path, wait_s: float = _BUSY_S) -> Iterator[sqlite3.Connection]:
    address = f"{path.resolve().as_uri()}?mode=rw"
    connection = sqlite3.connect(address, uri=True, timeout=wait_s, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def _number_if_any(connection: sqlite3.Connection) -> int:
    tables = "SELECT 1 FROM sqlite_master WHERE name = ?"
    known = connection.execute(tables, (_STATE,)).fetchone()
    return 0 if known is None else _number(connection)


def _number(connection: sqlite3.Connection) -> int:
    row = connection.execute(f"SELECT number FROM {_STATE}").fetchone()  # noqa: S608
    return int(row[0]) if row else 0


class SqlDatabase(SqlBatch):
    """A project's SQLite database, owned by its data thread.

    `Run.sql` is this object: a run uses it as its session. Call `commit` or `rollback` after the
    runs of a batch.
    """

    def __init__(
        self,
        path: Path,
        config: Mapping[str, Any],
        limits: SqlLimits | None = None,
        *,
        moment: Callable[[], datetime] = lambda: datetime.now(UTC),
        draw: Callable[[int], int] = random.getrandbits,
    ) -> None:
        """Store the arguments; the first statement opens the file.

        Args:
            path: the file, `<project's folder>/sql.db`.
            config: the value of PROJECT_DATABASE or PROJECT_SCHEMA.
            limits: see `SqlLimits`; its defaults when None.
            moment: returns the time that all statements of a batch see as now.
            draw: returns a number of that many random bits; it seeds a statement.
        """
        super().__init__(limits)
        self._moment, self._draw = moment, draw
        self._path = path
        self._config = config
        self._connection: sqlite3.Connection | None = None
        self._schema = Schema((), frozenset())
        self._tables: frozenset[str] = frozenset()
        self._useless = ""  # why the configuration cannot be applied
        self._statements: dict[str, Statement] = {}
        self._journal: list[_Write] = []
        self._guarded = False
        self._denied = ""
        self._ends_at = math.inf
        self._now = ""
        self._seed = 0
        self._random: random.Random | None = None
        self._aside: sqlite3.Connection | None = None

    # ------------------------------------------------------------ batches and events

    def undo_event(self) -> None:
        """Undo the writes of a failed run."""
        try:
            super().undo_event()
        finally:
            del self._journal[self._kept_writes :]

    def commit(self, number: int) -> None:
        """Commit the batch and its number in one transaction; it must exceed `number()`.

        Raises:
            StoreError: the commit failed or its outcome is unknown. `number()` then tells
                whether the batch was committed.
        """
        lost = self._lost
        connection = self._connection
        if lost or connection is None or not connection.in_transaction:
            self.rollback()
            raise StoreError(reason=f"{self._path}: the batch's SQL writes were lost")
        try:
            changed = connection.execute(
                f"UPDATE {_STATE} SET number = ? WHERE number < ?",  # noqa: S608
                (number, number),
            ).rowcount
            if changed != 1:
                raise StoreError(reason=f"{self._path}: batch {number} is committed already")
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self.close()
            raise StoreError(reason=f"{self._path}: {error}") from error
        except StoreError:
            self.rollback()
            raise
        self._forget_batch()

    def rollback(self) -> None:
        """Drop the writes of the batch and end its transaction."""
        connection = self._connection
        self._forget_batch()
        if connection is not None and connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except sqlite3.Error:
                self.close()  # closing rolls back as well

    def number(self) -> int:
        """Return the number of the last committed batch; 0 before the first.

        Raises:
            StoreError: the database cannot be read.
        """
        if self._connection is None:
            return committed_number(self._path)
        try:
            return _number(self._connection)
        except sqlite3.Error as error:
            raise StoreError(reason=f"{self._path}: {error}") from error

    def close(self) -> None:
        """Close the database and roll back an open batch. The next statement opens it again."""
        connection, self._connection = self._connection, None
        aside, self._aside = self._aside, None
        self._forget_batch()
        for opened in (connection, aside):
            if opened is not None:
                opened.close()

    def _forget_batch(self) -> None:
        super()._forget_batch()
        self._journal = []

    # ------------------------------------------------------------ statements

    def _perform(self, request: bytes, ends_at: float, *, wanted: bool) -> bytes:
        text, params = self._read(request)
        connection = self._opened()
        statement = self._translated(text)
        values = statement.arrange(params)
        self._mark(connection)
        seed = self._draw(64)
        self._ends_at = min(ends_at, time.monotonic() + self._limits.statement_ms / 1000)
        before = connection.total_changes
        own = _APPLETS + statement.text
        try:
            result, changed = self._carry_out(connection, own, values, seed, wanted=wanted)
            if changed:
                self._count_write(len(request))
                self._journal.append(_Write(own, values, seed, changed))
        except StatementError:
            # The statement has changed rows before it failed, for example by too many results.
            if connection.total_changes != before:
                self._again(connection)
            raise
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            failure = self._failure(error)
            if not connection.in_transaction:
                self._again(connection)
            raise failure from error
        finally:
            self._ends_at = math.inf
        return result

    def _translated(self, text: str) -> Statement:
        statement = self._statements.get(text)
        if statement is None:
            if len(self._statements) >= _STATEMENTS_LIMIT:
                self._statements.clear()
            statement = self._statements[text] = translate(text, self._schema.names)
        return statement

    def _carry_out(
        self,
        connection: sqlite3.Connection,
        text: str,
        values: list[Value],
        seed: int,
        *,
        wanted: bool,
    ) -> tuple[bytes, int]:
        """Execute a statement; return its result and the number of changed rows."""
        self._seed, self._random = seed, None
        self._denied, self._guarded = "", True
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
            self._guarded = False

    def _result(self, cursor: sqlite3.Cursor) -> bytes:
        if cursor.description is None:
            return b""
        rows: list[str] = []
        left = self._limits.result_bytes
        names = [column[0] for column in cursor.description]
        for row in encode_rows(names, cursor):
            rows.append(row)
            left -= len(row)
            if left < 0:
                raise StatementError(f"the result has more than {self._limits.result_bytes} bytes")
            if len(rows) > self._limits.rows:
                raise StatementError(f"the result has more than {self._limits.rows} rows")
        return join_rows(rows)

    def _failure(self, error: Exception) -> Exception:
        """Return the failure as `StoreError` (of the node) or `StatementError` (of the applet)."""
        number = getattr(error, "sqlite_errorcode", None)
        code = 0 if number is None else number & 0xFF
        if code in _FAULTS_OF_THE_NODE:
            return StoreError(reason=f"{self._path}: {error}")
        if code == sqlite3.SQLITE_INTERRUPT:
            return StatementError("the statement's time is over")
        if code == sqlite3.SQLITE_FULL:
            space = os.statvfs(self._path.parent)
            if space.f_bavail * space.f_frsize < _ROOM_BYTES:
                return StoreError(reason=f"{self._path}: the disk is full")
            limit = self._limits.database_bytes
            return StatementError(f"the database has reached its limit of {limit} bytes")
        if code == sqlite3.SQLITE_AUTH and self._denied:
            return StatementError(f"not for applets: {self._denied}")
        return StatementError(str(error))

    # ------------------------------------------------------------ the transaction

    def _mark(self, connection: sqlite3.Connection) -> None:
        """Open the batch's transaction and the event's savepoint, unless they are open."""
        if self._lost:
            raise StoreError(reason=f"{self._path}: the batch's SQL writes were lost")
        if not connection.in_transaction:
            self._now = stored_time(self._moment())
            self._plain("BEGIN IMMEDIATE")
        if not self._marked:
            self._plain(f"SAVEPOINT {_EVENT}")
            self._marked = True

    def _release_event(self) -> None:
        self._plain(f"RELEASE {_EVENT}")

    def _roll_back_event(self) -> None:
        self._plain(f"ROLLBACK TO {_EVENT}")
        self._plain(f"RELEASE {_EVENT}")

    def _plain(self, statement: str) -> None:
        """Execute a statement of the node itself."""
        assert self._connection is not None
        try:
            self._connection.execute(statement)
        except sqlite3.Error as error:
            self._lost = bool(self._journal)
            raise StoreError(reason=f"{self._path}: {error}") from error

    def _again(self, connection: sqlite3.Connection) -> None:
        """Start a new transaction and replay the writes of the batch so far.

        Raises:
            StoreError: a replayed write had another result; the batch cannot be committed.
        """
        self._lost = True  # until all writes are replayed
        self._ends_at = math.inf
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            for place, write in enumerate(self._journal):
                if place == self._kept_writes:
                    connection.execute(f"SAVEPOINT {_EVENT}")
                text, values, seed, before = write
                _, changed = self._carry_out(connection, text, values, seed, wanted=False)
                if changed != before:
                    raise StoreError(reason=f"{self._path}: a write came out otherwise")
            if self._kept_writes == len(self._journal):
                connection.execute(f"SAVEPOINT {_EVENT}")
        except sqlite3.Error as error:
            raise StoreError(reason=f"{self._path}: {error}") from error
        self._lost = False

    # ------------------------------------------------------------ what SQLite calls

    def _guard(
        self, action: int, first: str | None, second: str | None, place: str | None, _by: str | None
    ) -> int:
        """Authorize an action of a statement; SQLite calls this when it prepares the statement."""
        if not self._guarded or action in _HARMLESS:
            return sqlite3.SQLITE_OK
        if action in _ON_TABLES:
            name = (first or "").lower()
            if place in ("main", None) and name in self._tables:
                return sqlite3.SQLITE_OK
            if action == sqlite3.SQLITE_READ and name in _TABLE_FUNCTIONS:
                return sqlite3.SQLITE_OK
            if (second, place) == ("", None) and not name.startswith(RESERVED):
                # This form reads no column, as in `count(*)`. It only tells the number of rows of
                # a table, or of a subquery with that name.
                return sqlite3.SQLITE_OK
            self._denied = f"table {first}"
        elif action == sqlite3.SQLITE_FUNCTION:
            if (second or "").lower() in _FUNCTIONS:
                return sqlite3.SQLITE_OK
            self._denied = f"function {second}"
        else:
            self._denied = " ".join(part for part in ("statement", first, second) if part)
        return sqlite3.SQLITE_DENY

    def _overdue(self) -> bool:
        return time.monotonic() > self._ends_at

    def _generator(self) -> random.Random:
        if self._random is None:
            self._random = random.Random(self._seed)  # noqa: S311 - it must repeat itself
        return self._random

    def _random_integer(self) -> int:
        return self._generator().getrandbits(64) - (1 << 63)

    def _random_bytes(self, size: Any) -> bytes:
        wanted = size if isinstance(size, int) else 1
        if wanted > _VALUE_LIMIT:
            raise ValueError(wanted)
        return self._generator().randbytes(max(wanted, 1))

    def _timed(self, function: str) -> Callable[..., Value]:
        """Wrap a date function so that `now` is the batch's time, as in PostgreSQL transactions."""
        place = 1 if function == "strftime" else 0

        def call(*given: Value) -> Value:
            arguments = list(given)
            if len(arguments) == place:
                arguments.append(self._now)
            elif len(arguments) > place:
                moment = arguments[place]
                if isinstance(moment, str) and moment.strip().lower() == "now":
                    arguments[place] = self._now
            return self._by_sqlite(function, arguments)

        return call

    def _printing(self, function: str) -> Callable[..., Value]:
        """Wrap a formatting function to refuse `%.Nc`, for which SQLite needs N steps.

        The limit on the size of a value does not bound these steps.
        """

        def call(*given: Value) -> Value:
            if given and given[0] is not None and _repeats_a_character(_as_text(given[0])):
                raise ValueError("%c takes no precision")
            return self._by_sqlite(function, given)

        return call

    def _by_sqlite(self, function: str, arguments: Sequence[Value]) -> Value:
        """Call SQLite's built-in function, on a connection where ours does not replace it."""
        if self._aside is None:
            self._aside = sqlite3.connect(":memory:", check_same_thread=False)
            self._aside.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_LIMIT)
        marks = ",".join("?" * len(arguments))
        row = self._aside.execute(f"SELECT {function}({marks})", arguments).fetchone()
        value: Value = row[0]
        return value

    # ------------------------------------------------------------ opening

    def open(self) -> None:
        """Open the database and create the configured tables. The first statement does so too.

        Raises:
            DatabaseConfigError: the configuration is invalid, or needs a change other than adding
                tables, columns and indexes; the reason names it.
            StoreError: the file is not a database, or cannot be written.
        """
        if self._connection is not None:
            return
        self._schema = parse_schema(self._config)
        connection: sqlite3.Connection | None = None
        try:
            connection = self._connect()
            self._migrate(connection)
            self._tables = frozenset(
                name for name in _found(connection) if not name.startswith(PRIVATE_PREFIX)
            )
            connection.set_authorizer(self._guard)
            connection.set_progress_handler(self._overdue, _PROGRESS_STEPS)
            for limit, value in _LIMITS.items():
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

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            if self._useless:
                raise StatementError(self._useless)
            try:
                self.open()
            except DatabaseConfigError as error:
                self._useless = str(error)
                raise StatementError(self._useless) from error
        assert self._connection is not None
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(
            self._path,
            timeout=_BUSY_S,
            isolation_level=None,
            detect_types=sqlite3.PARSE_DECLTYPES,
            check_same_thread=False,
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA trusted_schema = OFF")
            page = int(connection.execute("PRAGMA page_size").fetchone()[0])
            pages = max(self._limits.database_bytes // page, 16)
            connection.execute(f"PRAGMA max_page_count = {pages}")
            connection.text_factory = _text
            connection.create_collation(DECIMAL_COLLATION, _compare_decimals)
            self._replace_functions(connection)
            # SQLite creates a table-valued function at its first use, so use each one before the
            # guard is set.
            for name in _TABLE_FUNCTIONS:
                connection.execute(f"SELECT 1 FROM {name}('[]')").fetchall()  # noqa: S608
        except BaseException:
            connection.close()
            raise
        return connection

    def _replace_functions(self, connection: sqlite3.Connection) -> None:
        """Replace functions of time and chance by repeatable ones, slow ones by bounded ones."""
        define = connection.create_function
        define("random", 0, self._random_integer)
        define("randomblob", 1, self._random_bytes)
        define("now", 0, lambda: self._now, deterministic=True)
        define("current_timestamp", 0, lambda: self._now, deterministic=True)
        define("current_date", 0, lambda: self._now[:10], deterministic=True)
        define("current_time", 0, lambda: self._now[11:19], deterministic=True)
        # The built-in functions can take seconds over the longest values, in one instruction that
        # the time limit cannot interrupt.
        define("instr", 2, _instr, deterministic=True)
        define("replace", 3, _replace, deterministic=True)
        for name, strip in (("trim", str.strip), ("ltrim", str.lstrip), ("rtrim", str.rstrip)):
            define(name, -1, _trimming(strip), deterministic=True)
        for name in ("printf", "format"):
            define(name, -1, self._printing(name), deterministic=True)
        for name in _CLOCKS:
            define(name, -1, self._timed(name), deterministic=True)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            # The CHECK limits the table to one row.
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {_STATE} "
                "(id INTEGER PRIMARY KEY CHECK (id = 0), number INTEGER NOT NULL)"
            )
            connection.execute(f"INSERT OR IGNORE INTO {_STATE} VALUES (0, 0)")  # noqa: S608
            indexes = _names(connection, "index")
            for what, statement in plan(self._schema, _found(connection), indexes):
                try:
                    connection.execute(statement)
                except sqlite3.Error as error:
                    if isinstance(self._failure(error), StoreError):
                        raise
                    raise DatabaseConfigError(reason=f"{what}: {error}") from error
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _as_text(value: Value) -> str:
    return _text(value) if isinstance(value, bytes) else str(value)


def _instr(whole: Value, part: Value) -> int | None:
    if whole is None or part is None:
        return None
    if isinstance(whole, bytes) and isinstance(part, bytes):
        return whole.find(part) + 1
    return _as_text(whole).find(_as_text(part)) + 1


def _repeats_a_character(form: str) -> bool:
    """Whether a format has `%c` with a precision, which repeats the character that often."""
    for part in form.split("%")[1:]:
        options, letter, _ = part.partition("c")
        ends_before = any(sign.isalpha() and sign != "l" for sign in options)
        if letter and "." in options and not ends_before:
            return True
    return False


def _replace(whole: Value, old: Value, new: Value) -> str | None:
    if whole is None or old is None or new is None:
        return None
    text, before, after = _as_text(whole), _as_text(old), _as_text(new)
    if not before:
        return text
    if len(text) + text.count(before) * (len(after) - len(before)) > _VALUE_LIMIT:
        raise ValueError("string or blob too big")
    return text.replace(before, after)


def _trimming(strip: Callable[[str, str], str]) -> Callable[..., str | None]:
    def call(whole: Value, characters: Value = " ") -> str | None:
        if whole is None or characters is None:
            return None
        given = _as_text(characters)
        if len(given) > _TRIMMED_LIMIT:
            raise ValueError("too many characters to trim")
        return strip(_as_text(whole), given) if given else _as_text(whole)

    return call


def _names(connection: sqlite3.Connection, kind: str) -> list[str]:
    rows: Iterable[tuple[str]] = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = ? AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
        (kind,),
    )
    return [name for (name,) in rows]


def _found(connection: sqlite3.Connection) -> dict[str, list[Found]]:
    """Return the columns of each table, by its name in lower case."""
    return {
        name.lower(): [
            Found(*row[1:]) for row in connection.execute(f"PRAGMA table_info({quoted(name)})")
        ]
        for name in _names(connection, "table")
    }


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _compare_decimals(first: str, second: str) -> int:
    try:
        a, b = Decimal(first), Decimal(second)
        return (a > b) - (a < b)
    except InvalidOperation:
        return (first > second) - (first < second)


def _boolean(raw: bytes) -> object:
    return {b"0": False, b"1": True}.get(raw, _text(raw))


def _moment(raw: bytes) -> object:
    """Convert a value of a time column: a stored time, or an integer."""
    if _STORED_TIME.fullmatch(raw):
        return Moment(raw.decode())
    try:
        return int(raw)
    except ValueError:
        return _text(raw)


# sqlite3 chooses a converter by the first word of a column's type, and registers per process.
sqlite3.register_converter("BOOLEAN", _boolean)
sqlite3.register_converter("TIMESTAMPTZ", _moment)
