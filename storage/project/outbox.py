"""What a project's handlers have sent and nobody has delivered yet; part of its store.

Entries are written in the transaction of their event's batch, so they exist exactly when
the event's other effects do, and removed when they have been delivered. They keep the
order in which they were sent.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import lmdb
import msgspec

from fieldbrook.core import clock
from fieldbrook.storage.lmdb.environment import open_environment, store_errors
from fieldbrook.storage.lmdb.rows import RowTable

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]

ENTRIES_LIMIT = 100_000
BYTES_LIMIT = 256 << 20
FIRST_BYTES = 4 << 20
PARKED = "outbox.parked"  # in the data folder while nothing may leave the node
MARKER = "outbox.waiting"  # beside the store while it has entries: start this project

MQTT, API = "mqtt", "api"
TRANSACTIONS = "chain:"  # and a chain's id: what that chain's process delivers

DATABASE, _DELIVERED = b"outbox", b"outbox_delivered"
_NONE: Mapping[int, str] = {}
_DELIVERED_ROWS = 50_000
_DELIVERED_BYTES = 4 << 20
_DELIVERED_SHARE = 16  # of the store at most


class OutboxEntry(msgspec.Struct, array_like=True, frozen=True):
    """One effect that leaves the node.

    `target` is the topic of an MQTT message, the type of the event that brings an API
    call's result, or the key of a transaction's lease in hexadecimal. `time_ms` is Unix
    milliseconds of its event's commit.
    """

    kind: str
    target: str
    body: bytes
    event_id: str
    applet_name: str
    instance_id: int
    time_ms: int


class Delivered(msgspec.Struct, array_like=True, frozen=True):
    """Entries that were done with at `time_ms`: kind, target, size, event id, and why it
    was not delivered, or ""."""

    time_ms: int
    entries: list[tuple[str, str, int, str, str]]


class EffectOf(NamedTuple):
    """What an event has sent; `done_ms` is 0 while it waits, `refused` why nobody took it."""

    kind: str
    target: str
    size: int
    sent_ms: int
    done_ms: int
    refused: str = ""


class NumberedEntry(NamedTuple):
    """An entry and its place; numbers grow and are never used twice."""

    sequence: int
    entry: OutboxEntry


Added = dict[int, tuple[int, str]]
"""Size and kind of entries that were written, by number."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(OutboxEntry).decode


class _Kind(msgspec.Struct, array_like=True, frozen=True):
    kind: str


_decode_kind = msgspec.msgpack.Decoder(_Kind).decode


