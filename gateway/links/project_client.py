"""The client of one project: its queue of events, its route, and its events in flight.

Events wait in the queue `_queue`, are sent in bodies over the link to the worker that runs the
project, and are settled once, in order. Events of one publisher keep their order, and publishers
take turns. All events that an owner pushes for its devices share one queue, like the events of one
publisher. Bodies are not formed by a timer: the first event of a loop iteration requests a turn on
the link, so bodies grow only under load. At most `CREDIT` bodies are unanswered at a time, all on
one link.
"""

from __future__ import annotations

import asyncio
import collections
from typing import Any

from fieldbrook.actors.wire import CREDIT, FRAME_BYTES, FRAME_EVENTS, LOST, NOT_HERE, WireEvent
from fieldbrook.core.errors import (
    EventOutcomeUnknownError,
    NodeError,
    TooManyRequestsError,
    UnavailableError,
)
from fieldbrook.gateway.links.failed_bodies import FailedBodies
from fieldbrook.gateway.links.fair_queue import GATEWAY_BYTES, FairQueue
from fieldbrook.gateway.links.pending_event import (
    ANSWER_LIMIT_S,
    BlockedPublishers,
    PendingEvent,
    Settle,
    Settled,
    outcomes_of,
    resume_command,
)
from fieldbrook.gateway.links.route import ProjectActivator, Route
from fieldbrook.gateway.links.suspects import Suspects
from fieldbrook.gateway.links.traced_event import traced
from fieldbrook.gateway.links.worker_link import SMALL_BYTES, Body, WorkerLink, WorkerLinks
from fieldbrook.gateway.memory_budget import MemoryBudget
from fieldbrook.observability import spans

# Events in a body no longer take turns with those of other publishers. A body for a slow project
# therefore has only as many events as the project handles in this time.
FRAME_S = 0.25
_FIRST_PACE_S = FRAME_S / 16
_AFTER_UNKNOWN = "an earlier event of this publisher in the same request has an unknown outcome"
_PUSH_QUEUE = -1  # the queue of events that an owner pushes for devices; never a publisher's id


