"""Schema upgrades: migrate the stores of an older version before anything else opens them.

An upgrade first makes a backup of the data folder (`back_up_stopped`). Then it migrates each
store in one transaction. The registry is migrated last: as long as it has the old schema, the
upgrade is unfinished, and the next start continues it with the same backup.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import lmdb

from fieldbrook import __version__
from fieldbrook.core.errors import StoreError
from fieldbrook.storage.backup import backup
from fieldbrook.storage.lmdb.environment import open_environment, store_errors
from fieldbrook.storage.lmdb.schema import META, VERSION_CELL, put_mark, require_schema, schema_in
from fieldbrook.storage.mqtt import store as mqtt_store
from fieldbrook.storage.project import tables as project_tables
from fieldbrook.storage.registry import tables as registry_tables

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]

ROLLBACK = "rollback"
COPIES_KEPT = 2
_UNFINISHED = "unfinished"  # a file that contains the copy's name until the upgrade has ended
_ROOM = 3  # map size per size of the store: a migration may write a second version beside it

Migration = Callable[[lmdb.Environment, "Transaction"], None]
"""Migrates a store from one schema to the next, inside the given transaction."""


class Form(NamedTuple):
    """A kind of store: its name in messages, its current schema, and its migrations.

    `migrations` maps a schema to the migration that leads to the next one; `unmarked` is the
    schema of a store that does not record one.
    """

    what: str
    schema: int
    migrations: Mapping[int, Migration]
    unmarked: int


REGISTRY = Form(registry_tables.WHAT, registry_tables.SCHEMA, {}, 0)
PROJECT = Form(project_tables.WHAT, project_tables.SCHEMA, {}, project_tables.UNMARKED)
MQTT = Form(mqtt_store.WHAT, mqtt_store.SCHEMA, {}, 0)


class Upgraded(NamedTuple):
    """The result of an upgrade: how many stores were migrated, and where the copy is."""

    stores: int
    copy: Path


def upgrade(
    data: Path, registry: Form = REGISTRY, project: Form = PROJECT, mqtt: Form = MQTT
) -> Upgraded | None:
    """Migrate a data folder to this version's schemas; no node may be running on it.

    Returns:
        None when there was nothing to do.

    Raises:
        StoreError: a store is newer or has no migration (the reason names both versions), the
            copy cannot be made, or a store cannot be read or written. In the first two cases
            nothing was changed.
    """
    stores = _stores(data, registry, project, mqtt)
    behind = [(path, form) for path, form in stores if _is_behind(path, form)]
    if not behind:
        return None
    copy = _copy_first(data)
    for path, form in reversed(behind):  # the registry last
        _migrate(path, form)
    _finish(data)
    return Upgraded(len(behind), copy)


def pending(data: Path) -> tuple[int, int]:
    """Return how many stores of a data folder the next start converts, and how many there are.

    Raises:
        StoreError: as `upgrade`, before it changes anything.
    """
    stores = _stores(data, REGISTRY, PROJECT, MQTT)
    return sum(_is_behind(path, form) for path, form in stores), len(stores)


def _stores(data: Path, registry: Form, project: Form, mqtt: Form) -> list[tuple[Path, Form]]:
    """Return the stores of a data folder, the registry first; none without a registry."""
    if not (data / backup.REGISTRY / "data.mdb").is_file():
        return []
    stores = [(data / backup.REGISTRY, registry)]
    if (data / mqtt_store.FOLDER / "data.mdb").is_file():
        stores.append((data / mqtt_store.FOLDER, mqtt))
    projects = data / backup.PROJECTS
    for folder in sorted(projects.iterdir()) if projects.is_dir() else ():
        if folder.name.isdecimal() and (folder / "data.mdb").is_file():
            stores.append((folder, project))
    return stores


def _is_behind(path: Path, form: Form) -> bool:
    found, version = _marks(path, form)
    if not found:
        return False
    known = all(schema in form.migrations for schema in range(found, form.schema))
    if found > form.schema or not known:
        require_schema(str(path), form.what, found, version, form.schema)
    return found < form.schema


def _marks(path: Path, form: Form) -> tuple[int, str]:
    """Return the schema of a store and the version that wrote it.

    Schema 0 means that the store is still being made or cannot be read. The upgrade skips such
    a store: one damaged project must not keep the node from starting with all the others, and
    whoever opens the store reports the damage.
    """
    try:
        environment = open_environment(path, map_size=0, readonly=True)
    except StoreError:
        return 0, ""
    try:
        with store_errors(path), environment.begin() as txn:
            empty = txn.stat()["entries"] == 0
        try:
            meta = environment.open_db(META, create=False)
        except lmdb.NotFoundError:
            return (0 if empty else form.unmarked), ""
        with store_errors(path), environment.begin() as txn:
            version = txn.get(VERSION_CELL, b"", db=meta).decode("utf-8", "replace")
            return schema_in(txn, meta) or form.unmarked, version
    finally:
        environment.close()


def _copy_first(data: Path) -> Path:
    """Return the copy for a rollback: that of an unfinished upgrade, otherwise a new one."""
    folder = data / ROLLBACK
    unfinished = folder / _UNFINISHED
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if unfinished.is_file():
            begun = folder / unfinished.read_text()
            if begun.is_file():
                return begun
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        copy = folder / f"before-{__version__}-{moment}.tar.gz"
        backup.back_up_stopped(data, copy)
        unfinished.write_text(copy.name)
    except OSError as error:
        raise StoreError(reason=f"{error.filename or folder}: {error.strerror}") from error
    return copy


def _finish(data: Path) -> None:
    """Mark the upgrade as finished, and remove all but the newest `COPIES_KEPT` copies."""
    folder = data / ROLLBACK
    with store_errors(folder):
        (folder / _UNFINISHED).unlink(missing_ok=True)
        copies = sorted(folder.glob("before-*.tar.gz"), key=lambda path: path.stat().st_mtime)
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
