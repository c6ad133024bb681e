"""Client of the projects' processes: one link per project, in the gateway's event loop.

Events wait in the queue `_waiting`, are sent in frames, and are settled once, in order. Events
of one publisher keep their order, and publishers take turns. All events that an owner pushes for
its devices share one queue, like those of one publisher. No timer forms batches: the first event
of a loop turn schedules the flush, so frames grow only under load. At most `CREDIT` frames are
unanswered at a time.
"""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Callable
from typing import Protocol, cast

from fieldbrook.actors.wire import (
    CREDIT,
    FRAME_BYTES,
    FRAME_EVENTS,
    NODE_COMMAND,
    POISON,
    REPEATED,
    RESUME,
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
    from_wire,
)
from fieldbrook.gateway.events.fair_queue import FairQueue, Room
from fieldbrook.observability import metrics

log = logging.getLogger(__name__)

ANSWER_LIMIT_S = 15.0
# Events in a frame have left the fair queue. Frames to a slow project are therefore limited to
# the number of events that it handles in this time.
FRAME_S = 0.25
_FIRST_PACE_S = FRAME_S / 16
PARKED_AFTER_DEATHS = 2
_SUSPECTS = 16  # events per frame after a process death, when more than that were in flight
_CONNECT_TRIES = 20
_ASK_AGAIN_S = 5.0  # a lost route request must not block a project's events for ever
_BEHIND = "an earlier event of its publisher in the request has an unknown outcome"
_NOT_STORED = (StoreError, UnavailableError)  # errors after which the sender retries the event
_PUSHED_LINE = -1  # the queue of events that an owner pushes for devices; never a publisher's id

Outcome = tuple[tuple[int, int, str], ...] | NodeError
Settle = Callable[[Outcome], None]


Request = set[int]
"""State shared by the events of one request: the publishers with an event of unknown outcome.
Later events of these publishers are not sent, because the client sends the unknown one again and
it would then run after them."""


class Repeated(tuple[tuple[int, int, str], ...]):
    """The stored results of an event that was handled before."""

    __slots__ = ()


class Waiting:
    """A pending event; it is settled exactly once.

    Events with `resend` (all but those over HTTP) survive the death of the project's process:
    they are sent to the next process, in small groups and then alone. Only an event that was
    alone in flight at `PARKED_AFTER_DEATHS` deaths becomes a dead letter instead of running, so
    occasional process deaths never move an event to the dead letters. Events without `resend`
    are answered "outcome unknown". Events of one `line` keep their order.
    """

    __slots__ = ("deadline", "deaths", "event", "line", "request", "resend", "settle")

    def __init__(
        self,
        event: WireEvent,
        settle: Settle,
        deadline: float,
        resend: bool,
        line: int,
        request: Request | None = None,
    ) -> None:
        self.event = event
        self.line = line
        self.request = request
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
                log.exception("event %s: its outcome could not be told", self.event[2])


class Switchboard(Protocol):
    """The interface of the gateway that a link uses."""

    def activate(self, project_id: int) -> None:
        """Ask the supervisor to start the project and to report its route."""


