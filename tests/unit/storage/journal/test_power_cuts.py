"""A journal on a disk that fails, loses power and tears writes, compared with a model."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from fieldbrook.core.errors import (
    JournalDamagedError,
    JournalFailedError,
    JournalFullError,
    StoreError,
)
from fieldbrook.storage.journal.file import FileJournal
from fieldbrook.storage.journal.protocol import Record
from fieldbrook.storage.journal.records import BLOCK
from fieldbrook.storage.journal.segments import BEGIN, SUFFIX

SECTOR = 64
"""Bytes that a power cut leaves as a whole: less than any disk does."""
PROJECTS = 3
STEPS = 60


class PowerCutError(BaseException):
    """Raised where the machine stops."""


class Disk:
    """A disk that stores the content of each file after a power cut: at least the synced data."""

    def __init__(self, folder: Path, random: Random) -> None:
        self._folder, self._random = folder, random
        self._synced: dict[int, bytes] = {}
        self.failing = self.cutting = 0.0

    def sync(self, descriptor: int) -> None:
        if self._random.random() < self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self._random.random() < self.cutting:
            raise PowerCutError
        size = os.fstat(descriptor).st_size
        self._synced[os.fstat(descriptor).st_ino] = os.pread(descriptor, size, 0)

    def cut_power(self) -> None:
        """Cut the power: any sector without a sync may be on the disk."""
        for path in self._folder.glob(f"*{SUFFIX}"):
            data = path.read_bytes()
            synced = self._synced.get(path.stat().st_ino, bytes(len(data)))
            parts = [
                (data if self._random.random() < 0.5 else synced)[at : at + SECTOR]
                for at in range(0, len(data), SECTOR)
            ]
            path.write_bytes(b"".join(parts))
            self._synced[path.stat().st_ino] = path.read_bytes()


class Machine:
    """A worker with stores that sometimes make a checkpoint."""

    def __init__(self, folder: Path, random: Random) -> None:
        self._folder, self._random = folder, random
        self._disk = Disk(folder, random)
        self._happened: dict[int, dict[int, bytes]] = {n: {} for n in range(PROJECTS)}
        self._stored = dict.fromkeys(range(PROJECTS), 0)
        self._unsynced: list[Record] = []  # records of the last round, which may be on the disk
        self._serial = 0
        self._journal = self._opened()
        self.stop(power=False)

    def _opened(self) -> FileJournal:
        return FileJournal(self._folder, BEGIN + 4 * BLOCK, 4, self._disk.sync)

    def _start(self) -> None:
        self._disk.failing = self._disk.cutting = 0
        self._journal = self._opened()
        self._check(list(self._journal.records()))
        self._stored = {n: max(self._happened[n], default=0) for n in range(PROJECTS)}
        self._unsynced = []
        self._disk.failing = self._disk.cutting = 0.02
        self._journal.begin()
        self._disk.failing, self._disk.cutting = 0.15, 0.03

    def _check(self, found: list[Record]) -> None:
        for record in found:
            known = self._happened[record.project_id]
            if record in self._unsynced:
                assert record.number == max(known, default=0) + 1
                known[record.number] = record.batch
            assert known.get(record.number) == record.batch
        for project_id, known in self._happened.items():
            expected = [n for n in known if n > self._stored[project_id]]
            numbers = [record.number for record in found if record.project_id == project_id]
            assert numbers[len(numbers) - len(expected) :] == expected
            assert numbers == sorted(set(numbers))

    def step(self) -> None:
        try:
            self._random.choice((self._round, self._round, self._round, self._checkpoint))()
        except PowerCutError:
            self.stop(power=True)
        except JournalFailedError:
            self.stop(power=self._random.random() < 0.5)
        if self._random.random() < 0.04:
            self.stop(power=self._random.random() < 0.5)

    def stop(self, *, power: bool) -> None:
        """Stop and start again, until the start succeeds."""
        while True:
            self._disk.cutting = 1.0  # the head of an empty journal is not synced
            with suppress(PowerCutError):
                self._journal.close()
            if power:
                self._disk.cut_power()
            try:
                return self._start()
            except JournalDamagedError:
                raise
            except (StoreError, PowerCutError) as error:
                power = isinstance(error, PowerCutError)

    def _round(self) -> None:
        for project_id in self._random.sample(range(PROJECTS), self._random.randint(1, PROJECTS)):
            self._add(project_id)
        self._journal.sync()
        for record in self._unsynced:
            self._happened[record.project_id][record.number] = record.batch
        self._unsynced = []

    def _add(self, project_id: int) -> None:
        self._serial += 1
        batch = b"%d " % self._serial * self._random.choice((1, 20, 600, 1_000))
        record = Record(project_id, max(self._happened[project_id], default=0) + 1, batch)
        try:
            self._journal.add(*record)
        except JournalFullError:
            self._checkpoint()
        else:
            self._unsynced.append(record)

    def _checkpoint(self) -> None:
        projects = list(self._journal.oldest()) or [0]
        for project_id in [*projects, self._random.randrange(PROJECTS)]:
            self._stored[project_id] = max(self._happened[project_id], default=0)
            self._journal.release(project_id, self._stored[project_id])

    def close(self) -> None:
        self._disk.failing = self._disk.cutting = 0
        self._journal.close()


@pytest.mark.parametrize("seed", range(40))
def test_what_was_synced_is_read_and_what_failed_is_not_whatever_the_disk_does(
    seed: int, tmp_path: Path
) -> None:
    machine = Machine(tmp_path / "worker", Random(seed))
    for _ in range(STEPS):
        machine.step()
    machine.stop(power=True)
    machine.close()
