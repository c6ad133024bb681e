"""The store of one chain: cursors of monitors, recent blocks, announced events, last state.

There is one environment per chain. Only the chain's process opens it for writing; others read
it. Further tables, such as those of `storage.chain.transactions`, are opened in
`ChainStore.environment`, which has room for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import lmdb
import msgspec

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.chain.transactions import TransactionReader
from fieldbrook.storage.lmdb.environment import FEW_READERS, open_environment, store_errors
from fieldbrook.storage.lmdb.schema import open_meta
from fieldbrook.storage.lmdb.table import open_database

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]

MAP_BYTES = 4 << 30
TABLES_LIMIT = 32

_CURSORS, _BLOCKS, _ANNOUNCED, _STATE = "cursors", "blocks", "told", "state"
_STATE_CELL = b"state"
_MONITORS = (_CURSORS, _BLOCKS, _ANNOUNCED, _STATE)
SCHEMA = 1
WHAT = "a chain's store"
OK = "OK"
"""The state of a subscription that announces blocks."""


class Cursor(msgspec.Struct, array_like=True, frozen=True):
    """The progress of a monitor.

    `block` is the last finished block: all its events are answered. `block_hash` is its hash; it is
    empty for a block that is not followed. If `rewind` is 0 or more, it is the number of a block: a
    reorganisation dropped the blocks after it, and their events must still be retracted. Times are
    Unix milliseconds.
    """

    block: int
    block_hash: bytes = b""
    rewind: int = -1
    events: int = 0  # answered events, with retractions
    removed: int = 0  # how many of these were retractions
    failures: int = 0  # failed attempts
    error: str = ""  # why the monitor is stuck; empty when it is not
    time_ms: int = 0  # time of the last step

    @property
    def stands(self) -> bool:
        """Whether the monitor has sent an event that was not retracted."""
        return self.events > 2 * self.removed


class AnnouncedEvent(msgspec.Struct, array_like=True, frozen=True):
    """A log or transaction that was announced to a monitor's project.

    It is stored before it is sent, and kept while a reorganisation may still drop its block.
    `round` counts how often it was retracted; `removed` is set while it is retracted.
    """

    block: int
    block_hash: bytes
    index: int
    payload: bytes
    round: int = 0
    removed: bool = False


class EndpointState(msgspec.Struct, frozen=True):
    """The state of one endpoint; `name` is its scheme and host."""

    name: str
    head: int
    failures: int
    reason: str = ""


class ChainState(msgspec.Struct, frozen=True):
    """The last published state of the chain's process, for monitoring.

    `head` is the newest block, seen at `head_ms` (Unix ms), and `confirmed` the newest one whose
    contents may become events. The counters start when the store is created.
    """

    head: int = 0
    head_ms: int = 0
    reorganisations: int = 0
    deepest: int = 0  # number of blocks that the deepest reorganisation dropped
    failures: int = 0  # failed polls of the chain
    events: int = 0
    error: str = ""  # why the last poll failed; empty when it succeeded
    endpoints: list[EndpointState] = []
    confirmed: int = -1
    websocket: str = ""  # `OK`, or why blocks are not announced; empty without the setting


_encode = msgspec.msgpack.Encoder().encode
_decode_cursor = msgspec.msgpack.Decoder(Cursor).decode
_decode_announced = msgspec.msgpack.Decoder(AnnouncedEvent).decode
_decode_state = msgspec.msgpack.Decoder(ChainState).decode


def chain_path(chains_dir: Path, chain_id: int) -> Path:
    """The folder of a chain's store."""
    return chains_dir / str(chain_id)


class _Tables:
    def __init__(self, environment: lmdb.Environment, *, create: bool) -> None:
        with store_errors(environment.path()):
            open_meta(environment, WHAT, SCHEMA, create=create, unmarked=0)
            self.cursors = open_database(environment, _CURSORS, create)
            self.blocks = open_database(environment, _BLOCKS, create)
            self.announced = open_database(environment, _ANNOUNCED, create)
            self.state = open_database(environment, _STATE, create)


