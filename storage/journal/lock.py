"""The lock of a journal: a kernel lock on its folder, which ends with the process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from fieldbrook.core.errors import JournalBusyError
from fieldbrook.storage.data_lock import flock_soon
from fieldbrook.storage.lmdb.environment import store_error, store_errors
from fieldbrook.system.fsync import make_folder

_WAIT_S = 1.0


def lock_folder(folder: Path, *, wait: bool) -> int:
    """Create and lock a folder; return the descriptor that holds the lock.

    Raises:
        JournalBusyError: another process holds the lock; with `wait`, still after a second.
        StoreError: the folder cannot be created or locked.
    """
    while True:
        with store_errors(folder):
            make_folder(folder)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flock_soon(lock, wait_s=_WAIT_S if wait else 0.0)
            if os.path.samestat(os.fstat(lock), folder.stat()):
                return lock
        except BlockingIOError:
            os.close(lock)
            raise JournalBusyError(
                reason=f"{folder}: another process uses this journal; each has one worker"
            ) from None
        except FileNotFoundError:
            pass
        except OSError as error:
            os.close(lock)
            raise store_error(folder, error) from error
        os.close(lock)  # another process has removed the folder meanwhile


def is_locked(folder: Path) -> bool:
    """Return whether a process has the journal in this folder open."""
    with store_errors(folder):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False
