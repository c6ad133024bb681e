"""Outbox: the messages, API calls and transactions of handlers that are not delivered yet.

The outbox is a part of the project's store. Entries are written in the transaction of their
event's batch, so they exist exactly when the event's other effects do. They are removed after
delivery, and keep the order in which they were sent.

An entry has the same number on all hosts of a cluster; see `commit/numbers.py`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import lmdb
import msgspec

from fieldbrook.core import clock
from fieldbrook.storage.lmdb.environment import open_environment, store_errors
from fieldbrook.storage.lmdb.rows import RowTable
from fieldbrook.storage.project.commit.numbers import first_number, first_offset
from fieldbrook.storage.project.history.search import Span

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]

ENTRIES_LIMIT = 100_000
BYTES_LIMIT = 256 << 20
FIRST_BYTES = 4 << 20
PARKED = "outbox.parked"  # file in the data folder while no entry may leave the node
MARKER = "outbox.waiting"  # file beside a store with entries: this project must be started

MQTT, API = "mqtt", "api"
TRANSACTIONS = "chain:"  # followed by the id of the chain whose process delivers the entry

DATABASE, DELIVERED = b"outbox", b"outbox_delivered"
NONE: Mapping[int, str] = {}
_DELIVERED_ROWS = 50_000
_DELIVERED_BYTES = 4 << 20
_COUNTED_ROWS = 2_000
_DELIVERED_SHARE = 16  # at most this fraction (1/16) of the store


class OutboxEntry(msgspec.Struct, array_like=True, frozen=True):
    """One effect that leaves the node.

    `target` is the topic of an MQTT message, the type of the event that returns an API call's
    result, or the key of a transaction's lease in hexadecimal. `time_ms` is the time of the
    event's commit in Unix milliseconds. `context` is the context of the handler's span
    (`span.Context`); b"" for an event that is not traced.
    """

    kind: str
    target: str
    body: bytes
    event_id: str
    applet_name: str
    instance_id: int
    time_ms: int
    context: bytes = b""


class Delivered(msgspec.Struct, array_like=True, frozen=True):
    """Entries that were removed at `time_ms` (Unix milliseconds).

    Each has kind, target, size in bytes, event id, and the reason of a refusal, which is "" for a
    delivered entry.
    """

    time_ms: int
    entries: list[tuple[str, str, int, str, str]]


class EffectOf(NamedTuple):
    """One effect of an event, for display.

    `done_ms` is the time of delivery or refusal in Unix milliseconds, 0 while the effect waits.
    `refused` is the reason of a refusal, or "".
    """

    kind: str
    target: str
    size: int
    done_ms: int
    refused: str = ""


class DeliveryCounts(NamedTuple):
    """The numbers of recently delivered, recently refused and waiting entries of a kind."""

    delivered: int = 0
    refused: int = 0
    waiting: int = 0


class NumberedEntry(NamedTuple):
    """An entry and its number; numbers increase and are never reused."""

    sequence: int
    entry: OutboxEntry


EncodedEntry = tuple[int, str, bytes]
"""A waiting entry: its offset, its kind, and its stored form.

