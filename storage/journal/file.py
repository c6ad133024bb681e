"""The journal in a folder of files; `segments.py` and `records.py` define the format of the
files."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path

from fieldbrook.core.errors import JournalDamagedError, JournalFailedError, JournalFullError
from fieldbrook.storage.journal.lock import lock_folder
from fieldbrook.storage.journal.protocol import Damaged, Record, refuse_damage
from fieldbrook.storage.journal.records import BLOCK, HEAD_BYTES, pack_round
from fieldbrook.storage.journal.segments import (
    BEGIN,
    DAMAGED_SUFFIX,
    NEW_SUFFIX,
    SUFFIX,
    Found,
    SegmentFile,
    SegmentHead,
    Sync,
    create,
    find,
    next_id,
    read_segments,
)
from fieldbrook.storage.lmdb.environment import store_error, store_errors
from fieldbrook.system.fsync import sync_folder
from fieldbrook.system.kernel import sync_data

SEGMENT_BYTES = 4 << 20
SEGMENTS = 32
_AT_LEAST = 2  # files; with two files the journal can be used in rotation on a full disk


class _Segment:
    """A segment with records that a store may lack. `needed` maps each of their projects to the
    number of its last record here."""

    def __init__(self, file: SegmentFile, segment: int) -> None:
        self.file = file
        self.segment = segment
        self.end = BEGIN
        self.needed: dict[int, int] = {}


class FileJournal:
    """The journal in a folder, which is locked for this process; see the protocol `Journal`.

    It creates two files at the start and further files when it needs them, and keeps all. Only the
    creation of a file needs space on the disk.
    """

    is_complete = False

    def __init__(
        self,
        folder: Path,
        segment_bytes: int = SEGMENT_BYTES,
        segments: int = SEGMENTS,
        sync: Sync = sync_data,
        *,
        wait: bool = True,
    ) -> None:
        """Open the folder, and create it if it does not exist; its name is the worker's name.

        Args:
            folder: the folder.
            segment_bytes: the size of a file, a multiple of 4,096.
            segments: the largest number of files.
            sync: syncs a descriptor to disk.
            wait: wait a second for another process that has the journal open: it may be ending.

        Raises:
            JournalBusyError: another process has the journal open.
            StoreError: the journal cannot be read, or belongs to another worker or a newer
                version.
        """
        assert segment_bytes % BLOCK == 0
        assert segment_bytes > BEGIN
        assert segments >= _AT_LEAST
        self._folder, self._size, self._limit, self._sync = folder, segment_bytes, segments, sync
        self._lock = lock_folder(folder, wait=wait)
        try:
            self._found = find(folder, folder.name)
        except BaseException:
            os.close(self._lock)
            raise
        self._last = max((found.segment for found in self._found), default=0)
        self._damaged: set[str] = set()
        self._live: deque[_Segment] = deque()  # oldest first; new records go to the last one
        self._free: deque[SegmentFile] = deque()
        self._can_grow = True
        self._begun = self._failed = False
        self._waiting: list[Record] = []
        self._waiting_bytes = 0

    # ------------------------------------------------------------ reading

    def records(self, damaged: Damaged = refuse_damage) -> Iterator[Record]:
        """Iterate over the records; see the protocol."""
        assert not self._begun

        def note(error: JournalDamagedError) -> None:
            self._damaged.add(str(error.details["file"]))
            damaged(error)

        return read_segments(self._found, note)

    def begin(self) -> None:
        """Empty the journal; see the protocol.

        Files in which `records` found damage are kept as `*.damaged`, and are not used any more.
        """
        assert not self._begun
        rest = []
        with store_errors(self._folder):
            for leftover in self._folder.glob(f"*{NEW_SUFFIX}"):
                leftover.unlink()
            for found in sorted(self._found, key=lambda found: found.segment):
                usable = found.size == self._size and found.path.name not in self._damaged
                if usable and len(self._free) < self._limit:
                    self._free.append(self._open(found))
                else:
                    rest.append(found)
            while len(self._free) < _AT_LEAST:
                self._free.append(self._create())
        self._begun = True
        self._next_segment()  # from here on, no reader reads the old segments
        with store_errors(self._folder):
            for found in rest:
                self._put_away(found)
            sync_folder(self._folder)

    def _put_away(self, found: Found) -> None:
        if found.path.name in self._damaged:
            name = f"{found.path.stem}-{found.segment:x}{DAMAGED_SUFFIX}"
            found.path.rename(found.path.with_name(name))
        else:
            found.path.unlink()

    def _open(self, found: Found) -> SegmentFile:
        return SegmentFile(found, self._folder.name, self._sync)

    def _create(self) -> SegmentFile:
        paths = (self._folder / f"{place}{SUFFIX}" for place in itertools.count())
        path = next(path for path in paths if not path.exists())
        return self._open(create(path, self._size))

    # ------------------------------------------------------------ writing

    def add(self, project_id: int, number: int, batch: bytes) -> None:
        """Keep a record for the next `sync`; see the protocol."""
        assert self._begun
        self._require_sound()
        size = HEAD_BYTES + len(batch)
        round_bytes = self._waiting_bytes + size
        if round_bytes > self._size - BEGIN:
            raise JournalFullError(
                reason=f"{round_bytes} bytes at once do not fit into a segment of the journal, "
                f"which has {self._size - BEGIN}"
            )
        if self._live[-1].end + round_bytes > self._size:
            self._next_segment()
        self._waiting.append(Record(project_id, number, batch))
        self._waiting_bytes = round_bytes

    def sync(self) -> None:
        """Write all added records to the disk; see the protocol."""
        self._require_sound()
        if not self._waiting:
            return
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        segment = self._live[-1]
        data = pack_round(waiting, segment.segment)
        with self._written():
            segment.file.append(data, segment.end)
        segment.end += len(data)
        for project_id, number, _ in waiting:
            segment.needed[project_id] = number

    def _require_sound(self) -> None:
        """Refuse to write after a failure.

        The kernel may have dropped data that it could not write, and may report success afterwards.
        """
        if self._failed:
            raise JournalFailedError(reason=f"{self._folder}: the journal has failed before")

    @contextlib.contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._failed = True
            reason = str(store_error(self._folder, error))
            raise JournalFailedError(reason=reason) from error

    def _next_segment(self) -> None:
        """Continue in the next segment.

        If the write of its head fails, the head may be on the disk nevertheless. A reader then
        ignores all later records of the last segment. Therefore, too, nothing is written after a
        failure.
        """
        file = self._take_file()
        segment = next_id(self._last)
        last = self._live[-1] if self._live else None
        head = SegmentHead(
            self._size,
            segment,
            last.segment if last else 0,
            last.end if last else 0,
            self._live[0].segment if self._live else segment,
        )
        self._last = segment
        self._live.append(_Segment(file, segment))
        with self._written():
            file.put_head(head)
        self._free_released()

    def _take_file(self) -> SegmentFile:
        self._free_released()
        if self._free:
            return self._free.popleft()
        if not self._can_grow or len(self._live) >= self._limit:
            raise JournalFullError(reason=f"{self._folder}: no segment of the journal is free")
        try:
            return self._create()
        except OSError as error:
            self._can_grow = False  # until a release shows that the disk can be written
            reason = f"no segment of the journal is free: {store_error(self._folder, error)}"
            raise JournalFullError(reason=reason) from error

    # ------------------------------------------------------------ releasing

    def release(self, project_id: int, number: int) -> None:
        """Note that the project's store holds all batches up to `number`."""
        for segment in self._live:
            if segment.needed.get(project_id, number + 1) <= number:
                del segment.needed[project_id]
        self._can_grow = True
        self._free_released()

    def _free_released(self) -> None:
        """Free the oldest segments up to the first one that a store still needs."""
        while len(self._live) > 1 and not self._live[0].needed:
            self._free.append(self._live.popleft().file)

    @property
    def low(self) -> bool:
        """Whether at most a quarter of the segments can still be used."""
        total = self._limit if self._can_grow else len(self._live) + len(self._free)
        return total - len(self._live) <= total // 4

    def oldest(self) -> Mapping[int, int]:
        """Return the releases that the oldest segment waits for; see the protocol."""
        return dict(self._live[0].needed) if self._live else {}

    def close(self) -> None:
        """Drop records that were not synced, and release the lock of the journal.

        If all records are released, write a head that says that the journal is empty.
        """
        try:
            if self._begun and not (self._failed or any(each.needed for each in self._live)):
                self._forget_all()
        finally:
            for file in [segment.file for segment in self._live] + list(self._free):
                file.close()
            self._live.clear()
            self._free.clear()
            self._waiting, self._begun = [], False
            if self._lock >= 0:
                os.close(self._lock)
            self._lock = -1

    def _forget_all(self) -> None:
        if len(self._live) == 1 and self._live[0].end == BEGIN:
            return
        self._free.extend(segment.file for segment in self._live)
        self._live.clear()
        with contextlib.suppress(JournalFailedError):  # then the next start applies the records
            self._next_segment()

    def remove(self) -> None:
        """Remove the files: all stores hold all records. Files with damage are kept.

        Raises:
            StoreError: a file cannot be removed.
        """
        assert not self._begun
        with store_errors(self._folder):
            # The newest file first: then the remaining files are always a complete journal.
            found = find(self._folder, self._folder.name)
            for each in sorted(found, key=lambda each: each.segment, reverse=True):
                self._put_away(each)
            if not any(self._folder.iterdir()):
                self._folder.rmdir()
                sync_folder(self._folder.parent)
        self.close()
