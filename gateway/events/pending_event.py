"""An event that waits for its outcome, and the outcomes that it can have."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fieldbrook.actors.wire import NODE_COMMAND, REPEATED, RESUME, EventResult, WireEvent, pack
from fieldbrook.core.errors import NodeError, from_wire
from fieldbrook.observability import metrics, publisher_counts

log = logging.getLogger(__name__)

Outcome = tuple[tuple[int, int, str], ...] | NodeError
Settle = Callable[[Outcome], None]

BlockedPublishers = set[int]
"""The publishers of one request that have an event of unknown outcome; its events share the set.
Later events of these publishers are not sent, because the client sends the unknown one again and
it would then run after them."""


class StoredResults(tuple[tuple[int, int, str], ...]):
    """The stored results of an event that was handled before."""

    __slots__ = ()


class PendingEvent:
    """An event without an outcome; it is settled exactly once.

    Events with `resend` (all but those over HTTP) survive the death of the project's process:
    they are sent to the next process, in small groups and then alone. Only an event that was
    alone in flight at two deaths becomes a dead letter instead of running,
    so occasional process deaths never move an event to the dead letters. Events without `resend`
    are answered "outcome unknown". Events with the same `queue_id` keep their order.
    """

    __slots__ = ("blocked", "deadline", "deaths", "event", "queue_id", "resend", "settle")

    def __init__(
        self,
        event: WireEvent,
        settle: Settle,
        deadline: float,
        resend: bool,
        queue_id: int,
        blocked: BlockedPublishers | None = None,
    ) -> None:
        self.event = event
        self.queue_id = queue_id
        self.blocked = blocked
        self.settle: Settle | None = settle
        self.deadline = deadline
        self.resend = resend
        self.deaths = 0  # process deaths while only this event was in flight

    def finish(self, outcome: Outcome) -> None:
        """Settle the event, unless its deadline has settled it already."""
        settle, self.settle = self.settle, None
        if settle is not None:
            try:
                settle(outcome)
            except Exception:
                # A failing callback must not prevent the answers to other events.
                log.exception("event %s: the receiver of its outcome failed", self.event[2])


def outcome_of(result: EventResult) -> Outcome:
    """Decode the result of an event in an answer frame."""
    if result and isinstance(result[0], str):
        name, details = result
        return StoredResults(details) if name == REPEATED else from_wire(name, dict(details))
    return result


def resume_command() -> PendingEvent:
    """Create the command after which a project accepts events again."""
    event = (RESUME, NODE_COMMAND, "", pack([]), 0, 0, "")
    return PendingEvent(event, lambda outcome: None, 0.0, resend=False, queue_id=NODE_COMMAND)


def count_settled(settled: list[tuple[PendingEvent, EventResult]], latest_deadline: float) -> None:
    """Count acknowledged events in the metrics, with the time since each was accepted, and those
    of each publisher.

    Commands, refused events and events settled by their deadline are not counted.
    `latest_deadline` is the deadline of an event that was accepted just now.
    """
    seconds = []
    unmatched = 0
    of_publishers = publisher_counts.here.fresh
    for pending, result in settled:
        publisher_id = pending.event[1]
        if pending.settle is None or publisher_id == NODE_COMMAND:
            continue
        if not result:
            unmatched += 1
        elif not isinstance(result[0], str) or result[0] == REPEATED:
            seconds.append(latest_deadline - pending.deadline)
        else:
            continue
        of_publishers[publisher_id] += 1
    if seconds:
        metrics.here.row[metrics.EVENTS_ACKNOWLEDGED] += len(seconds)
        metrics.EVENT_SECONDS.observe_all(seconds)
    if unmatched:
        metrics.add(metrics.EVENTS_UNMATCHED, unmatched)
