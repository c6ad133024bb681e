"""The transactions of one chain: leased nonces, signed bytes, states; part of the chain's store.

A transaction begins as a lease: it is signed with a nonce of its account, for one call in one
run of a handler. When the run's event is committed, the lease becomes the account's next
transaction. When the event is rolled back, the lease is removed and the next lease gets its
nonce. Every change is one synced transaction of the store. Only the chain's process writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import lmdb
import msgspec

from fieldbrook.core.clock import now_ms
from fieldbrook.storage.lmdb.codec import decode_record, encode_record
from fieldbrook.storage.lmdb.environment import store_errors
from fieldbrook.storage.lmdb.ids import from_key, next_id, to_key

if TYPE_CHECKING:
    Txn = lmdb.Transaction[bytes]

LEASED = "LEASED"
INIT, PENDING, IN_BLOCK = "INIT", "PENDING", "IN_BLOCK"
CONFIRMED, FAILED = "CONFIRMED", "FAILED"
STATES = (INIT, PENDING, IN_BLOCK, CONFIRMED, FAILED)
FINISHED = frozenset({CONFIRMED, FAILED})

ROWS_LIMIT = 100_000
_SLACK = 1_000
_HASHES_FOUND = 5

_ROWS, _CALLS, _PROJECTS = b"tx", b"tx_calls", b"tx_projects"
_SPENDING, _META, _OPEN = b"tx_spending", b"tx_meta", b"tx_open"
_LAST_ID, _PARKED = b"last id", b"parked"


class Attempt(msgspec.Struct, array_like=True, frozen=True):
    """One signed version of a transaction.

    `limit` is the highest fee and `priority` the priority fee, both in wei per gas; `priority`
    is -1 for a legacy transaction. `why` is the reason for this version. A version that
    `cancels` is a transfer of 0 to the account itself, which only uses up the nonce.
    """

    hash: str
    raw: bytes
    nonce: int
    limit: int
    priority: int
    made_at: int
    why: str = ""
    cancels: bool = False


class Transaction(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A transaction and its state.

    `call_key` identifies the call of the run that requested it. `value` is wei in decimal.
    Times are Unix milliseconds, 0 for not yet. `event_type` is the type of the event that
    reports the outcome; with `api` that event is the response to an API call. `attempts` are
    the signed versions, the newest last; `mined` is the hash that is in a block. `reported` means
    that the project has received the outcome. `refused_at` is the time since which endpoints refuse
    the transaction, or at which its block vanished; later transactions of the account wait for this
    one.

    A finished transaction is watched until its block is final: `watched_since` is the block from
    which finality counts, 0 when it is not watched. `vanished` counts how often it was finished
    and its block vanished, and `outcomes` are the final states that the project has received.
    """

    transaction_id: int
    chain_id: int
    project_id: int
    call_key: bytes
    event_id: str
    operator_id: int
    operator_name: str
    sender: str
    to: str
    value: str
    data: bytes
    gas: int
    attempts: list[Attempt]
    event_type: str
    api: bytes = b""
    state: str = LEASED
    reason: str = ""
    created_at: int
    updated_at: int
    sent_at: int = 0
    mined: str = ""
    block_number: int = 0
    block_hash: str = ""
    gas_used: int = 0
    gas_price: int = 0
    reported: bool = False
    refused_at: int = 0
    watched_since: int = 0
    vanished: int = 0
    outcomes: list[str] = []

    @property
    def last(self) -> Attempt:
        """The newest signed version, which blocks should include."""
        return self.attempts[-1]

    @property
    def nonce(self) -> int:
        """The nonce of the newest signed version."""
        return self.attempts[-1].nonce

    @property
    def name(self) -> str:
        """The name of the transaction in interfaces (`transaction_name`)."""
        return transaction_name(self.chain_id, self.transaction_id)


class Spending(msgspec.Struct, array_like=True, frozen=True):
    """What a project has spent on transactions.

    `window` is the number of a period of the traffic limit and `day` that of a day since 1970;
    `window_count` and `day_wei` belong to them; the other fields count in total. Amounts are wei in
    decimal. `day_wei` is the highest amount that can have left the account.
    """

    window: int = 0
    window_count: int = 0
    day: int = 0
    day_wei: str = "0"
    confirmed: int = 0
    failed: int = 0
    gas_used: int = 0
    fees_wei: str = "0"


class TransactionPage(NamedTuple):
    """One page of transactions, the newest first.

    `before` is the argument for the next page; 0 when this is the last page.
    """

    rows: list[Transaction]
    before: int


def transaction_name(chain_id: int, transaction_id: int) -> str:
    """Return `<chain id>-<transaction id>`."""
    return f"{chain_id}-{transaction_id}"


def parse_name(name: str) -> tuple[int, int] | None:
    """Parse a transaction's name into chain id and transaction id; None if it is malformed."""
    chain, dash, number = name.partition("-")
    if not (dash and _is_number(chain) and _is_number(number)):
        return None
    return int(chain), int(number)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) < 1 << 63


