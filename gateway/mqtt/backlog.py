"""The MQTT backlog: messages in progress and waiting, per project and per publisher.

A broker delivers all messages in one stream. A project that cannot take its messages now must not
hold up the other projects, and the messages of one publisher must keep their order. Some messages
of a project are in progress: they were submitted to it and have no answer yet. The others wait in
one queue per publisher, and the queues take turns. The publisher of a message is determined only
when the message has to wait. A deferred message returns to the head of its queue, and the messages
after it wait until it is retried.

After a message was deferred, the project's window of concurrent messages shrinks to one. It grows
by one with each message that is completed. A project that refused a group of messages, because one
did not fit, may well accept them one by one.

As in `fair_queue`, the limit of messages in progress is a dynamic threshold: a project may use at
most as much space as is still free. The source limits the waiting messages: it stops reading.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable
from typing import Protocol

from fieldbrook.gateway.mqtt.event_topics import masked
from fieldbrook.gateway.mqtt.sources import Delivery
from fieldbrook.observability import metrics

log = logging.getLogger(__name__)

IN_PROGRESS_LIMIT = 4_000  # messages of all projects; a single project gets half of them
IN_PROGRESS_BYTES = 64 << 20
WAITING_LIMIT = 20_000  # messages of all queues; a single publisher's queue gets a third of them
WAITING_BYTES = 64 << 20
RETRY_S = 1.0
_PURGE_AFTER = 1_000


class CallLater(Protocol):
    """The signature of `loop.call_later`."""

    def __call__(self, delay_s: float, call: Callable[[], None], /) -> object:
        """Call `call` after `delay_s` seconds."""


class Pending:
    """A message without an acknowledgement; `number` is its position in the order of arrival."""

    __slots__ = ("delivery", "in_progress", "number", "project", "publisher")

    def __init__(self, number: int, delivery: Delivery, project: ProjectQueues) -> None:
        self.number = number
        self.delivery = delivery
        self.project = project
        self.in_progress = False
        self.publisher: str | None = None  # None: not determined yet


class PublisherQueue:
    """The waiting messages of one publisher."""

    __slots__ = (
        "blocked",
        "bytes",
        "deferred",
        "length_after_purge",
        "publisher",
        "waiting",
    )

    def __init__(self, publisher: str) -> None:
        self.publisher = publisher
        self.waiting: collections.deque[Pending] = collections.deque()
        self.bytes = 0
        self.deferred: list[Pending] = []
        self.blocked = False  # until the deferred messages are retried
        self.length_after_purge = 0  # when stale messages were last dropped

    @property
    def is_unused(self) -> bool:
        """Whether the queue can be forgotten."""
        return not (self.waiting or self.blocked)


class ProjectQueues:
    """The messages of one project: the queues of its publishers, and messages in progress."""

    __slots__ = (
        "in_progress",
        "in_progress_bytes",
        "is_dispatching",
        "name",
        "queues",
        "turns",
        "waiting",
        "waiting_bytes",
        "window",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: dict[str, PublisherQueue] = {}  # by publisher
        self.turns: collections.deque[PublisherQueue] = collections.deque()  # those not blocked
        self.waiting = 0
        self.waiting_bytes = 0
        self.in_progress = 0
        self.in_progress_bytes = 0
        self.window = IN_PROGRESS_LIMIT
        self.is_dispatching = False


class Backlog:
    """The messages of one gateway; every method is called in its loop.

    Args:
        process: starts to process a message; `complete` or `defer` follows at once or later.
        publisher_of: returns the identity of a message's publisher.
        call_later: schedules a call, as `loop.call_later`.
    """

    def __init__(
        self,
        process: Callable[[Pending], None],
        publisher_of: Callable[[Delivery], str],
        call_later: CallLater,
    ) -> None:
        self._process = process
        self._publisher_of = publisher_of
        self._call_later = call_later
        self._projects: dict[str, ProjectQueues] = {}
        self._ready: dict[str, ProjectQueues] = {}  # projects with a queue that is not blocked
        self._last_number = 0
        self._in_progress = 0
        self._in_progress_bytes = 0
        self._waiting = 0
        self._waiting_bytes = 0
        self.closed = False

    def receive(self, project_name: str, delivery: Delivery) -> None:
        """Process a new message, or queue it."""
        project = self._projects.get(project_name)
        if project is None:
            project = self._projects[project_name] = ProjectQueues(project_name)
        self._last_number += 1
        pending = Pending(self._last_number, delivery, project)
        if not project.queues and self._has_capacity(project, len(delivery.payload)):
            self._start(project, pending)
            return
        self._enqueue(project, self._queue_of(project, pending), pending)
        self._dispatch(project)

    def complete(self, pending: Pending) -> None:
        """Remove a message, which the caller has acknowledged."""
        project = pending.project
        self._end(pending)
        # Messages in progress above the window were started before it shrank: completing them does
        # not widen it.
        if project.in_progress < project.window < IN_PROGRESS_LIMIT:
            project.window += 1
        self._use_capacity(project)

    def defer(self, pending: Pending) -> None:
        """Retry a message after `RETRY_S`, before the messages that follow it."""
        project = pending.project
        self._end(pending)
        project.window = 1
        queue = self._queue_of(project, pending)
        queue.deferred.append(pending)
        if not queue.blocked:
            queue.blocked = True
            if queue.waiting:
                self._remove_turn(project, queue)
            self._call_later(RETRY_S, lambda: self._retry(project, queue))
        self._use_capacity(project)

    def measure(self) -> None:
        """Write the numbers of messages in progress and waiting to the metrics."""
        metrics.put(metrics.MQTT_BACKLOG_PROJECTS, len(self._projects))
        metrics.put(metrics.MQTT_IN_FLIGHT, self._in_progress)
        metrics.put(metrics.MQTT_BACKLOG, self._waiting)
        metrics.put(metrics.MQTT_BACKLOG_BYTES, self._waiting_bytes)

    def _retry(self, project: ProjectQueues, queue: PublisherQueue) -> None:
        if self.closed:
            return
        # Messages still in progress may be deferred as well, and some of them are older than these.
        # With a window of one, no other message starts before all of them have ended.
        project.window = 1
        deferred, queue.deferred = sorted(queue.deferred, key=lambda p: p.number), []
        queue.waiting.extendleft(reversed(deferred))
        for pending in deferred:
            self._count_waiting(project, queue, pending, 1)
        queue.blocked = False
        project.turns.appendleft(queue)
        self._ready[project.name] = project
        self._use_capacity(project)

    # Messages in progress.

    def _has_capacity(self, project: ProjectQueues, size: int) -> bool:
        return (
            project.in_progress < IN_PROGRESS_LIMIT - self._in_progress
            and project.in_progress < project.window
            and (
                not project.in_progress
                or project.in_progress_bytes + size <= IN_PROGRESS_BYTES - self._in_progress_bytes
            )
        )

    def _start(self, project: ProjectQueues, pending: Pending) -> None:
        size = len(pending.delivery.payload)
        project.in_progress += 1
        project.in_progress_bytes += size
        self._in_progress += 1
        self._in_progress_bytes += size
        pending.in_progress = True
        try:
            self._process(pending)
        except Exception:
            log.exception(
                "the message on %s could not be processed; it stays at the broker",
                masked(pending.delivery.topic),
            )
            self._end(pending)

    def _end(self, pending: Pending) -> None:
        if not pending.in_progress:
            return
        pending.in_progress = False
        project, size = pending.project, len(pending.delivery.payload)
        project.in_progress -= 1
        project.in_progress_bytes -= size
        self._in_progress -= 1
        self._in_progress_bytes -= size

    def _use_capacity(self, project: ProjectQueues) -> None:
        """Use the capacity that became free, for this project first and then for the others."""
        if self.closed or project.is_dispatching:
            return
        if project.turns:
            self._dispatch(project)
        if self._ready:
            for other in list(self._ready.values()):
                self._dispatch(other)
        unused = not project.in_progress and not project.queues
        if unused and self._projects.get(project.name) is project:
            del self._projects[project.name]

    def _dispatch(self, project: ProjectQueues) -> None:
        """Process waiting messages, queue by queue in turn, while there is capacity."""
        if self.closed or project.is_dispatching:
            return
        project.is_dispatching = True  # a message that is completed at once re-enters this method
        turns = project.turns
        while turns:
            queue = turns[0]
            pending = queue.waiting[0]
            if not self._has_capacity(project, len(pending.delivery.payload)):
                break
            queue.waiting.popleft()
            self._count_waiting(project, queue, pending, -1)
            if queue.waiting:
                turns.rotate(-1)
            else:
                turns.popleft()
                if queue.is_unused:
                    project.queues.pop(queue.publisher, None)
            queue.length_after_purge = min(queue.length_after_purge, len(queue.waiting))
            if not pending.delivery.stale():
                self._start(project, pending)
        project.is_dispatching = False
        if not turns:
            self._ready.pop(project.name, None)

    # Queues of publishers.

    def _queue_of(self, project: ProjectQueues, pending: Pending) -> PublisherQueue:
        if pending.publisher is None:
            pending.publisher = self._publisher_of(pending.delivery)
        queue = project.queues.get(pending.publisher)
        if queue is None:
            queue = project.queues[pending.publisher] = PublisherQueue(pending.publisher)
        return queue

    def _remove_turn(self, project: ProjectQueues, queue: PublisherQueue) -> None:
        project.turns.remove(queue)
        if not project.turns:
            self._ready.pop(project.name, None)

    def _enqueue(self, project: ProjectQueues, queue: PublisherQueue, pending: Pending) -> None:
        # Only after every `_PURGE_AFTER` messages: scanning the whole queue takes milliseconds.
        if len(queue.waiting) >= queue.length_after_purge + _PURGE_AFTER and self._is_full(
            project, queue
        ):
            self._drop_stale(project, queue)
        queue.waiting.append(pending)
        self._count_waiting(project, queue, pending, 1)
        if not queue.blocked and len(queue.waiting) == 1:
            project.turns.append(queue)
            self._ready[project.name] = project

    def _is_full(self, project: ProjectQueues, queue: PublisherQueue) -> bool:
        """Whether a queue is at its threshold: the free space less the project's own backlog."""
        return (
            len(queue.waiting) >= WAITING_LIMIT - self._waiting - project.waiting
            or queue.bytes > WAITING_BYTES - self._waiting_bytes - project.waiting_bytes
        )

    def _drop_stale(self, project: ProjectQueues, queue: PublisherQueue) -> None:
        """Drop messages of a lost connection, which the broker delivers again by itself."""
        kept = [pending for pending in queue.waiting if not pending.delivery.stale()]
        if len(kept) < len(queue.waiting):
            for pending in queue.waiting:
                self._count_waiting(project, queue, pending, -1)
            queue.waiting = collections.deque(kept)
            for pending in kept:
                self._count_waiting(project, queue, pending, 1)
            if not kept and not queue.blocked:
                self._remove_turn(project, queue)
        queue.length_after_purge = len(kept)

    def _count_waiting(
        self, project: ProjectQueues, queue: PublisherQueue, pending: Pending, sign: int
    ) -> None:
        size = sign * len(pending.delivery.payload)
        queue.bytes += size
        project.waiting += sign
        project.waiting_bytes += size
        self._waiting += sign
        self._waiting_bytes += size
