"""An event that waits for its outcome, and the outcomes that it can have."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from fieldbrook.actors.wire import NODE_COMMAND, REPEATED, RESUME, WireEvent, pack
from fieldbrook.core.errors import NodeError, from_wire
from fieldbrook.observability import metrics, publisher_counts

log = logging.getLogger(__name__)

ANSWER_LIMIT_S = 15.0

Outcome = tuple[tuple[int, int, str], ...] | NodeError
Settle = Callable[[Outcome], None]

BlockedPublishers = set[int]
"""The publishers of one request that have an event of unknown outcome; all events of the request
share the set. Later events of these publishers are not sent: the client sends the event of unknown
outcome again, and they must not run before it."""


class StoredResults(tuple[tuple[int, int, str], ...]):
    """The stored results of an event that was handled before."""

    __slots__ = ()


class PendingEvent:
    """An event without an outcome; it is settled exactly once.

    Events with `resend` (all but those over HTTP) survive the failure of their project:
    they are sent again, in small groups and then alone. Only an event that was alone in flight
    when two dedicated workers died becomes a dead letter instead of running,
    so occasional deaths never move an event to the dead letters. Events without `resend`
    are answered "outcome unknown". Events with the same `queue_id` keep their order.
    """

    __slots__ = (
        "blocked",
        "deadline",
        "deaths",
        "died_in",
        "event",
        "queue_id",
        "resend",
        "settle",
    )

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
        self.deaths = 0  # deaths of dedicated workers while only this event was in flight
        self.died_in = ""  # the path of the last of these workers

    def finish(self, outcome: Outcome) -> None:
        """Settle the event, unless its deadline has settled it already."""
        settle, self.settle = self.settle, None
        if settle is not None:
            try:
                settle(outcome)
            except Exception:
                # A failing callback must not prevent the answers to other events.
                log.exception("event %s: the receiver of its outcome failed", self.event[2])


Settled = list[tuple[PendingEvent, Outcome]]
"""Events with their outcomes, whose senders have got no answer yet."""


def outcomes_of(results: Sequence[Any]) -> tuple[list[Outcome], bool]:
    """Decode the results of events in an answer; also return whether one of them is an error.

    Raises:
        ValueError: a result is not an `EventResult`.
    """
    outcomes: list[Outcome] = []
    failed = False
    for result in results:
        if type(result) is not tuple:
            raise ValueError("a result is not a list")
        if result and type(result[0]) is str:
            outcome = _named_outcome(result)
            failed = failed or isinstance(outcome, NodeError)
            outcomes.append(outcome)
        else:
            outcomes.append(result)
    return outcomes, failed


def _named_outcome(result: tuple[Any, ...]) -> Outcome:
    try:
        name, details = result
        return StoredResults(details) if name == REPEATED else from_wire(name, dict(details))
    except (TypeError, ValueError, LookupError) as error:
        raise ValueError(f"a result cannot be decoded: {error}") from None


def resume_command() -> PendingEvent:
    """Create the command after which a project accepts events again."""
    event = (RESUME, NODE_COMMAND, "", pack([]), 0, 0, "")
    return PendingEvent(event, lambda outcome: None, 0.0, resend=False, queue_id=NODE_COMMAND)


def is_resume(pending: PendingEvent) -> bool:
    """Return whether this is a `resume_command`."""
    return pending.event[1] == NODE_COMMAND and pending.event[0] == RESUME


def count_settled(settled: Settled, latest_deadline: float) -> None:
    """Count acknowledged events in the metrics, in total and by publisher, with the time since each
    was accepted.

    Commands, refused events and events settled by their deadline are not counted.
    `latest_deadline` is the deadline of an event that was accepted just now.
    """
    seconds = []
    unmatched = 0
    of_publishers = publisher_counts.here.fresh
    for pending, outcome in settled:
        publisher_id = pending.event[1]
        if pending.settle is None or publisher_id == NODE_COMMAND:
            continue
        if outcome or type(outcome) is StoredResults:
            if isinstance(outcome, NodeError):
                continue
            seconds.append(latest_deadline - pending.deadline)
        else:
            unmatched += 1
        of_publishers[publisher_id] += 1
    if seconds:
        metrics.here.row[metrics.EVENTS_ACKNOWLEDGED] += len(seconds)
        metrics.EVENT_SECONDS.observe_all(seconds)
    if unmatched:
        metrics.add(metrics.EVENTS_UNMATCHED, unmatched)
