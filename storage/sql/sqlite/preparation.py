"""Bounds the preparation of statements in SQLite, which the time limit cannot interrupt.

SQLite copies a common table expression for each reference to it, and the expression of a column for
each use in the query around it. So a statement of a kilobyte can become millions of nodes, which
take minutes and all the memory that the projects of the process share. If the text of a statement
allows this, the statement is first prepared in a child process with limits, on an empty database
with the same tables. If this succeeds, it is prepared in this process. Most statements are too
small for this and are prepared at once.
"""

from __future__ import annotations

import hashlib
import math
import sqlite3
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from fieldbrook.core.errors import StatementError, StoreError
from fieldbrook.storage.sql.sqlite.functions import AppletFunctions, compare_decimals
from fieldbrook.storage.sql.sqlite.guard import LIMITS, Guard, create_table_functions
from fieldbrook.storage.sql.sqlite.migration import DECIMAL_COLLATION
from fieldbrook.storage.sql.statements import Token
from fieldbrook.system.confined import Bounds, ConfinedError, run_confined

EFFORT_LIMIT = 250_000
"""The largest effort of a statement that is prepared without a trial."""

CACHED_STATEMENTS = 64
"""The number of prepared statements that a connection keeps."""
_KEPT_EFFORT = 5_000  # a prepared statement with a larger effort is not kept: it may have megabytes
_KEPT_LENGTH = 4_096

_TRIAL_MEMORY_BYTES = 64 << 20
_BOUNDS = Bounds(cpu_s=3, timeout_s=30.0, address_bytes=1 << 30, file_bytes=1 << 20)
_FITS = b"fits"
_REMEMBERED = 1_024  # digests of statements that were tried

# Words that cannot be names. SQLite accepts other words, such as `desc`, as names.
_WORDS = """ALL AND AS BETWEEN CASE DEFAULT DELETE DISTINCT ELSE EXISTS FROM GROUP HAVING IN INSERT
    INTO IS JOIN LIMIT NOT NULL ON OR ORDER SELECT SET THEN UNION UPDATE VALUES WHEN WHERE"""
_RESERVED = frozenset(_WORDS.split())


def effort(tokens: Sequence[Token]) -> int:
    """Return an upper bound for the number of nodes that SQLite makes of a statement;
    `EFFORT_LIMIT` + 1 if it is higher.

    The numbers of references in different levels of the statement multiply. A level is a query, a
    query to which it refers, and so on; the names that a query gives to its own columns are a
    level, too. N names in m levels have at most (N / m) ** m paths from the outermost query to a
    table.
    """
    queries = names = 0
    for kind, text in tokens:
        word = text.upper() if kind == "name" else ""
        queries += word == "SELECT"
        names += kind in ("quoted", "literal") or text == "*" or bool(word)
        names -= word in _RESERVED
    if not queries:
        return len(tokens)
    levels = range(1, min(queries + 1, max(names, 1)) + 1)
    most = max(level * math.log(max(names, 1) / level) for level in levels)
    return EFFORT_LIMIT + 1 if most > math.log(EFFORT_LIMIT) else round(math.exp(most))


class Trials:
    """The trials of a process; a statement is tried only once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fit: OrderedDict[bytes, bool] = OrderedDict()

    def require(self, schema: Callable[[], Sequence[str]], statement: str, scratch: Path) -> None:
        """Prepare a statement in a child process with limits.

        Args:
            schema: returns the statements that created the tables and indexes.
            statement: the statement for SQLite.
            scratch: a folder for a temporary file.

        Raises:
            StatementError: the preparation takes too much time or memory.
            StoreError: no process could be started.
        """
        task = msgspec.msgpack.encode((list(schema()), statement))
        digest = hashlib.sha256(task).digest()
        with self._lock:
            fits = self._fit.get(digest)
        if fits is None:
            fits = self._try(task, scratch)
            with self._lock:
                self._fit[digest] = fits
                if len(self._fit) > _REMEMBERED:
                    self._fit.popitem(last=False)
        if not fits:
            raise StatementError("the statement is too large to be prepared")

    def _try(self, task: bytes, scratch: Path) -> bool:
        try:
            return run_confined(__name__, [], _BOUNDS, scratch, task) == _FITS
        except ConfinedError as error:
            # This result is not kept, because the machine may just be busy.
            raise StatementError("the statement takes too long to be prepared") from error
        except OSError as error:
            reason = f"a statement cannot be tried: {error.strerror}"
            raise StoreError(reason=reason) from error


trials = Trials()


def created_by(connection: sqlite3.Connection) -> list[str]:
    """Return the statements that created the tables and indexes of a database."""
    own = "sql IS NOT NULL AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    rows = connection.execute(f"SELECT sql FROM sqlite_master WHERE {own}").fetchall()  # noqa: S608
    return [str(sql) for (sql,) in rows]


def forget_statement(connection: sqlite3.Connection, cost: int, statement: str) -> None:
    """Make a connection drop a large prepared statement, with all other statements that it keeps.

    The reason: the statements of all projects share one memory limit.
    """
    if cost > _KEPT_EFFORT or len(statement) > _KEPT_LENGTH:
        # If other projects leave no memory for this, a later statement drops it.
        with suppress(sqlite3.Error, MemoryError):
            for number in range(CACHED_STATEMENTS):
                connection.execute(f"SELECT {number}").close()


def main(_arguments: Sequence[str]) -> int:
    """Prepare a statement from standard input, in the child."""
    schema, statement = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=tuple[list[str], str])
    connection = sqlite3.connect(":memory:")
    connection.create_collation(DECIMAL_COLLATION, compare_decimals)
    AppletFunctions().install(connection)
    create_table_functions(connection)
    for created in schema:
        connection.execute(created)
    tables = connection.execute("SELECT lower(name) FROM sqlite_master").fetchall()
    connection.execute(f"PRAGMA hard_heap_limit = {_TRIAL_MEMORY_BYTES}")
    for limit, value in LIMITS.items():
        connection.setlimit(limit, value)
    guard = Guard(frozenset(name for (name,) in tables))
    guard.active = True
    connection.set_authorizer(guard.authorize)
    try:
        connection.execute(statement)
    except MemoryError:
        return 0
    except sqlite3.Error:
        pass  # the statement is wrong, or has parameters: SQLite reports this after the preparation
    sys.stdout.buffer.write(_FITS)
    return 0
