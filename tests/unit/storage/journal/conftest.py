"""Journals of both kinds with one interface, so that one suite tests both."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from fieldbrook.storage.journal.file import FileJournal
from fieldbrook.storage.journal.memory import MemoryJournal
from fieldbrook.storage.journal.protocol import Journal
from fieldbrook.storage.journal.records import BLOCK
from fieldbrook.storage.journal.segments import BEGIN

ROUNDS = 4
"""How many records of at most `RECORD_BYTES`, each synced alone, fit into one segment."""

RECORD_BYTES = 3_000
SEGMENTS = 4


class Kept(Protocol):
    """A journal that can crash, and whose syncs can fail."""

    @property
    def journal(self) -> Journal: ...

    def crash(self) -> Journal:
        """Return the journal in the state for the next process."""

    def fail_syncs(self) -> None:
        """Let all syncs fail until `repair`, or the crash."""

    def repair(self) -> None: ...


class InFiles:
    def __init__(self, folder: Path) -> None:
        self._folder = folder / "0"
        self._fails = False
        self.journal = self._open()

    def _open(self) -> FileJournal:
        return FileJournal(self._folder, BEGIN + ROUNDS * BLOCK, SEGMENTS, self._sync)

    def _sync(self, descriptor: int) -> None:
        if self._fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fdatasync(descriptor)

    def crash(self) -> Journal:
        left = self._folder.parent / "crashed" / self._folder.name
        shutil.copytree(self._folder, left)
        self._fails = False
        self.journal.close()
        self._folder = left
        self.journal = self._open()
        return self.journal

    def fail_syncs(self) -> None:
        self._fails = True

    def repair(self) -> None:
        self._fails = False


class InMemory:
    def __init__(self) -> None:
        self.journal = MemoryJournal(ROUNDS * RECORD_BYTES, SEGMENTS)

    def crash(self) -> Journal:
        self.journal.failing = False
        self.journal.crash()
        return self.journal

    def fail_syncs(self) -> None:
        self.journal.failing = True

    def repair(self) -> None:
        self.journal.failing = False


@pytest.fixture(params=["file", "memory"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    made: Kept = InFiles(tmp_path) if request.param == "file" else InMemory()
    yield made
    made.journal.close()
