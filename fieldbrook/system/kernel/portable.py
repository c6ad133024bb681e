"""The services of `linux.py` on other systems. The docstring of each function describes its
limitations."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable

from fieldbrook.system.kernel.values import Deaths, Stat

BALANCES_PORTS = False
"""All gateway processes accept from one queue, so a busy process gets as many connections as the
others."""

_LOOK_S = 0.2
_CHUNK = 1 << 20

_own_groups: set[int] = set()  # the groups that this process or an ancestor of it leads

# ---------------------------------------------------------------- this process


def die_with_parent() -> None:
    """Do nothing: a program continues without its parent until it ends by itself or at a limit."""


def die_with(pid: int) -> None:
    """Check five times a second whether the process `pid` still runs, and end if it does not.

    A process that is in a call of the kernel or of C checks when the call returns.
    """
    started = os.getppid() == pid

    def look(number: int, frame: object) -> None:
        if (started and os.getppid() != pid) or has_ended(pid):
            os.kill(os.getpid(), signal.SIGKILL)

    signal.signal(signal.SIGALRM, look)
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)


def adopt_orphans() -> bool:
    """Make this process the leader of a group, so that `lost_descendants` finds orphans.

    Returns:
        False: orphans belong to the first process of the system.
    """
    if os.getpgid(0) not in _own_groups:
        if os.getpgid(0) != os.getpid():
            os.setpgid(0, 0)
        _own_groups.add(os.getpid())
    return False


def hide_memory() -> None:
    """Do nothing: other processes of the same user can read this memory."""


def name_process(name: str) -> None:
    """Do nothing: `ps` and `top` show the command line of the node for all its processes."""


def map_large_blocks() -> None:
    """Do nothing: a project may take 2 MiB more."""


def cores() -> int:
    """Return the number of cores of the machine; a limit for this process cannot be read."""
    return os.cpu_count() or 1


# ---------------------------------------------------------------- other processes


def parents(pid: int) -> dict[int, int]:
    """Return the parents, by process id, of all descendants of `pid`. This starts `ps`, which takes
    10 ms or more."""
    children: dict[int, list[int]] = {}
    for child, parent, _ in _processes():
        children.setdefault(parent, []).append(child)
    found: dict[int, int] = {}
    todo = [pid]
    while todo:
        parent = todo.pop()
        for child in children.get(parent, ()):
            found[child] = parent
            todo.append(child)
    return found


def lost_descendants() -> list[int]:
    """Return the other processes of this group, without its leader.

    Orphans end a little later because of `die_with`. Until then their parent is the first process
    of the system or another process that adopts orphans.
    """
    group, own = os.getpgid(0), os.getpid()
    return [pid for pid, _, of in _processes() if of == group and pid not in (group, own)]


def _processes() -> list[tuple[int, int, int]]:
    """Return process id, parent and group of all processes; zombies and `ps` itself are left
    out."""
    command = ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat="]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ps:
        assert ps.stdout is not None
        rows = [line.split() for line in ps.stdout]
    return [
        (int(pid), int(parent), int(group))
        for pid, parent, group, state, *_ in rows
        if not state.startswith("Z") and int(pid) != ps.pid
    ]


def has_ended(pid: int) -> bool:
    """Return whether a process has ended; the zombie of another process counts as running."""
    try:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return True
    except (AttributeError, ChildProcessError):  # AttributeError: macOS before Python 3.13
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


class _Watch:
    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = list(pids)

    def wait(self, timeout_s: float) -> list[int]:
        limit = time.monotonic() + timeout_s
        while True:
            ended = [pid for pid in self._pids if has_ended(pid)]
            left = limit - time.monotonic()
            if ended or left <= 0:
                return ended
            time.sleep(min(0.02, left))

    def close(self) -> None:
        """Do nothing, because there are no resources to free."""


def watch_deaths(pids: Iterable[int]) -> Deaths:
    """Check fifty times a second whether the processes still run."""
    return _Watch(pids)


def read_stat(pid: int) -> Stat | None:
    """Return None: memory and CPU time of processes are not available, and their metrics are 0."""
    return None


def private_bytes(pid: int) -> int:
    """Return 0: `project_memory_bytes` and `worker_memory_bytes` are not enforced."""
    return 0


# ---------------------------------------------------------------- files and sockets


def create_memory_file(name: str, start: int) -> int:
    """Refuse, because no file can free its beginning; so the node's log is only on standard error.

    Raises:
        OSError: always.
    """
    raise OSError("this system has no files in memory")


def is_memory_file(descriptor: int, name: str) -> bool:
    """Return False, because there are no such files."""
    return False


def free_before(descriptor: int, offset: int) -> None:
    """Refuse, like `create_memory_file`.

    Raises:
        OSError: always.
    """
    raise OSError("this system cannot free parts of a file")


def allocate(descriptor: int, begin: int, size: int) -> None:
    """Write zeros after the end of a file as far as needed. This takes longer.

    The part before the end is not changed, so a file with holes may lack space later.

    Raises:
        OSError: the disk has no room.
    """
    end = os.fstat(descriptor).st_size
    at = max(begin, end)
    while at < begin + size:
        at += os.pwrite(descriptor, bytes(min(_CHUNK, begin + size - at)), at)


def sync_data(descriptor: int) -> None:
    """Make the written data of a file durable, including its times. This takes longer.

    Raises:
        OSError: the disk failed.
    """
    full: int | None = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(descriptor)
    else:  # macOS: its fsync leaves data in the cache of the disk
        fcntl.fcntl(descriptor, full)


def boot_id() -> str:
    """Return always the same text: a boot is not noticed, and files that were never synced are
    kept."""
    return "unknown"


def limit_unread(listening: socket.socket, limit_ms: int) -> None:
    """Do nothing: a connection whose client does not read lasts until the system closes it."""
