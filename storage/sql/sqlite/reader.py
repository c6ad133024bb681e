"""Reads a project's SQLite file in a process other than the one that writes it."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fieldbrook.core.errors import StatementError, StoreError
from fieldbrook.storage.sql.database import SqlLimits
from fieldbrook.storage.sql.reading import DatabaseReader, Result, ResultRows, Session
from fieldbrook.storage.sql.requests import Value, stored_time
from fieldbrook.storage.sql.schema import PRIVATE_PREFIX
from fieldbrook.storage.sql.sqlite.failures import NODE_FAULTS
from fieldbrook.storage.sql.sqlite.files import BUSY_S, is_initialized
from fieldbrook.storage.sql.sqlite.functions import AppletFunctions, compare_decimals, decode_text
from fieldbrook.storage.sql.sqlite.guard import (
    LIMITS,
    STATEMENT_ERRORS,
    Guard,
    bound_memory,
    create_table_functions,
)
from fieldbrook.storage.sql.sqlite.migration import DECIMAL_COLLATION, existing_columns
from fieldbrook.storage.sql.sqlite.preparation import EFFORT_LIMIT, created_by, trials
from fieldbrook.storage.sql.sqlite.statements import translate

_INTERRUPTED_AGAIN_S = 0.05  # repeated, because an early interrupt has no effect


class SqliteReader(DatabaseReader):
    """Reads a project's SQLite file; see `DatabaseReader`."""

    def __init__(self, path: Path, config: Mapping[str, Any], limits: SqlLimits) -> None:
        """Store the arguments; `path` is the file, `<project's folder>/sql.db`."""
        super().__init__(config, limits)
        self._path = path

    @contextmanager
    def _session(self) -> Iterator[Session | None]:
        if not is_initialized(self._path):
            yield None
            return
        try:
            session = _SqliteSession(self._path, self._schema.names, self._limits)
        except sqlite3.Error as error:
            raise StoreError(reason=f"{self._path}: {error}") from error
        try:
            yield session
        finally:
            session.close()


class _SqliteSession(Session):
    def __init__(self, path: Path, schemas: frozenset[str], limits: SqlLimits) -> None:
        self._path, self._schemas, self._limits = path, schemas, limits
        self._functions = AppletFunctions()
        self._functions.now = stored_time(datetime.now(UTC))
        self._functions.seed = random.getrandbits(64)
        # Two protections: SQLite opens the file read-only, and the guard refuses all changes.
        self._connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro",
            uri=True,
            timeout=BUSY_S,
            isolation_level=None,
            detect_types=sqlite3.PARSE_DECLTYPES,
        )
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        connection = self._connection
        for pragma in ("trusted_schema = OFF", "query_only = ON", "mmap_size = 0"):
            connection.execute(f"PRAGMA {pragma}")
        bound_memory(connection)
        connection.text_factory = decode_text
        connection.create_collation(DECIMAL_COLLATION, compare_decimals)
        self._functions.install(connection)
        create_table_functions(connection)
        found = existing_columns(connection)
        self.tables = {
            name: [(column.name, column.kind) for column in columns]
            for name, columns in found.items()
            if not name.startswith(PRIVATE_PREFIX)
        }
        self._created = created_by(connection)
        self._guard = Guard(frozenset(self.tables), read_only=True)
        self._guard.active = True
        connection.set_authorizer(self._guard.authorize)
        for limit, value in LIMITS.items():
            connection.setlimit(limit, value)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
        self._functions.close()

    def run(self, statement: str, values: Sequence[Value], ends_at: float) -> Result:
        """See `Session.run`."""
        translated = translate(statement, self._schemas)
        arranged = translated.arrange(values)
        if translated.effort > EFFORT_LIMIT:
            began = time.monotonic()
            trials.require(lambda: self._created, translated.text, self._path.parent)
            ends_at += time.monotonic() - began
        self._guard.begin()
        try:
            with self._interrupted_at(ends_at):
                return self._read(translated.text, arranged)
        except STATEMENT_ERRORS as error:
            raise self._failure(error) from error

    def _read(self, text: str, values: Any) -> Result:
        collected = ResultRows(self._limits)
        cursor = self._connection.execute(text, values)
        try:
            names = [str(column[0]) for column in cursor.description or ()]
            for row in cursor:
                collected.add(row)
        finally:
            cursor.close()
        return Result(names, collected.rows)

    @contextmanager
    def _interrupted_at(self, ends_at: float) -> Iterator[None]:
        """Interrupt the statement of the block at the end of its time.

        SQLite checks for an interrupt in each iteration of a loop. A progress handler would be
        called after a number of instructions instead, and one of them may produce a megabyte.
        """
        over = threading.Event()
        watch = threading.Thread(target=self._interrupt, args=(ends_at, over), daemon=True)
        watch.start()
        try:
            yield
        finally:
            over.set()
            watch.join()

    def _interrupt(self, ends_at: float, over: threading.Event) -> None:
        wait_s = max(0.0, ends_at - time.monotonic())
        while not over.wait(wait_s):
            self._connection.interrupt()
            wait_s = _INTERRUPTED_AGAIN_S

    def _failure(self, error: Exception) -> Exception:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in NODE_FAULTS:
            return StoreError(reason=f"{self._path}: {error}")
        if code == sqlite3.SQLITE_INTERRUPT:
            return StatementError("the statement exceeded its time limit")
        if self._guard.denied:
            return StatementError(f"queries may not use {self._guard.denied}")
        return StatementError(str(error) or "the statement is too large")
