"""Which events a project has handled already, so that one that comes again runs nothing.

Two kinds of names are remembered. An event that its sender named is known by a digest of
publisher, id and payload (some devices send one id for ever) together with what it was
answered, for a day or until a million others came. A delivery of the broker is known by the
name the broker's adapter gives it, until 20,000 others came: redelivery reaches no further
back than what was unacknowledged. Both are written in the transaction of their batch.
"""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import lmdb
import msgspec

from fieldbrook.storage.rows import RowTable

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]

WINDOW_MS = 86_400_000
IDS_LIMIT = 1_000_000
DELIVERIES_LIMIT = 20_000
_DELIVERIES_BYTES = 8 << 20  # several times what so many names take, a row for each at worst
_ID_BYTES = 128  # what one takes, with the answer of one handler
_EVICTED_PER_ID = 2  # so that a full table shrinks to its limit, a little with each batch

OUTCOMES, ORDER, DELIVERIES = b"seen", b"seen_order", b"deliveries"

Outcome = tuple[tuple[int, int, str], ...]


class Deliveries(msgspec.Struct, array_like=True, frozen=True):
    """The broker's names of one batch."""

    names: list[str]


class RememberedOutcome(msgspec.Struct, array_like=True, frozen=True):
    """What an event was answered, and when (Unix ms)."""

    time_ms: int
    outcome: Outcome


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RememberedOutcome).decode


def digest_of(publisher_id: int, event_id: str, payload: bytes) -> bytes:
    """What names an event: 16 bytes."""
    digest = hashlib.blake2b(payload, digest_size=16)
    digest.update(b"%d\0%s" % (publisher_id, event_id.encode("utf-8", "surrogatepass")))
    return digest.digest()


class Seen:
    """The memory of one open project store; its owner is the only writer."""

    def __init__(self, environment: lmdb.Environment, room_bytes: int) -> None:
        """`room_bytes` is what ids may take of the store; a small one remembers fewer."""
        self._ids_room = room_bytes // _ID_BYTES
        self._outcomes = environment.open_db(OUTCOMES)
        self._order = environment.open_db(ORDER)
        self._deliveries = RowTable(
            *(environment, DELIVERIES, Deliveries, DELIVERIES_LIMIT),
            create=True,
            limit_bytes=_DELIVERIES_BYTES,
        )
        with environment.begin(db=self._order) as txn:
            cursor = txn.cursor()
            self._next = int.from_bytes(cursor.key(), "big") + 1 if cursor.last() else 1
        # Two, since a dictionary's oldest keys are found by stepping over all that were deleted.
        self._names: set[str] = set()
        self._named: collections.deque[str] = collections.deque()  # the oldest first
        with environment.begin() as txn:
            for row in self._deliveries.backwards(txn):
                self._named.extendleft(reversed(row.names))
                if len(self._named) >= DELIVERIES_LIMIT:
                    break
        self._names.update(self._named)

    def was_delivered(self, name: str) -> bool:
        """Whether a batch that is on disk had this delivery."""
        return name in self._names

    def outcome(self, txn: Transaction, digest: bytes, now_ms: int) -> Outcome | None:
        """What an event was answered, if it is known."""
        data = txn.get(digest, db=self._outcomes)
        if data is None:
            return None
        remembered = _decode(data)
        return remembered.outcome if now_ms - remembered.time_ms < WINDOW_MS else None

    def put(
        self,
        txn: Transaction,
        outcomes: Iterable[tuple[bytes, Outcome]],
        names: Sequence[str],
        now_ms: int,
    ) -> int:
        """Remember a batch in its transaction; `written` takes the result after it."""
        count = 0
        for digest, outcome in outcomes:
            key = (self._next + count).to_bytes(8, "big")
            value = _encode(RememberedOutcome(now_ms, outcome))
            txn.put(digest, value, db=self._outcomes)
            txn.put(key, now_ms.to_bytes(8, "big") + digest, db=self._order, append=True)
            count += 1
        if count:
            self._evict(txn, _EVICTED_PER_ID * count, now_ms)
        if names:
            self._deliveries.append(txn, [Deliveries(list(names))])
        return count

    def written(self, count: int, names: Sequence[str]) -> None:
        """The transaction of this batch is on disk."""
        self._next += count
        if names:
            self._deliveries.written(1)
            new = [name for name in names if name not in self._names]
            self._named.extend(new)
            self._names.update(new)
            while len(self._named) > DELIVERIES_LIMIT:
                self._names.discard(self._named.popleft())

    def _evict(self, txn: Transaction, limit: int, now_ms: int) -> None:
        excess = int(txn.stat(self._order)["entries"]) - min(IDS_LIMIT, self._ids_room)
        cursor = txn.cursor(db=self._order)
        more = cursor.first()
        for _ in range(limit):
            if not more:
                return
            time_ms, digest = int.from_bytes(cursor.value()[:8], "big"), cursor.value()[8:]
            if excess <= 0 and now_ms - time_ms < WINDOW_MS:
                return
            data: Any = txn.get(digest, db=self._outcomes)
            if data is not None and _decode(data).time_ms == time_ms:
                txn.delete(digest, db=self._outcomes)  # not one that was remembered anew
            more = cursor.delete()
            excess -= 1
