"""A journal in memory, for tests and simulations, which decide when it crashes or fails."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from fieldbrook.core.errors import JournalFailedError, JournalFullError
from fieldbrook.storage.journal.protocol import Damaged, Record, refuse_damage


class _Segment:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.bytes = 0
        self.needed: dict[int, int] = {}


class MemoryJournal:
    """A journal in memory; the protocol is `Journal`.

    While `failing` is set, syncs fail. While `full` is set, `add` refuses everything. `syncs`
    counts the syncs that wrote something.
    """

    is_complete = False

    def __init__(self, segment_bytes: int = 16 << 20, segments: int = 8) -> None:
        """Make an empty journal: `segments` times `segment_bytes` bytes of batches."""
        self.failing = self.full = False
        self.syncs = 0
        self._size, self._limit = segment_bytes, segments
        self._live: deque[_Segment] = deque()
        self._waiting: list[Record] = []
        self._begun = self._failed = False

    def crash(self, keep: int = 0) -> None:
        """Drop records that were not synced, as a crash does; the journal can then be read again.

        keep: how many records of an interrupted `sync` are on the disk nevertheless.
        """
        if self._live:
            self._live[-1].records += self._waiting[:keep]
        self._waiting, self._begun, self._failed = [], False, False

    def records(self, damaged: Damaged = refuse_damage) -> Iterator[Record]:
        """Iterate over the records; memory is never damaged."""
        assert not self._begun
        for segment in self._live:
            yield from segment.records

    def begin(self) -> None:
        """Empty the journal."""
        assert not self._begun
        self._live = deque([_Segment()])
        self._begun = True

    def add(self, project_id: int, number: int, batch: bytes) -> None:
        """Keep a record for the next `sync`; see the protocol."""
        assert self._begun
        size = sum(len(record.batch) for record in self._waiting) + len(batch)
        if self.full or size > self._size:
            raise JournalFullError(reason=f"{size} bytes do not fit into the journal")
        if self._live[-1].bytes + size > self._size:
            self._free_released()
            if len(self._live) >= self._limit:
                raise JournalFullError(reason="no segment of the journal is free")
            self._live.append(_Segment())
            self._free_released()
        self._waiting.append(Record(project_id, number, batch))

    def sync(self) -> None:
        """Keep all added records."""
        if not (self._waiting or self._failed):
            return
        self._failed = self._failed or self.failing
        if self._failed:
            raise JournalFailedError(reason="the journal's disk failed")
        waiting, self._waiting = self._waiting, []
        self.syncs += 1
        segment = self._live[-1]
        for record in waiting:
            segment.records.append(record)
            segment.bytes += len(record.batch)
            segment.needed[record.project_id] = record.number

    def release(self, project_id: int, number: int) -> None:
        """Note that the project's store holds all batches up to `number`."""
        for segment in self._live:
            if segment.needed.get(project_id, number + 1) <= number:
                del segment.needed[project_id]
        self._free_released()

    def _free_released(self) -> None:
        while len(self._live) > 1 and not self._live[0].needed:
            self._live.popleft()

    @property
    def low(self) -> bool:
        """Whether at most a quarter of the segments can still be used."""
        return self.full or self._limit - len(self._live) <= self._limit // 4

    def oldest(self) -> Mapping[int, int]:
        """Return the releases that the oldest segment waits for; see the protocol."""
        return dict(self._live[0].needed) if self._live else {}

    def close(self) -> None:
        """Drop records that were not synced, and all records when all are released."""
        if self._begun and not any(segment.needed for segment in self._live):
            self._live.clear()
        self._waiting, self._begun = [], False
