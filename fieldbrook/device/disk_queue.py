"""The queue of events on the device's disk: a SQLite file, which is kept when the process ends.

An event is in the file when `add` returns, and leaves it when the node's answer is known. With
`sync`, `add` waits for the disk (`synchronous=FULL`), and the event also survives a power cut.
Without `sync`, a power cut may lose the last events, but a crash or `kill -9` loses none.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fieldbrook.device.errors import QueueBusyError, QueueError, QueueFullError
from fieldbrook.device.event import Event

FILE_NAME = "events.sqlite"
_VERSION = 1
_BUSY_S = 1.0
_TABLE = """
CREATE TABLE IF NOT EXISTS events (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  event_type TEXT NOT NULL, event_id TEXT NOT NULL, at_ms INTEGER,
  payload BLOB NOT NULL, size_bytes INTEGER NOT NULL,
  refused TEXT)
"""
_WAITING = "CREATE INDEX IF NOT EXISTS waiting ON events (number) WHERE refused IS NULL"
_REFUSED = "CREATE INDEX IF NOT EXISTS refused ON events (number) WHERE refused IS NOT NULL"


class Queued(NamedTuple):
    """An event and its place in the queue. `refused` is the node's reason of a refusal; "" while
    the event waits."""

    number: int
    event: Event
    refused: str = ""


class DiskQueue:
    """The queue of one device, in order; thread-safe.

    Only one process at a time can open it. Refused events stay in the file until their space is
    needed.
    """

    def __init__(self, folder: Path, limit_events: int, limit_bytes: int, *, sync: bool) -> None:
        """Open the queue; create it if it does not exist.

        Args:
            folder: the folder of the file; it is created if it is missing.
            limit_events: the most events in the queue.
            limit_bytes: the most bytes of all events; each counts 200 in addition to its payload.
            sync: whether events survive a power cut.

        Raises:
            QueueBusyError: another process, or another object of this process, has opened the
                queue.
            QueueError: the queue cannot be opened, is damaged, or has a later version.
        """
        self._limit_events, self._limit_bytes = limit_events, limit_bytes
        self._lock = threading.Lock()
        self.path = folder / FILE_NAME
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
            self._database = sqlite3.connect(
                self.path, _BUSY_S, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            raise QueueError(f"cannot open the queue {folder}: {error}") from None
        try:
            with self._errors():
                self._prepare(sync)
            if sync:
                _sync_folder(folder)
        except QueueError:
            self._database.close()
            raise

    def _prepare(self, sync: bool) -> None:
        run = self._database.execute
        # The lock is held from the first write until the end of the process, even after kill -9.
        run("PRAGMA locking_mode=EXCLUSIVE")
        run("PRAGMA journal_mode=WAL")
        run(f"PRAGMA synchronous={'FULL' if sync else 'NORMAL'}")
        (version,) = run("PRAGMA user_version").fetchone()
        if version > _VERSION:
            raise QueueError(
                f"the queue {self.path} was written by a later version of fieldbrook: install that"
            )
        with self._transaction():
            for statement in (_TABLE, _WAITING, _REFUSED, f"PRAGMA user_version={_VERSION}"):
                run(statement)
        counted = run("SELECT count(*), total(size_bytes), count(refused) FROM events").fetchone()
        self._events, self._bytes, self._refused = int(counted[0]), int(counted[1]), int(counted[2])

    @property
    def waiting(self) -> int:
        """The number of events that still have to be sent."""
        return self._events - self._refused

    def add(self, event: Event, *, drop_oldest: bool = False) -> int:
        """Add an event at the end. If necessary, refused events are removed, the oldest first.

        Args:
            drop_oldest: whether to drop the oldest waiting events if that is not enough.

        Returns:
            The number of waiting events that were dropped.

        Raises:
            QueueFullError: there is no room for the event.
            QueueError: the queue cannot be written.
        """
        with self._lock, self._errors(), self._transaction():
            dropped = self._make_room(event.size_bytes, drop_oldest)
            self._database.execute(
                "INSERT INTO events (event_type, event_id, at_ms, payload, size_bytes)"
                " VALUES (?, ?, ?, ?, ?)",
                (event.event_type, event.event_id, event.at_ms, event.payload, event.size_bytes),
            )
            self._events += 1
            self._bytes += event.size_bytes
        return dropped

    def _make_room(self, size_bytes: int, drop_oldest: bool) -> int:
        if size_bytes > self._limit_bytes:
            raise QueueFullError(
                f"the event takes {size_bytes} bytes; the whole queue has {self._limit_bytes}"
            )
        dropped = 0
        while self._events >= self._limit_events or self._bytes + size_bytes > self._limit_bytes:
            if self._refused:
                condition = "refused IS NOT NULL"
            elif drop_oldest:
                condition, dropped = "refused IS NULL", dropped + 1
            else:
                raise QueueFullError(
                    f"the queue is full: {self._events} events of at most {self._limit_events}, "
                    f"{self._bytes} bytes of at most {self._limit_bytes}"
                )
            self._remove(f"number = (SELECT min(number) FROM events WHERE {condition})")  # noqa: S608
        return dropped

    def first(self, limit_events: int, limit_bytes: int) -> list[Queued]:
        """Return the oldest queued events up to both limits, but at least one.

        Raises:
            QueueError: the file cannot be read.
        """
        found: list[Queued] = []
        with self._lock, self._errors():
            rows = self._database.execute(
                "SELECT number, event_type, payload, event_id, at_ms, '' FROM events"
                " WHERE refused IS NULL ORDER BY number LIMIT ?",
                (limit_events,),
            )
            for row in rows:
                queued = _queued(row)
                limit_bytes -= queued.event.size_bytes
                if found and limit_bytes < 0:
                    break
                found.append(queued)
        return found

    def settle(self, done: Sequence[int], refused: Sequence[tuple[int, str]]) -> None:
        """Remove events that the node has handled, and store the reasons of those that it refused.

        Numbers that have left the queue meanwhile are ignored.

        Raises:
            QueueError: the file cannot be written. Nothing was changed.
        """
        with self._lock, self._errors(), self._transaction():
            for number in done:
                self._remove(f"number = {int(number)}")
            for number, reason in refused:
                self._refused += self._database.execute(
                    "UPDATE events SET refused = ? WHERE number = ? AND refused IS NULL",
                    (reason, number),
                ).rowcount

    def refused(self) -> list[Queued]:
        """The refused events that are still in the file, the oldest first.

        Raises:
            QueueError: the file cannot be read.
        """
        with self._lock, self._errors():
            rows = self._database.execute(
                "SELECT number, event_type, payload, event_id, at_ms, refused FROM events"
                " WHERE refused IS NOT NULL ORDER BY number"
            )
            return list(map(_queued, rows))

    def restore_refused(self) -> int:
        """Make refused events wait again, at their places; return their number.

        Raises:
            QueueError: the file cannot be written.
        """
        with self._lock, self._errors(), self._transaction():
            count = self._database.execute(
                "UPDATE events SET refused = NULL WHERE refused IS NOT NULL"
            ).rowcount
            self._refused = 0
        return count

    def close(self) -> None:
        """Close the file; its events stay in it."""
        with self._lock:
            self._database.close()

    def _remove(self, condition: str) -> None:
        removed = self._database.execute(
            f"DELETE FROM events WHERE {condition} RETURNING size_bytes, refused IS NOT NULL"  # noqa: S608
        ).fetchall()
        for size_bytes, was_refused in removed:
            self._events -= 1
            self._bytes -= size_bytes
            self._refused -= was_refused

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit the changes of the block, or roll them back, including the counts."""
        before = (
            getattr(self, "_events", 0),
            getattr(self, "_bytes", 0),
            getattr(self, "_refused", 0),
        )
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            self._events, self._bytes, self._refused = before
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if "locked" in str(error):
                raise QueueBusyError(f"another program uses the queue {self.path}") from None
            raise QueueError(f"the queue {self.path}: {error}") from None


def _sync_folder(folder: Path) -> None:
    """Fsync the folder, so that the file's name is durable, too."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _queued(row: tuple[int, str, bytes, str, int | None, str]) -> Queued:
    number, event_type, payload, event_id, at_ms, refused = row
    return Queued(number, Event(event_type, payload, event_id, at_ms), refused)
