"""Traces: the host calls of a few events, beside their records in the history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from fieldbrook.core.host_calls import HostCall
from fieldbrook.storage.lmdb.rows import RowTable

if TYPE_CHECKING:
    import lmdb

    Transaction = lmdb.Transaction[bytes]

TRACES = b"traces"
TRACES_BYTES = 4 << 20
_ROWS = 1 << 30


class EventTrace(msgspec.Struct, array_like=True, frozen=True):
    """The host calls of one event in order; `omitted` calls after them were not kept.

    `place` is the event's place in the history; before it is written, it is the index
    of the event among the events of its batch. `runs` has the strategy of each run, its duration in
    microseconds, and the size of its linear memory in `memory_bytes`. Traces of early versions of
    the node lack both, or the size.
    """

    place: int
    calls: list[HostCall]
    omitted: int = 0
    runs: list[tuple[int, int]] = []
    memory_bytes: list[int] = []


class Traces:
    """The ring of traces in a project's store. Both the places of events and the numbers of rows
    ascend."""

    def __init__(
        self, environment: lmdb.Environment, *, create: bool, limit_bytes: int = TRACES_BYTES
    ) -> None:
        """Open the ring.

        Raises:
            lmdb.NotFoundError: `create` is false and the store has no traces.
        """
        self._table = RowTable(
            environment, TRACES, EventTrace, _ROWS, limit_bytes=limit_bytes, create=create
        )

    def append(self, txn: Transaction, traces: Sequence[EventTrace]) -> None:
        """Write traces with their places in the history, in ascending order.

        Call `committed` once the transaction is on disk.
        """
        self._table.append(txn, traces)

    def committed(self, count: int) -> None:
        """Note that the transaction with `count` appended traces is on disk."""
        self._table.committed(count)

    def at(self, txn: Transaction, place: int) -> EventTrace | None:
        """Return the trace of the event at a place, or None."""
        number = self._table.upper_bound(txn, lambda trace: trace.place, place) - 1
        trace = self._table.get(txn, number) if number > 0 else None
        return trace if trace is not None and trace.place == place else None

    def count(self, txn: Transaction) -> int:
        """Return how many traces are kept."""
        return self._table.count(txn)
