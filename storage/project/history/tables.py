"""The tables of the history in a project's store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import lmdb
from msgspec.structs import replace

from fieldbrook.storage.lmdb.rows import RowTable
from fieldbrook.storage.project.history.chunks import (
    PLACES,
    Chunk,
    Part,
    Payloads,
    StoredChunk,
    failed_part,
    parts_of,
)
from fieldbrook.storage.project.history.records import EventRecord, RecordTuple
from fieldbrook.storage.project.history.traces import TRACES_BYTES, EventTrace, Traces

if TYPE_CHECKING:
    from fieldbrook.core.settings import Settings

    Transaction = lmdb.Transaction[bytes]

DATABASE, PAYLOADS, FAILURES = b"history", b"payloads", b"history_failures"
# About 100,000 events. Written pages stay mapped and count as memory of the process.
HISTORY_BYTES = 8 << 20
PAYLOAD_LIMIT = 8 << 10  # larger payloads are not kept: a few would displace all others
REPLAYABLE_BYTES = 4 << 20  # for all payloads of a project
KEPT_BYTES = 64 << 20  # for each of: the applet log, metrics, dead letters
_FAILURES_SHARE = 4  # failed events take up to this fraction (1/4) of the history in addition
_PART_BYTES = 256 << 10  # for the payloads of one chunk
_PART_SHARE = 8
_NO_LIMIT = 1 << 40
_ROWS = 1 << 30


class HistoryLimits(NamedTuple):
    """Size limits in bytes for the records that a project keeps.

    These are the history, the payloads for replays, traces, the applet log, submitted metrics and
    dead letters.
    """

    history_bytes: int = HISTORY_BYTES
    replayable_bytes: int = REPLAYABLE_BYTES
    traces_bytes: int = TRACES_BYTES
    logs_bytes: int = KEPT_BYTES
    metrics_bytes: int = KEPT_BYTES
    letters_bytes: int = KEPT_BYTES

    @classmethod
    def of(cls, settings: Settings) -> HistoryLimits:
        """Return the limits from the settings of a node."""
        return cls(
            settings.history_bytes,
            settings.replayable_bytes,
            logs_bytes=settings.applet_log_bytes,
            metrics_bytes=settings.applet_metrics_bytes,
            letters_bytes=settings.dead_letter_bytes,
        )


_UNLIMITED = HistoryLimits(_NO_LIMIT, _NO_LIMIT, _NO_LIMIT)


class HistoryTables:
    """The chunks, the payloads of the newest chunks, the failed events of removed chunks, and
    traces.

    The first three tables use the same numbers. A reader finds neither failed events nor traces in
    the store of an earlier version.
    """

    def __init__(
        self, environment: lmdb.Environment, *, create: bool, limits: HistoryLimits = _UNLIMITED
    ) -> None:
        """Open the tables.

        Raises:
            lmdb.NotFoundError: `create` is false and the store has no history.
        """
        kept, replayable, traced, *_ = limits
        self.chunks = RowTable(environment, DATABASE, Chunk, _ROWS, limit_bytes=kept, create=create)
        self.payloads = RowTable(
            environment, PAYLOADS, Payloads, _ROWS, limit_bytes=replayable, create=create
        )
        self.failures: RowTable[Chunk] | None = None
        self.traces: Traces | None = None
        try:
            self.failures = RowTable(
                *(environment, FAILURES, Chunk, _ROWS),
                limit_bytes=kept // _FAILURES_SHARE,
                create=create,
            )
            self.traces = Traces(environment, create=create, limit_bytes=traced)
        except lmdb.NotFoundError:
            if create:
                raise
        # Dropping the payloads of a chunk should lose only a small part of all payloads.
        self._part_bytes = min(_PART_BYTES, replayable // _PART_SHARE)

    def append(
        self,
        txn: Transaction,
        records: Sequence[RecordTuple],
        payloads: Sequence[bytes],
        traces: Sequence[EventTrace],
    ) -> list[Part]:
        """Write records as chunks, with payloads if any are kept, and traces; see `parts_of`.

        Call `committed` with the result once the transaction is on disk.
        """
        parts = parts_of(records, payloads, traces, self._part_bytes)
        first = self.chunks.next_number
        self.chunks.append(txn, [part.chunk for part in parts])
        kept = [part.payloads for part in parts if part.payloads is not None]
        self.payloads.append(txn, kept, first)
        placed: list[EventTrace] = []
        for number, part in enumerate(parts, first):
            placed += [replace(t, place=number * PLACES + t.place) for t in part.traces]
            failed = failed_part(part.chunk)
            if failed is not None and self.failures is not None:
                self.failures.append(txn, [failed], number)
        if placed and self.traces is not None:
            self.traces.append(txn, placed)
        return parts

    def committed(self, parts: Sequence[Part]) -> None:
        """Note that the transaction with these parts is on disk."""
        if self.traces is not None:
            self.traces.committed(sum(len(part.traces) for part in parts))
        self.chunks.committed(len(parts))

    def backwards(self, txn: Transaction, last: int | None = None) -> Iterator[StoredChunk]:
        """Iterate over chunks, the newest first: whole ones, then failed events of removed ones.

        Args:
            last: the number to begin with; None for the newest.
        """
        oldest = None
        for oldest, data in self.chunks.items_backwards(txn, last):
            yield StoredChunk(oldest, data)
        if self.failures is None:
            return
        if oldest is None:
            oldest = self.chunks.first(txn)
        if oldest is not None:
            last = oldest - 1 if last is None else min(last, oldest - 1)
        for number, data in self.failures.items_backwards(txn, last):
            yield StoredChunk(number, data)

    def after(self, txn: Transaction, after: int, limit: int) -> list[StoredChunk]:
        """Return chunks with numbers above `after`, oldest first; -n gives the last n."""
        return [StoredChunk(*item) for item in self.chunks.items_after(txn, after, limit)]

    def at(self, txn: Transaction, place: int) -> tuple[EventRecord, bytes | None] | None:
        """Return an event and its payload (None if it is not kept); None if the event is not in the
        history any more."""
        number, index = divmod(place, PLACES)
        if not 0 < number < 1 << 63:
            return None
        data = self.chunks.get_item(txn, number)
        if data is None and self.failures is not None:
            data = self.failures.get_item(txn, number)
        record = StoredChunk(number, data).record(index) if data else None
        if record is None:
            return None
        return record, payload_of(self.payloads.get(txn, number), record, index)


def payload_of(kept: Payloads | None, record: EventRecord, index: int) -> bytes | None:
    """Return the payload of the event with this index in its chunk; None when it is not kept."""
    if record.size == 0:
        return b""
    if kept is None or index >= len(kept.payloads) or not kept.payloads[index]:
        return None
    return kept.payloads[index]
