"""Names that outlive a power cut.

A file's sync keeps its content, not its name: POSIX leaves a name that was given, changed or
taken away open until the folder that holds it is synced. Some file systems do more by themselves.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

# Some file systems have nothing to sync of a folder; one above ours may not be ours to open,
# and then somebody else made it.
_NOT_OURS = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM})


def sync_folder(path: Path) -> None:
    """Have the names in a folder on the disk.

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
        if error.errno not in _NOT_OURS:
            raise


def make_folder(path: Path, mode: int = 0o700) -> None:
    """Make a folder, and those above it that are missing, and have their names on the disk.

    One that is there already is synced into its parent all the same: whoever made it may have
    died before.

    Raises:
        OSError: it cannot be made.
    """
    made = [path]
    while not made[-1].parent.exists():
        made.append(made[-1].parent)
    path.mkdir(mode=mode, parents=True, exist_ok=True)
    for each in reversed(made):
        sync_folder(each.parent)


def sync_folders_below(path: Path) -> None:
    """Have all names below a folder on the disk, and those in it.

    Raises:
        OSError: the disk failed.
    """
    for each in sorted(path.rglob("*")):
        if each.is_dir() and not each.is_symlink():
            sync_folder(each)
    sync_folder(path)


# ---------------------------------------------------------------- what is never synced

_MARK = ".boot"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def start_unsynced(folder: Path) -> None:
    """Make a folder for files that are never synced. What they were when the system last went
    down may be anything, a store that ends whoever reads it included: then they are removed.

    Raises:
        OSError: it cannot be made.
    """
    if not is_of_this_boot(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark_of_this_boot(folder)


def is_of_this_boot(folder: Path) -> bool:
    """Whether the system has run without a break since the files of such a folder were begun."""
    try:
        return (folder / _MARK).read_text("ascii") == _boot_id()
    except (OSError, UnicodeDecodeError):
        return False


def mark_of_this_boot(folder: Path) -> None:
    """Say that the files in a folder are whole.

    Raises:
        OSError: it cannot be written.
    """
    (folder / _MARK).write_text(_boot_id(), "ascii")


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text("ascii")
    except OSError:  # not Linux: nothing tells, and what is there is kept
        return "unknown"
