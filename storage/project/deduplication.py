"""Deduplication: remembers the events a project has handled, so that a repeated event is answered
from its stored result instead of running again.

There are three kinds of entries, all written in the transaction of their batch:

* An event to which its sender gave an id is stored as a digest of publisher, type, id and
  payload, together with its results, for a day or until a million other digests follow; a small
  store keeps fewer.
* An event with an `Idempotency-Key` is stored under the key in the same way. The key alone is
  stored as well, so that the same key with another event can be refused.
* A delivery of the broker is stored under the name that the broker's adapter gives it, until
  20,000 others follow. A broker only redelivers messages that were not acknowledged.

Until fieldbrook 0.1.0 a digest did not include the event type and the sender's time. Such
digests are shorter. While a store has any, events are looked up in both forms, so that an event
acknowledged before an upgrade is recognised after it.
"""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import lmdb
import msgspec

from fieldbrook.storage.lmdb.rows import RowTable

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]

WINDOW_MS = 86_400_000
IDS_LIMIT = 1_000_000
DELIVERIES_LIMIT = 20_000
_DELIVERIES_BYTES = 8 << 20  # several times the size of 20,000 names, even with one row for each
_ENTRY_BYTES = 128  # size of one entry with the result of one handler
_EVICTED_PER_ENTRY = 2  # two per new entry, so that a table above its limit shrinks with each batch

OUTCOMES, ORDER, DELIVERIES = b"seen", b"seen_order", b"deliveries"

Outcome = tuple[tuple[int, int, str], ...]


class Deliveries(msgspec.Struct, array_like=True, frozen=True):
    """The broker's names of the deliveries that one batch handled."""

    names: list[str]


class StoredOutcome(msgspec.Struct, array_like=True, frozen=True):
    """The stored result of an event, and when it was handled (Unix ms)."""

    time_ms: int
    outcome: Outcome

    def at(self, now_ms: int) -> Outcome | None:
        """Return the result as of `now_ms` (Unix ms); None when it is older than a day."""
        return self.outcome if now_ms - self.time_ms < WINDOW_MS else None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StoredOutcome).decode


_OLD_BYTES, _DIGEST_BYTES = 16, 17
_TIME_BYTES = 8


def digest_of(
    publisher_id: int, event_type: str, name: str, payload: bytes, person: bytes = b""
) -> bytes:
    """Return the digest that identifies a named event: 17 bytes.

    `person` separates the digests of different kinds of names.
    """
    digest = hashlib.blake2b(payload, digest_size=_DIGEST_BYTES, person=person)
    # The length separates type and name: "ab" + "c" must differ from "a" + "bc".
    text = f"{publisher_id} {len(event_type)} {event_type}{name}"
    digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.digest()


def digests_of_key(
    publisher_id: int, event_type: str, key: str, payload: bytes
) -> tuple[bytes, bytes]:
    """Return the two digests of an `Idempotency-Key`: of key and event, and of the key alone."""
    return (
        digest_of(publisher_id, event_type, key, payload, b"key and event"),
        digest_of(publisher_id, "", key, b"", b"key"),
    )


def old_digest_of(publisher_id: int, event_id: str, payload: bytes) -> bytes:
    """Return the digest in the form that was used until fieldbrook 0.1.0: 16 bytes."""
    digest = hashlib.blake2b(payload, digest_size=_OLD_BYTES)
    digest.update(b"%d\0%s" % (publisher_id, event_id.encode("utf-8", "surrogatepass")))
    return digest.digest()


