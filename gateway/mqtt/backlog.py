"""The MQTT backlog: messages in work and waiting, per project and per publisher.

A broker delivers all messages in one stream. A project that cannot take its messages now must not
hold up the other projects, and the messages of one publisher must keep their order. Each project
therefore has a lane (`_Lane`). Some of its messages are in work at the project. The others wait in
one queue per publisher (`_Line`), and the queues take turns. The publisher of a message is
determined only when the message has to wait. A message that was put off returns to the head of its
queue, and the messages behind it wait until it is retried.

After a message was put off, the lane's window of concurrent messages shrinks to one. It grows by
one with each message that is done. A project that refused a group of messages, because one did not
fit, may well accept them one by one.

As in `fair_queue`, the limits are dynamic thresholds: no project or publisher takes more than it
leaves for the others. A message above its limit goes back to the broker where that is possible.
Newer messages of the same queue then go back too, until the first has been delivered again.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable
from typing import Protocol

from fieldbrook.gateway.mqtt.sources import Delivery, shown
from fieldbrook.observability import metrics

log = logging.getLogger(__name__)

WORK = 4_000  # messages in work at the projects; a single project gets half of them
WORK_BYTES = 64 << 20
BACKLOG = 20_000  # waiting messages; a single publisher's queue gets a third of them
BACKLOG_BYTES = 64 << 20
RETRY_S = 1.0
_SIFT_AFTER = 1_000
PUT_BACK_S = 10.0
MISSED_S = 60.0  # how long a queue waits for a message that went back to the broker


class Later(Protocol):
    """The signature of `loop.call_later`."""

    def __call__(self, delay_s: float, call: Callable[[], None], /) -> object:
        """Call `call` after `delay_s` seconds."""


class Passage:
    """One message in its lane; `number` is its position in the order of arrival."""

    __slots__ = ("delivery", "in_work", "lane", "number", "publisher")

    def __init__(self, number: int, delivery: Delivery, lane: _Lane) -> None:
        self.number = number
        self.delivery = delivery
        self.lane = lane
        self.in_work = False
        self.publisher: str | None = None  # None: not determined yet


class _Line:
    """The queue of one publisher's waiting messages."""

    __slots__ = ("blocked", "bytes", "publisher", "put_off", "returned", "sifted", "waiting")

    def __init__(self, publisher: str) -> None:
        self.publisher = publisher
        self.waiting: collections.deque[Passage] = collections.deque()
        self.bytes = 0
        self.put_off: list[Passage] = []
        self.blocked = False
        self.sifted = 0  # the length after stale messages were last dropped
        # Sequences of messages that went back to the broker, in order, each with the time until
        # which the queue waits for it.
        self.returned: dict[str, float] = {}

    @property
    def empty(self) -> bool:
        return not (self.waiting or self.blocked or self.returned)


class _Lane:
    __slots__ = (
        "backlog",
        "backlog_bytes",
        "busy",
        "lines",
        "project",
        "turns",
        "window",
        "work",
        "work_bytes",
    )

    def __init__(self, project: str) -> None:
        self.project = project
        self.lines: dict[str, _Line] = {}  # the queues that are not empty
        self.turns: collections.deque[_Line] = collections.deque()  # those not blocked
        self.backlog = 0
        self.backlog_bytes = 0
        self.work = 0
        self.work_bytes = 0
        self.window = WORK
        self.busy = False


