"""Environments that are made without a sync, and become durable with their first transaction.

The syncs for a new environment take milliseconds, which a project's first event should not wait
for: its batch is durable in the journal. Therefore the files are made in a folder `.new` inside the
environment's folder, and moved into the environment's folder before the first transaction. After a
power cut `.new` may have any content; it is never read again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import lmdb

from fieldbrook.storage.lmdb import lock_file
from fieldbrook.storage.lmdb.environment import DATA, open_environment, store_errors
from fieldbrook.system.fsync import make_folder, sync_folder

NEW = ".new"


def is_absent(path: Path) -> bool:
    """Return whether a folder has no environment, or one that was never published."""
    return not (path / DATA).exists()


def open_new(
    path: Path, make: Callable[[lmdb.Environment], None], *, map_size: int, max_readers: int
) -> lmdb.Environment:
    """Make an environment for a folder that has none; call `publish` before the first commit.

    Args:
        path: the folder.
        make: creates the tables.
        map_size: see `open_environment`.
        max_readers: see `open_environment`.

    Raises:
        StoreError: the environment cannot be created.
    """
    folder = path / NEW
    remove_new(path)
    with store_errors(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    environment = open_environment(folder, map_size=map_size, sync=False, max_readers=max_readers)
    try:
        with store_errors(folder):
            make(environment)
    finally:
        environment.close()
    return open_environment(folder, map_size=map_size, max_readers=max_readers)


def publish(environment: lmdb.Environment, path: Path) -> None:
    """Make a new environment durable, and move its open files to their place in the folder.

    Raises:
        StoreError: the disk is full or failed; the call may be repeated.
    """
    folder = path / NEW
    with store_errors(path):
        environment.sync(True)
        for name in (lock_file.NAME, DATA):  # the data file is last: readers look for it
            if (folder / name).exists():
                (folder / name).replace(path / name)
        sync_folder(path)
        make_folder(path)
    remove_new(path)


def remove_new(path: Path) -> None:
    """Remove an environment that was not published."""
    shutil.rmtree(path / NEW, ignore_errors=True)
