"""Tables of numbered rows of which only the last are kept: logs, metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import lmdb
import msgspec

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]
    Database = lmdb._Database

_NO_ROW = b""  # where the last row was deleted
_SLACK = 1_000  # rows over the limit are dropped a thousand at a time

R = TypeVar("R", bound=msgspec.Struct)

_encode = msgspec.msgpack.Encoder().encode


class Numbered(NamedTuple, Generic[R]):
    """A row with its place in its table; numbers grow and are never used twice."""

    sequence: int
    row: R


class RowTable(Generic[R]):
    """One table of rows of one kind. The writer keeps the next number in memory."""

    def __init__(
        self,
        environment: lmdb.Environment,
        name: bytes,
        kind: type[R],
        limit: int,
        *,
        create: bool,
        limit_bytes: int = 1 << 40,
    ) -> None:
        self._database: Database = environment.open_db(name, create=create)
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self._limit = limit
        self._limit_bytes = limit_bytes
        with environment.begin(db=self._database) as txn:
            self._next = self._last(txn) + 1

    def append(self, txn: Transaction, rows: Sequence[R]) -> None:
        """Write rows and drop the oldest beyond the limit; `written` takes their number
        once the transaction is on disk."""
        for number, row in enumerate(rows, self._next):
            txn.put(number.to_bytes(8, "big"), _encode(row), db=self._database, append=True)
        self._drop_old(txn)

    def written(self, count: int) -> None:
        """The transaction of so many rows is on disk."""
        self._next += count

    def follow(self, other: RowTable[Any]) -> None:
        """Give the next row the number of the other table's next one, and go on with it."""
        self._next = max(self._next, other._next)

    def get(self, txn: Transaction, number: int) -> R | None:
        """The row with this number."""
        data = txn.get(number.to_bytes(8, "big"), db=self._database)
        return self._decode(data) if data else None

    def after(self, txn: Transaction, after: int, limit: int) -> list[Numbered[R]]:
        """Rows with a number above `after`, oldest first; a negative `after` counts from
        the end: -20 gives the last 20."""
        cursor = txn.cursor(db=self._database)
        if after < 0:
            newest = cursor.iterprev() if cursor.last() else ()
            last = list(islice(filter(_is_row, newest), -after))
            return [self._numbered(item) for item in last[::-1][:limit]]
        found = cursor.set_range((after + 1).to_bytes(8, "big"))
        items: Iterable[tuple[bytes, bytes]] = cursor.iternext() if found else ()
        return [self._numbered(item) for item in islice(filter(_is_row, items), limit)]

    def remove(self, txn: Transaction, doomed: Callable[[R], bool]) -> None:
        """Delete rows. The last one leaves its number behind, so that no other gets it."""
        cursor = txn.cursor(db=self._database)
        last = self._last(txn).to_bytes(8, "big")
        more = cursor.first()
        while more:
            key, value = cursor.item()
            if not value or not doomed(self._decode(value)):
                more = cursor.next()
            elif key == last:
                txn.put(key, _NO_ROW, db=self._database)
                return
            else:
                more = cursor.delete()

    def forwards(self, txn: Transaction) -> Iterator[Numbered[R]]:
        """All rows, the oldest first."""
        for item in txn.cursor(db=self._database):
            if _is_row(item):
                yield self._numbered(item)

    def backwards(self, txn: Transaction) -> Iterator[R]:
        """All rows, the newest first."""
        cursor = txn.cursor(db=self._database)
        for value in cursor.iterprev(keys=False, values=True) if cursor.last() else ():
            if value:
                yield self._decode(value)

    def _numbered(self, item: tuple[bytes, bytes]) -> Numbered[R]:
        key, value = item
        return Numbered(int.from_bytes(key, "big"), self._decode(value))

    def _last(self, txn: Transaction) -> int:
        cursor = txn.cursor(db=self._database)
        return int.from_bytes(cursor.key(), "big") if cursor.last() else 0

    def _drop_old(self, txn: Transaction) -> None:
        stat = txn.stat(self._database)
        pages = stat["leaf_pages"] + stat["overflow_pages"]
        rows = int(stat["entries"]) - self._limit
        excess = _share(int(stat["entries"]), pages * int(stat["psize"]), self._limit_bytes)
        if rows >= _SLACK:
            excess = max(excess, rows)
        cursor = txn.cursor(db=self._database)
        more = cursor.first()
        while more and excess > 0:
            more = cursor.delete()
            excess -= 1


def _is_row(item: tuple[bytes, bytes]) -> bool:
    return bool(item[1])


def _share(entries: int, size: int, limit: int) -> int:
    """How many of the entries are too many, going by the mean of their sizes."""
    return 0 if size <= limit else -(-entries * (size - limit) // size)
