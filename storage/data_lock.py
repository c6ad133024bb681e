"""The locks of a data folder: only one node works in it at a time.

`lock` belongs to the program that runs the node: `fieldbrook up`, or `fieldbrook node` when it
is started alone. The program takes this lock before it writes or starts anything else. Its child
programs inherit the lock, so the lock is held until the last of them has ended. `node.lock` belongs
to one run of the node's processes: a node that `fieldbrook up` restarts cannot begin while a
process of the previous run could still write.

Both are kernel locks (`flock`) and end with the processes that hold them. The file contains
the id of the process that took the lock last.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from fieldbrook.core.errors import SettingsError
from fieldbrook.system.fsync import make_folder
from fieldbrook.system.regular_file import read_regular_file

RUN = "run"
OWNER, NODE = "lock", "node.lock"
NAMES = frozenset({OWNER, NODE})
RESTORING = ".restoring"  # the same name as in `storage.backup.backup`
# Environment variable: the number of the inherited descriptor that holds the owner's lock.
LOCK_VARIABLE = "FIELDBROOK_LOCK_FD"

_HOLDER_BYTES = 128
_WAIT_S, _POLL_S = 1.0, 0.01
_SOCKET_PATH_BYTES = 107
_LONGEST_SOCKET = "p" + "f" * 16 + ".9999"


def acquire_data_lock(data: Path) -> int:
    """Make the data folder and take its lock, or use the lock that this process inherited.

    Returns:
        The descriptor that holds the lock, to be passed on to child programs.

    Raises:
        SettingsError: another node runs on the folder, a restore into it has not finished, or
            the folder cannot be used.
    """
    _refuse_unfinished(data)
    inherited = os.environ.pop(LOCK_VARIABLE, None)
    lock = _acquire(data, OWNER) if inherited is None else _inherited_lock(data, inherited)
    _refuse_unfinished(data)  # a restore that begins later finds `run` and refuses to continue
    if len(os.fsencode((data / RUN / _LONGEST_SOCKET).resolve())) > _SOCKET_PATH_BYTES:
        raise SettingsError(
            reason=f"data folder {data.resolve()}: its path is too long for Unix sockets"
        )
    return lock


def acquire_node_lock(data: Path) -> int:
    """Take `node.lock`, the lock of one run of the node's processes, after the data lock.

    Raises:
        SettingsError: processes of an earlier run are still alive, or the folder cannot be used.
    """
    return _acquire(data, NODE)


def is_held(data: Path) -> bool:
    """Return whether a node runs on the folder; False if the lock cannot be opened."""
    try:
        descriptor = os.open(data / RUN / OWNER, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def holder(data: Path) -> str:
    """Return the id of the process that took the folder's lock last; "" when it is not known."""
    try:
        text = read_regular_file(data / RUN / OWNER, _HOLDER_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return text if text.isdecimal() else ""


def _refuse_unfinished(data: Path) -> None:
    if (data / RESTORING).exists():
        raise SettingsError(
            reason=f"data folder {data}: a restore did not finish; empty the folder and restore "
            "again"
        )


def _acquire(data: Path, name: str) -> int:
    path = data / RUN / name
    try:
        make_folder(path.parent)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SettingsError(reason=f"data folder {data}: {error.strerror}") from error
    try:
        flock_soon(lock)
    except BlockingIOError:
        holder = os.pread(lock, _HOLDER_BYTES, 0).decode("ascii", "replace").strip()
        os.close(lock)
        who = f" (process {holder})" if holder.isdecimal() else ""
        raise SettingsError(reason=f"another node runs on the data folder {data}{who}") from None
    except OSError as error:
        os.close(lock)
        raise SettingsError(reason=f"data folder {data}: {error.strerror}") from error
    with contextlib.suppress(OSError):  # not essential: only a message names the process
        os.pwrite(lock, b"%-20d\n" % os.getpid(), 0)
    return lock


def flock_soon(descriptor: int, wait_s: float = _WAIT_S) -> None:
    """Take the lock of a file; retry for a short time, because a killed predecessor may still be
    ending.

    Raises:
        BlockingIOError: another process holds the lock.
    """
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_POLL_S)


def _inherited_lock(data: Path, number: str) -> int:
    try:
        lock = int(number)
        if not os.path.samestat(os.fstat(lock), (data / RUN / OWNER).stat()):
            raise ValueError("another file")
        os.set_inheritable(lock, False)
    except (OSError, ValueError):
        raise SettingsError(
            reason=f"{LOCK_VARIABLE} is reserved for programs that a node starts; unset it"
        ) from None
    return lock
