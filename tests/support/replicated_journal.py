"""A journal like that of a cluster's host: in memory, with all batches."""

from __future__ import annotations

from fieldbrook.storage.journal.memory import MemoryJournal
from fieldbrook.storage.journal.protocol import Record


class ReplicatedJournal(MemoryJournal):
    """A journal that must contain each batch, as in a cluster; it keeps all of them."""

    is_complete = True

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Record] = []
        self.begin()

    def add(self, project_id: int, number: int, batch: bytes) -> None:
        super().add(project_id, number, batch)
        self.kept.append(Record(project_id, number, batch))
