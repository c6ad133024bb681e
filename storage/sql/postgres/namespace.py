"""The namespace of a project on a PostgreSQL server, and the number of its last committed batch.

Each project has a schema and a role of the same name. A file in the project's folder holds the
name.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fieldbrook.core.errors import DatabaseUnreachableError, StoreError
from fieldbrook.storage.sql.postgres.connection import Connection, ConnectionLostError, ServerError
from fieldbrook.storage.sql.schema import PRIVATE_PREFIX
from fieldbrook.system.fsync import make_folder, sync_folder

FILE = "postgres"  # in the project's folder: the name of its schema and role
STATE = f"{PRIVATE_PREFIX}state"  # the table with the number of the last committed batch

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
OWN_S = 2.0  # time limit for statements of the node itself
REPORT_S = 2.0  # for a busy server to report that a statement exceeded its time limit
RETRY_S = 1.0  # after a failed attempt, calls fail at once for this long
UNREACHABLE = "PostgreSQL: the server could not be reached a moment ago"
END_SESSIONS = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE usename = '{0}' AND pid <> pg_backend_pid()"""

_LATE_MS = 250  # more than the server needs to end a statement at its time limit
_STILL_RUNNING = """SELECT count(*) FROM pg_stat_activity WHERE state = 'active'
    AND pid <> pg_backend_pid() AND '{0}' IN (usename, application_name)
    AND query_start < clock_timestamp() - interval '{1} milliseconds'"""

TIMED_OUT = "57014"  # SQLSTATE of a statement that exceeded its time limit

_NAMESPACE = re.compile(r"fieldbrook_[0-9]+_[0-9a-f]{8}")
# SQLSTATE prefixes of failures that no statement causes: 40 (transaction rolled back), 531 and 533
# (no disk space or connections), 58 (system error), XX (corruption), 25006 (a standby) and others.
SERVER_FAULTS = ("08", "28", "40", "531", "533", "55P03", "57P", "58", "XX", "25006")


def namespace_of(folder: Path) -> str:
    """Return the name of the project's schema and role; empty if the project never had one.

    Raises:
        StoreError: the file cannot be read or holds no such name.
    """
    try:
        name = (folder / FILE).read_text("ascii").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(reason=f"{folder / FILE}: {error}") from error
    if not _NAMESPACE.fullmatch(name):
        raise StoreError(
            reason=f"{folder / FILE}: {name[:40]!r} is not the name of a project's schema"
        )
    return name


def create_namespace(folder: Path, project_id: int) -> str:
    """Choose a name that is unique among nodes, and store it durably before its first use."""
    name = f"fieldbrook_{project_id}_{secrets.token_hex(4)}"
    new = folder / f"{FILE}.new"
    try:
        make_folder(folder)
        with new.open("w", encoding="ascii") as file:
            file.write(name + "\n")
            os.fsync(file.fileno())
        new.rename(folder / FILE)
        sync_folder(folder)
    except OSError as error:
        raise StoreError(reason=f"{folder / FILE}: {error}") from error
    return name


def refuse_while_running(connection: Connection, namespace: str, statement_ms: int) -> None:
    """Refuse further statements of a project while the server does not end an earlier one.

    The server checks the time limit, and requests to end a session, only between rows. Otherwise a
    project could begin one long statement after the other until the server has no free connections.

    Args:
        connection: a connection of the DSN's role.
        namespace: the project's role; readers set it as the name of their application.
        statement_ms: the time limit of statements.

    Raises:
        DatabaseUnreachableError: a statement has exceeded its time limit and is still running.
        ConnectionLostError, ServerError: the server does not answer, or refuses.
    """
    asked = _STILL_RUNNING.format(namespace, statement_ms + _LATE_MS)
    if connection.rows(asked, time.monotonic() + OWN_S) != [["0"]]:
        reason = "PostgreSQL: an earlier statement of this project is still running on the server"
        raise DatabaseUnreachableError(reason=reason)


def committed_number(dsn: str, folder: Path) -> int:
    """Return the number of the last batch that the project's database has committed; 0 without one.

    The number is final: this function ends all sessions of the project's role, and waits until each
    has committed or rolled back.

    Raises:
        DatabaseUnreachableError: the server cannot be reached now.
        StoreError: the name of the schema cannot be read, or the server has an internal error.
    """
    namespace = namespace_of(folder)
    if not namespace:
        return 0
    with server_errors():
        connection = Connection(dsn)
        try:
            return _final_number(connection, namespace)
        finally:
            connection.close()


class CommittedNumber:
    """`committed_number` for repeated calls.

    While the server cannot be reached, only one call per second waits for it; the others fail
    at once.
    """

    def __init__(self, dsn: str, folder: Path) -> None:
        self._dsn = dsn
        self._folder = folder
        self._retry_at = 0.0

    def __call__(self) -> int:
        """See `committed_number`."""
        if time.monotonic() < self._retry_at:
            raise DatabaseUnreachableError(reason=UNREACHABLE)
        try:
            return committed_number(self._dsn, self._folder)
        except DatabaseUnreachableError:
            self._retry_at = time.monotonic() + RETRY_S
            raise


def _final_number(connection: Connection, namespace: str) -> int:
    limit = time.monotonic() + 2 * OWN_S
    table = f'"{namespace}".{STATE}'
    if connection.rows(f"SELECT to_regclass('{table}')", limit) == [[None]]:
        return 0
    with suppress(ServerError):  # if this is not permitted, the row lock below waits for them
        connection.run(END_SESSIONS.format(namespace), limit)
    # A session that is committing holds the lock of this row until it has ended.
    number = f"SELECT number FROM {table} FOR UPDATE"  # noqa: S608
    connection.run(f"{BEGIN}; SET LOCAL lock_timeout = {int(OWN_S * 1000)}", limit)
    rows = connection.rows(number, limit)
    connection.run("COMMIT", limit)
    return int(rows[0][0] or 0) if rows else 0


@contextmanager
def server_errors() -> Iterator[None]:
    """Turn failures of the server and of the connection to it into `StoreError`."""
    try:
        yield
    except ConnectionLostError as error:
        raise DatabaseUnreachableError(reason=f"PostgreSQL: {error}") from error
    except ServerError as error:
        raise to_store_error(error) from error


def to_store_error(error: ServerError) -> StoreError:
    """Return the error of the node for a failure of the server that no statement causes."""
    reason = f"PostgreSQL: {error} ({error.state})"
    if error.state.startswith(("58", "XX")):
        return StoreError(reason=reason)
    return DatabaseUnreachableError(reason=reason)
