"""Fault injection: named points at which a test can kill a process of the node.

For tests only. Unless the variable `FIELDBROOK_CRASH_AT` names a file when a process starts,
`passes` does nothing and cannot be enabled later. The file has one line,

    POINT [N] [hold]

The N-th pass of a process through the point after that (default: the first) kills the process
with SIGKILL. With `hold` the process is stopped with SIGSTOP instead, until it is killed or
continued. The file is renamed to the suffix `.reached` before, so that a point fires only once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

VARIABLE = "FIELDBROOK_CRASH_AT"
HOLD = "hold"

POINTS = {
    # Points of a project's process, in the order in which a transaction passes them.
    "project.asks": "a handler wants a transaction; the chain's process was not asked",
    "project.has_hash": "the chain's process has answered; the handler does not know",
    "project.commits": "a batch of events is not committed yet",
    "project.committed": "a batch is committed; nobody was told",
    "project.answered": "its events are answered; the chain's process was not told",
    "project.settled": "the chain's process was told which leases are committed",
    "project.gives": "entries of the outbox are to be given to who delivers them",
    "project.removes": "entries were delivered, and are in the outbox still",
    "project.removed": "they were removed",
    # Points of a chain's process.
    "chain.asked": "a transaction is wanted",
    "chain.signed": "it is signed; its lease is not stored",
    "chain.leased": "its lease is stored; the project does not know",
    "chain.answered": "the project was answered",
    "chain.drops": "leases that came to nothing are to be given up",
    "chain.dropped": "they are given up",
    "chain.commits": "a project has committed leases; that is not stored",
    "chain.committed": "that is stored: they are transactions",
    "chain.accepts": "an entry of an outbox has come",
    "chain.accepted": "it is a transaction; its project does not know",
    "chain.sends": "nothing of it was given to an endpoint",
    "chain.sent": "an endpoint has taken it; that is not stored",
    "chain.pending": "that is stored",
    "chain.signs_again": "another signature is made and not stored",
    "chain.signed_again": "it is stored, and was given to no endpoint",
    "chain.receipt": "its receipt has come; that is not stored",
    "chain.in_block": "its block is stored",
    "chain.finishes": "it has come to its end; that is not stored",
    "chain.finished": "its end is stored; the project does not know",
    "chain.tells": "the event with its outcome is on its way to the project",
    "chain.told": "the project has committed that event; that is not stored",
    "chain.told_stored": "that is stored",
}
"""Every fault point, and the state of the work at that point."""


class _Orders:
    """The instructions in the file, read at every point because a test writes them at any time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def passes(self, point: str) -> None:
        """Kill or stop this process if the file names this point and the count is reached."""
        assert point in POINTS, point
        try:
            named, *more = self._path.read_text().split()
        except (FileNotFoundError, ValueError):
            return
        if named != point:
            return
        holds = HOLD in more
        left = next((int(word) for word in more if word.isdecimal()), 1) - 1
        if left > 0:
            self._path.write_text(f"{point} {left} {HOLD if holds else ''}")
            return
        self._path.rename(self._path.with_name(self._path.name + ".reached"))
        # Sent to this thread: a signal to the process may be delivered to another thread, and
        # this one would run on for a moment.
        number = signal.SIGSTOP if holds else signal.SIGKILL
        signal.pthread_kill(threading.get_ident(), number)


def _nothing(_point: str) -> None:
    """Do nothing: fault injection is off."""


def passing(environment: dict[str, str] | os._Environ[str]) -> Callable[[str], None]:
    """The function to call at each point, chosen by the process's environment variables."""
    named = environment.get(VARIABLE)
    return _Orders(Path(named)).passes if named else _nothing


passes = passing(os.environ)
"""Call it at a fault point; it returns at once unless a test has armed this point."""

is_armed = passes is not _nothing