class ProjectClient:
    """The client of one project.

    Its route is the path of a worker's socket, or unknown. It uses one link at a time. When the
    route changes, the link stays until everything on it is answered.
    """

    def __init__(
        self,
        project_id: int,
        activator: ProjectActivator,
        loop: asyncio.AbstractEventLoop,
        links: WorkerLinks,
        budget: MemoryBudget | None = None,
    ) -> None:
        """Create a client without a route.

        All clients of the gateway share `links` and `budget`.
        """
        self.project_id = project_id
        self.in_turn = False  # see `LinkUser`
        self._loop = loop
        self._links = links
        self._queue = FairQueue(budget or MemoryBudget(GATEWAY_BYTES))
        self._suspects = Suspects()
        self._failed = FailedBodies(self._queue, self._suspects)
        self._route = Route(project_id, activator, loop, self._advance)
        self._link: WorkerLink | None = None
        self._alone = False  # whether the link's worker runs only this project
        self._sent: collections.deque[Body] = collections.deque()
        self._paused = False  # the project refuses events until it receives RESUME
        self._pace_s = _FIRST_PACE_S  # moving average of the project's time per event
        self._pace_updated_at = 0.0

    # ---------------------------------------------------------------- events

    @property
    def idle(self) -> bool:
        """Whether no event waits and no body is unanswered."""
        return not (self._queue.events or self._suspects.groups or self._sent)

    @property
    def waiting(self) -> int:
        """The number of queued events; a group of suspects counts as one."""
        return self._queue.events + len(self._suspects.groups) + self._failed.waiting

    @property
    def unanswered(self) -> int:
        """The number of events that were sent and have no answer."""
        return sum(len(body.events) for body in self._sent)

    @property
    def disconnected(self) -> bool:
        """Whether there is neither a route, nor a request for one, nor a link."""
        return self._route.unused and self._link is None

    @property
    def routed(self) -> bool:
        """Whether the worker that runs the project is known."""
        return self._route.path is not None

    def submit(
        self,
        event: WireEvent,
        settle: Settle,
        *,
        resend: bool = False,
        pushed: bool = False,
        blocked: BlockedPublishers | None = None,
    ) -> None:
        """Queue an event for sending; `settle` is called once with its outcome.

        Events with `pushed` keep their order across publishers. `blocked` collects the publishers
        of this request with an event of unknown outcome; their later events are refused.

        Raises:
            TooManyRequestsError: too many events or bytes of this publisher, this project or
                this gateway wait already; the event was not queued.
        """
        queue_id = _PUSH_QUEUE if pushed else event[1]
        if not self._queue.has_space(queue_id, len(event[3])):
            raise self._queue_full()
        if spans.here is not None:
            event, settle = traced(spans.here, self.project_id, event, settle)
        deadline = self._loop.time() + ANSWER_LIMIT_S
        self._queue.append(PendingEvent(event, settle, deadline, resend, queue_id, blocked))
        if not self.in_turn and len(self._sent) < CREDIT:
            self._advance()

    def require_space_to_push(self, events: int, size: int) -> None:
        """Check that `events` events with `size` payload bytes in total could be pushed now.

        Raises:
            TooManyRequestsError: the queue does not have enough space.
        """
        if not self._queue.has_space_for(_PUSH_QUEUE, events, size):
            raise self._queue_full()

    def _queue_full(self) -> TooManyRequestsError:
        return TooManyRequestsError(what=f"{len(self._queue)} events of this project wait already")

    def expire(self) -> None:
        """Settle events past their deadline, and repeat a route request without an answer.

        The gateway calls this about once a second.
        """
        now = self._loop.time()
        for body in self._sent:
            for pending in body.events:
                if not pending.resend and pending.deadline < now:
                    pending.finish(
                        EventOutcomeUnknownError(what="the project did not answer in time")
                    )
        for first in self._queue.first_events():
            self._expire_queue(first, now)
        if self._route.overdue(now):
            self._advance()

    def _expire_queue(self, first: PendingEvent | None, now: float) -> None:
        """Settle the events at the head of a queue that are past their deadline."""
        error = UnavailableError(what="the project did not take the event in time")
        while first is not None and not first.resend and first.deadline < now:
            queue_id = first.queue_id
            self._queue.pop_from(queue_id).finish(error)
            first = self._queue.first_in(queue_id)

    def refuse_waiting(self, error: NodeError) -> None:
        """Settle all queued events except those with `resend`, which stay queued."""
        self._route.forget_request()
        waited = [self._queue.pop() for _ in range(len(self._queue))]
        for pending in waited:
            if pending.resend:
                self._queue.append(pending)
        for pending in waited:
            if not pending.resend:
                pending.finish(error)
        if not self.idle:
            self._loop.call_later(1.0, self._advance)

    def refuse_all(self, error: NodeError) -> None:
        """Settle all events that were not sent, because the project does not exist any more."""
        self._route.forget_request()
        while self._suspects.groups:
            for pending in self._suspects.take():
                pending.finish(error)
        while self._queue:
            self._queue.pop().finish(error)

    # ---------------------------------------------------------------- route and link

    def route(self, path: str | None, alone: bool = False) -> None:
        """Set the socket of the worker that runs the project; None if no worker runs it.

        `alone`: the worker runs no other project.
        """
        self._route.set(path, alone)
        if self._link is not None and self._link.path == path:
            self._alone = alone
        self._advance()

    def _advance(self) -> None:
        """Take the next step for the queued events: request a route, or a turn on the link. If the
        link does not belong to the route, leave it as soon as everything on it is answered."""
        route, link = self._route, self._link
        if link is not None:
            if link.path == route.path:
                if not self.in_turn:
                    link.request_turn(self)
                return
            if self._sent:
                return
            link.leave(self)
            self._link = None
        if not (self._queue.events or self._suspects.groups):
            return
        if route.path is not None:
            self._alone = route.alone
            self._link = self._links.to(route.path)
            self._link.join(self)
            self._link.request_turn(self)
        else:
            route.request()

    @property
    def _is_stale(self) -> bool:
        """Return whether the link does not belong to the route."""
        return self._link is not None and self._link.path != self._route.path

    def _forget_route(self) -> None:
        """Forget the route if it belongs to the link, which could not be used.

        A different route already belongs to the project's next start.
        """
        if not self._is_stale:
            self._route.path = None

    # ---------------------------------------------------------------- sending, for the link

    @property
    def can_send(self) -> bool:
        """See `LinkUser`."""
        if not (self._queue.events or self._suspects.groups or self._paused):
            return False
        sent = self._sent
        if len(sent) >= CREDIT or self._is_stale or self._link is None:
            return False
        # One of the suspects may have killed the worker, so no other events may be in flight with
        # them.
        return not (sent and (self._paused or self._suspects.groups or sent[0].suspects))

    def next_body(self, ample: bool, now: float) -> Body | None:
        """See `LinkUser`."""
        sent = self._sent
        if not self.can_send or (sent and not ample):
            return None
        if self._paused:
            body = Body([resume_command()], 0, small=True, suspects=False)
            self._paused = False
            self._failed.resumed()
        elif self._suspects.groups:
            group = self._suspects.take()
            size = sum(len(pending.event[3]) for pending in group)
            if not ample and size > SMALL_BYTES:
                self._suspects.put_back(group)
                return None
            body = Body(group, size, size <= SMALL_BYTES, suspects=True)
        else:
            events, size = self._next_events(ample)
            if not events:
                return None
            body = Body(events, size, size <= SMALL_BYTES and not sent, suspects=False)
        if not sent:
            self._pace_updated_at = now
        sent.append(body)
        return body

    def _next_events(self, ample: bool) -> tuple[list[PendingEvent], int]:
        """Remove the next events from the queue; return them and the size of their payloads."""
        queue = self._queue
        events: list[PendingEvent] = []
        size, bytes_limit = 0, FRAME_BYTES if ample else SMALL_BYTES
        limit = self._frame_limit()
        while queue.events and len(events) < limit:
            next_size = queue.next_size()
            if size + next_size > bytes_limit and (events or not ample):
                break
            pending = queue.pop()
            if pending.blocked and pending.event[1] in pending.blocked and not pending.resend:
                self._loop.call_soon(pending.finish, UnavailableError(what=_AFTER_UNKNOWN))
                continue
            events.append(pending)
            size += next_size
        return events, size

    def _frame_limit(self) -> int:
        """Return the maximum number of events in the next body."""
        if self._pace_s * FRAME_EVENTS <= FRAME_S:
            return FRAME_EVENTS
        return max(1, int(FRAME_S / self._pace_s))

    # ---------------------------------------------------------------- answers, from the link

    def answered(self, answer: Any, now: float, settled: Settled) -> int:
        """See `LinkUser`."""
        if not self._sent:
            raise ValueError(f"project {self.project_id} has no unanswered events")
        body = self._sent[0]
        if type(answer) is tuple:
            credit = self._settle(body, answer, now, settled)
        elif answer in (NOT_HERE, LOST):
            # Until RESUME the worker does not run later bodies either, so the order is kept.
            if not self._failed:
                self._forget_route()
            self._paused = True
            self._sent.popleft()
            (self._failed.add_returned if answer == NOT_HERE else self._failed.add_lost)(body)
            credit = body.credit
        else:
            raise ValueError(f"the answer for project {self.project_id} is of an unknown kind")
        if self._failed and not self._sent and self._failed.take_back(self._alone, settled):
            self._route.missed()
        if self._queue.events or self._suspects.groups or self._paused or self._is_stale:
            self._advance()
        return credit

    def _settle(self, body: Body, results: Any, now: float, settled: Settled) -> int:
        events, count = body.events, len(results)
        if count > len(events):
            raise ValueError(f"{count} results for {len(events)} events")
        outcomes, failed = outcomes_of(results)
        if count:
            self._pace_s = (self._pace_s + (now - self._pace_updated_at) / count) / 2
            self._pace_updated_at = now
            self._route.found()
        if count == len(events):
            self._sent.popleft()
            credit = body.credit
        else:
            events, body.events = events[:count], events[count:]
            credit = 0
        pairs = list(zip(events, outcomes, strict=True))
        settled += pairs
        if failed and self._failed.withdraw(pairs, settled):
            self._paused = True
        return credit

    def link_ended(self, alone: bool, settled: Settled) -> None:
        """See `LinkUser`."""
        self._forget_route()
        worker, self._link = "" if self._link is None else self._link.path, None
        self._failed.add_unanswered(self._sent)
        self._sent.clear()
        if self._failed.take_back(alone and self._alone, settled, worker):
            self._route.missed()
        self._paused = False
        # The socket may exist slightly longer than the worker, so request a route from the
        # supervisor.
        self._loop.call_soon(self._advance)

    def link_closed(self) -> None:
        """See `LinkUser`."""
        self._link = None
        self._paused = False
