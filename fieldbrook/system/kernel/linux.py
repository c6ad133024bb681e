"""The services of Linux; `portable.py` has the same functions for other systems."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from fieldbrook.system.kernel.values import Deaths, Stat

BALANCES_PORTS = True
"""Whether the kernel distributes connections among processes that listen on one port."""

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 4, 15, 36
_M_MMAP_THRESHOLD = -3
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # flags of fallocate(2)
_STAT_BYTES = 1_024
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_libc = ctypes.CDLL(None, use_errno=True)

# ---------------------------------------------------------------- this process


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent dies, even after an exec of another
    program."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def die_with(pid: int) -> None:
    """Make the kernel kill this fork when the process `pid` dies, which is its parent or adopts
    it."""
    die_with_parent()


def adopt_orphans() -> bool:
    """Make this process the parent of descendants whose own parent dies; return whether that is
    possible."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return True


def hide_memory() -> None:
    """Prevent other processes of the same user from reading this memory; forks inherit this."""
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def name_process(name: str) -> None:
    """Set the process name shown by `ps` and `top`, at most 15 bytes."""
    _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def map_large_blocks() -> None:
    """Make malloc map every block of 1 MiB and more separately; C libraries other than glibc ignore
    this."""
    with contextlib.suppress(AttributeError):
        _libc.mallopt(_M_MMAP_THRESHOLD, 1 << 20)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


# ---------------------------------------------------------------- other processes


def parents(pid: int) -> dict[int, int]:
    """Return the parents, by process id, of all descendants of `pid`. Any of them may end
    meanwhile."""
    found: dict[int, int] = {}
    todo = [pid]
    while todo:
        parent = todo.pop()
        children = _children(parent)
        found.update(dict.fromkeys(children, parent))
        todo += children
    return found


def _children(pid: int) -> list[int]:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        with contextlib.suppress(OSError):
            found += map(int, (thread / "children").read_text().split())
    return found


def lost_descendants() -> list[int]:
    """Return descendants of this process that `parents` does not find because their parent died."""
    return []


def has_ended(pid: int) -> bool:
    """Return whether a process has ended; a zombie counts as ended."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in "ZX"


class _Watch:
    def __init__(self, pids: Iterable[int]) -> None:
        self._poll = select.poll()
        self._pids: dict[int, int] = {}
        for pid in pids:
            descriptor = os.pidfd_open(pid)
            self._pids[descriptor] = pid
            self._poll.register(descriptor, select.POLLIN)

    def wait(self, timeout_s: float) -> list[int]:
        return [self._pids[fd] for fd, _ in self._poll.poll(int(timeout_s * 1000))]

    def close(self) -> None:
        for descriptor in self._pids:
            os.close(descriptor)


def watch_deaths(pids: Iterable[int]) -> Deaths:
    """Watch processes; each must exist or be a child that was not reaped yet."""
    return _Watch(pids)


def read_stat(pid: int) -> Stat | None:
    """Return memory, CPU time and start of a process; None if it has ended. This takes about 20 us.

    Source: proc_pid_stat(5), fields 14, 15, 22 and 24.
    """
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        text = os.read(descriptor, _STAT_BYTES)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    words = text.rpartition(b")")[2].split()  # the name before the bracket may have any characters
    try:
        started_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(words[19]) / _TICKS
        spent = (int(words[11]) + int(words[12])) / _TICKS
        return Stat(int(words[21]) * _PAGE, spent, int(started_s * 1000))
    except (IndexError, ValueError):
        return None


def private_bytes(pid: int) -> int:
    """Return the resident memory that belongs to no file and is not shared; 0 if the process has
    ended.

    Maps of stores do not count, because the kernel frees their pages whenever it needs memory.
    Pages that a fork shares with its parent do count.

    Source: proc_pid_statm(5).
    """
    with contextlib.suppress(OSError, ValueError):
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
        return (resident - shared) * _PAGE
    return 0


# ---------------------------------------------------------------- files and sockets


def create_memory_file(name: str, start: int) -> int:
    """Create an empty file in memory whose first byte will have the offset `start`.

    The file has no name on a disk. It exists as long as any process that inherited its descriptor.
    The kernel appends each write as a whole, so writers need no lock, and a stopped or killed
    writer does not block others. A killed writer can leave the beginning of its last write.

    Args:
        name: the name that `/proc/PID/fd` shows.
        start: offset in bytes; the file uses no memory for the bytes before it.

    Returns:
        The descriptor; forks inherit it, other programs do not.

    Raises:
        OSError: `start` is above the limit of file sizes.
    """
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, start)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_RDWR | os.O_APPEND)
        free_before(descriptor, start)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_memory_file(descriptor: int, name: str) -> bool:
    """Return whether a descriptor is open and is a file that `create_memory_file` made with
    `name`."""
    try:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
    except OSError:
        return False
    return str(target).startswith(f"/memfd:{name} ")


def free_before(descriptor: int, offset: int) -> None:
    """Free the memory of a file up to an offset; these bytes read as zeros from then on.

    Raises:
        OSError: the system cannot free parts of a file.
    """
    arguments = (ctypes.c_int64(0), ctypes.c_int64(offset))
    if _libc.fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, *arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def allocate(descriptor: int, begin: int, size: int) -> None:
    """Allocate disk space for a part of a file, so that no later write to it fails.

    Raises:
        OSError: the disk has no room, or its file system cannot do this.
    """
    os.posix_fallocate(descriptor, begin, size)


def sync_data(descriptor: int) -> None:
    """Make the written data of a file durable, without its times.

    Raises:
        OSError: the disk failed.
    """
    os.fdatasync(descriptor)


def boot_id() -> str:
    """Return a text that differs after each boot."""
    try:
        return _BOOT_ID.read_text("ascii")
    except OSError:  # /proc does not exist
        return "unknown"


def limit_unread(listening: socket.socket, limit_ms: int) -> None:
    """Make the kernel close each connection whose client does not read for this long."""
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit_ms)
