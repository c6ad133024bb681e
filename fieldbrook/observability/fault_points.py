"""Fault injection: named points at which a test can kill a process of the node.

For tests only. Unless the variable `FIELDBROOK_CRASH_AT` names a file when a process starts,
`hit` does nothing and cannot be enabled later. The file has one line,

    POINT [N] [hold]

The N-th time (default: the first) that a process then reaches the point, it is killed with
SIGKILL. With `hold` it is stopped with SIGSTOP instead, until it is killed or continued. The file
gets the suffix `.reached` before, so that a point fires only once.
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
    # Points in a project's process, in the order in which a transaction reaches them.
    "project.asks": "a handler sends a transaction; the chain process has no request yet",
    "project.has_hash": "the chain process has answered; the handler has no answer yet",
    "project.commits": "a batch of events is about to be committed",
    "project.committed": "a batch is committed; no event is answered yet",
    "project.answered": "its events are answered; the chain process does not know of the commit",
    "project.settled": "the chain process knows which leases are committed",
    "project.gives": "outbox entries are about to be sent to the gateway that delivers them",
    "project.removes": "outbox entries are delivered, and about to be removed",
    "project.removed": "outbox entries are removed",
    # Points in a chain's process.
    "chain.asked": "a request for a transaction has arrived",
    "chain.signed": "the transaction is signed; its lease is not stored",
    "chain.leased": "the lease is stored; the project has no answer yet",
    "chain.answered": "the project has its answer",
    "chain.drops": "unused leases are about to be returned",
    "chain.dropped": "unused leases are returned",
    "chain.commits": "a project has committed leases; the store does not show it yet",
    "chain.committed": "the committed leases are stored as transactions",
    "chain.accepts": "an outbox entry has arrived",
    "chain.accepted": "the entry is stored as a transaction; its project does not know",
    "chain.sends": "a transaction is about to be sent to the first endpoint",
    "chain.sent": "an endpoint has accepted the transaction; the store does not show it yet",
    "chain.pending": "the transaction is stored as pending",
    "chain.signs_again": "a replacement is signed and not stored",
    "chain.signed_again": "the replacement is stored, and no endpoint has it",
    "chain.receipt": "the receipt has arrived and is not stored",
    "chain.in_block": "the block of the transaction is stored",
    "chain.finishes": "the transaction is final; the store does not show it yet",
    "chain.finished": "the final state is stored; the project does not know",
    "chain.tells": "the event with the outcome is about to be sent to the project",
    "chain.told": "the project has committed that event; the store does not show it yet",
    "chain.told_stored": "the store shows that the project has the outcome",
}
"""Every fault point, and the state of the work at that point."""


class _OrderFile:
    """The instructions in the file, read at every point because a test writes them at any time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def hit(self, point: str) -> None:
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


def _ignore(_point: str) -> None:
    """Do nothing: fault injection is off."""


def hit_function(environment: dict[str, str] | os._Environ[str]) -> Callable[[str], None]:
    """The function to call at each point, chosen by the process's environment variables."""
    named = environment.get(VARIABLE)
    return _OrderFile(Path(named)).hit if named else _ignore


hit = hit_function(os.environ)
"""Call it at a fault point; it returns at once unless a test has armed this point."""

is_armed = hit is not _ignore
