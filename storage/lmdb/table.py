"""Tables: records by id in one named database, and each index in another.

An index maps a key that is made from the record to the record's id. The key of a unique index
is used as it is. The key of a listing index (all applets of a project) ends with the id, so a
prefix scan yields the records in creation order.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

import lmdb
import msgspec

from fieldbrook.core.errors import StoreError
from fieldbrook.core.model import Record
from fieldbrook.storage.lmdb.codec import decode_record, encode_record
from fieldbrook.storage.lmdb.ids import from_key, to_key

if TYPE_CHECKING:
    Database = lmdb._Database
    Transaction = lmdb.Transaction[bytes]

R = TypeVar("R", bound=Record)

_PLAIN, _HASHED = b"t", b"h"
_PLAIN_LIMIT_BYTES = 400  # LMDB keys have at most 511 bytes; up to 16 bytes of ids precede the text


def text_key(*texts: str) -> bytes:
    """Encode texts as (a part of) an index key: plain up to 400 bytes, hashed above."""
    whole = b"\0".join(text.replace("\0", "\0\1").encode(errors="surrogatepass") for text in texts)
    if len(whole) <= _PLAIN_LIMIT_BYTES:
        return _PLAIN + whole
    return _HASHED + hashlib.sha256(whole).digest()


class Table(msgspec.Struct, Generic[R], frozen=True):
    """The declaration of a table: names, the kind of record, and the keys of its indexes."""

    name: str
    kind: type[R]
    id_of: Callable[[R], int]
    indexes: dict[str, Callable[[R], bytes]]


class OpenTable(Generic[R]):
    """A table in one open environment. All methods work inside the caller's transaction."""

    def __init__(self, environment: lmdb.Environment, table: Table[R], *, create: bool) -> None:
        self.table = table
        self._rows = open_database(environment, table.name, create)
        self._indexes = {name: open_database(environment, name, create) for name in table.indexes}

    def databases(self) -> dict[str, Database]:
        """The databases of the table and of its indexes by their names."""
        return {self.table.name: self._rows, **self._indexes}

    def get(self, txn: Transaction, identifier: int) -> R | None:
        """Return the record with this id, or None."""
        if not 0 <= identifier < 1 << 64:
            return None
        data = txn.get(to_key(identifier), db=self._rows)
        return None if data is None else decode_record(data, self.table.kind)

    def find(self, txn: Transaction, index: str, key: bytes) -> R | None:
        """Return the record with this key in a unique index, or None."""
        found = txn.get(key, db=self._indexes[index])
        return None if found is None else self._named_by(txn, index, found)

    def scan(self, txn: Transaction, index: str, prefix: bytes) -> Iterator[R]:
        """Iterate over the records whose index key starts with `prefix`, in the order of keys."""
        for _, found in _range(txn, self._indexes[index], prefix):
            yield self._named_by(txn, index, found)

    def holds(self, txn: Transaction, index: str, prefix: bytes) -> bool:
        """Return whether an index has a key that starts with `prefix`."""
        return any(True for _ in _range(txn, self._indexes[index], prefix))

    def count_of(self, txn: Transaction, index: str, prefix: bytes) -> int:
        """Count the keys of an index that start with `prefix`."""
        with txn.cursor(self._indexes[index]) as cursor:
            if not cursor.set_range(prefix):
                return 0
            keys = cursor.iternext(keys=True, values=False)
            return sum(1 for _ in itertools.takewhile(lambda key: key.startswith(prefix), keys))

    def ids(self, txn: Transaction, index: str, prefix: bytes) -> list[int]:
        """Return the ids of the records whose index key starts with `prefix`."""
        return [from_key(found) for _, found in _range(txn, self._indexes[index], prefix)]

    def all(self, txn: Transaction) -> Iterator[R]:
        """Iterate over all records, in the order of creation."""
        for _, data in _range(txn, self._rows, b""):
            yield decode_record(data, self.table.kind)

    def count(self, txn: Transaction) -> int:
        """Count the records."""
        return int(txn.stat(self._rows)["entries"])

    def raw(self, txn: Transaction) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over keys and encoded records, for checks."""
        return _range(txn, self._rows, b"")

    def index_entries(self, txn: Transaction, index: str) -> dict[bytes, int]:
        """Return a whole index as a mapping of keys to ids, for checks."""
        return {key: from_key(found) for key, found in _range(txn, self._indexes[index], b"")}

    def missing_indexes(self, txn: Transaction) -> list[str]:
        """Return the names of indexes that are empty although the table has rows.

        Such an index was declared after the rows had been stored; `fill` builds it.
        """
        if not txn.stat(self._rows)["entries"]:
            return []
        return [name for name, index in self._indexes.items() if not txn.stat(index)["entries"]]

    def fill(self, txn: Transaction, index: str) -> None:
        """Build an index from the rows."""
        key_of, database = self.table.indexes[index], self._indexes[index]
        for record in self.all(txn):
            txn.put(key_of(record), to_key(self.table.id_of(record)), db=database)

    def put(self, txn: Transaction, record: R) -> None:
        """Store a new or changed record, and update the indexes."""
        identifier = self.table.id_of(record)
        row_key = to_key(identifier)
        old = self.get(txn, identifier)
        for name, key_of in self.table.indexes.items():
            key = key_of(record)
            if old is not None and key_of(old) != key:
                txn.delete(key_of(old), db=self._indexes[name])
            txn.put(key, row_key, db=self._indexes[name])
        txn.put(row_key, encode_record(record), db=self._rows)

    def remove(self, txn: Transaction, record: R) -> None:
        """Remove a record and its index entries."""
        for name, key_of in self.table.indexes.items():
            txn.delete(key_of(record), db=self._indexes[name])
        txn.delete(to_key(self.table.id_of(record)), db=self._rows)

    def _named_by(self, txn: Transaction, index: str, found: bytes) -> R:
        data = txn.get(found, db=self._rows)
        if data is None:
            raise StoreError(reason=f"index {index} names {from_key(found)}, which is not stored")
        return decode_record(data, self.table.kind)


def open_database(environment: lmdb.Environment, name: str, create: bool) -> Database:
    """Open a named database; a missing one is created.

    Raises:
        StoreError: the database is missing and `create` is False.
    """
    try:
        return environment.open_db(name.encode(), create=create)
    except lmdb.NotFoundError:
        reason = f"{environment.path()}: no table {name}; it is not this store"
        raise StoreError(reason=reason) from None


def _range(txn: Transaction, database: Database, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    with txn.cursor(database) as cursor:
        more = cursor.set_range(prefix) if prefix else cursor.first()
        while more:
            key, value = cursor.item()
            if not key.startswith(prefix):
                return
            yield key, value
            more = cursor.next()
