"""The disks of the simulated machine: journals that may lose what was not synced, and stores.

Journals are the node's own files in a folder in memory. The disk has a copy of each at its last
sync, so that a power cut can revert any sector that was written later. A failed sync behaves like
Linux: the blocks stay readable, and are not written again unless they are changed, so that a later
sync succeeds without them. Stores are LMDB without its syncs: LMDB itself is not tested here, so a
transaction is either complete or absent.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import lmdb

from fieldbrook.storage.journal.file import FileJournal
from fieldbrook.storage.lmdb.environment import open_environment
from fieldbrook.storage.lmdb.new_environment import NEW
from tests.simulation.world.machine import Machine, UnexpectedError

SECTOR = 512
BLOCK = 4_096


class Disk:
    """The content of the disk, and its faults.

    `syncs_fail` and `checkpoints_fail` are how often the next ones fail; `full` lets no file of
    a journal be made.
    """

    def __init__(self, machine: Machine, segment_bytes: int, segments: int) -> None:
        self._machine = machine
        self._segment_bytes, self._segments = segment_bytes, segments
        self._synced: dict[Path, bytes] = {}  # journal files, as of their last sync
        # Blocks that a failed sync has dropped: their content, by the path and the offset.
        self._dropped: dict[Path, dict[int, bytes]] = {}
        self._opened: dict[Path, Environment] = {}
        self.syncs_fail = 0
        self.checkpoints_fail = 0
        self.full = False
        self.power_is_cut = False
        self.syncs = 0

    # ---------------------------------------------------------------- journals

    def sync(self, descriptor: int) -> None:
        """Replace `os.fdatasync` for the files of journals."""
        machine = self._machine
        machine.pass_point("journal.before_sync")
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        now = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        dropped = self._dropped.setdefault(path, {})
        before = self._synced.get(path, b"").ljust(len(now), b"\0")
        if self.syncs_fail:
            self.syncs_fail -= 1
            for at in _changed(before, now, BLOCK):
                dropped[at] = now[at : at + BLOCK]
            machine.trace("the disk fails a sync of the journal")
            raise OSError(errno.EIO, "Input/output error")
        machine.spend(machine.random.random() * 0.0004)
        self.syncs += 1
        synced = bytearray(now)
        for at, block in list(dropped.items()):
            if now[at : at + BLOCK] == block:
                synced[at : at + BLOCK] = before[at : at + BLOCK]
            else:
                del dropped[at]
        self._synced[path] = bytes(synced)
        machine.pass_point("journal.synced")

    def open_journal(self, folder: Path, *_sizes: int, wait: bool = True) -> FileJournal:
        """Replace `FileJournal`."""
        process = self._machine.current
        assert process is not None
        journal = FileJournal(folder, self._segment_bytes, self._segments, self.sync, wait=wait)

        def at_death() -> None:
            journal._failed = True  # a killed process does not write the last head
            journal.close()
            if self.power_is_cut:
                self._take_back(folder, SECTOR)
            elif self._machine.random.random() < 0.5:
                self._take_back(folder, BLOCK)

        process.at_death.append(at_death)
        return journal

    def creating(self, create: Callable[..., Any]) -> Callable[..., Any]:
        """Make a function that creates a file fail on a full disk."""

        def checked(path: Path, size: int) -> Any:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            # A removed file of the same name is another file.
            self._synced.pop(path, None)
            self._dropped.pop(path, None)
            return create(path, size)

        return checked

    def _take_back(self, folder: Path, step: int) -> None:
        """Revert some of the data that were written since the last sync.

        A power cut may revert any sector. The death of a writing process removes the end.
        """
        chance = self._machine.random
        for path in sorted(folder.glob("*.segment")):
            now = path.read_bytes()
            before = self._synced.get(path, b"").ljust(len(now), b"\0")
            changed = _changed(before, now, step)
            if changed and step == BLOCK:
                lost = changed[chance.randrange(len(changed)) :]
            else:
                share = chance.choice((0.0, 0.5, 1.0))
                lost = [at for at in changed if chance.random() < share]
            if lost:
                self._machine.trace("%s loses %d of %d writes", path.name, len(lost), len(changed))
                data = bytearray(now)
                for at in lost:
                    data[at : at + step] = before[at : at + step]
                path.write_bytes(data)
            self._synced[path] = path.read_bytes()
            self._dropped.pop(path, None)

    # ---------------------------------------------------------------- stores

    def open_store(self, path: Path, *, readonly: bool = False, **options: Any) -> Environment:
        """Replace `open_environment` for the stores of projects."""
        process = self._machine.current
        folder = path.parent if path.name == NEW else path
        opened = self._opened.get(folder)
        if opened is not None and readonly:
            return Environment(opened.environment, self, self._machine, None)
        if opened is not None:
            # Otherwise two processes could open it, and each would number its own batches.
            self._machine.fail(UnexpectedError(f"two processes write to {folder}"))
        environment = open_environment(path, readonly=readonly, **options | {"sync": False})
        made = Environment(environment, self, self._machine, folder)
        if not readonly:
            self._opened[folder] = made
        if process is not None and not readonly:
            process.at_death.append(made.close)
        return made

    def closed(self, environment: Environment, path: Path) -> None:
        """Record that a store is closed."""
        if self._opened.get(path) is environment:
            del self._opened[path]


def _changed(before: bytes, now: bytes, step: int) -> list[int]:
    """Return the offsets at which two contents of a file differ."""
    return [at for at in range(0, len(now), step) if now[at : at + step] != before[at : at + step]]


class Environment:
    """An LMDB environment whose write transactions can fail or be cut off.

    An environment without a path belongs to another object, which closes it, because LMDB can open
    a file only once in a process, and here all simulated processes are one.
    """

    def __init__(
        self, environment: lmdb.Environment, disk: Disk, machine: Machine, path: Path | None
    ) -> None:
        self.environment = environment
        self._disk = disk
        self._machine = machine
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self.environment, name)

    def begin(self, *args: Any, write: bool = False, **more: Any) -> Any:
        environment: Any = self.environment
        transaction = environment.begin(*args, write=write, **more)
        return Transaction(transaction, self._disk, self._machine) if write else transaction

    def close(self) -> None:
        """Close it; without a checkpoint, as when its process was killed."""
        if self._path is not None:
            self._disk.closed(self, self._path)
            self.environment.close()
            self._path = None


class Transaction:
    """A write transaction, as a context manager."""

    def __init__(self, transaction: Any, disk: Disk, machine: Machine) -> None:
        self._transaction = transaction
        self._disk = disk
        self._machine = machine

    def __enter__(self) -> Any:
        return self._transaction.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            try:
                self._machine.pass_point("store.before_commit")
                if self._disk.checkpoints_fail:
                    self._disk.checkpoints_fail -= 1
                    self._machine.trace("the disk fails a transaction of a store")
                    raise lmdb.DiskError("mdb_txn_commit: No space left on device")
            except BaseException:
                self._transaction.abort()
                raise
        self._transaction.__exit__(kind, error, traceback)
        if kind is None:
            self._machine.spend(self._machine.random.random() * 0.001)
            self._machine.pass_point("store.committed")