The offset is counted from the first number of the last batch in the store.
"""

Added = dict[int, tuple[int, str]]
"""Size and kind of each new entry, by number."""

Removal = tuple[int, str]
"""The number of a removed entry, and the reason of a refusal, which is "" for a delivered entry."""

Checkpoint = Callable[["InTransaction | None"], None]
"""Writes all pending writes into a store. `InTransaction` is called in the same transaction."""
InTransaction = Callable[["Transaction"], None]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(OutboxEntry).decode


class _Kind(msgspec.Struct, array_like=True, frozen=True):
    kind: str


class _Time(msgspec.Struct, array_like=True, frozen=True):
    time_ms: int


_decode_kind = msgspec.msgpack.Decoder(_Kind).decode
_decode_time = msgspec.msgpack.Decoder(_Time).decode
_decode_delivered = msgspec.msgpack.Decoder(Delivered).decode


def encoded_entries(entries: Sequence[OutboxEntry], batch: int) -> Iterable[EncodedEntry]:
    """Encode the entries of a batch as the outbox stores them.

    `batch` is the number of batches since the last one in the store, including this one.
    """
    for offset, entry in enumerate(entries, first_offset(batch)):
        yield offset, entry.kind, _encode(entry)


class Outbox:
    """The outbox of one open project store; its owner is the only writer.

    Entries of committed batches may wait for a checkpoint of the store. They count as entries, but
    only the checkpoint gives them numbers. Every read makes a checkpoint first, so no consumer
    sees a number that could belong to another entry after a crash.
    """

    def __init__(self, environment: lmdb.Environment, folder: Path, checkpoint: Checkpoint) -> None:
        """Open the outbox; `checkpoint` writes waiting entries and all other pending writes."""
        self._environment = environment
        self._checkpoint = checkpoint
        self._marker = folder / MARKER
        with store_errors():
            self._database = environment.open_db(DATABASE)
            self._delivered = _open_delivered(environment, create=True)
            with environment.begin(db=self._database) as txn:
                self._sizes = {}
                self._kinds: dict[int, str] = {}
                for key, value in txn.cursor():
                    sequence = int.from_bytes(key, "big")
                    self._sizes[sequence] = len(value)
                    self._kinds[sequence] = _kind_of(value)
                self._consumers = Counter(map(consumer_of, self._kinds.values()))
        self._bytes = sum(self._sizes.values())
        self._waiting, self._waiting_bytes = 0, 0
        self._waiting_consumers: set[str] = set()
        self._update_marker()

    def __len__(self) -> int:
        return len(self._sizes) + self._waiting

    @property
    def bytes(self) -> int:
        """The size of all entries in bytes."""
        return self._bytes + self._waiting_bytes

    @property
    def is_full(self) -> bool:
        """Whether the outbox has reached a limit; then handlers cannot send until entries are
        removed."""
        return len(self) >= ENTRIES_LIMIT or self.bytes >= BYTES_LIMIT

    @property
    def consumers(self) -> set[str]:
        """The consumers (`consumer_of`) that have entries to deliver."""
        return self._waiting_consumers.union(self._consumers)

    def wait(self, entries: Sequence[EncodedEntry]) -> None:
        """Count entries of a committed batch, which the next transaction will `add`."""
        for _, kind, data in entries:
            self._waiting += 1
            self._waiting_bytes += len(data)
            self._waiting_consumers.add(consumer_of(kind))

    def add(self, txn: Transaction, entries: Sequence[EncodedEntry], number: int) -> Added:
        """Write all waiting entries, or those of a batch when none wait, inside a transaction.

        `number` is that of the last batch in the store. Call `committed` with the result once the
        transaction is on disk.
        """
        added = {}
        first = first_number(number)
        for offset, kind, data in entries:
            sequence = first + offset
            txn.put(sequence.to_bytes(8, "big"), data, db=self._database, append=True)
            added[sequence] = len(data), kind
        return added

    def create_marker(self) -> None:
        """Create the marker file. Call it before the commit: no entry may exist without it."""
        if not len(self):
            with store_errors(self._marker):
                self._marker.touch()

    def committed(self, added: Added) -> None:
        """Count the entries of a transaction that is on disk; then no entry waits any more."""
        self._waiting, self._waiting_bytes = 0, 0
        self._waiting_consumers.clear()
        for sequence, (size, kind) in added.items():
            self._sizes[sequence] = size
            self._kinds[sequence] = kind
            self._consumers[consumer_of(kind)] += 1
            self._bytes += size

    def first(self, limit: int, after: int = 0, consumer: str = "") -> list[NumberedEntry]:
        """Return the oldest entries of a consumer with numbers above `after`.

        The list has at most `limit` entries, and ends when their sum reaches `FIRST_BYTES`.
        """
        found: list[NumberedEntry] = []
        size = 0
        if self._waiting:
            self._checkpoint(None)
        with store_errors(), self._environment.begin(db=self._database) as txn:
            cursor = txn.cursor()
            more = cursor.set_range((after + 1).to_bytes(8, "big"))
            while more and len(found) < limit and size < FIRST_BYTES:
                sequence = int.from_bytes(cursor.key(), "big")
                if consumer_of(self._kinds[sequence]) == consumer:
                    value = cursor.value()
                    size += len(value)
                    found.append(NumberedEntry(sequence, _decode(value)))
                more = cursor.next()
        return found

    def targets(self, kind: str) -> list[str]:
        """Return the targets of all entries of a kind, oldest first."""
        if self._waiting:
            self._checkpoint(None)
        sequences = sorted(number for number, found in self._kinds.items() if found == kind)
        with store_errors(), self._environment.begin(db=self._database) as txn:
            found = (txn.get(number.to_bytes(8, "big")) for number in sequences)
            return [_decode(value).target for value in found if value is not None]

    def remove(self, sequences: Sequence[int], refused: Mapping[int, str] = NONE) -> list[Removal]:
        """Remove delivered entries, and refused ones with their reasons; return them.

        Numbers that are already gone are ignored.
        """
        removals = [
            (number, refused.get(number, ""))
            for number in (*sequences, *refused)
            if number in self._sizes
        ]
        if not removals:
            return removals
        now_ms, rows = clock.now_ms(), 0

        def also(txn: Transaction) -> None:
            nonlocal rows
            rows = self.take(txn, removals, now_ms)

        if self._waiting:  # the consumer fetches entries next, which needs the checkpoint anyway
            self._checkpoint(also)
        else:
            with store_errors(), self._environment.begin(write=True) as txn:
                also(txn)
        self.forget([number for number, _ in removals], rows)
        return removals

    def take(self, txn: Transaction, removals: Sequence[Removal], time_ms: int) -> int:
        """Remove entries inside a transaction. Call `forget` once it is on disk.

        Returns:
            The number of written rows of deliveries; 0 if all entries had been removed before.
        """
        gone = []
        for sequence, reason in removals:
            value = txn.pop(sequence.to_bytes(8, "big"), db=self._database)
            if value is not None:
                entry = _decode(value)
                gone.append((entry.kind, entry.target, len(entry.body), entry.event_id, reason))
        if not gone:
            return 0
        self._delivered.append(txn, [Delivered(time_ms, gone)])
        return 1

    def forget(self, sequences: Iterable[int], rows: int) -> None:
        """Note that the transaction of `take`, which wrote `rows` of deliveries, is on disk."""
        self._delivered.committed(rows)
        for sequence in sequences:
            if sequence not in self._sizes:
                continue
            self._bytes -= self._sizes.pop(sequence)
            consumer = consumer_of(self._kinds.pop(sequence))
            self._consumers[consumer] -= 1
            if not self._consumers[consumer]:
                del self._consumers[consumer]
        self._update_marker()

    def _update_marker(self) -> None:
        with store_errors(self._marker):
            if len(self):
                self._marker.touch()
            else:
                self._marker.unlink(missing_ok=True)


def consumer_of(kind: str) -> str:
    """Return the consumer that delivers entries of a kind.

    The consumer of a transaction is its kind, which names a chain's process. The consumer of MQTT
    messages and API calls is `""`, the MQTT gateway.
    """
    return kind if kind.startswith(TRANSACTIONS) else ""


def _kind_of(data: bytes) -> str:
    """Decode only the kind of an encoded entry."""
    return _decode_kind(data).kind


def effects_of(
    environment: lmdb.Environment, event_id: str, limit: int, spans: Sequence[Span] = ()
) -> list[EffectOf]:
    """Return the effects of an event: delivered or refused ones first, then waiting ones.

    Removed entries are included as far as the store still has them. Call it inside
    `store_errors`.

    Args:
        limit: the largest number of effects.
        spans: when the event ran (`history.search.spans_of`); entries that were removed before
            are not searched. An effect may be delivered long after its event.
    """
    needle = event_id.encode()
    begin = min((span.begin for span in spans), default=0)
    found: list[EffectOf] = []
    try:
        database = environment.open_db(DATABASE, create=False)
        delivered = _open_delivered(environment, create=False)
    except lmdb.NotFoundError:
        return found
    with environment.begin() as txn:
        for _, data in delivered.items_backwards(txn):
            if _decode_time(data).time_ms < begin:
                break
            if needle not in data:  # much cheaper than decoding all entries
                continue
            chunk = _decode_delivered(data)
            found += [
                EffectOf(kind, target, size, chunk.time_ms, reason)
                for kind, target, size, event, reason in chunk.entries
                if event == event_id
            ]
        for value in txn.cursor(db=database).iternext(keys=False, values=True):
            if needle not in value:
                continue
            entry = _decode(value)
            if entry.event_id == event_id:
                size = len(entry.body)
                found.append(EffectOf(entry.kind, entry.target, size, 0))
    return found[:limit]


def count_deliveries(environment: lmdb.Environment, begin_ms: int) -> dict[str, DeliveryCounts]:
    """Count entries by kind: removed ones from `begin_ms` on (Unix ms), and waiting ones.

    The kind of all transactions is `chain`. At most `_COUNTED_ROWS` deliveries and as many waiting
    entries are examined. Call it inside `store_errors`.
    """
    delivered: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    try:
        database = environment.open_db(DATABASE, create=False)
        rows = _open_delivered(environment, create=False)
    except lmdb.NotFoundError:
        return {}
    with environment.begin() as txn:
        for _, data in itertools.islice(rows.items_backwards(txn), _COUNTED_ROWS):
            if _decode_time(data).time_ms < begin_ms:
                break
            for kind, _, _, _, reason in _decode_delivered(data).entries:
                (refused if reason else delivered)[kind.partition(":")[0]] += 1
        values = txn.cursor(db=database).iternext(keys=False, values=True)
        for value in itertools.islice(values, _COUNTED_ROWS):
            waiting[_kind_of(value).partition(":")[0]] += 1
    kinds = sorted(delivered.keys() | refused.keys() | waiting.keys())
    return {kind: DeliveryCounts(delivered[kind], refused[kind], waiting[kind]) for kind in kinds}


def _open_delivered(environment: lmdb.Environment, *, create: bool) -> RowTable[Delivered]:
    return RowTable(
        *(environment, DELIVERED, Delivered, _DELIVERED_ROWS),
        create=create,
        limit_bytes=min(_DELIVERED_BYTES, int(environment.info()["map_size"]) // _DELIVERED_SHARE),
    )


def waiting_projects(projects_dir: Path) -> list[int]:
    """Return the ids of projects with a marker file for undelivered entries."""
    markers = projects_dir.glob(f"*/{MARKER}")
    return sorted(int(path.parent.name) for path in markers if path.parent.name.isdecimal())


def waiting_entries(folder: Path) -> int:
    """Count the outbox entries in a project's store; the project may be running.

    Entries that still wait for a checkpoint of the store are not counted.
    """
    if not (folder / "data.mdb").exists():
        return 0
    environment = open_environment(folder, map_size=0, readonly=True)
    try:
        with store_errors(folder):
            try:
                database = environment.open_db(DATABASE, create=False)
            except lmdb.NotFoundError:
                return 0  # the store is being created right now
            with environment.begin() as txn:
                return int(txn.stat(database)["entries"])
    finally:
        environment.close()


def is_parked(data: Path) -> bool:
    """Return whether outbox entries stay in the node until the operator releases them.

    This is the case after a restore: entries that were undelivered in the backup may have been
    delivered since. Code that delivers entries of a data folder must check this first.
    """
    return (data / PARKED).exists()


def park(data: Path) -> None:
    """Park the outboxes of a data folder on which no node runs yet."""
    with store_errors(data / PARKED):
        (data / PARKED).touch(mode=0o600)


def release(data: Path) -> bool:
    """Release parked outboxes; return False when nothing was parked.

    A running node notices the release.
    """
    with store_errors(data / PARKED):
        try:
            (data / PARKED).unlink()
        except FileNotFoundError:
            return False
    return True
