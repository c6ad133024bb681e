"""Ring buffers: tables of numbered rows that keep only the newest rows, such as logs and
metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import lmdb
import msgspec

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]
    Database = lmdb._Database

_NO_ROW = b""  # replaces the value of the last row when it is deleted, to keep its number
_NO_LIMIT = 1 << 40
_SLACK = 1_000  # rows over the limit are dropped a thousand at a time

R = TypeVar("R", bound=msgspec.Struct)

_encode = msgspec.msgpack.Encoder().encode


class Numbered(NamedTuple, Generic[R]):
    """A row with its number in the table; numbers increase and are never reused."""

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
        limit_bytes: int = _NO_LIMIT,
    ) -> None:
        self._database: Database = environment.open_db(name, create=create)
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self._limit = limit
        self._limit_bytes = limit_bytes
        with environment.begin(db=self._database) as txn:
            self._next = self._last(txn) + 1

    def append(self, txn: Transaction, rows: Sequence[R], first: int = 0) -> None:
        """Write rows, and drop the oldest ones beyond the limits.

        Call `committed` with the number of rows once the transaction is on disk.

        Args:
            txn: a write transaction.
            rows: in the order of their numbers.
            first: the number of the first row, if it is above the next number.
        """
        for number, row in enumerate(rows, max(first, self._next)):
            txn.put(number.to_bytes(8, "big"), _encode(row), db=self._database, append=True)
        self._drop_old(txn)

    def committed(self, count: int) -> None:
        """Note that the transaction with `count` appended rows is on disk."""
        self._next += count

    @property
    def next_number(self) -> int:
        """The number of the next row."""
        return self._next

    def count(self, txn: Transaction) -> int:
        """Return how many rows there are."""
        return int(txn.stat(self._database)["entries"])

    def get(self, txn: Transaction, number: int) -> R | None:
        """Return the row with this number, or None."""
        data = txn.get(number.to_bytes(8, "big"), db=self._database)
        return self._decode(data) if data else None

    def get_item(self, txn: Transaction, number: int) -> bytes | None:
        """Return the encoded row with this number, or None."""
        return txn.get(number.to_bytes(8, "big"), db=self._database) or None

    def first(self, txn: Transaction) -> int | None:
        """Return the number of the oldest row, or None."""
        cursor = txn.cursor(db=self._database)
        return int.from_bytes(cursor.key(), "big") if cursor.first() else None

    def after(
        self, txn: Transaction, after: int, limit: int, limit_bytes: int = _NO_LIMIT
    ) -> list[Numbered[R]]:
        """Return rows with a number above `after`, oldest first.

        A negative `after` counts from the end: -20 gives the last 20. The result has fewer rows
        than `limit` if they would have more than `limit_bytes` bytes, but at least one.
        """
        items = self.items_after(txn, after, limit, limit_bytes)
        return [Numbered(number, self._decode(value)) for number, value in items]

    def items_after(
        self, txn: Transaction, after: int, limit: int, limit_bytes: int = _NO_LIMIT
    ) -> list[tuple[int, bytes]]:
        """Return numbers and encoded rows, selected as in `after`."""
        cursor = txn.cursor(db=self._database)
        if after < 0:
            newest = cursor.iterprev() if cursor.last() else ()
            first = b""
            for key, _ in islice(filter(_is_row, newest), -after):
                first = key
            found = bool(first) and cursor.set_range(first)
        else:
            found = cursor.set_range((after + 1).to_bytes(8, "big"))
        items: Iterable[tuple[bytes, bytes]] = cursor.iternext() if found else ()
        selected: list[tuple[int, bytes]] = []
        for item in islice(filter(_is_row, items), limit):
            limit_bytes -= len(item[1])
            if limit_bytes < 0 and selected:
                break
            selected.append(_with_number(item))
        return selected

    def items_forwards(self, txn: Transaction, after: int) -> Iterator[tuple[int, bytes]]:
        """Iterate over numbers and encoded rows, oldest first, from above the number `after`."""
        cursor = txn.cursor(db=self._database)
        found = cursor.set_range((after + 1).to_bytes(8, "big"))
        for item in cursor.iternext() if found else ():
            if _is_row(item):
                yield _with_number(item)

    def items_backwards(
        self, txn: Transaction, last: int | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """Iterate over numbers and encoded rows, newest first, from the number `last` downwards."""
        cursor = txn.cursor(db=self._database)
        if last is None or not cursor.set_range((last + 1).to_bytes(8, "big")):
            found = cursor.last()
        else:
            found = cursor.prev()
        for item in cursor.iterprev() if found else ():
            if _is_row(item):
                yield _with_number(item)

    def upper_bound(self, txn: Transaction, value_of: Callable[[R], int], limit: int) -> int:
        """Return the number of the first row whose value is above `limit`; this reads about 20
        rows.

        The values, such as times, must ascend with the numbers. Without such a row the result is
        above all numbers.
        """
        cursor = txn.cursor(db=self._database)
        low, high = self.first(txn) or 0, self._last(txn) + 1
        while low < high:
            middle = (low + high) // 2
            cursor.set_range(middle.to_bytes(8, "big"))
            key, value = cursor.item()
            if value and value_of(self._decode(value)) <= limit:
                low = int.from_bytes(key, "big") + 1
            else:
                high = middle
        return low

    def remove(self, txn: Transaction, doomed: Callable[[R], bool]) -> None:
        """Delete the rows that `doomed` selects.

        The key of the last row stays, with an empty value, so that its number is not reused.
        """
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
        """Iterate over all rows, the oldest first."""
        for item in txn.cursor(db=self._database):
            if _is_row(item):
                number, value = _with_number(item)
                yield Numbered(number, self._decode(value))

    def backwards(self, txn: Transaction, last: int | None = None) -> Iterator[R]:
        """Iterate over rows, newest first, from the number `last` downwards."""
        for _, value in self.items_backwards(txn, last):
            yield self._decode(value)

    def _last(self, txn: Transaction) -> int:
        cursor = txn.cursor(db=self._database)
        return int.from_bytes(cursor.key(), "big") if cursor.last() else 0

    def _drop_old(self, txn: Transaction) -> None:
        cursor = txn.cursor(db=self._database)
        excess = self._excess(txn)
        while excess > 0 and cursor.first():
            for _ in range(excess):
                cursor.delete()
            excess = self._excess(txn)

    def _excess(self, txn: Transaction) -> int:
        """Return how many rows to drop at once, estimated from their mean size.

        The newest row stays, however large it is, unless the limit is 0: its number must not be
        used again.
        """
        entries = self.count(txn)
        size = table_bytes(txn, self._database)
        rows = entries - self._limit
        excess = rows if rows >= _SLACK else 0
        if size > self._limit_bytes:
            excess = max(excess, -(-entries * (size - self._limit_bytes) // size))
        return min(excess, entries - 1) if self._limit_bytes else excess


def table_bytes(txn: Transaction, database: Database) -> int:
    """Return the size of a table's pages in bytes."""
    stat = txn.stat(database)
    pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
    return int(pages) * int(stat["psize"])


def _is_row(item: tuple[bytes, bytes]) -> bool:
    return bool(item[1])


def _with_number(item: tuple[bytes, bytes]) -> tuple[int, bytes]:
    return int.from_bytes(item[0], "big"), item[1]
