"""The interface of a journal, whatever its medium: files, memory, or later a replicated stream.

A batch is committed when its record is in the journal. A later checkpoint writes it into the store
of its project, which is never ahead of the journal. The numbers of a project's records increase.
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
"""Takes a damaged place of a journal; the reading goes on behind it, unless this raises."""


def refuse_damage(error: JournalDamagedError) -> None:
    """A `Damaged` that ends the reading.

    Raises:
        JournalDamagedError: always.
    """
    raise error


class JournalWriter(Protocol):
    """The side of a journal that a project's store uses. It is not thread-safe."""

    @property
    def is_complete(self) -> bool:
        """Whether each batch has to be in it. Then a batch without room in the journal is refused,
        instead of being written into the store alone."""

    def add(self, project_id: int, number: int, batch: bytes) -> None:
        """Keep a record for the next `sync`. A refused record is not part of that `sync`.

        Raises:
            JournalFullError: the record does not fit in, or no segment is free.
            JournalFailedError: as in `sync`.
        """

    def sync(self) -> None:
        """Write all records since the last `sync` to the disk.

        Raises:
            JournalFailedError: the disk failed. Each of these records may be read by the next
                process or not. Nothing can be written any more: a later sync that succeeds would
                not show that these are on the disk, because the kernel may have dropped them.
        """

    def release(self, project_id: int, number: int) -> None:
        """Note that the project's store holds all batches up to `number`."""


class Journal(JournalWriter, Protocol):
    """A journal. A new one is first read (`records`), then begun (`begin`), then written."""

    def records(self, damaged: Damaged = refuse_damage) -> Iterator[Record]:
        """Iterate over the records of the journal, in the order in which they were added.

        These are all records that a store may still lack, and others that every store has. A
        process that was killed in `sync` may have left records whose events were not answered.

        Args:
            damaged: called for each damaged place. The end of the last `sync` is not damage.

        Raises:
            JournalDamagedError: records are damaged, unless `damaged` takes it.
            StoreError: the journal cannot be read.
        """

    def begin(self) -> None:
        """Empty the journal: all stores hold its records. Call it before the first `add`.

        Raises:
            StoreError: the journal cannot be written.
        """

    @property
    def low(self) -> bool:
        """Whether few segments are free, so that the projects of `oldest` need a checkpoint."""

    def oldest(self) -> Mapping[int, int]:
        """Return the releases that the oldest segment waits for: a number for each project."""

    def close(self) -> None:
        """Drop records that were not synced, and release the lock of the journal."""
