"""Operations on the SQLite file of a project, for other processes than the one that writes it.

The file also contains the number of the last committed batch. After a crash between the commits of
the two stores, this number decides whether the batch is committed (`ProjectStore.commit`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.sql.schema import PRIVATE_PREFIX
from fieldbrook.storage.sql.sqlite.functions import compare_decimals
from fieldbrook.storage.sql.sqlite.migration import DECIMAL_COLLATION

FILE = "sql.db"
STATE = f"{PRIVATE_PREFIX}state"  # the table with the number of the last committed batch
BUSY_S = 1.0

_WAL_MARK = slice(18, 20)  # file format versions in the file header: 2 and 2 in WAL mode


def committed_number(path: Path) -> int:
    """Return the number of the last batch committed to the database at `path`; 0 without one.

    Raises:
        StoreError: the file is not a database, or cannot be read.
    """
    if not path.exists():
        return 0
    try:
        with connection_to(path) as connection:
            return _number_or_zero(connection)
    except sqlite3.Error as error:
        raise StoreError(reason=f"{path}: {error}") from error


def is_initialized(path: Path) -> bool:
    """Return whether the file is a database in WAL mode, which may hold data.

    A file that its owner is just creating is not in WAL mode yet. Opening such a file would take a
    lock and could make the creation fail.
    """
    try:
        with path.open("rb") as file:
            return file.read(_WAL_MARK.stop)[_WAL_MARK] == b"\2\2"
    except FileNotFoundError:
        return False


def check(path: Path) -> list[str]:
    """Check the integrity of a whole database file; return its faults, an empty list if there are
    none."""
    try:
        with connection_to(path) as connection:
            connection.create_collation(DECIMAL_COLLATION, compare_decimals)
            rows = connection.execute("PRAGMA integrity_check(20)").fetchall()
    except sqlite3.Error as error:
        return [str(error)]
    return [str(row[0]) for row in rows if row[0] != "ok"]


def size_of(path: Path) -> int:
    """Return the size of a database file in bytes, without its write-ahead log; 0 without one.

    Raises:
        StoreError: the folder cannot be read.
    """
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StoreError(reason=f"{path}: {error}") from error


def copy(path: Path, target: Path) -> None:
    """Copy a database to a new file, as of the last commit; without a database do nothing.

    Raises:
        StoreError: the file cannot be read, or the new one not be written.
    """
    if is_initialized(path):
        with snapshot(path) as found:
            found.copy(target)


@contextmanager
def snapshot(path: Path) -> Iterator[Snapshot]:
    """Open a read transaction, in which the block reads the database as of one moment, and may copy
    it.

    Raises:
        StoreError: the file is not a database, or cannot be read.
    """
    try:
        with connection_to(path) as connection:
            connection.execute("BEGIN")
            yield Snapshot(connection, _number_or_zero(connection))
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        raise StoreError(reason=f"{path}: {error}") from error


@contextmanager
def without_commits(path: Path, wait_s: float) -> Iterator[None]:
    """Prevent all other commits to a database during the block, which must be short.

    Raises:
        StoreError: the write lock was not free within `wait_s`, or the file cannot be read.
    """
    try:
        with connection_to(path, wait_s) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        raise StoreError(reason=f"{path}: {error}") from error


class Snapshot(NamedTuple):
    """A read transaction over a database, and its batch number."""

    connection: sqlite3.Connection
    number: int

    def copy(self, target: Path) -> None:
        """Copy the database to a new file that is complete by itself, without a WAL file."""
        copied = sqlite3.connect(target, isolation_level=None)
        try:
            self.connection.backup(copied)
            copied.execute("PRAGMA journal_mode = WAL")  # closing the copy removes the WAL file
        finally:
            copied.close()


@contextmanager
def connection_to(path: Path, wait_s: float = BUSY_S) -> Iterator[sqlite3.Connection]:
    """Connect to an existing file; each statement waits up to `wait_s` for a lock."""
    address = f"{path.resolve().as_uri()}?mode=rw"
    connection = sqlite3.connect(address, uri=True, timeout=wait_s, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def _number_or_zero(connection: sqlite3.Connection) -> int:
    tables = "SELECT 1 FROM sqlite_master WHERE name = ?"
    known = connection.execute(tables, (STATE,)).fetchone()
    return 0 if known is None else read_number(connection)


def read_number(connection: sqlite3.Connection) -> int:
    """Return the number of the last batch committed to an open database."""
    row = connection.execute(f"SELECT number FROM {STATE}").fetchone()  # noqa: S608
    return int(row[0]) if row else 0
