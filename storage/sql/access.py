"""Chooses the database of a project by the settings: SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fieldbrook.core.settings import Settings
from fieldbrook.storage.sql.database import ProjectDatabase, SqlLimits
from fieldbrook.storage.sql.reading import DatabaseReader
from fieldbrook.storage.sql.sqlite import files
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase
from fieldbrook.storage.sql.sqlite.reader import SqliteReader


class DatabaseAccess(NamedTuple):
    """Functions that open the project's SQL database, and that query its last committed batch.

    `committed` is None for the SQLite file in the project's folder.
    """

    open: Callable[[Mapping[str, Any]], ProjectDatabase]
    committed: Callable[[], int] | None


def sql_limits(settings: Settings) -> SqlLimits:
    """Return the limits that the settings give statements."""
    return SqlLimits(
        statement_ms=settings.sql_statement_ms,
        rows=settings.sql_result_rows,
        result_bytes=settings.sql_result_bytes,
        database_bytes=settings.sql_database_bytes,
    )


def database_access(
    settings: Settings, folder: Path, project_id: int, *, is_replicated: bool = False
) -> DatabaseAccess:
    """Return the database that the settings give a project; `folder` is the project's.

    `is_replicated`: other hosts repeat what is written to the database.
    """
    limits = sql_limits(settings)
    dsn = settings.postgres_dsn
    if dsn is None:
        return DatabaseAccess(
            lambda config: SqliteDatabase(
                folder / files.FILE, config, limits, is_replicated=is_replicated
            ),
            None,
        )
    # Imported here, so that nodes without PostgreSQL do not load libpq.
    from fieldbrook.storage.sql.postgres.database import PostgresDatabase
    from fieldbrook.storage.sql.postgres.namespace import CommittedNumber

    return DatabaseAccess(
        lambda config: PostgresDatabase(dsn, folder, project_id, config, limits),
        CommittedNumber(dsn, folder),
    )


def database_reader(settings: Settings, folder: Path, config: Mapping[str, Any]) -> DatabaseReader:
    """Return a reader of a project's database with this configuration.

    Raises:
        DatabaseConfigError: the configuration is invalid.
    """
    if settings.postgres_dsn is None:
        return SqliteReader(folder / files.FILE, config, sql_limits(settings))
    from fieldbrook.storage.sql.postgres.reader import PostgresReader

    return PostgresReader(settings.postgres_dsn, folder, config, sql_limits(settings))