class Lanes:
    """The lanes of one gateway; every method is called in its loop.

    Args:
        take: starts the work on a message; `done` or `put_off` follows at once or later.
        publisher_of: returns the identity of a message's publisher.
        later: schedules a call, as `loop.call_later`.
        now: a monotonic clock in seconds.
    """

    def __init__(
        self,
        take: Callable[[Passage], None],
        publisher_of: Callable[[Delivery], str],
        later: Later,
        now: Callable[[], float],
    ) -> None:
        self._take = take
        self._publisher_of = publisher_of
        self._later = later
        self._now = now
        self._lanes: dict[str, _Lane] = {}
        self._held: dict[str, _Lane] = {}  # the lanes with a queue that is not blocked
        self._number = 0
        self._work = 0
        self._work_bytes = 0
        self._backlog = 0
        self._backlog_bytes = 0
        self.closed = False

    def arrived(self, project: str, delivery: Delivery) -> None:
        """Start the work on a new message, or queue it, or return it to the broker."""
        lane = self._lanes.get(project)
        if lane is None:
            lane = self._lanes[project] = _Lane(project)
        self._number += 1
        passage = Passage(self._number, delivery, lane)
        if not lane.lines and self._has_room(lane, len(delivery.payload)):
            self._work_on(lane, passage)
            return
        line = self._line_of(lane, passage)
        newer = bool(line.returned) and not self._has_come_again(lane, line, delivery)
        if not (newer and self._return(line, passage)):
            self._keep(lane, line, passage)
        self._fill(lane)

    def done(self, passage: Passage) -> None:
        """Finish a message, which the caller has acknowledged."""
        lane = passage.lane
        self._leave_work(passage)
        if lane.work < lane.window < WORK:  # messages from before the window shrank do not count
            lane.window += 1
        self._go_on(lane)

    def put_off(self, passage: Passage) -> None:
        """Retry a message after `RETRY_S`, before the messages behind it."""
        lane = passage.lane
        self._leave_work(passage)
        lane.window = 1
        line = self._line_of(lane, passage)
        line.put_off.append(passage)
        if not line.blocked:
            line.blocked = True
            if line.waiting:
                self._skip(lane, line)
            self._later(RETRY_S, lambda: self._retry(lane, line))
        self._go_on(lane)

    def measure(self) -> None:
        """Write the sizes of work and backlog to the metrics."""
        metrics.put(metrics.MQTT_LANES, len(self._lanes))
        metrics.put(metrics.MQTT_IN_WORK, self._work)
        metrics.put(metrics.MQTT_BACKLOG, self._backlog)
        metrics.put(metrics.MQTT_BACKLOG_BYTES, self._backlog_bytes)

    def _retry(self, lane: _Lane, line: _Line) -> None:
        if self.closed:
            return
        # Messages still in work may be put off as well, and some of them are older than these. The
        # window of one starts no message before they are back.
        lane.window = 1
        again, line.put_off = sorted(line.put_off, key=lambda p: p.number), []
        line.waiting.extendleft(reversed(again))
        for passage in again:
            self._count_waiting(lane, line, passage, 1)
        line.blocked = False
        lane.turns.appendleft(line)
        self._held[lane.project] = lane
        self._go_on(lane)

    # Work.

    def _has_room(self, lane: _Lane, size: int) -> bool:
        return (
            lane.work < WORK - self._work
            and lane.work < lane.window
            and (not lane.work or lane.work_bytes + size <= WORK_BYTES - self._work_bytes)
        )

    def _work_on(self, lane: _Lane, passage: Passage) -> None:
        size = len(passage.delivery.payload)
        lane.work += 1
        lane.work_bytes += size
        self._work += 1
        self._work_bytes += size
        passage.in_work = True
        try:
            self._take(passage)
        except Exception:
            log.exception(
                "message on %s was not taken; it stays the broker's", shown(passage.delivery.topic)
            )
            self._leave_work(passage)

    def _leave_work(self, passage: Passage) -> None:
        if not passage.in_work:
            return
        passage.in_work = False
        lane, size = passage.lane, len(passage.delivery.payload)
        lane.work -= 1
        lane.work_bytes -= size
        self._work -= 1
        self._work_bytes -= size

    def _go_on(self, lane: _Lane) -> None:
        """Use the room that became free, for this lane first and then for the others."""
        if self.closed or lane.busy:
            return
        if lane.turns:
            self._fill(lane)
        if self._held:
            for other in list(self._held.values()):
                self._fill(other)
        if not lane.work and not lane.lines and self._lanes.get(lane.project) is lane:
            del self._lanes[lane.project]

    def _fill(self, lane: _Lane) -> None:
        """Start the work on waiting messages, queue by queue in turn, while there is room."""
        if self.closed or lane.busy:
            return
        lane.busy = True  # work that is done at once re-enters this method
        turns = lane.turns
        while turns:
            line = turns[0]
            passage = line.waiting[0]
            if not self._has_room(lane, len(passage.delivery.payload)):
                break
            line.waiting.popleft()
            self._count_waiting(lane, line, passage, -1)
            if line.waiting:
                turns.rotate(-1)
            else:
                turns.popleft()
                self._forget_if_empty(lane, line)
            line.sifted = min(line.sifted, len(line.waiting))
            if not passage.delivery.stale():
                self._work_on(lane, passage)
        lane.busy = False
        if not turns:
            self._held.pop(lane.project, None)

    # Queues of publishers.

    def _line_of(self, lane: _Lane, passage: Passage) -> _Line:
        if passage.publisher is None:
            passage.publisher = self._publisher_of(passage.delivery)
        line = lane.lines.get(passage.publisher)
        if line is None:
            line = lane.lines[passage.publisher] = _Line(passage.publisher)
        return line

    def _forget_if_empty(self, lane: _Lane, line: _Line) -> None:
        if line.empty:
            lane.lines.pop(line.publisher, None)

    def _skip(self, lane: _Lane, line: _Line) -> None:
        """Take a queue out of the turns until its retry."""
        lane.turns.remove(line)
        if not lane.turns:
            self._held.pop(lane.project, None)

    def _keep(self, lane: _Lane, line: _Line, passage: Passage) -> None:
        size = len(passage.delivery.payload)
        if line.waiting and self._is_full(lane, line, size):
            # Not for each message: a scan of the whole queue takes milliseconds.
            if len(line.waiting) >= line.sifted + _SIFT_AFTER:
                self._drop_stale(lane, line)
            if self._is_full(lane, line, size) and self._return(line, passage):
                return
        line.waiting.append(passage)
        self._count_waiting(lane, line, passage, 1)
        if not line.blocked and len(line.waiting) == 1:
            lane.turns.append(line)
            self._held[lane.project] = lane

    def _is_full(self, lane: _Lane, line: _Line, size: int) -> bool:
        """Whether a queue is at its threshold: the free room less the backlog of its lane."""
        return (
            len(line.waiting) >= BACKLOG - self._backlog - lane.backlog
            or line.bytes + size > BACKLOG_BYTES - self._backlog_bytes - lane.backlog_bytes
        )

    def _drop_stale(self, lane: _Lane, line: _Line) -> None:
        """Drop messages of a lost connection, which the broker delivers again by itself."""
        kept = [passage for passage in line.waiting if not passage.delivery.stale()]
        if len(kept) < len(line.waiting):
            for passage in line.waiting:
                self._count_waiting(lane, line, passage, -1)
            line.waiting = collections.deque(kept)
            for passage in kept:
                self._count_waiting(lane, line, passage, 1)
            if not kept and not line.blocked:
                self._skip(lane, line)
        line.sifted = len(kept)

    def _count_waiting(self, lane: _Lane, line: _Line, passage: Passage, sign: int) -> None:
        size = sign * len(passage.delivery.payload)
        line.bytes += size
        lane.backlog += sign
        lane.backlog_bytes += size
        self._backlog += sign
        self._backlog_bytes += size

    def _return(self, line: _Line, passage: Passage) -> bool:
        """Return a message to the broker; False when it must be kept here.

        A QoS 0 message is stored nowhere. It is dropped and counted when messages before it went
        back, and kept otherwise.
        """
        delivery = passage.delivery
        if not delivery.sequence:
            if not line.returned:
                return False
            delivery.ack()  # dropped: no broker stores it and the queue is full
            metrics.add(metrics.MQTT_DROPPED)
            return True
        if not delivery.put_back(PUT_BACK_S):
            return False
        metrics.add(metrics.MQTT_RETURNED)
        line.returned[delivery.sequence] = self._now() + MISSED_S
        return True

    def _has_come_again(self, lane: _Lane, line: _Line, delivery: Delivery) -> bool:
        """Whether the queue need not wait any more for a message that went back to the broker.

        This is so when this message is the one that the queue waits for and there is room for it,
        or when `MISSED_S` have passed for all messages that went back before it.
        """
        now = self._now()
        while line.returned:
            first = next(iter(line.returned))
            if first != delivery.sequence and line.returned[first] >= now:
                return False
            if first == delivery.sequence and self._is_full(lane, line, len(delivery.payload)):
                return False
            del line.returned[first]
            if first == delivery.sequence:
                return True
        return True
