"""Durable file operations: fsync of folders, so that names survive a power cut.

The fsync of a file makes its content durable, but not its name: according to POSIX, a creation,
rename or removal is durable only after the fsync of the folder. Some file systems guarantee more.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from fieldbrook.system.kernel import boot_id

# EINVAL, ENOTSUP: the file system has no fsync of folders. EACCES, EPERM: this user may not open a
# folder above the node's, which another user has created.
_IGNORED_ERRORS = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM})


def sync_folder(path: Path) -> None:
    """Fsync a folder, so that the names in it are durable.

    Raises:
        OSError: there is no such folder, or the disk failed.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _IGNORED_ERRORS:
            raise


def make_folder(path: Path, mode: int = 0o700) -> None:
    """Create a folder and its missing parents, and make their names durable.

    An existing folder is synced, too: the process that created it may have died before its sync.

    Raises:
        OSError: the folder cannot be created.
    """
    created = [path]
    while not created[-1].parent.exists():
        created.append(created[-1].parent)
    path.mkdir(mode=mode, parents=True, exist_ok=True)
    for each in reversed(created):
        sync_folder(each.parent)


def sync_folders_below(path: Path) -> None:
    """Fsync a folder and all folders below it.

    Raises:
        OSError: the disk failed.
    """
    for each in sorted(path.rglob("*")):
        if each.is_dir() and not each.is_symlink():
            sync_folder(each)
    sync_folder(path)


# ---------------------------------------------------------------- unsynced folders

_MARK = ".boot"


def start_unsynced(folder: Path) -> None:
    """Create a folder for files that are never synced, and remove its files after a reboot.

    After a system crash these files may have any content; reading a damaged store could even
    crash the reader.

    Raises:
        OSError: the folder cannot be created.
    """
    if not is_of_this_boot(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark_of_this_boot(folder)


def is_of_this_boot(folder: Path) -> bool:
    """Return whether the folder was marked in the current boot, so that its files are intact."""
    try:
        return (folder / _MARK).read_text("ascii") == boot_id()
    except (OSError, UnicodeDecodeError):
        return False


def mark_of_this_boot(folder: Path) -> None:
    """Record the current boot in a folder, because its files are intact as long as the system runs.

    Raises:
        OSError: the mark cannot be written.
    """
    (folder / _MARK).write_text(boot_id(), "ascii")