class Deduplication:
    """The deduplication entries of one open project store; its owner is the only writer."""

    def __init__(self, environment: lmdb.Environment, limit_bytes: int) -> None:
        """Open the tables; `limit_bytes` limits the size of the digests and their results."""
        self._ids_limit = limit_bytes // _ENTRY_BYTES
        self.outcomes = environment.open_db(OUTCOMES)
        self._order = environment.open_db(ORDER)
        self._deliveries = RowTable(
            *(environment, DELIVERIES, Deliveries, DELIVERIES_LIMIT),
            create=True,
            limit_bytes=_DELIVERIES_BYTES,
        )
        with environment.begin(db=self._order) as txn:
            cursor = txn.cursor()
            self._next = int.from_bytes(cursor.key(), "big") + 1 if cursor.last() else 1
            self._has_old = self._has_old_after_commit = cursor.first() and _is_old(cursor.value())
        # A set and a deque instead of one dictionary: finding a dictionary's oldest key means
        # stepping over all deleted ones.
        self._known_deliveries: set[str] = set()
        self._delivery_order: collections.deque[str] = collections.deque()  # the oldest first
        with environment.begin() as txn:
            for row in self._deliveries.backwards(txn):
                self._delivery_order.extendleft(reversed(row.names))
                if len(self._delivery_order) >= DELIVERIES_LIMIT:
                    break
        self._known_deliveries.update(self._delivery_order)

    @property
    def has_old(self) -> bool:
        """Whether the store still has digests of `old_digest_of`."""
        return self._has_old

    def was_delivered(self, name: str) -> bool:
        """Return whether a committed batch contained this delivery."""
        return name in self._known_deliveries

    def outcome(self, txn: Transaction, digest: bytes) -> StoredOutcome | None:
        """Return the stored outcome of an event; None if the event is unknown."""
        data = txn.get(digest, db=self.outcomes)
        return None if data is None else _decode(data)

    def put(
        self,
        txn: Transaction,
        outcomes: Mapping[bytes, StoredOutcome],
        names: Sequence[str],
        now_ms: int,
    ) -> int:
        """Store results by digest and names of deliveries, inside a transaction.

        Returns:
            The number of stored digests, to be passed to `committed` once the transaction is on
            disk.
        """
        self._has_old_after_commit = self._has_old
        for number, (digest, stored) in enumerate(outcomes.items(), self._next):
            row = stored.time_ms.to_bytes(_TIME_BYTES, "big") + digest
            txn.put(digest, _encode(stored), db=self.outcomes)
            txn.put(number.to_bytes(8, "big"), row, db=self._order, append=True)
        if outcomes:
            self._evict(txn, _EVICTED_PER_ENTRY * len(outcomes), now_ms)
        if names:
            self._deliveries.append(txn, [Deliveries(list(names))])
        return len(outcomes)

    def committed(self, count: int, names: Sequence[str]) -> None:
        """Note that a transaction with `count` digests and these names is on disk."""
        self._next += count
        self._has_old = self._has_old_after_commit
        if names:
            self._deliveries.committed(1)

    def delivered(self, names: Sequence[str]) -> None:
        """Note that a batch with these deliveries is committed."""
        new = [name for name in names if name not in self._known_deliveries]
        self._delivery_order.extend(new)
        self._known_deliveries.update(new)
        while len(self._delivery_order) > DELIVERIES_LIMIT:
            self._known_deliveries.discard(self._delivery_order.popleft())

    def _evict(self, txn: Transaction, limit: int, now_ms: int) -> None:
        excess = int(txn.stat(self._order)["entries"]) - min(IDS_LIMIT, self._ids_limit)
        cursor = txn.cursor(db=self._order)
        more = cursor.first()
        for _ in range(limit):
            if not more:
                break
            row = cursor.value()
            time_ms, digest = int.from_bytes(row[:_TIME_BYTES], "big"), row[_TIME_BYTES:]
            if excess <= 0 and now_ms - time_ms < WINDOW_MS:
                break
            data: Any = txn.get(digest, db=self.outcomes)
            if data is not None and _decode(data).time_ms == time_ms:
                # Another time means that the digest was stored again later, and must stay.
                txn.delete(digest, db=self.outcomes)
            more = cursor.delete()
            excess -= 1
        # Rows are evicted oldest first: when the first row has the new form, all have.
        self._has_old_after_commit = self._has_old and more and _is_old(cursor.value())


def _is_old(row: bytes) -> bool:
    """Return whether a row of the `seen_order` table has a digest of the old form."""
    return len(row) == _TIME_BYTES + _OLD_BYTES
