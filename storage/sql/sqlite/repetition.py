"""Repetition of a batch's writes in another copy of a project's SQLite file."""

from __future__ import annotations

from pathlib import Path

from fieldbrook.storage.sql.database import SqlLimits
from fieldbrook.storage.sql.sqlite.database import SqliteDatabase
from fieldbrook.storage.sql.writes import SqlWrites

# Every write has fitted into the file where it was executed. Pages of another copy may be filled
# otherwise, so the size limit is no limit here.
_LIMITS = SqlLimits(database_bytes=1 << 42)


class Repetition:
    """Repeats the writes of batches, in order, in a file that no process has open to write."""

    def __init__(self, path: Path) -> None:
        """Store the path of the file; the first `repeat` opens or creates it."""
        self._path = path
        self._database: SqliteDatabase | None = None

    def repeat(self, writes: SqlWrites) -> None:
        """Repeat the writes of a batch; see `SqliteDatabase.repeat`.

        Raises:
            JournalDamagedError: a batch is missing, or a write has another result than before.
            StoreError: the file cannot be opened or written.
        """
        if self._database is None:
            # The tables are those that earlier batches have made, not those of the configuration.
            self._database = SqliteDatabase(self._path, {}, _LIMITS)
        self._database.repeat(writes)

    def close(self) -> None:
        """Close the file; the next `repeat` opens it again."""
        if self._database is not None:
            self._database.close()
            self._database = None
