"""Unapplied batches: batches of a journal whose store could not be opened.

A journal can be emptied only if none of its batches is needed any more. Therefore the batches of a
store that cannot be opened are moved into files `unapplied-<first number>.journal` in the project's
folder. The store applies them when it opens. Until then the project takes no events.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from fieldbrook.core.errors import JournalDamagedError
from fieldbrook.storage.journal.protocol import Record
from fieldbrook.storage.journal.records import pack_round, read_records
from fieldbrook.storage.lmdb.environment import store_errors
from fieldbrook.storage.project.outbox import MARKER
from fieldbrook.system.fsync import make_folder, sync_folder

PREFIX, SUFFIX = "unapplied-", ".journal"
_NEW = ".new-unapplied"
_NO_SEGMENT = 0


class Applying(Protocol):
    """The part of a project's store that applies batches of a journal."""

    def apply(self, number: int, batch: bytes) -> None:
        """Apply a batch; a batch that the store already has is skipped.

        Raises:
            JournalDamagedError: a batch before this one is missing.
            StoreError: the batch cannot be decoded.
        """

    def checkpoint(self) -> None:
        """Write the applied batches, in one synced transaction.

        Raises:
            StoreError: the disk is full or failed.
        """


def write_unapplied(folder: Path, records: Sequence[Record]) -> None:
    """Write records of one project into a file of its folder, synced.

    Raises:
        StoreError: the file cannot be written.
    """
    path = folder / f"{PREFIX}{records[0].number:020}{SUFFIX}"
    with store_errors(path):
        make_folder(folder)
        with (folder / _NEW).open("wb") as file:
            file.write(pack_round(records, _NO_SEGMENT))
            file.flush()
            os.fsync(file.fileno())
        (folder / _NEW).replace(path)
        (folder / MARKER).touch()  # the outbox may have entries: the node starts the project
        sync_folder(folder)


def unapplied_files(folder: Path) -> list[Path]:
    """Return the files with unapplied batches in a project's folder, in their order."""
    with store_errors(folder), os.scandir(folder) as found:
        names = [entry.name for entry in found if entry.name.startswith(PREFIX)]
    return [folder / name for name in sorted(names)]


def read_unapplied(path: Path) -> Iterator[Record]:
    """Iterate over the records of a file with unapplied batches.

    Raises:
        JournalDamagedError: the file is damaged.
        StoreError: it cannot be read.
    """

    def bad(at: int, to: int, project_id: int, number: int) -> None:
        reason = f"{path}: bytes {at} to {to} are damaged"
        raise JournalDamagedError(
            reason=reason, file=path.name, offset=at, project=project_id, number=number
        )

    with store_errors(path):
        data = memoryview(path.read_bytes())
    return read_records(data, 0, len(data), _NO_SEGMENT, bad)


def apply_unapplied(folder: Path, store: Applying) -> None:
    """Write all unapplied batches into the store, and remove their files.

    Raises:
        JournalDamagedError: a batch is damaged or missing. The batches before it are in the store.
        StoreError: the files cannot be read, or the store cannot be written.
    """
    paths = unapplied_files(folder)
    if not paths:
        return
    apply_records(store, (record for path in paths for record in read_unapplied(path)))
    with store_errors(folder):
        for path in paths:
            path.unlink()
        sync_folder(folder)


def apply_records(store: Applying, records: Iterator[Record] | Sequence[Record]) -> None:
    """Write records into the store. If a record cannot be applied, the records before it are
    applied.

    Raises:
        JournalDamagedError: a batch is damaged or missing.
        StoreError: a batch cannot be decoded, or the store cannot be written.
    """
    try:
        for record in records:
            store.apply(record.number, record.batch)
    finally:
        store.checkpoint()
