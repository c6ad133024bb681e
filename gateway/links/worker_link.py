"""The connection of a gateway to a worker, which all projects of that worker share.

The link writes one frame per iteration of the event loop, with events of all projects that have any
to send, and passes each answer to its project. Projects take turns: each adds one body of events to
the frame, until `LINK_BYTES` are unanswered. Small bodies need no such credit, so a worker full of
large events of slow projects still gets the small events of others.
"""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Callable
from typing import Any, Protocol, cast

from fieldbrook.actors.remote_path import split_path
from fieldbrook.actors.wire import FrameReader, WireEvent, frame, pack, unpack
from fieldbrook.gateway.links.pending_event import (
    ANSWER_LIMIT_S,
    PendingEvent,
    Settled,
    count_settled,
)
from fieldbrook.gateway.listening.reads import limit_reads

log = logging.getLogger(__name__)

LINK_BYTES = 8 << 20
"""No further body is sent to a worker while this many bytes are unanswered."""
SMALL_BYTES = 16 << 10
"""The largest body that a project may always send if it has no other in flight."""
IDLE_S = 60.0
_EVENT_BYTES = 128  # memory of one event in the worker without its payload
_CONNECT_TRIES = 20


class Body:
    """Events of one project in a frame, as long as they have no answer.

    `credit` is the number of bytes that they use of `LINK_BYTES`. Events with `suspects` are sent
    again after a failure, with no others of their project in flight.
    """

    __slots__ = ("credit", "events", "suspects")

    def __init__(self, events: list[PendingEvent], size: int, small: bool, suspects: bool) -> None:
        self.events = events
        self.credit = 0 if small else size + _EVENT_BYTES * len(events)
        self.suspects = suspects


class LinkUser(Protocol):
    """The interface of a project's client that its link uses."""

    project_id: int
    in_turn: bool
    """Whether the link will request the next body; only the link sets this."""

    @property
    def unanswered(self) -> int:
        """The number of events in flight."""
        ...

    @property
    def can_send(self) -> bool:
        """Return whether there may be another body to send now."""
        ...

    def next_body(self, ample: bool, now: float) -> Body | None:
        """Return the next body to send.

        Unless the credit is `ample`, the body has at most `SMALL_BYTES`, and no other one is in
        flight.
        """
        ...

    def answered(self, answer: Any, now: float, settled: Settled) -> int:
        """Handle the next answer, and add the events that it settles to `settled`.

        Returns:
            The credit of the body if it is completely answered now; otherwise 0.

        Raises:
            ValueError: this is no answer to the project's oldest body; nothing was changed.
        """
        ...

    def link_ended(self, alone: bool, settled: Settled) -> None:
        """Settle the events in flight. `alone`: a single event was in flight on the link."""

    def link_closed(self) -> None:
        """Forget the link, which was closed because it was idle."""


