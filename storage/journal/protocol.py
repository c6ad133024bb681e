"""The interface of a journal in files or in memory.

A batch is committed when its record is in the journal. A later checkpoint writes the batch into the
store of its project. A store never has a batch that the journal did not have before. The numbers of
a project's records increase.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from fieldbrook.core.errors import JournalDamagedError


class Record(NamedTuple):
    """One batch of one project: its number, from 1 on, and the packed batch."""

    project_id: int
    number: int
    batch: bytes


Damaged = Callable[[JournalDamagedError], None]
"""Called for each damaged place of a journal. The reader continues after the place, unless the call
raises."""


def refuse_damage(error: JournalDamagedError) -> None:
    """A `Damaged` that makes the reader stop.

    Raises:
        JournalDamagedError: always.
    """
    raise error


class JournalWriter(Protocol):
    """The side of a journal that a project's store uses. It is not thread-safe."""

    @property
    def is_complete(self) -> bool:
        """Whether each batch has to be in the journal. If so, a batch for which the journal has no
        room is refused; otherwise it is written into the store alone."""

    def add(self, project_id: int, number: int, batch: bytes) -> None:
        """Keep a record for the next `sync`. A refused record is not part of that `sync`.

        Raises:
            JournalFullError: the record is too large for a segment, or no segment is free.
            JournalFailedError: as in `sync`.
        """

    def sync(self) -> None:
        """Write all records since the last `sync` to the disk.

        Raises:
            JournalFailedError: the disk failed. The next process may find some of these records,
                all, or none. Nothing can be written any more: even if a later sync succeeds, the
                records may not be on the disk, because the kernel may have dropped them.
        """

    def release(self, project_id: int, number: int) -> None:
        """Note that the project's store holds all batches up to `number`."""


class Journal(JournalWriter, Protocol):
    """A journal. A new one is first read (`records`), then begun (`begin`), then written."""

    def records(self, damaged: Damaged = refuse_damage) -> Iterator[Record]:
        """Iterate over the records of the journal, in the order in which they were added.

        These include all records that a store may lack; some of them may be in the stores already.
        If a process was killed in `sync`, there may be records whose events were not answered.

        Args:
            damaged: called for each damaged place. An incomplete last `sync` is not damage.

        Raises:
            JournalDamagedError: records are damaged, unless `damaged` takes it.
            StoreError: the journal cannot be read.
        """

    def begin(self) -> None:
        """Empty the journal, when all stores have its records. Call it before the first `add`.

        Raises:
            StoreError: the journal cannot be written.
        """

    @property
    def low(self) -> bool:
        """Whether few segments are free; then the projects of `oldest` should make a checkpoint."""

    def oldest(self) -> Mapping[int, int]:
        """Return which releases free the oldest segment: by project, the number of a batch."""

    def close(self) -> None:
        """Drop records that were not synced, and release the lock of the journal."""