class Outbox:
    """The outbox of one open project store; its owner is the only writer."""

    def __init__(self, environment: lmdb.Environment, folder: Path) -> None:
        self._environment = environment
        self._marker = folder / MARKER
        with store_errors():
            self._database = environment.open_db(DATABASE)
            self._delivered = _open_delivered(environment, create=True)
            with environment.begin(db=self._database) as txn:
                cursor = txn.cursor()
                last = int.from_bytes(cursor.key(), "big") if cursor.last() else 0
                self._sizes = {}
                self._kinds: dict[int, str] = {}
                for key, value in cursor.iterprev():
                    sequence = int.from_bytes(key, "big")
                    self._sizes[sequence] = len(value)
                    self._kinds[sequence] = _kind_of(value)
                self._takers = Counter(map(taker_of, self._kinds.values()))
        # A number may be on its way to a taker while its entry is gone: none comes again.
        self._next = max(last + 1, time.time_ns() // 1000)
        self._bytes = sum(self._sizes.values())
        self._mark()

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def bytes(self) -> int:
        """The size of all entries."""
        return self._bytes

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be sent until something was delivered."""
        return len(self._sizes) >= ENTRIES_LIMIT or self._bytes >= BYTES_LIMIT

    @property
    def takers(self) -> set[str]:
        """Who has something to deliver: `""` for messages and API calls, and chains."""
        return set(self._takers)

    def add(self, txn: Transaction, entries: Iterable[OutboxEntry]) -> Added:
        """Write entries in a batch's transaction; `added` takes the result after it."""
        added = {}
        for sequence, entry in enumerate(entries, self._next):
            data = _encode(entry)
            txn.put(sequence.to_bytes(8, "big"), data, db=self._database, append=True)
            added[sequence] = len(data), entry.kind
        return added

    def announce(self) -> None:
        """Set the marker; before the commit, so that no entry is ever without one."""
        if not self._sizes:
            with store_errors(self._marker):
                self._marker.touch()

    def added(self, added: Added) -> None:
        """The transaction of these entries is on disk."""
        for sequence, (size, kind) in added.items():
            self._sizes[sequence] = size
            self._kinds[sequence] = kind
            self._takers[taker_of(kind)] += 1
            self._bytes += size
        self._next += len(added)

    def first(self, limit: int, after: int = 0, taker: str = "") -> list[NumberedEntry]:
        """The oldest entries of a taker with numbers above `after`, at most `limit`, and no
        further one once they have `FIRST_BYTES`."""
        found: list[NumberedEntry] = []
        size = 0
        with store_errors(), self._environment.begin(db=self._database) as txn:
            cursor = txn.cursor()
            more = cursor.set_range((after + 1).to_bytes(8, "big"))
            while more and len(found) < limit and size < FIRST_BYTES:
                sequence = int.from_bytes(cursor.key(), "big")
                if taker_of(self._kinds[sequence]) == taker:
                    value = cursor.value()
                    size += len(value)
                    found.append(NumberedEntry(sequence, _decode(value)))
                more = cursor.next()
        return found

    def targets(self, kind: str) -> list[str]:
        """What all entries of a kind are directed to, oldest first."""
        sequences = sorted(number for number, found in self._kinds.items() if found == kind)
        with store_errors(), self._environment.begin(db=self._database) as txn:
            found = (txn.get(number.to_bytes(8, "big")) for number in sequences)
            return [_decode(value).target for value in found if value is not None]

    def remove(self, sequences: Sequence[int], refused: Mapping[int, str] = _NONE) -> None:
        """These were delivered, and others nobody takes, for a reason; numbers that are gone
        already are passed over."""
        known = [number for number in (*sequences, *refused) if number in self._sizes]
        if not known:
            return
        gone = []
        with store_errors():
            with self._environment.begin(write=True) as txn:
                for sequence in known:
                    value = txn.pop(sequence.to_bytes(8, "big"), db=self._database)
                    if value is not None:
                        entry = _decode(value)
                        size, reason = len(entry.body), refused.get(sequence, "")
                        gone.append((entry.kind, entry.target, size, entry.event_id, reason))
                self._delivered.append(txn, [Delivered(clock.now_ms(), gone)])
            self._delivered.written(1)
        for sequence in known:
            self._bytes -= self._sizes.pop(sequence)
            taker = taker_of(self._kinds.pop(sequence))
            self._takers[taker] -= 1
            if not self._takers[taker]:
                del self._takers[taker]
        self._mark()

    def _mark(self) -> None:
        with store_errors(self._marker):
            if self._sizes:
                self._marker.touch()
            else:
                self._marker.unlink(missing_ok=True)


def taker_of(kind: str) -> str:
    """Who delivers entries of a kind: that chain's process, or `""`, the MQTT gateway."""
    return kind if kind.startswith(TRANSACTIONS) else ""


def _kind_of(data: bytes) -> str:
    """The kind of an encoded entry, without the rest of it."""
    return _decode_kind(data).kind


def effects_of(environment: lmdb.Environment, event_id: str, limit: int) -> list[EffectOf]:
    """What an event has sent and what became of it: of those delivered as far as the store
    remembers them. Call it inside `store_errors`."""
    found: list[EffectOf] = []
    try:
        database = environment.open_db(DATABASE, create=False)
        delivered = _open_delivered(environment, create=False)
    except lmdb.NotFoundError:
        return found
    with environment.begin() as txn:
        for chunk in delivered.backwards(txn):
            found += [
                EffectOf(kind, target, size, 0, chunk.time_ms, reason)
                for kind, target, size, event, reason in chunk.entries
                if event == event_id
            ]
        for value in txn.cursor(db=database).iternext(keys=False, values=True):
            entry = _decode(value)
            if entry.event_id == event_id:
                size = len(entry.body)
                found.append(EffectOf(entry.kind, entry.target, size, entry.time_ms, 0))
    return found[:limit]


def _open_delivered(environment: lmdb.Environment, *, create: bool) -> RowTable[Delivered]:
    return RowTable(
        *(environment, _DELIVERED, Delivered, _DELIVERED_ROWS),
        create=create,
        limit_bytes=min(_DELIVERED_BYTES, int(environment.info()["map_size"]) // _DELIVERED_SHARE),
    )


def waiting_projects(projects_dir: Path) -> list[int]:
    """The projects with undelivered entries."""
    markers = projects_dir.glob(f"*/{MARKER}")
    return sorted(int(path.parent.name) for path in markers if path.parent.name.isdecimal())


def waiting_entries(folder: Path) -> int:
    """How many entries the outbox in a project's folder has; its process may be at work."""
    environment = open_environment(folder, map_size=0, readonly=True)
    try:
        with store_errors(folder):
            try:
                database = environment.open_db(DATABASE, create=False)
            except lmdb.NotFoundError:
                return 0  # it is being made just now
            with environment.begin() as txn:
                return int(txn.stat(database)["entries"])
    finally:
        environment.close()


def is_parked(data: Path) -> bool:
    """Whether what handlers sent stays in the node until the operator releases it.

    So it is after a restore: what the backup held as undelivered may have been delivered
    since. Whoever sends anything out of a data folder asks this first.
    """
    return (data / PARKED).exists()


def park(data: Path) -> None:
    """Let nothing leave a node that does not run yet."""
    with store_errors(data / PARKED):
        (data / PARKED).touch(mode=0o600)


def release(data: Path) -> bool:
    """Let everything go; False when nothing was parked. A running node takes notice."""
    with store_errors(data / PARKED):
        try:
            (data / PARKED).unlink()
        except FileNotFoundError:
            return False
    return True
