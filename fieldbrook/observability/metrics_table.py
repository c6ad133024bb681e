"""The table of metrics: anonymous shared memory with one row per process.

The supervisor creates the table before it forks. Each process that it starts writes one row, and
the gateway that serves the metrics reads all rows. The counts of a killed process are kept, and the
next process with its name gets the same row, so the counters of a part only increase while the node
runs. The gauges of a process that has ended are cleared. The memory is not a file: a full disk does
not affect it, and the table ends with the node.
"""

from __future__ import annotations

import mmap
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from fieldbrook.observability.metrics import (
    COLUMNS,
    FAMILIES,
    GAUGE,
    HEADER_BYTES,
    ROW_BYTES,
    here,
    private_row,
)

ROWS = 4_096  # virtual memory only: a page is allocated at the first write to its row
_PID = 56  # in the header: 48 bytes of the part's name, then the pid; the numbers follow
_NAME_BYTES = 48
_GAUGES = [f.first + at for f in FAMILIES if f.kind == GAUGE for at in range(f.columns)]


class Row(NamedTuple):
    """A snapshot of a row: its part, the pid of its writer (0: none), and its numbers."""

    part: str
    pid: int
    numbers: Sequence[float]


class Table:
    """The shared memory, created once by the process that forks the others."""

    def __init__(self, rows: int = ROWS) -> None:
        self.rows = rows
        self._memory = mmap.mmap(-1, rows * ROW_BYTES)
        self._view = memoryview(self._memory)

    def row(self, slot: int) -> memoryview[float]:
        """Return the numbers of a row."""
        start = slot * ROW_BYTES
        return self._view[start + HEADER_BYTES : start + ROW_BYTES].cast("d")

    def attach(self, slot: int) -> memoryview[float]:
        """Make this process the writer of a row, and return the row."""
        self.clear_gauges(slot)
        self._set_pid(slot, os.getpid())
        return self.row(slot)

    def name(self, slot: int, part: str) -> None:
        """Set the part that a row belongs to."""
        start = slot * ROW_BYTES
        self._view[start : start + _NAME_BYTES] = part.encode()[:_NAME_BYTES].ljust(
            _NAME_BYTES, b"\0"
        )

    def detach(self, slot: int) -> None:
        """Mark the writer of a row as ended: the counters stay, the gauges are cleared."""
        self._set_pid(slot, 0)
        self.clear_gauges(slot)

    def clear_gauges(self, slot: int) -> None:
        """Set the gauges of a row to 0."""
        row = self.row(slot)
        for column in _GAUGES:
            row[column] = 0.0

    def _set_pid(self, slot: int, pid: int) -> None:
        start = slot * ROW_BYTES + _PID
        self._view[start : start + 8] = pid.to_bytes(8, "little")

    def views(self) -> Iterator[tuple[str, int, memoryview[float]]]:
        """Yield part, pid and live numbers of all rows that were ever assigned to a part."""
        for slot in range(self.rows):
            start = slot * ROW_BYTES
            name = bytes(self._view[start : start + _NAME_BYTES]).rstrip(b"\0")
            if not name:
                break  # rows are assigned in order
            pid = int.from_bytes(self._view[start + _PID : start + HEADER_BYTES], "little")
            yield name.decode("utf-8", "replace"), pid, self.row(slot)

    def read(self) -> list[Row]:
        """Return a copy of all rows that were ever assigned to a part."""
        return [Row(part, pid, view[:COLUMNS].tolist()) for part, pid, view in self.views()]


class _Shared:
    """Holds the table of the node in every process that was forked after its creation."""

    __slots__ = ("table",)

    def __init__(self) -> None:
        self.table: Table | None = None


shared = _Shared()


def attach(slot: int) -> None:
    """Write to this row of the shared table, or to private memory when there is no such row."""
    here.of_process(attached_row(slot))


def attached_row(slot: int) -> memoryview[float]:
    """Return a row of the shared table, of which this process becomes the writer.

    Without such a row, the result is private memory.
    """
    if shared.table is not None and 0 <= slot < shared.table.rows:
        return shared.table.attach(slot)
    return private_row()


PROJECTS = "projects"  # the kind of shared rows; a row is `projects:12` while project 12 uses it
DEDICATED = "worker:p"  # followed by the project's id: the part name of a worker with one project
NO_ROW = -1


class RowAllocator(msgspec.Struct):
    """Assigns rows to parts.

    A fixed part keeps its row. The first `named` projects also get rows of their own and keep
    them. Each other project temporarily uses any row that no project uses at the time, and so do
    dedicated workers; the counters of the row continue. A row never changes its kind, so that the
    sum of each kind only increases.
    """

    rows: int = ROWS
    named: int = 0
    _of_part: dict[str, int] = msgspec.field(default_factory=dict)
    _free: dict[str, list[int]] = msgspec.field(default_factory=lambda: defaultdict(list))
    _used: int = 0
    _projects_named: int = 0

    def assign(self, part: str) -> tuple[int, str]:
        """Return the row for a part (`NO_ROW` when none is left) and the part name of that row."""
        slot = self._of_part.get(part)
        if slot is not None:
            return slot, part
        if part.startswith(DEDICATED):
            return self._borrow(DEDICATED), part
        if not part.startswith("project:"):
            return self._keep(part)
        if self._projects_named < self.named:
            self._projects_named += 1
            return self._keep(part)
        return self._borrow(PROJECTS), f"{PROJECTS}:{part.partition(':')[2]}"

    def release(self, part: str, slot: int) -> None:
        """Release the row of a process or a project that has ended."""
        if slot != NO_ROW and part not in self._of_part:
            self._free[DEDICATED if part.startswith(DEDICATED) else PROJECTS].append(slot)

    def _borrow(self, kind: str) -> int:
        free = self._free[kind]
        return free.pop() if free else self._new()

    def _keep(self, part: str) -> tuple[int, str]:
        slot = self._new()
        if slot != NO_ROW:
            self._of_part[part] = slot
        return slot, part

    def _new(self) -> int:
        if self._used >= self.rows:
            return NO_ROW
        self._used += 1
        return self._used - 1
