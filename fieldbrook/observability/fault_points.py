"""Fault injection: named points at which a test can kill a process of the node.

For tests only. Unless the variable `FIELDBROOK_CRASH_AT` names a file when a process starts,
`hit` does nothing and cannot be enabled later. The file has one line,

    POINT [N] [hold]

The N-th time (default: the first) that a process then reaches the point, it is killed with
SIGKILL. With `hold` it is stopped with SIGSTOP instead, until it is killed or continued. Before
that, the file is renamed with the suffix `.reached`, so that a point fires only once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

VARIABLE = "FIELDBROOK_CRASH_AT"
HOLD = "hold"

CUTS = {
    # Points in a worker at which a commit, a checkpoint or a recovery can be interrupted.
    "journal.before_append": "the batches of a round are prepared; nothing of them is written",
    "journal.half_appended": "the first half of a round is written, and not synced",
    "journal.before_sync": "a round is written, and not synced",
    "journal.synced": "a round is synced; nobody knows that",
    "journal.before_head": "a segment is full; the next one is not begun",
    "journal.head_written": "the next segment is begun; nothing is in it",
    "checkpoint.before_commit": "everything that waits is in a transaction, which is not committed",
    "checkpoint.committed": "the transaction is on disk; the journal keeps its batches",
    "checkpoint.released": "the journal need not keep these batches any more",
    "recovery.store_written": "what a store lacked is in it; the journal still has it",
    "recovery.applied": "all stores have their batches; the journal is not begun anew",
    "recovery.begun": "the journal is begun anew; no project runs yet",
    "worker.project_closed": "a project has retired; the supervisor does not know",
}

POINTS = CUTS | {
    # Points in a worker, in the order in which a transaction reaches them. "The chain" stands for
    # the chain's process.
    "project.before_chain_request": "a handler sends a transaction; the chain has no request yet",
    "project.chain_answer_received": "the chain has answered; the handler has no answer yet",
    "project.before_commit": "a batch of events is about to be committed",
    "project.committed": "a batch is committed; no event is answered yet",
    "project.events_answered": "events are answered; the chain does not know of the commit",
    "project.leases_settled": "the chain knows which leases are committed",
    "project.before_outbox_send": "outbox entries are about to be sent to their consumer",
    "project.before_outbox_removal": "outbox entries are delivered, and about to be removed",
    "project.outbox_entries_removed": "outbox entries are removed",
    # Points in a chain's process.
    "chain.request_received": "a request for a transaction has arrived",
    "chain.transaction_signed": "the transaction is signed; its lease is not stored",
    "chain.lease_stored": "the lease is stored; the project has no answer yet",
    "chain.request_answered": "the project has its answer",
    "chain.before_lease_return": "unused leases are about to be returned",
    "chain.leases_returned": "unused leases are returned",
    "chain.before_commit_stored": "a project has committed leases; the store does not show it yet",
    "chain.commit_stored": "the committed leases are stored as transactions",
    "chain.outbox_entry_received": "an outbox entry has arrived",
    "chain.outbox_entry_stored": "the entry is stored as a transaction; its project does not know",
    "chain.before_send": "a transaction is about to be sent to the first endpoint",
    "chain.sent": "an endpoint has accepted the transaction; the store does not show it yet",
    "chain.pending_stored": "the transaction is stored as pending",
    "chain.replacement_signed": "a replacement is signed and not stored",
    "chain.replacement_stored": "the replacement is stored, and no endpoint has it",
    "chain.receipt_received": "the receipt has arrived and is not stored",
    "chain.block_stored": "the block of the transaction is stored",
    "chain.before_final_state_stored": "the transaction is final; the store does not show it yet",
    "chain.final_state_stored": "the final state is stored; the project does not know",
    "chain.before_outcome_event": "the event with the outcome is about to be sent to the project",
    "chain.outcome_event_committed": "the project has committed it; the store does not show it yet",
    "chain.outcome_delivery_stored": "the store shows that the project has the outcome",
}
"""Every fault point, and the state of the work at that point.

`before_X`: X is about to happen. Every other name says what has just happened.
"""


class _OrderFile:
    """The instructions in the file. The file is read at every point, because a test may write it at
    any time."""

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
        # The signal is sent to this thread. A signal to the process may be delivered to another
        # thread, and this thread would run on for a moment.
        number = signal.SIGSTOP if holds else signal.SIGKILL
        signal.pthread_kill(threading.get_ident(), number)


def _ignore(_point: str) -> None:
    """Do nothing: fault injection is off."""


def hit_function(environment: dict[str, str] | os._Environ[str]) -> Callable[[str], None]:
    """Return the function to call at each point, chosen by the environment variables of the
    process."""
    named = environment.get(VARIABLE)
    return _OrderFile(Path(named)).hit if named else _ignore


hit = hit_function(os.environ)
"""Call this at a fault point; it returns at once unless a test has armed this point."""

is_armed = hit is not _ignore
