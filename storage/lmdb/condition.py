"""Maps failures of stores to health conditions of the node."""

from __future__ import annotations

import errno
import sqlite3

import lmdb

from fieldbrook.core.errors import StorageFullError, StoreError
from fieldbrook.observability.health import DISK_FULL, STORE_FAILS, STORE_FULL, UNREADABLE

_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_UNREADABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.EISDIR})
_SQL_DISK = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR})
_SQL_UNREADABLE = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
    }
)
_BROKEN = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
)

STATES = (DISK_FULL, STORE_FULL, UNREADABLE, STORE_FAILS)
"""Every health condition that `store_condition` may return."""


def client_error(error: StoreError) -> StoreError:
    """Return the error that a client gets for a failure of a store.

    A full disk or store may soon have room again, so `StorageFullError` replaces the error:
    it asks the client to retry.
    """
    if type(error) is StoreError and store_condition(error) in (DISK_FULL, STORE_FULL):
        return StorageFullError(**error.details)
    return error


def store_condition(error: StoreError) -> str:
    """Return the condition of `fieldbrook.observability.health` that a failure indicates."""
    cause = error.__cause__
    if isinstance(cause, lmdb.MapFullError):
        return STORE_FULL
    if isinstance(cause, _BROKEN):
        return UNREADABLE
    if isinstance(cause, sqlite3.Error):
        number = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        disk, unreadable = number in _SQL_DISK, number in _SQL_UNREADABLE
    else:
        number = cause.errno if isinstance(cause, OSError) else getattr(cause, "code", None)
        disk = number in _DISK or isinstance(cause, lmdb.DiskError)
        unreadable = number in _UNREADABLE
    if disk:
        return DISK_FULL
    return UNREADABLE if unreadable else STORE_FAILS
