"""What the SQL databases of projects have in common: the events of a batch, and what they wrote.

`storage.sql.sqlite` (a file of SQLite) and `storage.sql.postgres` (a server) carry statements out.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from fieldbrook.core.errors import StatementError
from fieldbrook.storage.sql.text import Value, parse_request


@dataclass(frozen=True, slots=True)
class SqlLimits:
    """What one statement, one event and one database may use.

    `statement_ms` covers a statement and the reading of its rows; `event_bytes` counts the
    requests of the writes of one event.
    """

    statement_ms: int = 1_000
    request_bytes: int = 1 << 20
    rows: int = 10_000
    result_bytes: int = 4 << 20
    event_bytes: int = 8 << 20
    database_bytes: int = 256 << 20


class SqlBatch(ABC):
    """The events of a batch share one transaction, each with a savepoint in it.

    Order of calls: `begin_event`, any `query` and `execute`, then `keep_event` or
    `undo_event`, for each run. The first statement of a batch opens the transaction, the
    first of an event its savepoint: a run without SQL costs nothing.

    A database says in `_marked` that the event has its savepoint, in `_lost` that writes of
    the batch are gone and did not come back, and counts what it wrote with `_count_write`.
    """

    def __init__(self, limits: SqlLimits | None) -> None:
        self._limits = limits or SqlLimits()
        self._in_event = False
        self._marked = False
        self._lost = False
        self._writes = self._kept_writes = 0  # statements of the batch, and of events kept
        self._event_bytes = self._batch_bytes = 0

    @property
    def wrote(self) -> bool:
        """Whether the batch has writes to commit, those of the event under way included."""
        return self._writes > 0 or self._lost

    @property
    def written_bytes(self) -> int:
        """The size of the batch's writes, as requests."""
        return self._batch_bytes

    def begin_event(self) -> None:
        """A run begins."""
        if self._in_event:
            raise RuntimeError("an event is under way already")
        self._in_event = True
        self._event_bytes = 0

    def keep_event(self) -> None:
        """The run went well: its writes are part of the batch."""
        try:
            if self._marked and not self._lost:
                self._release_event()
            self._kept_writes = self._writes
        finally:
            self._in_event = self._marked = False

    def undo_event(self) -> None:
        """The run failed: its writes are gone."""
        try:
            if self._marked and not self._lost:
                self._roll_back_event()
        finally:
            self._writes = self._kept_writes
            self._in_event = self._marked = False

    def query(self, request: bytes, ends_at: float = math.inf) -> bytes:
        """Carry out a statement and give its rows.

        Args:
            request: see `sql_text.parse_request`.
            ends_at: when the run's own time is over, on the monotonic clock in seconds.

        Returns:
            Nothing for no row, a JSON object for one, an array of objects for several.

        Raises:
            StatementError: the statement was not carried out; none of it happened.
            StoreError: the node cannot carry out statements: disk, file, lock, server.
        """
        return self._perform(request, ends_at, wanted=True)

    def execute(self, request: bytes, ends_at: float = math.inf) -> None:
        """Carry out a statement whose rows nobody wants. See `query`."""
        self._perform(request, ends_at, wanted=False)

    @abstractmethod
    def _perform(self, request: bytes, ends_at: float, *, wanted: bool) -> bytes:
        """Carry out a statement. See `query`."""

    @abstractmethod
    def _release_event(self) -> None:
        """Give up the event's savepoint, not what was done since."""

    @abstractmethod
    def _roll_back_event(self) -> None:
        """Undo what was done since the event's savepoint, and give it up."""

    def _read(self, request: bytes) -> tuple[str, Sequence[Value]]:
        """The statement of a request and its values.

        Raises:
            StatementError: it is too large, or none.
        """
        if not self._in_event:
            raise RuntimeError("no event is under way")
        size, limit = len(request), self._limits.request_bytes
        if size > limit:
            raise StatementError(f"the request has {size} bytes, the limit is {limit}")
        return parse_request(request)

    def _count_write(self, size: int) -> None:
        """A request of so many bytes has written.

        Raises:
            StatementError: it may not: the event has written too much.
        """
        self._event_bytes += size
        if self._event_bytes > self._limits.event_bytes:
            raise StatementError(
                f"the event's writes have more than {self._limits.event_bytes} bytes"
            )
        self._writes += 1
        self._batch_bytes += size

    def _forget_batch(self) -> None:
        self._writes = self._kept_writes = self._batch_bytes = 0
        self._in_event = self._marked = self._lost = False
