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
"""Whether the kernel shares connections out among processes that listen on one port."""

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
    """Have the kernel kill this process when its parent dies, also after it has become another
    program."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def die_with(pid: int) -> None:
    """Have this fork killed when the process `pid` dies, which is its parent or adopts it."""
    die_with_parent()


def adopt_orphans() -> bool:
    """Become the parent of descendants whose own parent dies; returns whether that is possible."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return True


def hide_memory() -> None:
    """Keep other processes of the same user from reading this memory; forks inherit it."""
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def name_process(name: str) -> None:
    """Set the process name shown by `ps` and `top`, at most 15 bytes."""
    _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def map_large_blocks() -> None:
    """Have every block of 1 MiB and more mapped by itself; a C library other than glibc ignores
    it."""
    with contextlib.suppress(AttributeError):
        _libc.mallopt(_M_MMAP_THRESHOLD, 1 << 20)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


# ---------------------------------------------------------------- other processes


def parents(pid: int) -> dict[int, int]:
    """The parents, by process id, of all descendants of `pid`. Any of them may end meanwhile."""
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
    """Descendants of this process that `parents` does not find because their parent died."""
    return []


def has_ended(pid: int) -> bool:
    """Whether a process has ended; a zombie counts as ended."""
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
    """Watch processes, of which each exists or is a child that was not reaped yet."""
    return _Watch(pids)


def read_stat(pid: int) -> Stat | None:
    """Memory, CPU time and start of a process; None when it has ended. It takes about 20 us.

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
    words = text.rpartition(b")")[2].split()  # the name before it may have any characters
    try:
        started_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(words[19]) / _TICKS
        spent = (int(words[11]) + int(words[12])) / _TICKS
        return Stat(int(words[21]) * _PAGE, spent, int(started_s * 1000))
    except (IndexError, ValueError):
        return None


def private_bytes(pid: int) -> int:
    """The resident memory that is not that of a file or shared; 0 when the process has ended.

    Maps of stores do not count: the kernel takes their pages back whenever it needs them. Pages
    that a fork has in common with its parent do.

    Source: proc_pid_statm(5).
    """
    with contextlib.suppress(OSError, ValueError):
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
        return (resident - shared) * _PAGE
    return 0


# ---------------------------------------------------------------- files and sockets


def create_memory_file(name: str, start: int) -> int:
    """Create an empty file in memory whose first byte will have the offset `start`.

    It has no name on a disk: it lasts as long as one of the processes that inherited its
    descriptor, whichever of them is killed. The kernel appends each write as a whole: writers need
    no lock, so that one that is stopped or killed holds up no other. A killed writer can leave the
    beginning of its last write.

    Args:
        name: shown in `/proc/PID/fd`, for people.
        start: offset in bytes; a file keeps no memory for what lies before.

    Returns:
        The descriptor, which forks inherit and other programs do not.

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
    """Whether a descriptor is open and is a file that `create_memory_file` made with `name`."""
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
    """Have the disk keep room for a part of a file, so that no later write to it fails.

    Raises:
        OSError: the disk has no room, or its file system cannot do this.
    """
    os.posix_fallocate(descriptor, begin, size)


def sync_data(descriptor: int) -> None:
    """Make what was written to a file durable, without its times.

    Raises:
        OSError: the disk failed.
    """
    os.fdatasync(descriptor)


def boot_id() -> str:
    """A text that differs after each boot."""
    try:
        return _BOOT_ID.read_text("ascii")
    except OSError:  # /proc is not there
        return "unknown"


def limit_unread(listening: socket.socket, limit_ms: int) -> None:
    """Have the kernel close each connection whose client does not read for so long."""
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit_ms)
