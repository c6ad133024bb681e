"""The SQL database of one project: what SQLite and PostgreSQL have in common.

`storage.sql.sqlite` (a file) and `storage.sql.postgres` (a server) execute the statements.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fieldbrook.core.errors import DatabaseConfigError, StatementError
from fieldbrook.storage.sql.requests import Value, parse_request
from fieldbrook.storage.sql.schema import Schema
from fieldbrook.storage.sql.writes import SqlWrites


class SqlLimits(msgspec.Struct, frozen=True):
    """The limits of one statement, one event and one database.

    `statement_ms` covers the execution of a statement and the reading of its rows.
    `event_bytes` limits the total size of the requests of one event that write.
    """

    statement_ms: int = 1_000
    request_bytes: int = 1 << 20
    rows: int = 10_000
    result_bytes: int = 4 << 20
    event_bytes: int = 8 << 20
    database_bytes: int = 256 << 20


class ProjectDatabase(ABC):
    """A project's SQL database, owned by the project's data thread.

    One batch is one transaction for all its events, with a savepoint for each event.

    Order of calls for each run: `begin_event`, any `query` and `execute`, then `keep_event` or
    `undo_event`. After the runs of a batch: `commit` or `rollback`. The first statement of a
    batch opens the transaction, and the first statement of an event sets its savepoint. So a run
    without SQL costs nothing.

    Subclasses set `_has_savepoint` when the event has its savepoint. They set `_lost` when writes
    of the batch were lost for good. They call `_count_write` for each statement that wrote.

    Attributes:
        is_fresh: whether no event of the batch has begun, so that there is nothing to roll back.
    """

    def __init__(self, config: Mapping[str, Any], limits: SqlLimits | None) -> None:
        self._config = config
        self._config_error = ""  # why the configuration cannot be applied
        self._schema = Schema((), frozenset())
        self._limits = limits or SqlLimits()
        self.is_fresh = True
        self._in_event = False
        self._has_savepoint = False
        self._lost = False
        self._writes = self._kept_writes = 0  # writing statements: all, and of kept events
        self._event_bytes = self._batch_bytes = 0

    @property
    def wrote(self) -> bool:
        """Whether the batch has writes to commit, including those of the current event."""
        return self._writes > 0 or self._lost

    @property
    def written_bytes(self) -> int:
        """The total size of the batch's requests that wrote, including undone ones."""
        return self._batch_bytes

    def begin_event(self) -> None:
        """Begin the event of a run."""
        if self._in_event:
            raise RuntimeError("an event has begun already")
        self._in_event = True
        self.is_fresh = False
        self._event_bytes = 0

    def keep_event(self) -> None:
        """Keep the writes of a successful run as part of the batch."""
        try:
            if self._has_savepoint and not self._lost:
                self._release_event()
            self._kept_writes = self._writes
        finally:
            self._in_event = self._has_savepoint = False

    def undo_event(self) -> None:
        """Undo the writes of a failed run."""
        try:
            if self._has_savepoint and not self._lost:
                self._roll_back_event()
        finally:
            self._writes = self._kept_writes
            self._in_event = self._has_savepoint = False

    def query(self, request: bytes, ends_at: float = math.inf) -> bytes:
        """Execute a statement and return its rows.

        Args:
            request: see `storage.sql.requests.parse_request`.
            ends_at: the deadline of the run, in seconds on the monotonic clock.

        Returns:
            No bytes for no row, a JSON object for one row, an array of objects for several.

        Raises:
            StatementError: the statement failed and had no effect.
            StoreError: a failure of the node: disk, file, lock or server.
        """
        return self._perform(request, ends_at, wanted=True)

    def execute(self, request: bytes, ends_at: float = math.inf) -> None:
        """Execute a statement and discard its rows. See `query`."""
        self._perform(request, ends_at, wanted=False)

    @abstractmethod
    def number(self) -> int:
        """Return the number of the last committed batch; 0 before the first batch.

        Raises:
            StoreError: the database cannot be read.
        """

    @abstractmethod
    def writes(self) -> SqlWrites:
        """Return the writes of the batch, for other hosts, which repeat them.

        Raises:
            StoreError: the writes to this database cannot be repeated, or it cannot be read.
        """

    @abstractmethod
    def commit(self, number: int) -> None:
        """Commit the batch and its number in one transaction; it must exceed `number()`.

        Raises:
            StoreError: the commit failed or its outcome is unknown. `number()` then tells
                whether the batch was committed.
        """

    @abstractmethod
    def rollback(self) -> None:
        """Drop the writes of the batch and end its transaction."""

    @abstractmethod
    def open(self) -> None:
        """Open the database and create the configured tables. The first statement does so too.

        Raises:
            DatabaseConfigError: the configuration is invalid, or needs a change other than adding
                tables, columns and indexes; the reason names it.
            StoreError: the file cannot be opened or written, or the server cannot be reached.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the database and roll back an open batch. The next statement opens it again."""

    @abstractmethod
    def _perform(self, request: bytes, ends_at: float, *, wanted: bool) -> bytes:
        """Execute a statement. See `query`."""

    @abstractmethod
    def _release_event(self) -> None:
        """Release the event's savepoint and keep the writes since."""

    @abstractmethod
    def _roll_back_event(self) -> None:
        """Undo the writes since the event's savepoint, and release it."""

    def _open_for_statement(self) -> None:
        """Open the database if it is closed.

        Raises:
            StatementError: the configuration cannot be applied, now or at an earlier attempt.
            StoreError: see `open`.
        """
        if self._config_error:
            raise StatementError(self._config_error)
        try:
            self.open()
        except DatabaseConfigError as error:
            self._config_error = str(error)
            raise StatementError(self._config_error) from error

    def _parse(self, request: bytes) -> tuple[str, Sequence[Value]]:
        """Parse a request into its statement and parameters.

        Raises:
            StatementError: the request is too large or malformed.
        """
        if not self._in_event:
            raise RuntimeError("no event has begun")
        size, limit = len(request), self._limits.request_bytes
        if size > limit:
            raise StatementError(f"the request has {size} bytes, the limit is {limit}")
        return parse_request(request)

    def _count_write(self, size: int) -> None:
        """Count a request of `size` bytes that wrote.

        Raises:
            StatementError: the event's writes exceed `event_bytes`.
        """
        self._event_bytes += size
        if self._event_bytes > self._limits.event_bytes:
            raise StatementError(
                f"the event's writing requests have more than {self._limits.event_bytes} bytes"
            )
        self._writes += 1
        self._batch_bytes += size

    def _forget_batch(self) -> None:
        self._writes = self._kept_writes = self._batch_bytes = 0
        self._in_event = self._has_savepoint = self._lost = False
        self.is_fresh = True
