"""MQTT messages on their way, project by project and publisher by publisher.

A broker's messages come in one stream. What one project cannot take now must neither hold
up the others' nor be overtaken by what came later from the same publisher. So each project has
a lane: some of its messages are worked on, the others wait behind them, in a line for each
publisher, and the lines take turns. Who has published a message is looked for only when it
has to wait. A message that was put off goes back to the head of its line, and nothing behind
it moves before it does.

After a message was put off, its lane goes on with one at a time and with one more after each
that went well: what the project refused together, because of one that does not fit, may well
be taken alone.

As in `fair_queue` nobody takes more than is left for the others. Beyond that a message goes
back to the broker if that is possible; then newer ones of its line do, too, until it has come
again.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable
from typing import Protocol

from fieldbrook.gateway.mqtt.sources import Delivery, shown
from fieldbrook.observability import metrics

log = logging.getLogger(__name__)

WORK = 4_000  # messages at the projects; one alone has half of them
WORK_BYTES = 64 << 20
BACKLOG = 20_000  # messages that wait behind them; one line alone has a third of them
BACKLOG_BYTES = 64 << 20
RETRY_S = 1.0
_SIFT_AFTER = 1_000
PUT_BACK_S = 10.0
MISSED_S = 60.0  # after which a message that was put back is no longer waited for


class Later(Protocol):
    """As `loop.call_later`."""

    def __call__(self, delay_s: float, call: Callable[[], None], /) -> object:
        """Call something after some seconds."""


class Passage:
    """One message in its lane. `number` says in which order messages came."""

    __slots__ = ("delivery", "in_work", "lane", "number", "publisher")

    def __init__(self, number: int, delivery: Delivery, lane: _Lane) -> None:
        self.number = number
        self.delivery = delivery
        self.lane = lane
        self.in_work = False
        self.publisher: str | None = None  # not looked for yet


class _Line:
    """What waits of one publisher."""

    __slots__ = ("blocked", "bytes", "publisher", "put_off", "returned", "sifted", "waiting")

    def __init__(self, publisher: str) -> None:
        self.publisher = publisher
        self.waiting: collections.deque[Passage] = collections.deque()
        self.bytes = 0
        self.put_off: list[Passage] = []
        self.blocked = False
        self.sifted = 0  # how many waited when the stale ones were last dropped
        # Names of messages that went back to the broker, in order, and until when each is
        # waited for.
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
        self.lines: dict[str, _Line] = {}  # those that are not empty
        self.turns: collections.deque[_Line] = collections.deque()  # those that may go on
        self.backlog = 0
        self.backlog_bytes = 0
        self.work = 0
        self.work_bytes = 0
        self.window = WORK
        self.busy = False


class Lanes:
    """The lanes of one gateway; every method is called in its loop.

    Args:
        take: works on a message; later, or at once, `done` or `put_off` is called with it.
        publisher_of: what names the publisher of a message.
        later: calls something after some seconds.
        now: seconds of a clock that does not jump.
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
        self._held: dict[str, _Lane] = {}  # those with a line that may go on
        self._number = 0
        self._work = 0
        self._work_bytes = 0
        self._backlog = 0
        self._backlog_bytes = 0
        self.closed = False

    def arrived(self, project: str, delivery: Delivery) -> None:
        """A message came for a project."""
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
        """A message needs no more work; whoever says so has acknowledged it."""
        lane = passage.lane
        self._leave_work(passage)
        if lane.work < lane.window < WORK:  # not for what was under way before it shrank
            lane.window += 1
        self._go_on(lane)

    def put_off(self, passage: Passage) -> None:
        """The project cannot take a message now: it is tried again, before those behind it."""
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
        """Say in the metrics how much is on its way."""
        metrics.put(metrics.MQTT_LANES, len(self._lanes))
        metrics.put(metrics.MQTT_IN_WORK, self._work)
        metrics.put(metrics.MQTT_BACKLOG, self._backlog)
        metrics.put(metrics.MQTT_BACKLOG_BYTES, self._backlog_bytes)

    def _retry(self, lane: _Lane, line: _Line) -> None:
        if self.closed:
            return
        # What is still under way may be put off as well, and comes before these then: the
        # window lets nothing out before it is back.
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
        """There is room again: for this lane, and perhaps for others."""
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
        """Work on what waits, each line in its turn, as far as there is room."""
        if self.closed or lane.busy:
            return
        lane.busy = True  # work that ends at once calls back here
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

    # Lines.

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
        """It has no turn until it is tried again."""
        lane.turns.remove(line)
        if not lane.turns:
            self._held.pop(lane.project, None)

    def _keep(self, lane: _Lane, line: _Line, passage: Passage) -> None:
        size = len(passage.delivery.payload)
        if line.waiting and self._is_full(lane, line, size):
            # Not for each message: looking at all that wait takes milliseconds.
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
        """Whether a line has all that is left for the other projects, and the others of its own."""
        return (
            len(line.waiting) >= BACKLOG - self._backlog - lane.backlog
            or line.bytes + size > BACKLOG_BYTES - self._backlog_bytes - lane.backlog_bytes
        )

    def _drop_stale(self, lane: _Lane, line: _Line) -> None:
        """Forget what the broker delivers again by itself because its connection was lost."""
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
        """Give a message back to the broker, if it has stored it and takes it back."""
        delivery = passage.delivery
        if not delivery.sequence:
            if not line.returned:
                return False
            delivery.ack()  # nobody stores it: there is no room for it behind the others
            metrics.add(metrics.MQTT_DROPPED)
            return True
        if not delivery.put_back(PUT_BACK_S):
            return False
        metrics.add(metrics.MQTT_RETURNED)
        line.returned[delivery.sequence] = self._now() + MISSED_S
        return True

    def _has_come_again(self, lane: _Lane, line: _Line, delivery: Delivery) -> bool:
        """Whether this is the message that the line waits for, and there is room for it."""
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
