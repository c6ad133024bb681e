"""The version of a store's form, written in the store itself.

A store's `meta` holds the schema and the version of fieldbrook that wrote it last. The schema
is raised when a table or an index changes its meaning; fields that are added at the end of a
record, new tables and new indexes need no other. `storage.upgrade` brings older stores on.
"""

from __future__ import annotations

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


def open_meta(
    environment: lmdb.Environment, what: str, current: int, *, create: bool, unmarked: int
) -> Database:
    """The `meta` database of a store, after a look at the schema; a fresh one gets both.

    Args:
        what: what the store is called in a refusal, e.g. "a registry".
        current: the schema this version reads and writes.
        create: whether this is the store's writer.
        unmarked: the schema of a store with tables that does not tell; 0: there are none.

    Raises:
        StoreError: another schema, or none where there must be one.
    """
    try:
        return _open_meta(environment, what, current, create=create, unmarked=unmarked)
    except lmdb.MapFullError:
        # A limit of size is no reason to keep the owner of a full store out of it.
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
    # A kill between creating `meta` and writing the schema leaves it empty.
    found = found or (current if empty or not unmarked else unmarked)
    require_schema(path, what, found, version, current)
    if create and (found, version) != (current, __version__):
        mark(environment, meta, current)
    return meta


def schema_in(txn: Transaction, meta: Database) -> int:
    """The schema a store tells; 0 when it tells none."""
    return from_key(txn.get(SCHEMA_CELL, b"", db=meta))


def require_schema(path: str, what: str, found: int, version: str, current: int) -> None:
    """Refuse a store of another schema.

    Raises:
        StoreError: it is newer or older; the reason names both versions.
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
    """As `mark`, in a transaction of the caller's."""
    txn.put(SCHEMA_CELL, to_key(schema), db=meta)
    txn.put(VERSION_CELL, __version__.encode(), db=meta)


def _version_in(txn: Transaction, meta: Database) -> str:
    return txn.get(VERSION_CELL, b"", db=meta).decode("utf-8", "replace")