class WorkerLink(asyncio.Protocol):
    """The connection to one worker. It connects when it is made, and ends once."""

    def __init__(
        self, path: str, loop: asyncio.AbstractEventLoop, on_end: Callable[[WorkerLink], None]
    ) -> None:
        """Start to connect to the worker's socket at `path`; `on_end` is called at the end."""
        self.path = path
        self._loop = loop
        self._on_end = on_end
        self._users: dict[int, LinkUser] = {}
        self._turns: collections.deque[LinkUser] = collections.deque()
        self._unanswered_bytes = 0
        self._used_at = loop.time()
        self._flush_scheduled = False
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._ended = False
        self._dialing = loop.create_task(self._dial())

    # ---------------------------------------------------------------- users

    def join(self, user: LinkUser) -> None:
        """Begin to pass answers for a project to this client."""
        self._users[user.project_id] = user

    def leave(self, user: LinkUser) -> None:
        """End what `join` began; nothing of the project may be in flight."""
        self._users.pop(user.project_id, None)
        if user.in_turn:
            self._turns.remove(user)
            user.in_turn = False

    def request_turn(self, user: LinkUser) -> None:
        """Request the next body from the client when the link can send it."""
        user.in_turn = True
        self._turns.append(user)
        if not self._flush_scheduled and self._transport is not None:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def close_if_idle(self) -> bool:
        """Close the link if it was not used for `IDLE_S`; return whether it was closed."""
        if self._turns or self._loop.time() - self._used_at < IDLE_S or self._unanswered():
            return False
        users, self._users = self._users, {}
        for user in users.values():
            user.link_closed()
        self.end()
        return True

    def _unanswered(self) -> int:
        return sum(user.unanswered for user in self._users.values())

    # ---------------------------------------------------------------- the connection

    async def _dial(self) -> None:
        for attempt in range(_CONNECT_TRIES):
            try:
                await self._loop.create_unix_connection(lambda: self, split_path(self.path)[0])
            except OSError:
                await asyncio.sleep(0.005 * (attempt + 1))
            else:
                return
        log.info("data plane: no worker listens at %s", self.path)
        self.end()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the events that wait for the new connection."""
        self._transport = cast(asyncio.Transport, transport)
        limit_reads(transport)
        if self._ended:
            self._transport.abort()
        else:
            if first := split_path(self.path)[1]:
                self._transport.write(first)
            self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the link."""
        self._transport = None
        self.end()

    def end(self) -> None:
        """Close the connection; the clients settle their unanswered events."""
        if self._ended:
            return
        self._ended = True
        self._dialing.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._on_end(self)
        alone = self._unanswered() == 1
        users, self._users = self._users, {}
        self._turns.clear()
        settled: Settled = []
        for user in users.values():
            user.in_turn = False
            user.link_ended(alone, settled)
        for pending, outcome in settled:
            pending.finish(outcome)

    # ---------------------------------------------------------------- frames

    def _flush(self) -> None:
        """Write one frame with the next bodies of all projects in turn."""
        self._flush_scheduled = False
        turns, transport = self._turns, self._transport
        if not turns or transport is None or self._ended:
            return
        now = self._loop.time()
        bodies: list[tuple[int, list[WireEvent]]] = []
        held: list[LinkUser] = []  # clients that wait for credit, in order
        while turns:
            user = turns.popleft()
            ample = self._unanswered_bytes < LINK_BYTES
            body = user.next_body(ample, now)
            if body is not None:
                self._unanswered_bytes += body.credit
                bodies.append((user.project_id, [pending.event for pending in body.events]))
            if not user.can_send:
                user.in_turn = False
            elif body is not None:
                turns.append(user)
            else:
                held.append(user)
        turns.extend(held)
        if bodies:
            self._used_at = now
            transport.write(frame(pack(bodies)))

    def data_received(self, data: bytes) -> None:
        """Settle events with the received answers, in the order in which they were sent."""
        if self._ended:
            return
        now = self._loop.time()
        settled: Settled = []
        malformed = False
        self._flush_scheduled = True  # clients that request a turn now get it below
        try:
            for answers in self._reader.feed(data):
                for project_id, answer in _pairs(answers):
                    user = self._users.get(project_id)
                    if user is None:
                        raise ValueError(f"project {project_id} has no events here")
                    self._unanswered_bytes -= user.answered(answer, now, settled)
            self._flush()  # the worker handles the next frame while clients get their answers
        except ValueError as error:
            log.error("data plane: malformed answer of the worker at %s: %s", self.path, error)
            malformed = True
        count_settled(settled, now + ANSWER_LIMIT_S)
        for pending, outcome in settled:
            pending.finish(outcome)
        if malformed:
            self.end()


def _pairs(data: bytes) -> list[tuple[int, Any]]:
    """Decode a frame of answers.

    Raises:
        ValueError: the frame is not a list of pairs of a project id and an answer.
    """
    try:
        pairs = unpack(data)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"not msgpack: {error}") from None
    if type(pairs) is not tuple:
        raise ValueError("not a list")
    for pair in pairs:
        if type(pair) is not tuple or len(pair) != 2 or type(pair[0]) is not int:
            raise ValueError("not a list of pairs")
    return cast(list[tuple[int, Any]], pairs)


class WorkerLinks:
    """The links of a gateway process, by the path of the worker's socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._links: dict[str, WorkerLink] = {}

    def __len__(self) -> int:
        return len(self._links)

    def to(self, path: str) -> WorkerLink:
        """Return the link to the worker with this socket; a new one starts to connect."""
        link = self._links.get(path)
        if link is None:
            link = self._links[path] = WorkerLink(path, self._loop, self._forget)
        return link

    def _forget(self, link: WorkerLink) -> None:
        if self._links.get(link.path) is link:
            del self._links[link.path]

    def close_idle(self) -> None:
        """Close the idle links."""
        for link in list(self._links.values()):
            link.close_if_idle()

    def close(self) -> None:
        """End all links."""
        for link in list(self._links.values()):
            link.end()
