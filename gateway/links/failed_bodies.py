"""Bodies of a project that were sent and have got no results."""

from __future__ import annotations

from collections.abc import Iterable

from fieldbrook.actors.wire import DELIVERY, RESENT, with_flags
from fieldbrook.core.errors import EventOutcomeUnknownError, StoreError, UnavailableError
from fieldbrook.gateway.links.fair_queue import FairQueue
from fieldbrook.gateway.links.pending_event import PendingEvent, Settled, is_resume
from fieldbrook.gateway.links.suspects import Suspects, blame
from fieldbrook.gateway.links.worker_link import Body

AFTER_FAILURE = "an earlier event of this publisher could not be stored"
TEMPORARY_ERRORS = (StoreError, UnavailableError)  # after these, senders retry the event


class FailedBodies:
    """Keeps bodies until nothing of the project is in flight, and queues their events again.

    Events that did not run go back into the queue, in their order and before all others. Events of
    unknown outcome become suspects or, without `resend`, are settled.
    """

    def __init__(self, queue: FairQueue, suspects: Suspects) -> None:
        self._queue = queue
        self._suspects = suspects
        self._returned: list[Body] = []
        self._lost: list[Body] = []
        # Queues with an event that could not be stored. Its sender sends it again, and no later
        # event of the queue may run before it.
        self._blocked_queues: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._returned or self._lost)

    @property
    def waiting(self) -> int:
        """The number of events that did not run."""
        return sum(len(body.events) for body in self._returned)

    def add_returned(self, body: Body) -> None:
        """Add a body of which no event ran."""
        self._returned.append(body)

    def add_lost(self, body: Body) -> None:
        """Add a body of unknown outcome."""
        self._lost.append(body)

    def add_unanswered(self, bodies: Iterable[Body]) -> None:
        """Add the bodies that were in flight when the link ended."""
        # After NOT_HERE the worker runs no later body of the project.
        (self._returned or self._lost).extend(bodies)

    def withdraw(self, pairs: Settled, settled: Settled) -> bool:
        """Remove the queued events behind events that the project could not store.

        Their senders get an error too and retry them after the failed events, so the order is
        kept. `pairs` are new outcomes.

        Returns:
            Whether there are such events. Then nothing may be sent until all bodies are answered.
        """
        queue_ids = {
            pending.queue_id
            for pending, outcome in pairs
            if pending.resend and isinstance(outcome, TEMPORARY_ERRORS)
        }
        self._blocked_queues |= queue_ids
        behind = self._suspects.withdraw(queue_ids) if queue_ids else []
        for queue_id in queue_ids:
            others: list[PendingEvent] = []  # their senders do not send these again
            while self._queue.first_in(queue_id) is not None:
                pending = self._queue.pop_from(queue_id)
                (behind if pending.resend else others).append(pending)
            for pending in reversed(others):
                self._queue.put_back(pending)
        error = UnavailableError(what=AFTER_FAILURE)
        settled += [(pending, error) for pending in behind]
        return bool(queue_ids)

    def resumed(self) -> None:
        """Forget which events could not be stored, because the project accepts all events again."""
        self._blocked_queues.clear()

    def take_back(self, alone: bool, settled: Settled, worker: str = "") -> bool:
        """Queue the events again, before all others, or settle them.

        Args:
            alone: whether the worker ran no other project and no other event was in flight.
            settled: the settled events are added to it.
            worker: the path of the worker's socket if the worker has died.

        Returns:
            Whether there were bodies of which no event ran.
        """
        returned, self._returned = self._returned, []
        lost = [pending for body in self._lost for pending in body.events]
        self._lost = []
        if len(lost) == 1 and alone and not returned:
            blame(lost[0], worker)
        self._suspects.add(self._to_resend(lost, settled))
        if returned:
            self._put_back(returned, settled)
        self._blocked_queues.clear()
        return bool(returned)

    def _to_resend(self, lost: list[PendingEvent], settled: Settled) -> list[PendingEvent]:
        """Return which of the lost events are sent again, and settle the others."""
        again = []
        for pending in lost:
            if not pending.resend:
                if pending.blocked is not None:
                    pending.blocked.add(pending.event[1])
                unknown = EventOutcomeUnknownError(what="the project ended before it answered")
                settled.append((pending, unknown))
            elif not self._refused(pending, settled):
                kind = pending.event[5]
                if kind & DELIVERY:
                    pending.event = with_flags(pending.event, kind | RESENT)
                again.append(pending)
        return again

    def _put_back(self, returned: list[Body], settled: Settled) -> None:
        """Queue the events of bodies of which no event ran."""
        if returned[0].suspects:  # these were in flight without other events
            self._suspects.put_back(returned[0].events)
            return
        again = []
        for pending in (pending for body in returned for pending in body.events):
            if is_resume(pending):
                continue
            if pending.settle is None:  # its sender has the answer that the outcome is unknown
                if pending.blocked is not None:
                    pending.blocked.add(pending.event[1])
            elif not self._refused(pending, settled):
                again.append(pending)
        for pending in reversed(again):
            self._queue.put_back(pending)

    def _refused(self, pending: PendingEvent, settled: Settled) -> bool:
        """Refuse an event that must not run before an earlier one that could not be stored."""
        if not pending.resend or pending.queue_id not in self._blocked_queues:
            return False
        settled.append((pending, UnavailableError(what=AFTER_FAILURE)))
        return True
