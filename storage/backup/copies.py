"""Copies of single stores and files of a data folder, made while a node uses them.

Each LMDB store is copied as a snapshot, a project's store together with its SQL database.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import lmdb

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.journal.unapplied import PREFIX as UNAPPLIED
from fieldbrook.storage.journal.unapplied import unapplied_files
from fieldbrook.storage.lmdb.environment import open_environment, store_errors
from fieldbrook.storage.project.outbox import MARKER, waiting_entries
from fieldbrook.storage.sql.sqlite import files as sql

STORE = "data.mdb"
"""The file of an LMDB store in its folder."""

_TEMPORARY = (".new-", ".", "outbox.waiting", "lock.mdb")
_STORE_FILES = (STORE, sql.FILE, UNAPPLIED, *_TEMPORARY)
_ATTEMPTS = 1_000
_LOCK_WAIT_S = 10.0


def copy_project(source: Path, target: Path) -> bool:
    """Copy a project's store and its SQL database, as of one moment between two batches.

    The copies are consistent if the batch number of the SQL database is the same before and after
    the start of the store's snapshot. Then a staged batch in the snapshot either has that number
    and must be applied, or has the next number and must be dropped.

    Returns:
        False when the project has no store yet, or no longer.

    Raises:
        StoreError: the store or the database cannot be read.
        OSError: another file of the project cannot be read, or the copy cannot be written.
    """
    if not has_store(source):
        return False
    try:
        environment = open_environment(source, map_size=0, readonly=True)
        try:
            copy_open_project(environment, source, target)
        finally:
            environment.close()
        return True
    except (StoreError, OSError):
        if has_store(source):
            raise
        shutil.rmtree(target, ignore_errors=True)
        return False  # the project was removed during the copy


def copy_open_project(environment: lmdb.Environment, source: Path, target: Path) -> None:
    """Do the same as `copy_project`, for a process that already has the store open.

    LMDB does not allow a process to open an environment twice.
    """
    database = source / sql.FILE
    target.mkdir(mode=0o700, parents=True)
    for path in unapplied_files(source):
        with suppress(FileNotFoundError):  # its batches were written into the store meanwhile
            shutil.copyfile(path, target / path.name)
    if not any(_copy_both(environment, database, target) for _ in range(_ATTEMPTS)):
        # Commits were so frequent that no snapshot was taken between two of them: block them for a
        # moment.
        with sql.without_commits(database, _LOCK_WAIT_S):
            _copy_both(environment, database, target)
    # Other files of the project, such as the name of its schema on a PostgreSQL server.
    for path in source.iterdir():
        if path.is_file() and not path.name.startswith(_STORE_FILES):
            shutil.copyfile(path, target / path.name)
    if waiting_entries(target):
        (target / MARKER).touch()
    (target / "lock.mdb").unlink(missing_ok=True)


def _copy_both(environment: lmdb.Environment, database: Path, target: Path) -> bool:
    before = sql.committed_number(database) if sql.is_initialized(database) else 0
    with store_errors(environment.path()), environment.begin() as txn:
        if not sql.is_initialized(database):
            environment.copy(str(target), compact=True, txn=txn)
            return True
        with sql.snapshot(database) as taken:
            if taken.number != before:
                return False
            environment.copy(str(target), compact=True, txn=txn)
            taken.copy(target / sql.FILE)
    return True


def copy_files(source: Path, target: Path) -> None:
    """Copy the files of a damaged store unchanged, so that it can be repaired."""
    target.mkdir(mode=0o700, parents=True)
    for path in source.iterdir():
        if path.is_file() and path.name != "lock.mdb":
            shutil.copyfile(path, target / path.name)


def copy_tree(source: Path, target: Path, unreadable: Collection[Path] = ()) -> None:
    """Copy a file or folder: LMDB stores as snapshots, other files as they are."""
    if source.name.startswith(_TEMPORARY) or source.is_symlink():
        return
    if source.is_file():
        shutil.copyfile(source, target)
    elif source in unreadable:
        copy_files(source, target)
    elif has_store(source):
        copy_store(source, target)
    elif source.is_dir():
        target.mkdir(mode=0o700)
        for path in sorted(source.iterdir()):
            copy_tree(path, target / path.name, unreadable)


def copy_store(source: Path, target: Path) -> None:
    """Copy an LMDB folder as of one moment, even while another process writes to it.

    Raises:
        StoreError: the store cannot be read, or the copy cannot be written.
    """
    target.mkdir(mode=0o700, parents=True)
    environment = open_environment(source, map_size=0, readonly=True)
    try:
        with store_errors(source), environment.begin() as txn:
            environment.copy(str(target), compact=True, txn=txn)
    finally:
        environment.close()


def has_store(folder: Path) -> bool:
    """Whether a folder holds an LMDB store that has been written to."""
    try:
        return (folder / STORE).stat().st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False