class TransactionReader:
    """Read access to a chain's transactions, from any process.

    Raises:
        StoreError: from every method, when the store cannot be read.
    """

    def __init__(self, environment: lmdb.Environment, *, create: bool = False) -> None:
        self._environment = environment
        with store_errors():
            self._rows, self._calls, self._projects = (
                environment.open_db(name, create=create) for name in (_ROWS, _CALLS, _PROJECTS)
            )
            self._spending, self._meta, self._unfinished = (
                environment.open_db(name, create=create) for name in (_SPENDING, _META, _OPEN)
            )

    def get(self, transaction_id: int) -> Transaction | None:
        """Return the transaction with this id, or None."""
        with store_errors(), self._environment.begin() as txn:
            return self._get(txn, transaction_id)

    def with_call(self, call_key: bytes) -> Transaction | None:
        """Return the transaction that a call of a run requested, or None."""
        with store_errors(), self._environment.begin() as txn:
            found = txn.get(call_key, db=self._calls)
            return None if found is None else self._get(txn, from_key(found))

    def all(self) -> list[Transaction]:
        """Return all transactions and leases, oldest first."""
        with (
            store_errors(),
            self._environment.begin() as txn,
            txn.cursor(self._rows) as cursor,
        ):
            return [decode_record(data, Transaction) for _, data in cursor]

    def page(
        self,
        limit: int,
        before: int = 0,
        project_id: int | None = None,
        matches: Callable[[Transaction], bool] = lambda _: True,
    ) -> TransactionPage:
        """Return the newest matching transactions with ids below `before`, without leases.

        A `before` of 0 starts with the newest; a `project_id` selects those of one project.
        """
        rows: list[Transaction] = []
        with store_errors(), self._environment.begin() as txn:
            for row in self._backwards(txn, before, project_id):
                if row.state == LEASED or not matches(row):
                    continue
                if len(rows) == limit:
                    return TransactionPage(rows, rows[-1].transaction_id)
                rows.append(row)
        return TransactionPage(rows, 0)

    def with_hash(
        self, start: str, project_ids: Container[int], look: int, until: float
    ) -> list[tuple[Transaction, str]]:
        """Find transactions of projects with an attempt whose hash begins with `start`.

        Args:
            start: lower case, with `0x`.
            project_ids: the projects.
            look: how many of the newest transactions to examine.
            until: when to stop, in seconds of `time.monotonic`.

        Returns:
            The newest five matching transactions, and the matching hash of each.
        """
        found: list[tuple[Transaction, str]] = []
        with store_errors(), self._environment.begin() as txn:
            for row in islice(self._backwards(txn, 0, None), look):
                if len(found) == _HASHES_FOUND or time.monotonic() >= until:
                    break
                if row.state == LEASED or row.project_id not in project_ids:
                    continue
                hashes = [tried.hash for tried in row.attempts if tried.hash.startswith(start)]
                found += [(row, tx_hash) for tx_hash in hashes[-1:]]
        return found

    def read_unfinished(self) -> list[Transaction]:
        """Return leases and transactions that are unfinished, unreported or watched."""
        with (
            store_errors(),
            self._environment.begin() as txn,
            txn.cursor(self._unfinished) as cursor,
        ):
            found = (self._get(txn, from_key(key)) for key in cursor.iternext(values=False))
            return [row for row in found if row is not None]

    def finished_of(self, sender: str, nonce: int, look: int) -> list[Transaction]:
        """Return the finished transactions of an account with this nonce or a higher one.

        `look` is how many of the newest transactions to examine.
        """
        with store_errors(), self._environment.begin() as txn:
            return [
                row
                for row in islice(self._backwards(txn, 0, None), look)
                if row.sender == sender and row.state in FINISHED and row.nonce >= nonce
            ]

    def spending(self, project_id: int) -> Spending:
        """Return the spending of a project."""
        with store_errors(), self._environment.begin() as txn:
            return self._spending_of(txn, project_id)

    def all_spending(self) -> dict[int, Spending]:
        """Return the spending of all projects, by their ids."""
        with (
            store_errors(),
            self._environment.begin() as txn,
            txn.cursor(self._spending) as cursor,
        ):
            return {from_key(key): decode_record(data, Spending) for key, data in cursor}

    @property
    def parked(self) -> bool:
        """Whether broadcasting is paused until an administrator resumes it."""
        with store_errors(), self._environment.begin() as txn:
            return txn.get(_PARKED, db=self._meta) is not None

    def _get(self, txn: Txn, transaction_id: int) -> Transaction | None:
        data = txn.get(to_key(transaction_id), db=self._rows)
        return None if data is None else decode_record(data, Transaction)

    def _spending_of(self, txn: Txn, project_id: int) -> Spending:
        data = txn.get(to_key(project_id), db=self._spending)
        return Spending() if data is None else decode_record(data, Spending)

    def _backwards(self, txn: Txn, before: int, project_id: int | None) -> Iterator[Transaction]:
        prefix = b"" if project_id is None else to_key(project_id)
        database = self._rows if project_id is None else self._projects
        end = prefix + (to_key(before) if before else b"\xff" * 9)
        with txn.cursor(database) as cursor:
            more = cursor.prev() if cursor.set_range(end) else cursor.last()
            while more and cursor.key().startswith(prefix):
                row = self._get(txn, from_key(cursor.key()[len(prefix) :]))
                if row is not None:
                    yield row
                more = cursor.prev()


