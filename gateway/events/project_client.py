"""Clients of the projects' processes: one connection per project, in the gateway's event loop.

Events wait in the queue `_queue`, are sent in frames, and are settled once, in order. Events
of one publisher keep their order, and publishers take turns. All events that an owner pushes for
its devices share one queue, like those of one publisher. No timer forms batches: the first event
of a loop turn schedules the flush, so frames grow only under load. At most `CREDIT` frames are
unanswered at a time.
"""

from __future__ import annotations

import asyncio
import collections
import logging
from typing import Protocol, cast

from fieldbrook.actors.wire import (
    CREDIT,
    FRAME_BYTES,
    FRAME_EVENTS,
    POISON,
    EventResult,
    FrameReader,
    WireEvent,
    frame,
    pack,
    unpack,
)
from fieldbrook.core.errors import (
    EventOutcomeUnknownError,
    NodeError,
    StoreError,
    TooManyRequestsError,
    UnavailableError,
)
from fieldbrook.gateway.events.fair_queue import GATEWAY_BYTES, FairQueue
from fieldbrook.gateway.events.pending_event import (
    BlockedPublishers,
    PendingEvent,
    Settle,
    count_settled,
    outcome_of,
    resume_command,
)
from fieldbrook.gateway.memory_budget import MemoryBudget
from fieldbrook.observability import metrics

log = logging.getLogger(__name__)

ANSWER_LIMIT_S = 15.0
# Events in a frame no longer take turns with those of other publishers. A frame to a slow project
# therefore has only as many events as the project handles in this time.
FRAME_S = 0.25
_FIRST_PACE_S = FRAME_S / 16
DEAD_LETTER_AFTER_DEATHS = 2
# After a process death each event in flight may be the one that killed it. More than this number
# are sent again in groups of this size, then one by one.
_RESEND_GROUP = 16
_CONNECT_TRIES = 20
_ROUTE_RETRY_S = 5.0  # a lost route request must not block a project's events for ever
_AFTER_UNKNOWN = "an earlier event of this publisher in the same request has an unknown outcome"
_TEMPORARY_ERRORS = (StoreError, UnavailableError)  # after these, senders retry the event
_PUSH_QUEUE = -1  # the queue of events that an owner pushes for devices; never a publisher's id


class ProjectActivator(Protocol):
    """The part of the gateway that a client uses to start its project."""

    def activate(self, project_id: int) -> None:
        """Ask the supervisor to start the project and to report its route."""