class ChainStoreReader:
    """A reader of a chain's store, for any process."""

    def __init__(self, environment: lmdb.Environment, tables: _Tables) -> None:
        self.environment = environment
        self._tables = tables

    @classmethod
    def open_if_exists(cls, path: Path) -> Self | None:
        """Open a reader of the store at `path`; None while there is no store.

        Raises:
            StoreError: the store cannot be read.
        """
        if not (path / "data.mdb").exists():
            return None
        environment = open_environment(path, map_size=0, readonly=True, max_dbs=TABLES_LIMIT)
        try:
            return cls(environment, _Tables(environment, create=False))
        except StoreError as error:
            environment.close()
            if isinstance(error.__context__, lmdb.NotFoundError):
                return None  # the chain's process is creating it right now
            raise
        except BaseException:
            environment.close()
            raise

    @cached_property
    def transactions(self) -> TransactionReader:
        """The chain's transactions."""
        return TransactionReader(self.environment)

    def cursor(self, monitor_id: int) -> Cursor | None:
        """Return the cursor of a monitor; None before the monitor's first step."""
        with store_errors(), self.environment.begin(db=self._tables.cursors) as txn:
            data = txn.get(_key(monitor_id))
        return None if data is None else _decode_cursor(data)

    def cursors(self) -> dict[int, Cursor]:
        """Return all cursors by the ids of their monitors."""
        with store_errors(), self.environment.begin(db=self._tables.cursors) as txn:
            return {int.from_bytes(k, "big"): _decode_cursor(v) for k, v in txn.cursor()}

    def state(self) -> ChainState:
        """Return the last published state of the chain's process."""
        with store_errors(), self.environment.begin(db=self._tables.state) as txn:
            data = txn.get(_STATE_CELL)
        return ChainState() if data is None else _decode_state(data)

    def close(self) -> None:
        """Close the environment."""
        self.environment.close()


class ChainStore(ChainStoreReader):
    """The writer of a chain's store, owned by the chain's process. Open it after the fork only.

    Every change is one synced transaction.
    """

    def __init__(self, path: Path, map_size: int = MAP_BYTES) -> None:
        """Open or create the store.

        Raises:
            StoreError: as `open_environment`.
        """
        environment = open_environment(
            path, map_size=map_size, max_dbs=TABLES_LIMIT, max_readers=FEW_READERS
        )
        try:
            super().__init__(environment, _Tables(environment, create=True))
        except BaseException:
            environment.close()
            raise
        self.path = path

    # ---------------------------------------------------------------- blocks

    def blocks(self) -> dict[int, bytes]:
        """Return the hashes of the newest followed blocks, in ascending order of their numbers."""
        with store_errors(), self.environment.begin(db=self._tables.blocks) as txn:
            return {int.from_bytes(k, "big"): bytes(v) for k, v in txn.cursor()}

    def put_blocks(
        self,
        added: Mapping[int, bytes],
        dropped: Iterable[int],
        rewound: Mapping[int, Cursor] | None = None,
    ) -> None:
        """Store the hashes of added blocks, and remove those of dropped blocks.

        The cursors of monitors that must rewind are stored in the same transaction, so that a
        crash loses none of them.
        """
        with store_errors(), self.environment.begin(write=True) as txn:
            for number in dropped:
                txn.delete(_key(number), db=self._tables.blocks)
            for number, block_hash in added.items():
                txn.put(_key(number), block_hash, db=self._tables.blocks)
            for monitor_id, cursor in (rewound or {}).items():
                txn.put(_key(monitor_id), _encode(cursor), db=self._tables.cursors)

    # ---------------------------------------------------------------- monitors

    def put_cursors(self, cursors: Mapping[int, Cursor]) -> None:
        """Store the cursors of monitors."""
        with store_errors(), self.environment.begin(write=True, db=self._tables.cursors) as txn:
            for monitor_id, cursor in cursors.items():
                txn.put(_key(monitor_id), _encode(cursor))

    def announce(self, events: Mapping[int, Sequence[AnnouncedEvent]]) -> None:
        """Store events before they are sent, so that they are recognised after a crash."""
        with store_errors(), self.environment.begin(write=True, db=self._tables.announced) as txn:
            for monitor_id, rows in events.items():
                for row in rows:
                    txn.put(_announced_key(monitor_id, row), _encode(row))

    def announced(self, monitor_id: int, from_block: int = 0) -> list[AnnouncedEvent]:
        """Return the announced events of a monitor from a block on, in the order of the chain."""
        prefix = _key(monitor_id)
        found = []
        with store_errors(), self.environment.begin(db=self._tables.announced) as txn:
            cursor = txn.cursor()
            more = cursor.set_range(prefix + _key(from_block))
            while more and cursor.key().startswith(prefix):
                found.append(_decode_announced(cursor.value()))
                more = cursor.next()
        return found

    def retract(self, monitor_id: int, rows: Sequence[AnnouncedEvent], cursor: Cursor) -> None:
        """Complete a reorganisation for a monitor.

        The events of these rows are marked as retracted, and the cursor, which points before
        them, is stored.
        """
        with store_errors(), self.environment.begin(write=True) as txn:
            for row in rows:
                back = msgspec.structs.replace(row, removed=True, round=row.round + 1)
                txn.put(_announced_key(monitor_id, row), _encode(back), db=self._tables.announced)
            txn.put(_key(monitor_id), _encode(cursor), db=self._tables.cursors)

    def delete_announced(self, before_block: int) -> int:
        """Delete announced events of blocks before `before_block`, which are final.

        Returns:
            The number of deleted rows.
        """
        with store_errors(), self.environment.begin(write=True, db=self._tables.announced) as txn:
            cursor, count = txn.cursor(), 0
            more = cursor.first()
            while more:
                if int.from_bytes(cursor.key()[8:16], "big") < before_block:
                    more = cursor.delete() and bool(cursor.key())  # no key after the last row
                    count += 1
                else:
                    # The other rows of this monitor are newer: skip to the next monitor.
                    after = int.from_bytes(cursor.key()[:8], "big") + 1
                    more = cursor.set_range(_key(after))
            return count

    def delete_other_monitors(self, kept: Iterable[int]) -> list[int]:
        """Delete cursors and announced events of monitors that are not in `kept`.

        Returns:
            The ids of the deleted monitors.
        """
        kept = set(kept)
        with store_errors(), self.environment.begin(write=True) as txn:
            known = [int.from_bytes(k, "big") for k, _ in txn.cursor(self._tables.cursors)]
            gone = [monitor_id for monitor_id in known if monitor_id not in kept]
            for monitor_id in gone:
                txn.delete(_key(monitor_id), db=self._tables.cursors)
                cursor = txn.cursor(self._tables.announced)
                more = cursor.set_range(_key(monitor_id))
                while more and cursor.key().startswith(_key(monitor_id)):
                    more = cursor.delete()
        return gone

    # ---------------------------------------------------------------- state

    def put_state(self, state: ChainState) -> None:
        """Publish the state of the chain's process."""
        with store_errors(), self.environment.begin(write=True, db=self._tables.state) as txn:
            txn.put(_STATE_CELL, _encode(state))


