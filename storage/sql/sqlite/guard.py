"""Confinement of applets' statements in SQLite: allowed tables and functions, and limits."""

from __future__ import annotations

import sqlite3
from collections.abc import Set

from fieldbrook.storage.sql.schema import RESERVED

VALUE_LIMIT = 1 << 20

# Limits for all databases of a process together: for their caches, and for all memory. A single
# statement can have a row of `SQLITE_LIMIT_COLUMN` values, or an aggregate that `VALUE_LIMIT` does
# not bound before its end.
_CACHE_BYTES, _MEMORY_BYTES = 256 << 20, 512 << 20

LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: VALUE_LIMIT,
    sqlite3.SQLITE_LIMIT_COLUMN: 250,
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

# A statement beyond `SQLITE_LIMIT_VDBE_OP` raises `MemoryError`.
STATEMENT_ERRORS = (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError)

_CHANGES = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})
_ON_TABLES = frozenset({sqlite3.SQLITE_READ, *_CHANGES})
_HARMLESS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE})
TABLE_FUNCTIONS = frozenset({"json_each", "json_tree"})
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
# SQLite checks for an interrupt between rows, not between the functions of one row. The budget
# bounds the time for a row: a call with values of `VALUE_LIMIT` takes milliseconds, a call of a
# function with a higher cost up to half a second, and `json_patch` seconds.
_FUNCTION_BUDGET = 1_000
_COSTS = {"like": 50, "glob": 50, "json_patch": 1_000, "jsonb_patch": 1_000}


def bound_memory(connection: sqlite3.Connection) -> None:
    """Bound the memory that SQLite takes in this process; a statement beyond fails.

    The memory includes the rows that a statement sorts or collects. By default, SQLite would write
    these to files in `/var/tmp`, without a limit and outside the data folder.
    """
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"PRAGMA soft_heap_limit = {_CACHE_BYTES}")
    connection.execute(f"PRAGMA hard_heap_limit = {_MEMORY_BYTES}")


def create_table_functions(connection: sqlite3.Connection) -> None:
    """Have SQLite create its table-valued functions, which it does at the first use of each.

    Call this before a guard is set. A table with the name of a function hides the function.
    """
    rows = connection.execute("SELECT lower(name) FROM sqlite_master").fetchall()
    for name in TABLE_FUNCTIONS - {name for (name,) in rows}:
        connection.execute(f"SELECT 1 FROM {name}('[]')").fetchall()  # noqa: S608


class Guard:
    """Authorizes the actions of applets' statements.

    `authorize` is SQLite's authorizer callback. It denies nothing unless the guard is `active`,
    because the node's own statements run on the same connection.
    """

    def __init__(self, tables: Set[str], *, read_only: bool = False) -> None:
        """Allow access to these tables; their names are in lower case."""
        self._tables = tables
        self._read_only = read_only
        self.active = False
        self.denied = ""
        """What the guard has denied to the current statement, for the error message."""
        self._budget = _FUNCTION_BUDGET

    def begin(self) -> None:
        """Begin to authorize another statement."""
        self.denied, self._budget = "", _FUNCTION_BUDGET

    def authorize(
        self,
        action: int,
        first: str | None,
        second: str | None,
        database: str | None,
        _trigger: str | None,
    ) -> int:
        """Authorize an action of a statement; SQLite calls this when it prepares the statement."""
        if not self.active or action in _HARMLESS:
            return sqlite3.SQLITE_OK
        if self._read_only and action in _CHANGES:
            self.denied = f"changes of table {first}"
        elif action in _ON_TABLES:
            name = (first or "").lower()
            if database in ("main", None) and name in self._tables:
                return sqlite3.SQLITE_OK
            if action == sqlite3.SQLITE_READ and name in TABLE_FUNCTIONS:
                return sqlite3.SQLITE_OK
            if (second, database) == ("", None) and not name.startswith(RESERVED):
                # This form reads no column, as in `count(*)`. It only tells the number of rows of
                # a table, or of a subquery with that name.
                return sqlite3.SQLITE_OK
            self.denied = f"table {first}"
        elif action == sqlite3.SQLITE_FUNCTION:
            name = (second or "").lower()
            self._budget -= _COSTS.get(name, 1)
            if name in _FUNCTIONS and self._budget >= 0:
                return sqlite3.SQLITE_OK
            self.denied = f"function {second}" + (
                " so often in one statement" if name in _FUNCTIONS else ""
            )
        else:
            self.denied = " ".join(part for part in ("statement", first, second) if part)
        return sqlite3.SQLITE_DENY