class Link(asyncio.Protocol):
    """The connection to one project. States: no route, connecting, connected."""

    def __init__(
        self,
        project_id: int,
        switchboard: Switchboard,
        loop: asyncio.AbstractEventLoop,
        room: Room | None = None,
    ) -> None:
        """Create a link without a route; `room` is the queue memory shared by all links."""
        self._project_id = project_id
        self._switchboard = switchboard
        self._loop = loop
        self._waiting: FairQueue[Waiting] = FairQueue(room or Room())
        self._suspects: collections.deque[list[Waiting]] = collections.deque()
        self._sent: collections.deque[collections.deque[Waiting]] = collections.deque()
        self._pace_s = _FIRST_PACE_S  # moving average of the project's time per event
        self._paced = 0.0
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._path: str | None = None
        self._dialed: str | None = None
        self._flush_scheduled = False
        self._asked = False
        self._asked_at = 0.0
        self._connecting: asyncio.Task[None] | None = None
        self._paused = False  # the project refuses events until it receives RESUME

    # ---------------------------------------------------------------- events

    @property
    def idle(self) -> bool:
        """Whether no event waits and no frame is unanswered."""
        return not (self._waiting or self._suspects or self._sent)

    @property
    def waiting(self) -> int:
        """The number of queued events; a group of suspects counts as one."""
        return len(self._waiting) + len(self._suspects)

    @property
    def unanswered(self) -> int:
        """The number of events that were sent and have no answer."""
        return sum(map(len, self._sent))

    @property
    def disconnected(self) -> bool:
        """Whether there is neither a route nor a pending request for one."""
        return self._transport is None and self._path is None and not self._asked

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
        request: Request | None = None,
    ) -> None:
        """Queue an event for sending; `settle` is called once with its outcome.

        Events with `pushed` keep their order across publishers. `request` is the state shared
        with the other events of the same request.

        Raises:
            TooManyRequestsError: too many events or bytes of this publisher, this project or
                this gateway wait already; the event was not queued.
        """
        line = _PUSHED_LINE if pushed else event[1]
        if not self._waiting.has_room(line, len(event[3])):
            raise TooManyRequestsError(what=f"{len(self._waiting)} events of this project wait")
        deadline = self._loop.time() + ANSWER_LIMIT_S
        self._waiting.append(Waiting(event, settle, deadline, resend, line, request))
        if self._transport is None:
            self._seek_route()
        elif not self._flush_scheduled and len(self._sent) < CREDIT:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def require_room_to_push(self, events: int, size: int) -> None:
        """Check that `events` events with `size` payload bytes in total could be pushed now.

        Raises:
            TooManyRequestsError: the queue does not have enough space.
        """
        if not self._waiting.has_room_for(_PUSHED_LINE, events, size):
            raise TooManyRequestsError(what=f"{len(self._waiting)} events of this project wait")

    def _flush(self) -> None:
        self._flush_scheduled = False
        while self._transport is not None and self._path is not None and len(self._sent) < CREDIT:
            if self._paused and self._sent:
                return
            batch = collections.deque([_resume()]) if self._paused else self._next_batch()
            self._paused = False
            if not batch:
                return
            if not self._sent:
                self._paced = self._loop.time()
            self._sent.append(batch)
            self._transport.write(frame(pack([waiting.event for waiting in batch])))

    def _next_batch(self) -> collections.deque[Waiting]:
        if self._suspects:
            # One of them may have killed the process, so no other events are in flight with them.
            return collections.deque(() if self._sent else self._suspects.popleft())
        batch: collections.deque[Waiting] = collections.deque()
        size, limit = 0, self._frame_limit()
        while self._waiting and len(batch) < limit:
            size += self._waiting.next_size()
            if batch and size > FRAME_BYTES:
                break
            waiting = self._waiting.pop()
            if waiting.request and waiting.event[1] in waiting.request and not waiting.resend:
                self._loop.call_soon(waiting.finish, UnavailableError(what=_BEHIND))
                continue
            batch.append(waiting)
        return batch

    def _frame_limit(self) -> int:
        """Return the maximum number of events in the next frame."""
        if self._pace_s * FRAME_EVENTS <= FRAME_S:
            return FRAME_EVENTS
        return max(1, int(FRAME_S / self._pace_s))

    def _keep_pace(self, answered: int) -> None:
        """Update the moving average of the project's time per event."""
        now = self._loop.time()
        self._pace_s = (self._pace_s + (now - self._paced) / answered) / 2
        self._paced = now

    def expire(self) -> None:
        """Settle events past their deadline, and repeat a route request without an answer.

        The gateway calls this about once a second.
        """
        now = self._loop.time()
        for batch in self._sent:
            for waiting in batch:
                if not waiting.resend and waiting.deadline < now:
                    waiting.finish(EventOutcomeUnknownError(what="the project does not answer"))
        for first in self._waiting.heads():
            self._expire_line(first, now)
        if self._asked and now - self._asked_at > _ASK_AGAIN_S:
            self._asked = False
            self._seek_route()

    def _expire_line(self, first: Waiting | None, now: float) -> None:
        """Settle the events at the head of a line that are past their deadline."""
        error = UnavailableError(what="the project does not come up")
        while first is not None and not first.resend and first.deadline < now:
            line = first.line
            self._waiting.pop_of(line).finish(error)
            first = self._waiting.head_of(line)

    def refuse_waiting(self, error: NodeError) -> None:
        """Settle all queued events except those with `resend`, which stay queued."""
        self._asked = False
        waited = [self._waiting.pop() for _ in range(len(self._waiting))]
        for waiting in waited:
            if waiting.resend:
                self._waiting.append(waiting)
        for waiting in waited:
            if not waiting.resend:
                waiting.finish(error)
        if not self.idle:
            self._loop.call_later(1.0, self._seek_route)

    def refuse_all(self, error: NodeError) -> None:
        """Settle all events that were not sent, because the project does not exist any more."""
        self._asked = False
        while self._suspects:
            for waiting in self._suspects.popleft():
                waiting.finish(error)
        while self._waiting:
            self._waiting.pop().finish(error)

    # ---------------------------------------------------------------- the connection

    def route(self, path: str | None) -> None:
        """Set the path of the project's socket; None when its process is retiring."""
        self._path = path
        self._asked = False
        if path is not None:
            self._connect()
        elif self._transport is not None and not self._sent:
            self._transport.close()
        elif self._transport is None and not self.idle:
            self._seek_route()

    def _seek_route(self) -> None:
        if self._transport is not None or self._asked or self.idle:
            return
        if self._path is not None:
            self._connect()
        else:
            self._asked, self._asked_at = True, self._loop.time()
            self._switchboard.activate(self._project_id)

    def _connect(self) -> None:
        if self._transport is None and (self._connecting is None or self._connecting.done()):
            self._connecting = self._loop.create_task(self._dial())

    async def _dial(self) -> None:
        for attempt in range(_CONNECT_TRIES):
            path = self._path
            if path is None or self._transport is not None:
                return
            try:
                self._dialed = path
                await self._loop.create_unix_connection(lambda: self, path)
            except OSError:
                await asyncio.sleep(0.005 * (attempt + 1))
            else:
                return
        # The announced socket does not exist: request a new route.
        self._path = None
        self._connecting = None
        self._seek_route()

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
            self._keep_pace(len(results))
        settled = []
        refused = False
        for result in results:
            batch = self._sent[0]
            settled.append((batch.popleft(), result))
            if not batch:
                self._sent.popleft()
            if result and type(result[0]) is str:
                refused = True
        behind = self._take_back(settled) if refused else []
        if self._path is None and not self._sent and self._transport is not None:
            self._transport.close()  # the process retires: queued events go to the next one
        else:
            self._flush()  # the next frame leaves before this one's answers are written
        self._count(settled)
        for waiting, result in settled:
            waiting.finish(_outcome(result))
        error = UnavailableError(what="an earlier event could not be stored")
        for waiting in behind:
            waiting.finish(error)

    def _take_back(self, settled: list[tuple[Waiting, EventResult]]) -> list[Waiting]:
        """Take back the events queued behind events that the project could not store.

        Their senders retry the failed events first, so the order is kept. Nothing more is sent
        until all events in flight are answered.
        """
        lines = {
            waiting.line
            for waiting, result in settled
            if waiting.resend and isinstance(_outcome(result), _NOT_STORED)
        }
        if not lines:
            return []
        self._paused = True
        behind: list[Waiting] = []
        for group in self._suspects:
            behind += [waiting for waiting in group if waiting.line in lines]
        kept = ([w for w in group if w.line not in lines] for group in self._suspects)
        self._suspects = collections.deque(group for group in kept if group)
        for line in lines:
            while (first := self._waiting.head_of(line)) is not None and first.resend:
                behind.append(self._waiting.pop_of(line))
        return behind

    def _count(self, settled: list[tuple[Waiting, EventResult]]) -> None:
        """Count acknowledged events in the metrics.

        Commands, refused events and events settled by their deadline are not counted.
        """
        admitted = self._paced + ANSWER_LIMIT_S
        seconds = []
        unmatched = 0
        for waiting, result in settled:
            if waiting.settle is None or waiting.event[1] == NODE_COMMAND:
                continue
            if not result:
                unmatched += 1
            elif not isinstance(result[0], str) or result[0] == REPEATED:
                seconds.append(admitted - waiting.deadline)
        if seconds:
            metrics.here.row[metrics.EVENTS_ACKNOWLEDGED] += len(seconds)
            metrics.EVENT_SECONDS.observe_all(seconds)
        if unmatched:
            metrics.add(metrics.EVENTS_UNMATCHED, unmatched)

    def connection_lost(self, exc: Exception | None) -> None:
        """Settle unanswered events with "outcome unknown"; queue `resend` events again."""
        self._transport = None
        self._paused = False
        lost = [waiting for batch in self._sent for waiting in batch]
        self._sent.clear()
        for waiting in lost:
            if not waiting.resend:
                if waiting.request is not None:
                    waiting.request.add(waiting.event[1])
                waiting.finish(EventOutcomeUnknownError(what="the project died"))
        if len(lost) == 1:
            self._blame(lost[0])
        self._suspect([waiting for waiting in lost if waiting.resend])
        if self._path == self._dialed:
            # The socket may outlive the process for a moment, so ask the supervisor for a route.
            # A different path already belongs to the next process.
            self._path = None
        self._loop.call_soon(self._seek_route)

    def _blame(self, waiting: Waiting) -> None:
        """Count a process death against the only event in flight; mark it as poison at two."""
        waiting.deaths += 1
        if waiting.deaths == PARKED_AFTER_DEATHS and waiting.resend:
            log.error("event %s parked: the project died on it twice", waiting.event[2])
            event = waiting.event
            waiting.event = (*event[:5], event[5] | POISON, event[6])

    def _suspect(self, lost: list[Waiting]) -> None:
        """Queue lost events for sending again, before all others.

        More than `_SUSPECTS` events are sent in groups first, because each frame costs a commit.
        """
        size = _SUSPECTS if len(lost) > _SUSPECTS else 1
        groups = [lost[start : start + size] for start in range(0, len(lost), size)]
        self._suspects.extendleft(reversed(groups))


