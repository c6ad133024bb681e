"""The processes below this one: lists them, waits for them, kills them, watches for deaths."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """The process ids of all descendants of `pid` (Linux). Any of them may end meanwhile."""
    found: list[int] = []
    todo = [pid]
    while todo:
        children = _children(todo.pop())
        found += children
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


def has_ended(pid: int) -> bool:
    """Whether a process has ended; on Linux a zombie counts as ended."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in "ZX"


def reap() -> None:
    """Reap every dead child, including adopted ones."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def await_descendants(limit_s: float) -> None:
    """Reap descendants as they end; returns when none is left, or after `limit_s`."""
    limit = time.monotonic() + limit_s
    while time.monotonic() < limit:
        reap()
        if not descendants(os.getpid()):
            return
        time.sleep(0.005)


def kill_descendants(limit_s: float = 2.5) -> int:
    """Kill all descendants with SIGKILL and reap them; returns how many there were at first."""
    killed = descendants(os.getpid())
    limit = time.monotonic() + limit_s
    while time.monotonic() < limit:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap()
        if not descendants(os.getpid()):
            break
        time.sleep(0.005)
    return len(killed)


class DeathWatch:
    """Watches processes and reports their deaths within one poll (Linux pidfd)."""

    def __init__(self, names: dict[int, str]) -> None:
        """`names` maps process ids to their names in the log."""
        self._poll = select.poll()
        self._names: dict[int, str] = {}
        for pid, name in names.items():
            fd = os.pidfd_open(pid)
            self._names[fd] = name
            self._poll.register(fd, select.POLLIN)

    def wait(self, timeout_s: float) -> list[str]:
        """Names of the dead, waiting up to `timeout_s` for the first."""
        return [self._names[fd] for fd, _ in self._poll.poll(int(timeout_s * 1000))]

    def close(self) -> None:
        """Watch no longer."""
        for fd in self._names:
            os.close(fd)