class ProjectClient(asyncio.Protocol):
    """The connection to one project.

    States: no route (the path of the project's socket is unknown), connecting, connected.
    """

    def __init__(
        self,
        project_id: int,
        activator: ProjectActivator,
        loop: asyncio.AbstractEventLoop,
        budget: MemoryBudget | None = None,
    ) -> None:
        """Create a client without a route; `budget` is shared by all clients of the gateway."""
        self._project_id = project_id
        self._activator = activator
        self._loop = loop
        self._queue: FairQueue = FairQueue(budget or MemoryBudget(GATEWAY_BYTES))
        self._suspects: collections.deque[list[PendingEvent]] = collections.deque()
        self._sent: collections.deque[collections.deque[PendingEvent]] = collections.deque()
        self._pace_s = _FIRST_PACE_S  # moving average of the project's time per event
        self._pace_updated_at = 0.0
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._path: str | None = None
        self._dialed_path: str | None = None
        self._flush_scheduled = False
        self._route_requested = False
        self._route_requested_at = 0.0
        self._connecting: asyncio.Task[None] | None = None
        self._paused = False  # the project refuses events until it receives RESUME

    # ---------------------------------------------------------------- events

    @property
    def idle(self) -> bool:
        """Whether no event waits and no frame is unanswered."""
        return not (self._queue or self._suspects or self._sent)

    @property
    def waiting(self) -> int:
        """The number of queued events; a group of suspects counts as one."""
        return len(self._queue) + len(self._suspects)

    @property
    def unanswered(self) -> int:
        """The number of events that were sent and have no answer."""
        return sum(map(len, self._sent))

    @property
    def disconnected(self) -> bool:
        """Whether there is neither a route nor a pending request for one."""
        return self._transport is None and self._path is None and not self._route_requested

    @property
    def routed(self) -> bool:
        """Whether the path of the project's socket is known."""
        return self._path is not None

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
        deadline = self._loop.time() + ANSWER_LIMIT_S
        self._queue.append(PendingEvent(event, settle, deadline, resend, queue_id, blocked))
        if self._transport is None:
            self._request_route()
        elif not self._flush_scheduled and len(self._sent) < CREDIT:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def require_space_to_push(self, events: int, size: int) -> None:
        """Check that `events` events with `size` payload bytes in total could be pushed now.

        Raises:
            TooManyRequestsError: the queue does not have enough space.
        """
        if not self._queue.has_space_for(_PUSH_QUEUE, events, size):
            raise self._queue_full()

    def _queue_full(self) -> TooManyRequestsError:
        return TooManyRequestsError(what=f"{len(self._queue)} events of this project wait already")

    def _flush(self) -> None:
        self._flush_scheduled = False
        while self._transport is not None and self._path is not None and len(self._sent) < CREDIT:
            if self._paused and self._sent:
                return
            batch = collections.deque([resume_command()]) if self._paused else self._next_batch()
            self._paused = False
            if not batch:
                return
            if not self._sent:
                self._pace_updated_at = self._loop.time()
            self._sent.append(batch)
            self._transport.write(frame(pack([pending.event for pending in batch])))

    def _next_batch(self) -> collections.deque[PendingEvent]:
        if self._suspects:
            # One of them may have killed the process, so no other events are in flight with them.
            return collections.deque(() if self._sent else self._suspects.popleft())
        batch: collections.deque[PendingEvent] = collections.deque()
        size, limit = 0, self._frame_limit()
        while self._queue and len(batch) < limit:
            size += self._queue.next_size()
            if batch and size > FRAME_BYTES:
                break
            pending = self._queue.pop()
            if pending.blocked and pending.event[1] in pending.blocked and not pending.resend:
                self._loop.call_soon(pending.finish, UnavailableError(what=_AFTER_UNKNOWN))
                continue
            batch.append(pending)
        return batch

    def _frame_limit(self) -> int:
        """Return the maximum number of events in the next frame."""
        if self._pace_s * FRAME_EVENTS <= FRAME_S:
            return FRAME_EVENTS
        return max(1, int(FRAME_S / self._pace_s))

    def _update_pace(self, answered: int) -> None:
        """Update the moving average of the project's time per event."""
        now = self._loop.time()
        self._pace_s = (self._pace_s + (now - self._pace_updated_at) / answered) / 2
        self._pace_updated_at = now

    def expire(self) -> None:
        """Settle events past their deadline, and repeat a route request without an answer.

        The gateway calls this about once a second.
        """
        now = self._loop.time()
        for batch in self._sent:
            for pending in batch:
                if not pending.resend and pending.deadline < now:
                    pending.finish(
                        EventOutcomeUnknownError(what="the project did not answer in time")
                    )
        for first in self._queue.first_events():
            self._expire_queue(first, now)
        if self._route_requested and now - self._route_requested_at > _ROUTE_RETRY_S:
            self._route_requested = False
            self._request_route()

    def _expire_queue(self, first: PendingEvent | None, now: float) -> None:
        """Settle the events at the head of a queue that are past their deadline."""
        error = UnavailableError(what="the project's process did not start in time")
        while first is not None and not first.resend and first.deadline < now:
            queue_id = first.queue_id
            self._queue.pop_from(queue_id).finish(error)
            first = self._queue.first_in(queue_id)

    def refuse_waiting(self, error: NodeError) -> None:
        """Settle all queued events except those with `resend`, which stay queued."""
        self._route_requested = False
        waited = [self._queue.pop() for _ in range(len(self._queue))]
        for pending in waited:
            if pending.resend:
                self._queue.append(pending)
        for pending in waited:
            if not pending.resend:
                pending.finish(error)
        if not self.idle:
            self._loop.call_later(1.0, self._request_route)

    def refuse_all(self, error: NodeError) -> None:
        """Settle all events that were not sent, because the project does not exist any more."""
        self._route_requested = False
        while self._suspects:
            for pending in self._suspects.popleft():
                pending.finish(error)
        while self._queue:
            self._queue.pop().finish(error)

    # ---------------------------------------------------------------- the connection

    def route(self, path: str | None) -> None:
        """Set the path of the project's socket; None when its process is retiring."""
        self._path = path
        self._route_requested = False
        if path is not None:
            self._connect()
        elif self._transport is not None and not self._sent:
            self._transport.close()
        elif self._transport is None and not self.idle:
            self._request_route()

    def _request_route(self) -> None:
        if self._transport is not None or self._route_requested or self.idle:
            return
        if self._path is not None:
            self._connect()
        else:
            self._route_requested, self._route_requested_at = True, self._loop.time()
            self._activator.activate(self._project_id)

    def _connect(self) -> None:
        if self._transport is None and (self._connecting is None or self._connecting.done()):
            self._connecting = self._loop.create_task(self._dial())

    async def _dial(self) -> None:
        for attempt in range(_CONNECT_TRIES):
            path = self._path
            if path is None or self._transport is not None:
                return
            try:
                self._dialed_path = path
                await self._loop.create_unix_connection(lambda: self, path)
            except OSError:
                await asyncio.sleep(0.005 * (attempt + 1))
            else:
                return
        # The announced socket does not exist: request a new route.
        self._path = None
        self._connecting = None
        self._request_route()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the queued events over the new connection."""
        self._transport = cast(asyncio.Transport, transport)
        self._reader = FrameReader()
        self._flush()
        if self._path is None:
            # The process is already retiring and waits until all clients have disconnected. The
            # events queued here were not sent to it; they go to the next process.
            transport.close()

    def data_received(self, data: bytes) -> None:
        """Settle events with the received answers, in the order in which they were sent."""
        for answer in self._reader.feed(data):
            self._settle(unpack(answer))

    def _settle(self, results: tuple[EventResult, ...]) -> None:
        if results:
            self._update_pace(len(results))
        settled = []
        refused = False
        for result in results:
            batch = self._sent[0]
            settled.append((batch.popleft(), result))
            if not batch:
                self._sent.popleft()
            if result and type(result[0]) is str:
                refused = True
        withdrawn = self._withdraw(settled) if refused else []
        if self._path is None and not self._sent and self._transport is not None:
            self._transport.close()  # the process retires: queued events go to the next one
        else:
            self._flush()  # the project works on the next frame while these clients are answered
        count_settled(settled, self._pace_updated_at + ANSWER_LIMIT_S)
        for pending, result in settled:
            pending.finish(outcome_of(result))
        error = UnavailableError(what="an earlier event of this publisher could not be stored")
        for pending in withdrawn:
            pending.finish(error)

    def _withdraw(self, settled: list[tuple[PendingEvent, EventResult]]) -> list[PendingEvent]:
        """Take back the events queued behind events that the project could not store.

        Their senders get an error too and retry them after the failed events, so the order is
        kept. Nothing more is sent until all events in flight are answered.
        """
        queue_ids = {
            pending.queue_id
            for pending, result in settled
            if pending.resend and isinstance(outcome_of(result), _TEMPORARY_ERRORS)
        }
        if not queue_ids:
            return []
        self._paused = True
        behind: list[PendingEvent] = []
        for group in self._suspects:
            behind += [pending for pending in group if pending.queue_id in queue_ids]
        kept = (
            [pending for pending in group if pending.queue_id not in queue_ids]
            for group in self._suspects
        )
        self._suspects = collections.deque(group for group in kept if group)
        for queue_id in queue_ids:
            while (first := self._queue.first_in(queue_id)) is not None and first.resend:
                behind.append(self._queue.pop_from(queue_id))
        return behind

    def connection_lost(self, exc: Exception | None) -> None:
        """Settle unanswered events with "outcome unknown"; queue `resend` events again."""
        self._transport = None
        self._paused = False
        lost = [pending for batch in self._sent for pending in batch]
        self._sent.clear()
        for pending in lost:
            if not pending.resend:
                if pending.blocked is not None:
                    pending.blocked.add(pending.event[1])
                pending.finish(
                    EventOutcomeUnknownError(what="the project's process ended before it answered")
                )
        if len(lost) == 1:
            self._blame(lost[0])
        self._queue_suspects([pending for pending in lost if pending.resend])
        if self._path == self._dialed_path:
            # The socket may outlive the process for a moment, so ask the supervisor for a route.
            # A different path already belongs to the next process.
            self._path = None
        self._loop.call_soon(self._request_route)

    def _blame(self, pending: PendingEvent) -> None:
        """Count a process death against the event that was alone in flight.

        After two deaths the event is marked as poison, and becomes a dead letter.
        """
        pending.deaths += 1
        if pending.deaths == DEAD_LETTER_AFTER_DEATHS and pending.resend:
            log.error(
                "event %s becomes a dead letter: the project's process died twice with only this "
                "event in flight",
                pending.event[2],
            )
            event = pending.event
            pending.event = (*event[:5], event[5] | POISON, event[6])

    def _queue_suspects(self, lost: list[PendingEvent]) -> None:
        """Queue lost events for sending again, before all others.

        Up to `_RESEND_GROUP` events are sent one by one, which finds the one that kills the
        process. More are first sent in groups, because each frame costs a commit.
        """
        size = _RESEND_GROUP if len(lost) > _RESEND_GROUP else 1
        groups = [lost[start : start + size] for start in range(0, len(lost), size)]
        self._suspects.extendleft(reversed(groups))


class ProjectClients:
    """The clients of one gateway process, by project."""

    def __init__(self, activator: ProjectActivator, loop: asyncio.AbstractEventLoop) -> None:
        self._activator = activator
        self._loop = loop
        self._budget = MemoryBudget(GATEWAY_BYTES)
        self._clients: dict[int, ProjectClient] = {}

    def __getitem__(self, project_id: int) -> ProjectClient:
        client = self._clients.get(project_id)
        if client is None:
            client = ProjectClient(project_id, self._activator, self._loop, self._budget)
            self._clients[project_id] = client
        return client

    @property
    def idle(self) -> bool:
        """Whether all clients are idle."""
        return all(client.idle for client in self._clients.values())

    @property
    def routed(self) -> frozenset[int]:
        """The ids of the projects whose route is known from the supervisor."""
        return frozenset(n for n, client in self._clients.items() if client.routed)

    def expire(self) -> None:
        """Call `ProjectClient.expire` for all clients, and remove those without a use."""
        for project_id, client in list(self._clients.items()):
            client.expire()
            if client.idle and client.disconnected:
                del self._clients[project_id]

    def measure(self) -> None:
        """Update the queue metrics."""
        clients = self._clients.values()
        metrics.put(metrics.QUEUE_EVENTS, sum(client.waiting for client in clients))
        metrics.put(metrics.QUEUE_BYTES, self._budget.used)
        metrics.put(metrics.EVENTS_IN_FLIGHT, sum(client.unanswered for client in clients))