def _resume() -> Waiting:
    """Create the command after which a project accepts events again."""
    event = (RESUME, NODE_COMMAND, "", pack([]), 0, 0, "")
    return Waiting(event, lambda outcome: None, 0.0, resend=False, line=NODE_COMMAND)


def _outcome(result: EventResult) -> Outcome:
    if result and isinstance(result[0], str):
        name, details = result
        return Repeated(details) if name == REPEATED else from_wire(name, dict(details))
    return result


class LinkTable:
    """The links of one gateway process, by project."""

    def __init__(self, switchboard: Switchboard, loop: asyncio.AbstractEventLoop) -> None:
        self._switchboard = switchboard
        self._loop = loop
        self._room = Room()
        self._links: dict[int, Link] = {}

    def __getitem__(self, project_id: int) -> Link:
        link = self._links.get(project_id)
        if link is None:
            link = Link(project_id, self._switchboard, self._loop, self._room)
            self._links[project_id] = link
        return link

    @property
    def idle(self) -> bool:
        """Whether all links are idle."""
        return all(link.idle for link in self._links.values())

    @property
    def routed(self) -> frozenset[int]:
        """The ids of the projects whose route is known from the supervisor."""
        return frozenset(n for n, link in self._links.items() if link.routed)

    def expire(self) -> None:
        """Expire the events of all links (see `Link.expire`) and remove unused links."""
        for project_id, link in list(self._links.items()):
            link.expire()
            if link.idle and link.disconnected:
                del self._links[project_id]

    def measure(self) -> None:
        """Update the queue metrics."""
        links = self._links.values()
        metrics.put(metrics.QUEUE_EVENTS, sum(link.waiting for link in links))
        metrics.put(metrics.QUEUE_BYTES, self._room.used)
        metrics.put(metrics.UNANSWERED, sum(link.unanswered for link in links))
