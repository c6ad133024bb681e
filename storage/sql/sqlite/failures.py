"""Failures of SQLite: faults of the node, and errors of an applet's statement."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from fieldbrook.core.errors import StatementError, StoreError

NODE_FAULTS = frozenset(
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

_DISK_RESERVE_BYTES = 1 << 20  # with less free space, the cause of SQLITE_FULL is the disk


def failure_of(error: Exception, path: Path, limit_bytes: int, denied: str) -> Exception:
    """Return the failure as `StoreError` (of the node) or `StatementError` (of the applet).

    Args:
        error: the exception of a statement.
        path: the file of the database.
        limit_bytes: the size limit of the database.
        denied: what the guard has refused to the statement; "" if nothing.
    """
    number = getattr(error, "sqlite_errorcode", None)
    code = 0 if number is None else number & 0xFF
    if code in NODE_FAULTS:
        return StoreError(reason=f"{path}: {error}")
    if code == sqlite3.SQLITE_INTERRUPT:
        return StatementError("the statement exceeded its time limit")
    if code == sqlite3.SQLITE_FULL:
        space = os.statvfs(path.parent)
        if space.f_bavail * space.f_frsize < _DISK_RESERVE_BYTES:
            return StoreError(reason=f"{path}: the disk is full")
        return StatementError(f"the database has reached its limit of {limit_bytes} bytes")
    if denied:
        return StatementError(f"applets may not use {denied}")
    return StatementError(str(error) or "the statement is too large")
