"""The store of the MQTT listener: one LMDB environment that the listener's process writes.

Every commit is one synced transaction. After a crash, the store has everything that the listener
has not removed. After a restore the queues contain messages that may have been delivered since the
backup: deliver none while `project.outbox.is_parked`.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb

from fieldbrook.storage.lmdb.environment import (
    FEW_READERS,
    open_environment,
    reader_check,
    store_errors,
    used_bytes,
    write_probe,
)
from fieldbrook.storage.lmdb.new_environment import is_absent, open_new, publish, remove_new
from fieldbrook.storage.lmdb.schema import META, make_store, open_meta
from fieldbrook.storage.lmdb.table import open_database, text_key
from fieldbrook.storage.mqtt.operations import (
    DeleteRetained,
    DeleteSession,
    Dequeue,
    Enqueue,
    Operation,
    PutRetained,
    PutSession,
    Release,
    StoredMessage,
    StoredSession,
    only_removes,
)
from fieldbrook.storage.mqtt.records import (
    QUEUE,
    RELEASED,
    RETAINED,
    SESSIONS,
    decode_message,
    decode_session,
    encode_message,
    encode_session,
    message_size,
    row_key,
    sequence_of,
    uid_of,
)
from fieldbrook.storage.mqtt.reserve import DiskReserve

if TYPE_CHECKING:
    Database = lmdb._Database
    Transaction = lmdb.Transaction[bytes]

FOLDER = "mqtt"
WHAT = "the MQTT listener's store"
SCHEMA = 1
TABLES = (META, SESSIONS, QUEUE, RETAINED)

# The map is larger than the limit, because pages that the last transactions freed, or that a backup
# still reads, cannot be reused yet.
_SLACK_BYTES = 16 << 20
_SLACK_SHARE = 8
_READ_ROWS = 1_000
_READ_BYTES = 1 << 20
_SWEPT_WITH_A_COMMIT, _SWEPT_AT_ONCE = 200, 5_000  # rows
_LAST = (1 << 63) - 1


class MqttStore:
    """Sessions, queues and retained messages. Open it after the fork, never before.

    One thread commits; any thread may read meanwhile.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        """Open or create the store.

        Args:
            folder: `FOLDER` in the data folder.
            limit_bytes: the size limit of the tables; writes that would exceed it are refused.

        Raises:
            StoreError: the store cannot be opened: it is damaged or of another version, the disk is
                full, or permission is denied.
        """
        self._folder, self._limit = folder, limit_bytes
        slack = max(_SLACK_BYTES, limit_bytes // _SLACK_SHARE)
        self._environment = _opened(folder, limit_bytes + slack)
        self._map_lock = threading.Lock()  # no other thread may read while the map changes
        try:
            with store_errors(folder):
                reader_check(self._environment)  # frees the slots of a backup that was killed
                self._open_tables()
                self._reserve = DiskReserve(folder)
        except BaseException:
            self._environment.close()
            raise

    def _open_tables(self) -> None:
        environment = self._environment
        open_meta(environment, WHAT, SCHEMA, create=True, unmarked=0)
        self._sessions = open_database(environment, SESSIONS.decode(), True)
        self._queue = open_database(environment, QUEUE.decode(), True)
        self._retained = open_database(environment, RETAINED.decode(), True)
        self._page_bytes = int(environment.stat()["psize"])
        # Sessions whose rows must be removed: deleted ones, and those whose removal a crash has
        # interrupted.
        self._removed = self._unknown_uids()
        with environment.begin() as txn:
            self._pages = self._count_pages(txn)

    # ---------------------------------------------------------------- reading

    @property
    def limit_bytes(self) -> int:
        """The limit for `size_bytes`."""
        return self._limit

    @property
    def size_bytes(self) -> int:
        """The size of the tables after the last commit; free pages of the file do not count."""
        return self._pages * self._page_bytes

    def sessions(self) -> Iterator[StoredSession]:
        """Iterate over all sessions.

        Raises:
            StoreError: the store, or a session in it, cannot be read.
        """
        return map(decode_session, self._values(self._sessions))

    def retained(self) -> Iterator[tuple[str, StoredMessage]]:
        """Iterate over all retained messages, with their topics.

        Raises:
            StoreError: the store cannot be read, or a message in it.
        """
        messages = map(decode_message, self._values(self._retained))
        return ((message.topic, message) for message in messages)

    def queue(
        self, uid: int, after: int, limit: int, limit_bytes: int | None = None
    ) -> list[tuple[int, StoredMessage | None]]:
        """Return the first rows of a session's queue whose sequence number is above `after`.

        Args:
            uid: the session.
            after: a sequence number, or -1.
            limit: the largest number of rows.
            limit_bytes: the result ends with the row at which the total size reaches this limit.

        Returns:
            Sequence numbers and messages; None for a row that is released.

        Raises:
            StoreError: the store cannot be read, or a message in it.
        """
        found: list[tuple[int, StoredMessage | None]] = []
        size = 0
        if uid in self._removed:
            return found
        with self._reading(self._queue) as txn:
            for key, data in self._rows_of(txn, uid, after + 1):
                if len(found) >= limit or (limit_bytes is not None and size >= limit_bytes):
                    break
                size += len(data)
                found.append((sequence_of(key), decode_message(data) if data else None))
        return found

    def queue_usage(self) -> dict[int, tuple[int, int, int]]:
        """Return the number of rows of each queue, the bytes of their messages and the last
        sequence number, by uid.

        This reads all queues completely: call it only at the start.

        Raises:
            StoreError: the store cannot be read.
        """
        found: dict[int, tuple[int, int, int]] = {}
        for uid in self._uids():
            if uid not in self._removed:
                found[uid] = self._usage_of(uid)
        return found

    def _usage_of(self, uid: int) -> tuple[int, int, int]:
        rows = size = last = 0
        with (
            self._map_lock,
            store_errors(self._folder),
            # With buffers, the pages of a large message are not read to get its size.
            self._environment.begin(db=self._queue, buffers=True) as txn,
        ):
            for key, data in self._rows_of(txn, uid, 0):
                rows += 1
                last = sequence_of(key)
                size += message_size(data)
        return rows, size, last

    def _unknown_uids(self) -> set[int]:
        known = {session.uid for session in self.sessions()}
        return {uid for uid in self._uids() if uid not in known}

    def _uids(self) -> list[int]:
        """Return the uids of the sessions that have rows in the queue; reads one row of each."""
        found: list[int] = []
        with self._reading(self._queue) as txn, txn.cursor() as cursor:
            more = cursor.first()
            while more:
                found.append(uid_of(cursor.key()))
                more = cursor.set_range(row_key(found[-1], _LAST))
                if more and uid_of(cursor.key()) == found[-1]:
                    more = cursor.next()
        return found

    def _rows_of(
        self, txn: lmdb.Transaction[Any], uid: int, first: int
    ) -> Iterator[tuple[bytes, Any]]:
        """Iterate over the keys and values of a session's rows from a sequence number on."""
        with txn.cursor(self._queue) as cursor:
            more = cursor.set_range(row_key(uid, first))
            while more and uid_of(bytes(cursor.key())) == uid:
                yield bytes(cursor.key()), cursor.value()
                more = cursor.next()

    def _values(self, table: Database) -> Iterator[bytes]:
        """Iterate over the values of a table; no transaction stays open between two values."""
        begin = b"\0"
        while True:
            values: list[bytes] = []
            size = 0
            with self._reading(table) as txn, txn.cursor() as cursor:
                more = cursor.set_range(begin)
                while more and len(values) < _READ_ROWS and size < _READ_BYTES:
                    values.append(cursor.value())
                    size += len(values[-1])
                    begin = cursor.key() + b"\0"
                    more = cursor.next()
            if not values:
                return
            yield from values

    @contextmanager
    def _reading(self, table: Database) -> Iterator[Transaction]:
        with self._map_lock, store_errors(self._folder), self._environment.begin(db=table) as txn:
            yield txn

    # ---------------------------------------------------------------- writing

    def commit(self, operations: Sequence[Operation]) -> None:
        """Carry out the operations, in order, in one synced transaction.

        Operations that only remove something also succeed in a full store and on a full disk.

        Raises:
            StoreError: the store or the disk is full, the disk failed, or a session is too large.
                Nothing was changed.
        """
        removes = only_removes(operations)
        with store_errors(self._folder):
            if not removes:
                self._ensure_reserve()
            try:
                self._write(operations, _SWEPT_WITH_A_COMMIT)
            except lmdb.MapFullError:
                if not removes:
                    raise
                self._grow()
                self._write(operations, _SWEPT_WITH_A_COMMIT)

    @property
    def has_removed(self) -> bool:
        """Whether there are rows of removed sessions, which `sweep` removes."""
        return bool(self._removed)

    def sweep(self) -> None:
        """Remove some rows of removed sessions; every commit removes a few, too.

        Raises:
            StoreError: the disk failed.
        """
        with store_errors(self._folder):
            try:
                self._write((), _SWEPT_AT_ONCE)
            except lmdb.MapFullError:
                self._grow()
                self._write((), _SWEPT_WITH_A_COMMIT)

    def probe(self, size: int) -> None:
        """Write `size` bytes and remove them, to test whether there is room for them.

        Raises:
            StoreError: there is no room, or the disk failed.
        """
        with store_errors(self._folder):
            if self.size_bytes + size > self._limit:
                raise _full()
            self._ensure_reserve()
            write_probe(self._environment, size)

    def close(self) -> None:
        """Close the store."""
        with self._map_lock:
            self._environment.close()
            self._reserve.close()

    def _write(self, operations: Sequence[Operation], swept: int) -> None:
        removed: list[int] = []
        with self._environment.begin(write=True) as txn:
            for operation in operations:
                self._do(txn, operation, removed)
            done = self._sweep(txn, itertools.chain(removed, self._removed), swept)
            pages = self._count_pages(txn)
            if pages > self._pages and pages * self._page_bytes > self._limit:
                raise _full()
        self._pages = pages
        self._removed.update(removed)
        self._removed.difference_update(done)

    def _do(self, txn: Transaction, operation: Operation, removed: list[int]) -> None:
        match operation:
            case Enqueue(uid, sequence, message):
                row = encode_message(message.topic, message)
                txn.put(row_key(uid, sequence), row, db=self._queue)
            case Dequeue(uid, sequence):
                txn.delete(row_key(uid, sequence), db=self._queue)
            case Release(uid, sequence):
                with txn.cursor(self._queue) as cursor:
                    if cursor.set_key(row_key(uid, sequence)):
                        cursor.put(row_key(uid, sequence), RELEASED)
            case PutSession(session):
                key = text_key(session.key)
                earlier = txn.get(key, db=self._sessions)
                if earlier is not None and (uid := decode_session(earlier).uid) != session.uid:
                    removed.append(uid)
                txn.put(key, encode_session(session), db=self._sessions)
            case DeleteSession(key=name, uid=uid):
                stored = txn.get(text_key(name), db=self._sessions)
                if stored is not None and decode_session(stored).uid == uid:
                    txn.delete(text_key(name), db=self._sessions)
                removed.append(uid)
            case PutRetained(topic, message):
                row = encode_message(topic, message)
                txn.put(text_key(topic), row, db=self._retained)
            case DeleteRetained(topic):
                txn.delete(text_key(topic), db=self._retained)

    def _sweep(self, txn: Transaction, uids: Iterable[int], limit: int) -> list[int]:
        """Remove at most `limit` rows of these sessions; return the sessions that have no rows
        left."""
        done: list[int] = []
        with txn.cursor(self._queue) as cursor:
            for uid in uids:
                more = cursor.set_range(row_key(uid, 0))
                while more and uid_of(cursor.key()) == uid:
                    if not limit:
                        return done
                    limit -= 1
                    more = cursor.delete()
                done.append(uid)
        return done

    def _count_pages(self, txn: Transaction) -> int:
        pages = 0
        for table in (self._sessions, self._queue, self._retained):
            stat = txn.stat(table)
            pages += stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return int(pages)

    def _ensure_reserve(self) -> None:
        used = used_bytes(self._environment)
        self._reserve.ensure(used, used - self.size_bytes)

    def _grow(self) -> None:
        with self._map_lock:
            self._environment.set_mapsize(self._environment.info()["map_size"] + _SLACK_BYTES)


def _opened(folder: Path, map_size: int) -> lmdb.Environment:
    """Open the environment. A new one appears in its folder completely or not at all, even if power
    fails."""
    if not is_absent(folder):
        remove_new(folder)  # left by a process that ended before it published the environment
        return open_environment(folder, map_size=map_size, max_readers=FEW_READERS)
    environment = open_new(folder, _make, map_size=map_size, max_readers=FEW_READERS)
    try:
        publish(environment, folder)
    except BaseException:
        environment.close()
        remove_new(folder)
        raise
    return environment


def _make(environment: lmdb.Environment) -> None:
    make_store(environment, TABLES, SCHEMA)


def _full() -> lmdb.MapFullError:
    return lmdb.MapFullError("the tables have reached their size limit")
