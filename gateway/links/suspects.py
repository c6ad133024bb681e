"""Events of a project that were in flight when it failed, and that are sent again."""

from __future__ import annotations

import collections
import logging
from collections.abc import Container, Sequence

from fieldbrook.actors.wire import POISON, with_flags
from fieldbrook.gateway.links.pending_event import PendingEvent

log = logging.getLogger(__name__)

DEAD_LETTER_AFTER_DEATHS = 2
_GROUP = 16


class Suspects:
    """Events that may have made the project fail, in groups that are sent one by one.

    Up to `_GROUP` events that were lost together are sent one at a time, to find the event that
    kills the worker. More events are first sent in groups, because each frame costs a commit.

    Attributes:
        groups: the groups in the order in which they are sent (read-only).
    """

    def __init__(self) -> None:
        self.groups: collections.deque[list[PendingEvent]] = collections.deque()

    def add(self, lost: Sequence[PendingEvent]) -> None:
        """Add events that were lost together, before all others."""
        size = _GROUP if len(lost) > _GROUP else 1
        groups = [list(lost[start : start + size]) for start in range(0, len(lost), size)]
        self.groups.extendleft(reversed(groups))

    def put_back(self, group: list[PendingEvent]) -> None:
        """Put a group that was taken and did not run back at the front."""
        self.groups.appendleft(group)

    def take(self) -> list[PendingEvent]:
        """Remove and return the next group; there must be one."""
        return self.groups.popleft()

    def withdraw(self, queue_ids: Container[int]) -> list[PendingEvent]:
        """Remove and return the events of some queues, in order."""
        groups = list(self.groups)
        kept = ([p for p in group if p.queue_id not in queue_ids] for group in groups)
        self.groups = collections.deque(group for group in kept if group)
        return [p for group in groups for p in group if p.queue_id in queue_ids]


def blame(pending: PendingEvent, worker: str) -> None:
    """Count a worker's death against the event that was alone in flight in it.

    After two deaths the event is marked as poison, and becomes a dead letter.

    Args:
        pending: the event.
        worker: the path of the socket of the dead worker, which no later worker gets; empty if the
            project failed and its worker still runs.
    """
    if worker and pending.died_in == worker:
        return  # this death was counted: the dying worker's socket accepted another connection
    pending.died_in = worker
    pending.deaths += 1
    if pending.deaths == DEAD_LETTER_AFTER_DEATHS and pending.resend:
        log.error(
            "event %s becomes a dead letter: the project's worker died twice with only this "
            "event in flight",
            pending.event[2],
        )
        event = pending.event
        pending.event = with_flags(event, event[5] | POISON)
