"""Space estimate: whether a batch will fit into the store when a later checkpoint writes it.

A batch that does not fit must be refused before its events are answered. Therefore the size limit
is checked at the commit, with an estimate that is never too low.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fieldbrook.storage.lmdb.environment import store_errors, used_bytes
from fieldbrook.storage.project.commit.batch import Batch
from fieldbrook.storage.project.commit.pending import PendingWrites

if TYPE_CHECKING:
    import lmdb

    from fieldbrook.storage.project.tables import ProjectTables

_PAGE_BYTES = 4096
_BYTES_FACTOR = 2  # a tree's pages may be half empty, and a large value fills whole pages
_MARGIN_BYTES = 256 << 10  # for the pages of numbered rows that a transaction copies
_MARGIN_SHARE = 16  # in a small store the margin is at most this fraction (1/16) of it


class SpaceEstimate:
    """Estimates the free space of one open project store.

    Attributes:
        has_grown: whether a checkpoint had to raise the size limit, because an estimate was wrong.
            From then on each batch is written at once instead of waiting for a checkpoint, and LMDB
            itself refuses it if the store is full. This ends when the store is opened again with
            its own limit.
    """

    def __init__(self, environment: lmdb.Environment, tables: ProjectTables, limit: int) -> None:
        self._environment = environment
        self._tables = tables
        self._limit = limit
        self._margin = min(_MARGIN_BYTES, limit // _MARGIN_SHARE)
        self._unused: int | None = None
        self.has_grown = False

    def changed(self) -> None:
        """Note that something was written into the store."""
        self._unused = None

    def has(self, waiting: PendingWrites, batch: Batch, size: int) -> bool:
        """Return whether a batch of `size` bytes fits in addition to the pending writes."""
        if self.has_grown:
            return False
        wanted = _BYTES_FACTOR * (waiting.bytes + size) + self._margin
        # In the worst case each key is in a page of its own.
        changed = len(waiting.pairs) + len(waiting.outcomes) + len(batch.pairs)
        changed += len(batch.outcomes)
        if self._unused is None:
            self._unused = self._limit - used_bytes(self._environment)
        if wanted + changed * _PAGE_BYTES <= self._unused:
            return True
        # The exact count takes 20 us. It includes freed pages, and at most the pages that exist.
        with store_errors(), self._environment.begin() as txn:
            used = self._tables.pages(txn) * _PAGE_BYTES
            changed = min(changed, self._tables.pages_by_key(txn))
        return wanted + changed * _PAGE_BYTES <= self._limit - used
