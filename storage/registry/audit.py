"""The audit log: who changed what, as numbered rows beside the tables of the registry.

A row is written in the transaction of the change that it describes. So the two are committed
together or not at all, with a single fsync. The oldest rows are removed beyond a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import lmdb
import msgspec

from fieldbrook.storage.lmdb.codec import decode_record, encode_record
from fieldbrook.storage.lmdb.ids import from_key, to_key

if TYPE_CHECKING:
    Database = lmdb._Database
    Transaction = lmdb.Transaction[bytes]

ROWS_LIMIT = 100_000
_SCAN_LIMIT = 10_000  # the most rows that one read scans, so that it does not block the event loop


class AuditRow(msgspec.Struct, array_like=True, frozen=True):
    """One management call that changed something or was refused.

    `account` is the caller's username, `key` the name of the access key that the caller used,
    if any, and `peer` the caller's address. `path` is the path of the request with its query,
    but without a token. `status` is the HTTP status (200 also stands for 204). `error` is the
    error key of a refused call. A row never contains anything of the request's body.
    """

    time_ms: int
    account_id: int
    account: str
    key: str
    peer: str
    operation: str
    method: str
    path: str
    status: int
    error: str = ""


class AuditPage(NamedTuple):
    """Rows with their numbers, newest first.

    `following` is the argument `before` of the next page; 0 after the last page.
    """

    rows: list[tuple[int, AuditRow]]
    following: int


def append(txn: Transaction, database: Database, row: AuditRow, limit: int) -> None:
    """Add a row, and remove the oldest rows beyond `limit`."""
    with txn.cursor(database) as cursor:
        number = from_key(cursor.key()) + 1 if cursor.last() else 1
    txn.put(to_key(number), encode_record(row), db=database, append=True)
    excess = txn.stat(database)["entries"] - limit
    with txn.cursor(database) as cursor:
        while excess > 0 and cursor.first():
            cursor.delete()
            excess -= 1


def page(
    txn: Transaction,
    database: Database,
    before: int,
    limit: int,
    matches: Callable[[AuditRow], bool],
) -> AuditPage:
    """Return matching rows with a number below `before`; 0 starts at the newest row.

    A page holds at most `limit` rows. It holds fewer when `_SCAN_LIMIT` rows were scanned first.
    """
    found: list[tuple[int, AuditRow]] = []
    for scanned, (number, row) in enumerate(_backwards(txn, database, before), start=1):
        if matches(row):
            found.append((number, row))
        if len(found) >= limit or scanned >= _SCAN_LIMIT:
            return AuditPage(found, number)
    return AuditPage(found, 0)


def _backwards(txn: Transaction, database: Database, before: int) -> Iterator[tuple[int, AuditRow]]:
    with txn.cursor(database) as cursor:
        bounded = before > 0 and cursor.set_range(to_key(before))
        more = cursor.prev() if bounded else cursor.last()
        while more:
            key, data = cursor.item()
            yield from_key(key), decode_record(data, AuditRow)
            more = cursor.prev()