class TransactionWriter(TransactionReader):
    """The writer of a chain's transactions.

    `unfinished` has, by id, the leases and the transactions that are unfinished or whose
    outcome was not reported to the project; `watched` has the finished ones that are not final.
    """

    def __init__(self, environment: lmdb.Environment, rows_limit: int = ROWS_LIMIT) -> None:
        super().__init__(environment, create=True)
        self._rows_limit = rows_limit
        self.unfinished: dict[int, Transaction] = {}
        self.watched: dict[int, Transaction] = {}
        self._track(self.read_unfinished())
        with store_errors(), environment.begin() as txn:
            self._last = from_key(txn.get(_LAST_ID, b"", db=self._meta))

    def new_id(self) -> int:
        """Return a new id for a transaction; `put` stores it as the last assigned id."""
        self._last = next_id(self._last, now_ms())
        return self._last

    def put(self, *rows: Transaction) -> None:
        """Store new or changed transactions, all or none."""
        with store_errors(), self._environment.begin(write=True) as txn:
            for row in rows:
                self._put(txn, row)
        self._track(rows)

    def commit(self, rows: Sequence[Transaction], spending: dict[int, Spending]) -> None:
        """Store transactions of committed events, and the spending of their projects."""
        with store_errors(), self._environment.begin(write=True) as txn:
            for row in rows:
                self._put(txn, row)
            self._put_spending(txn, spending)
        self._track(rows)

    def finish(self, row: Transaction, spending: Spending) -> None:
        """Store a transaction that is finished, or is unfinished again, and its project's
        spending."""
        with store_errors(), self._environment.begin(write=True) as txn:
            self._put(txn, row)
            self._put_spending(txn, {row.project_id: spending})
            self._drop_old(txn)
        self._track([row])

    def drop(self, rows: Iterable[Transaction]) -> None:
        """Remove leases whose events were rolled back."""
        doomed = list(rows)
        if not doomed:
            return
        with store_errors(), self._environment.begin(write=True) as txn:
            for row in doomed:
                self._remove(txn, row)
        for row in doomed:
            self.unfinished.pop(row.transaction_id, None)
            self.watched.pop(row.transaction_id, None)

    def park(self, parked: bool) -> None:
        """Pause broadcasting, or resume it."""
        with store_errors(), self._environment.begin(write=True, db=self._meta) as txn:
            if parked:
                txn.put(_PARKED, b"1")
            else:
                txn.delete(_PARKED)

    def _track(self, rows: Iterable[Transaction]) -> None:
        for row in rows:
            for kept, belongs in (
                (self.unfinished, row.state not in FINISHED or not row.reported),
                (self.watched, is_watched(row)),
            ):
                if belongs:
                    kept[row.transaction_id] = row
                else:
                    kept.pop(row.transaction_id, None)

    def _put(self, txn: Txn, row: Transaction) -> None:
        key = to_key(row.transaction_id)
        txn.put(key, encode_record(row), db=self._rows)
        if _is_open(row):
            txn.put(key, b"", db=self._unfinished)
        else:
            txn.delete(key, db=self._unfinished)
        txn.put(row.call_key, key, db=self._calls)
        txn.put(to_key(row.project_id) + key, b"", db=self._projects)
        txn.put(_LAST_ID, to_key(self._last), db=self._meta)

    def _put_spending(self, txn: Txn, spending: dict[int, Spending]) -> None:
        for project_id, spent in spending.items():
            txn.put(to_key(project_id), encode_record(spent), db=self._spending)

    def _remove(self, txn: Txn, row: Transaction) -> None:
        key = to_key(row.transaction_id)
        txn.delete(key, db=self._rows)
        txn.delete(key, db=self._unfinished)
        txn.delete(to_key(row.project_id) + key, db=self._projects)
        if txn.get(row.call_key, db=self._calls) == key:
            txn.delete(row.call_key, db=self._calls)

    def _drop_old(self, txn: Txn) -> None:
        excess = int(txn.stat(self._rows)["entries"]) - self._rows_limit
        if excess < min(_SLACK, self._rows_limit):
            return
        with txn.cursor(self._rows) as cursor:
            values = islice(cursor.iternext(keys=False, values=True), excess)
            oldest = [decode_record(data, Transaction) for data in values]
        for row in oldest:
            if not _is_open(row):
                self._remove(txn, row)


def is_watched(row: Transaction) -> bool:
    """Return whether a transaction is finished in a block that is not final yet."""
    return row.state in FINISHED and row.watched_since > 0


def _is_open(row: Transaction) -> bool:
    return row.state not in FINISHED or not row.reported or is_watched(row)
