"""Schema upgrades: migrate the stores of an older version before anything else opens them.

An upgrade first makes a backup of the data folder (`back_up_stopped`). Then it migrates each
store in one transaction. The registry is migrated last: as long as it has the old schema, the
upgrade is unfinished, and the next start continues it with the same backup.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from fieldbrook import __version__
from fieldbrook.core.errors import StoreError
from fieldbrook.storage.backup import backup
from fieldbrook.storage.backup.journals import count_waiting
from fieldbrook.storage.backup.space import bytes_to_copy
from fieldbrook.storage.lmdb.environment import open_environment, store_errors
from fieldbrook.storage.lmdb.schema import META, put_mark, schema_in
from fieldbrook.storage.project.stored import stored_number
from fieldbrook.storage.stores import FORMS, Form, Forms, Store, find_stores
from fieldbrook.system.fsync import sync_folder

ROLLBACK = "rollback"  # folder in a data folder, or a link to one on another disk
COPIES_KEPT = 2
_UNFINISHED = "unfinished"  # a file that contains the copy's name until the upgrade has ended
_COPIES = "before-*.tar.gz"
_LEFTOVERS = (f"{backup.SCRATCH}*", f".{_COPIES}.*")
_ROOM = 3  # map size / store size: a migration may write a second version into the store


class Upgraded(NamedTuple):
    """The result of an upgrade: how many stores were migrated, and where the copy is."""

    stores: int
    copy: Path


def upgrade(data: Path, forms: Forms = FORMS) -> Upgraded | None:
    """Migrate a data folder to this version's schemas; no node may be running on it.

    Returns:
        None when there was nothing to do.

    Raises:
        StoreError: a store is newer or has no migration (the reason names both versions), batches
            of a store to be migrated are only in the journals, the copy cannot be made, or a store
            cannot be read or written. In the first three cases nothing was changed.
    """
    stores = _known_stores(data, forms)
    behind = [store for store in stores if store.is_behind]
    if not behind:
        return None
    if stores[0].problem:  # the registry: no node could start on the result
        raise StoreError(reason=stores[0].problem)
    _require_written(data, stores, forms)
    copy = _copy_first(data, [store.path for store in stores if store.problem])
    for store in reversed(behind):  # the registry last
        _migrate(store.path, store.form)
    _finish(data)
    return Upgraded(len(behind), copy)


def pending(data: Path, forms: Forms = FORMS) -> tuple[int, int]:
    """Return how many stores of a data folder the next start converts, and how many there are.

    Raises:
        StoreError: a store is newer or has no migration.
    """
    stores = _known_stores(data, forms)
    return sum(store.is_behind for store in stores), len(stores)


def waiting_batches(data: Path, stores: Sequence[Store], forms: Forms = FORMS) -> int:
    """Count the batches that are only in journals; batches of unreadable stores are not counted.

    Raises:
        StoreError: a store cannot be read.
    """
    projects = [store for store in stores if store.form is forms.project]
    numbers = {
        int(store.path.name): stored_number(store.path) for store in projects if store.schema
    }
    return count_waiting(data, numbers, {int(each.path.name) for each in projects if each.problem})


def is_batch_form_older(stores: Sequence[Store], forms: Forms = FORMS) -> bool:
    """Return whether batches in the journals, if there are any, have the form of an older schema.

    Projects without a store do not show the schema; if no project has a store, the schemas of other
    kinds of stores decide.
    """
    projects = [store for store in stores if store.form is forms.project and store.schema]
    return any(store.is_behind for store in projects or stores)


def _require_written(data: Path, stores: Sequence[Store], forms: Forms) -> None:
    """Refuse to migrate stores that lack batches, because the batches have the old form.

    A node that was stopped properly leaves no such batches. Only a version with the old schema can
    write them into the stores.

    Raises:
        StoreError: there are such batches, or a store cannot be read.
    """
    waiting = waiting_batches(data, stores, forms) if is_batch_form_older(stores, forms) else 0
    if waiting:
        raise waiting_error(data, stores, waiting)


def waiting_error(data: Path, stores: Sequence[Store], waiting: int) -> StoreError:
    """Make the error for batches that an older version has to write first."""
    versions = sorted({store.version or "(unknown)" for store in stores if store.is_behind})
    return StoreError(
        reason=f"{data}: {waiting} batches are only in the journals, in the form of the older "
        f"version: start fieldbrook {' or '.join(versions)} on the folder once more and stop it"
    )


def interrupted(data: Path) -> Path | None:
    """Return the copy of an unfinished upgrade, which the next start continues.

    Raises:
        OSError: the folder of the copies cannot be read.
    """
    unfinished = data / ROLLBACK / _UNFINISHED
    if unfinished.is_file():
        copy = unfinished.parent / unfinished.read_text()
        if copy.is_file():
            return copy
    return None


def _known_stores(data: Path, forms: Forms) -> list[Store]:
    with store_errors(data):
        stores = find_stores(data, forms)
    for store in stores:
        store.require_known()
    return stores


def _copy_first(data: Path, unreadable: Collection[Path]) -> Path:
    """Return the copy for a rollback: that of an unfinished upgrade, otherwise a new one."""
    folder = data / ROLLBACK
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        begun = interrupted(data)
        if begun is not None:
            return begun
        _remove_leftovers(folder)
        _require_room(folder, bytes_to_copy(data))
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        copy = folder / f"before-{__version__}-{moment}.tar.gz"
        backup.back_up_stopped(data, copy, unreadable)
        _write_synced(folder / _UNFINISHED, copy.name)
    except OSError as error:
        raise StoreError(reason=f"{error.filename or folder}: {error.strerror}") from error
    return copy


def _write_synced(path: Path, text: str) -> None:
    """Write a small file durably, before the first store is changed."""
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def _remove_leftovers(folder: Path) -> None:
    """Remove incomplete copies; each kill of a node during the copy leaves one."""
    for pattern in _LEFTOVERS:
        for path in folder.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _require_room(folder: Path, size: int) -> None:
    """Refuse to begin a copy that would fill the disk."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise StoreError(
            reason=f"{folder}: the copy before the upgrade needs {size} bytes of disk, {free} are "
            "free; make room, or make the folder a link to one on another disk"
        )


def _finish(data: Path) -> None:
    """Mark the upgrade as finished, and remove all but the newest `COPIES_KEPT` copies."""
    folder = data / ROLLBACK
    with store_errors(folder):
        (folder / _UNFINISHED).unlink(missing_ok=True)
        copies = sorted(folder.glob(_COPIES), key=lambda path: path.stat().st_mtime)
        for path in copies[:-COPIES_KEPT]:
            path.unlink()


def _migrate(path: Path, form: Form) -> None:
    size = (path / "data.mdb").stat().st_size
    if shutil.disk_usage(path).free < size:
        raise StoreError(
            reason=f"{path}: the disk has no room for the {size} bytes of the migrated store"
        )
    environment = open_environment(path, map_size=_ROOM * size + (64 << 20))
    try:
        with store_errors(path):
            meta = environment.open_db(META)
            with environment.begin(write=True) as txn:
                found = schema_in(txn, meta) or form.unmarked
                for schema in range(found, form.schema):
                    form.migrations[schema](environment, txn)
                put_mark(txn, meta, form.schema)
    finally:
        environment.close()