def replace_monitor_tables(source: Path, target: Path) -> None:
    """Replace the monitor tables in a copy of a store by those of an older copy.

    Without an older copy the tables are emptied.

    In a backup, the cursor of a monitor must not be ahead of its project's store: the events in
    between would be lost. A cursor that is behind does no harm, because deduplication recognises
    repeated events. For transactions the opposite holds.

    Args:
        source: the folder of the older copy; it need not exist.
        target: the folder of the copy that is changed.

    Raises:
        StoreError: one of the two copies cannot be read or written.
    """
    environment = open_environment(target, map_size=MAP_BYTES, max_dbs=TABLES_LIMIT)
    try:
        with store_errors(target), environment.begin(write=True) as txn:
            for name in _MONITORS:
                txn.drop(environment.open_db(name.encode(), txn), delete=False)
            if (source / "data.mdb").exists():
                _copy_tables(source, environment, txn)
    finally:
        environment.close()
    (target / "lock.mdb").unlink(missing_ok=True)


def _copy_tables(source: Path, environment: lmdb.Environment, txn: Transaction) -> None:
    older = open_environment(source, map_size=0, readonly=True, max_dbs=TABLES_LIMIT)
    try:
        for name in _MONITORS:
            target = environment.open_db(name.encode(), txn)
            table = open_database(older, name, create=False)
            with older.begin(db=table) as reading:
                for key, value in reading.cursor():
                    txn.put(key, value, db=target)
    finally:
        older.close()


def _key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _announced_key(monitor_id: int, row: AnnouncedEvent) -> bytes:
    return _key(monitor_id) + _key(row.block) + row.block_hash + row.index.to_bytes(4, "big")
