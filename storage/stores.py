"""The stores of a data folder and the schema of each, read without changing anything.

This module lists the kinds of stores, the schemas that this version reads, and those from which it
can migrate; `upgrade.py` migrates.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import lmdb

from fieldbrook import __version__
from fieldbrook.core.errors import StoreError
from fieldbrook.storage.backup.backup import CHAINS, PROJECTS, REGISTRY
from fieldbrook.storage.chain import store as chain_store
from fieldbrook.storage.lmdb.environment import DATA, open_environment, store_errors, used_bytes
from fieldbrook.storage.lmdb.schema import META, VERSION_CELL, require_schema, schema_in
from fieldbrook.storage.mqtt import store as mqtt_store
from fieldbrook.storage.project import tables as project_tables
from fieldbrook.storage.registry import tables as registry_tables

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]

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

    @property
    def oldest(self) -> int:
        """The oldest schema that this version reads or migrates."""
        schema = self.schema
        while schema - 1 in self.migrations:
            schema -= 1
        return schema


class Forms(NamedTuple):
    """The stores that a version of fieldbrook reads: one form for each kind."""

    registry: Form = Form(registry_tables.WHAT, registry_tables.SCHEMA, {}, 0)
    project: Form = Form(project_tables.WHAT, project_tables.SCHEMA, {}, project_tables.UNMARKED)
    mqtt: Form = Form(mqtt_store.WHAT, mqtt_store.SCHEMA, {}, 0)
    chain: Form = Form(chain_store.WHAT, chain_store.SCHEMA, {}, 0)


FORMS = Forms()


class Store(NamedTuple):
    """A store as it is on the disk.

    Attributes:
        path: its folder.
        form: the kind of the store.
        schema: its schema; 0 if the store is still being created or cannot be read.
        version: the version of fieldbrook that wrote it last; "" if the store does not record one.
        problem: why it cannot be read; "" if it can be read.
    """

    path: Path
    form: Form
    schema: int
    version: str
    problem: str = ""

    @property
    def is_behind(self) -> bool:
        """Whether it has an older schema than this version writes."""
        return 0 < self.schema < self.form.schema

    def require_known(self) -> None:
        """Refuse a store that this version can neither read nor migrate.

        Raises:
            StoreError: its schema is newer, or older than any migration; the reason names both
                versions.
        """
        if self.schema > self.form.schema:
            require_schema(
                str(self.path), self.form.what, self.schema, self.version, self.form.schema
            )
        if 0 < self.schema < self.form.oldest:
            raise StoreError(
                reason=f"{self.path}: {self.form.what} written by fieldbrook "
                f"{self.version or '(unknown)'} with schema {self.schema}; fieldbrook "
                f"{__version__} upgrades from schema {self.form.oldest}: start a version between "
                "the two on it first"
            )


def find_stores(data: Path, forms: Forms = FORMS) -> list[Store]:
    """Return the stores of a data folder, the registry first; none without a registry.

    Raises:
        OSError: a folder cannot be listed.
    """
    return [_look(path, form) for path, form in _places(data, forms)]


def _places(data: Path, forms: Forms) -> Iterator[tuple[Path, Form]]:
    if not _has_store(data / REGISTRY):
        return
    yield data / REGISTRY, forms.registry
    if _has_store(data / mqtt_store.FOLDER):
        yield data / mqtt_store.FOLDER, forms.mqtt
    for folder, form in ((CHAINS, forms.chain), (PROJECTS, forms.project)):
        for path in sorted((data / folder).iterdir()) if (data / folder).is_dir() else ():
            if path.name.isdecimal() and _has_store(path):
                yield path, form


def _has_store(folder: Path) -> bool:
    return (folder / DATA).is_file()


def _look(path: Path, form: Form) -> Store:
    """Read the schema of a store.

    A store that cannot be read is no error here: one damaged project must not keep the node from
    starting with all the others. The process that opens the store reports the damage.
    """
    try:
        if _is_short(path) and not _survives_reading(path, form):
            return Store(path, form, 0, "", f"{path}: the store is truncated")
        return Store(path, form, *_marks(path, form))
    except StoreError as error:
        return Store(path, form, 0, "", str(error))


def _marks(path: Path, form: Form) -> tuple[int, str]:
    """Return the schema of a store (0 while it is being created), and the version that wrote it.

    Raises:
        StoreError: the store cannot be read.
    """
    environment = open_environment(path, map_size=0, readonly=True)
    try:
        with store_errors(path), environment.begin() as txn:
            empty = txn.stat()["entries"] == 0
        with store_errors(path):
            try:
                meta = environment.open_db(META, create=False)
            except lmdb.NotFoundError:
                return (0 if empty else form.unmarked), ""
        with store_errors(path), environment.begin() as txn:
            version = txn.get(VERSION_CELL, b"", db=meta).decode("utf-8", "replace")
            return schema_in(txn, meta) or form.unmarked, version
    finally:
        environment.close()


def _is_short(path: Path) -> bool:
    """Return whether the file ends before its last page. A file without its freed last pages is
    valid."""
    environment = open_environment(path, map_size=0, readonly=True)
    try:
        with store_errors(path):
            return used_bytes(environment) > (path / DATA).stat().st_size
    finally:
        environment.close()


def _survives_reading(path: Path, form: Form) -> bool:
    """Read a store in a child, because a page beyond the end of the file ends its reader with
    SIGBUS; return whether the child survives.

    No environment may be open in this process, because it forks.
    """
    pid = os.fork()
    if not pid:
        faulthandler.disable()  # the signal is expected
        try:
            _marks(path, form)
        finally:
            os._exit(0)  # an error is not a crash; it also occurs in the parent
    return not os.WIFSIGNALED(os.waitpid(pid, 0)[1])
