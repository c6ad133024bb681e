"""The schema version of a store, recorded in the store itself.

The `meta` database of a store holds the schema and the version of fieldbrook that wrote it last.
The schema is raised when a table or an index changes its meaning. Fields that are added at the
end of a record, new tables and new indexes do not raise it. `storage.upgrade` migrates older
stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import lmdb

from fieldbrook import __version__
from fieldbrook.core.errors import StoreError
from fieldbrook.storage.lmdb.ids import from_key, to_key

if TYPE_CHECKING:
    Database = lmdb._Database
    Transaction = lmdb.Transaction[bytes]

META = b"meta"
SCHEMA_CELL, VERSION_CELL = b"schema", b"version"
_GROWTH_BYTES = 1 << 20


def make_store(environment: lmdb.Environment, tables: Sequence[bytes], current: int) -> None:
    """Create the tables of a new store and record its schema, in one transaction and thus with one
    sync.

    A store that already has tables is not changed. `META` must be one of the tables.
    """
    if environment.stat()["entries"]:
        return
    with environment.begin(write=True) as txn:
        opened = {name: environment.open_db(name, txn=txn) for name in tables}
        put_mark(txn, opened[META], current)


def open_meta(
    environment: lmdb.Environment, what: str, current: int, *, create: bool, unmarked: int
) -> Database:
    """Open the `meta` database of a store and check its schema; a new store gets both entries.

    Args:
        what: the store's name in error messages, e.g. "a registry".
        current: the schema this version reads and writes.
        create: whether the caller is the store's writer.
        unmarked: the schema of a store that has tables but records no schema; 0 if there are no
            such stores.

    Raises:
        StoreError: the store has another schema, or lacks a required `meta`.
    """
    try:
        return _open_meta(environment, what, current, create=create, unmarked=unmarked)
    except lmdb.MapFullError:
        # The owner of a full store must still be able to open it: raise the size limit a little.
        environment.set_mapsize(environment.info()["map_size"] + _GROWTH_BYTES)
        return _open_meta(environment, what, current, create=create, unmarked=unmarked)


def _open_meta(
    environment: lmdb.Environment, what: str, current: int, *, create: bool, unmarked: int
) -> Database:
    path = environment.path()
    with environment.begin() as txn:
        empty = txn.stat()["entries"] == 0
    try:
        meta = environment.open_db(META, create=create and (empty or unmarked > 0))
    except lmdb.NotFoundError:
        raise StoreError(reason=f"{path}: this LMDB store is not {what}") from None
    with environment.begin() as txn:
        found, version = schema_in(txn, meta), _version_in(txn, meta)
    # `meta` is empty when the process was killed between creating it and writing the schema.
    found = found or (current if empty or not unmarked else unmarked)
    require_schema(path, what, found, version, current)
    if create and (found, version) != (current, __version__):
        mark(environment, meta, current)
    return meta


def schema_in(txn: Transaction, meta: Database) -> int:
    """Return the schema that a store records; 0 when it records none."""
    return from_key(txn.get(SCHEMA_CELL, b"", db=meta))


def require_schema(path: str, what: str, found: int, version: str, current: int) -> None:
    """Refuse a store that has another schema than `current`.

    Raises:
        StoreError: the store is newer or older; the reason names both versions.
    """
    if found == current:
        return
    written = f"written by fieldbrook {version or '(unknown)'} with schema {found}"
    if found > current:
        raise StoreError(
            reason=f"{path}: {what} {written}; fieldbrook {__version__} reads up to {current}: "
            "install the newer version again, or restore the copy it made before upgrading"
        )
    raise StoreError(
        reason=f"{path}: {what} {written}; fieldbrook {__version__} brings it to {current} when "
        "a node starts on it"
    )


def mark(environment: lmdb.Environment, meta: Database, schema: int) -> None:
    """Write the schema and this version into a store."""
    with environment.begin(write=True) as txn:
        put_mark(txn, meta, schema)


def put_mark(txn: Transaction, meta: Database, schema: int) -> None:
    """Do the same as `mark`, inside the caller's transaction."""
    txn.put(SCHEMA_CELL, to_key(schema), db=meta)
    txn.put(VERSION_CELL, __version__.encode(), db=meta)


def _version_in(txn: Transaction, meta: Database) -> str:
    return txn.get(VERSION_CELL, b"", db=meta).decode("utf-8", "replace")
