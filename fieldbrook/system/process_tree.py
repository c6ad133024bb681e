"""The descendants of this process: listing, waiting, killing, and watching for deaths."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from fieldbrook.system import kernel


def descendants(pid: int) -> list[int]:
    """Return the process ids of all descendants of `pid`. Any of them may end meanwhile."""
    return list(kernel.parents(pid))


def own_descendants() -> list[int]:
    """Return the process ids of all descendants of this process, including those whose parent has
    died."""
    found = kernel.parents(os.getpid())
    return [*found, *(pid for pid in kernel.lost_descendants() if pid not in found)]


def reap() -> None:
    """Reap every dead child, including adopted ones."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def await_descendants(limit_s: float) -> None:
    """Reap descendants as they end, until none is left or `limit_s` is over."""
    limit = time.monotonic() + limit_s
    while time.monotonic() < limit:
        reap()
        if not own_descendants():
            return
        time.sleep(0.005)


def kill_descendants(limit_s: float = 2.5) -> int:
    """Kill all descendants with SIGKILL and reap them; return how many there were at first."""
    killed = own_descendants()
    limit = time.monotonic() + limit_s
    while time.monotonic() < limit:
        for pid in own_descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap()
        if not own_descendants():
            break
        time.sleep(0.005)
    return len(killed)


class DeathWatch:
    """Watches processes and reports their deaths within one poll."""

    def __init__(self, names: dict[int, str]) -> None:
        """`names` maps process ids to their names in the log."""
        self._names = names
        self._deaths = kernel.watch_deaths(names)

    def wait(self, timeout_s: float) -> list[str]:
        """Return the names of dead processes, after waiting up to `timeout_s` for the first."""
        return [self._names[pid] for pid in self._deaths.wait(timeout_s)]

    def close(self) -> None:
        """Stop watching."""
        self._deaths.close()
