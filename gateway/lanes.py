"""MQTT messages on their way, project by project.

A broker's messages come in one stream. What one project cannot take now must neither hold
up the others' nor be overtaken by what came later for the same project. So each project has
a lane: a few of its messages are worked on, the others wait behind them in order. A message that
was put off goes back to the head of its lane, and nothing behind it moves before it does.

As in `fair_queue` nobody takes more than is left for the others. Beyond that a message goes
back to the broker if that is possible; then newer ones of its lane do, too, until it has come
again.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable
from typing import Protocol

from fieldbrook import metrics
from fieldbrook.gateway.sources import Delivery, shown

log = logging.getLogger(__name__)

WORK = 4_000  # messages at the projects; one alone has half of them
WORK_BYTES = 64 << 20
BACKLOG = 20_000  # messages that wait behind them
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

    __slots__ = ("delivery", "in_work", "lane", "number")

    def __init__(self, number: int, delivery: Delivery, lane: _Lane) -> None:
        self.number = number
        self.delivery = delivery
        self.lane = lane
        self.in_work = False


class _Lane:
    __slots__ = (
        "backlog_bytes",
        "blocked",
        "busy",
        "project",
        "put_off",
        "returned",
        "sifted",
        "waiting",
        "work",
        "work_bytes",
    )

    def __init__(self, project: str) -> None:
        self.project = project
        self.waiting: collections.deque[Passage] = collections.deque()
        self.backlog_bytes = 0
        self.work = 0
        self.work_bytes = 0
        self.put_off: list[Passage] = []
        self.sifted = 0  # how many waited when the stale ones were last dropped
        self.blocked = False
        self.busy = False
        # Names of messages that went back to the broker, in order, and until when each is
        # waited for.
        self.returned: dict[str, float] = {}

    @property
    def empty(self) -> bool:
        return not (self.waiting or self.work or self.put_off or self.returned)


class Lanes:
    """The lanes of one gateway; every method is called in its loop.

    Args:
        take: works on a message; later, or at once, `done` or `put_off` is called with it.
        later: calls something after some seconds.
        now: seconds of a clock that does not jump.
    """

    def __init__(
        self, take: Callable[[Passage], None], later: Later, now: Callable[[], float]
    ) -> None:
        self._take = take
        self._later = later
        self._now = now
        self._lanes: dict[str, _Lane] = {}
        self._held: dict[str, _Lane] = {}  # those with a backlog that may go on
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
        newer = bool(lane.returned) and not self._has_come_again(lane, delivery)
        if newer and self._return(lane, passage):
            return
        if newer or lane.waiting or lane.blocked or not self._has_room(lane, len(delivery.payload)):
            self._keep(lane, passage)
        else:
            self._work_on(lane, passage)

    def done(self, passage: Passage) -> None:
        """A message needs no more work; whoever says so has acknowledged it."""
        self._leave_work(passage)
        self._go_on(passage.lane)

    def put_off(self, passage: Passage) -> None:
        """The project cannot take a message now: it is tried again, before those behind it."""
        lane = passage.lane
        self._leave_work(passage)
        lane.put_off.append(passage)
        if not lane.blocked:
            lane.blocked = True
            self._held.pop(lane.project, None)
            self._later(RETRY_S, lambda: self._retry(lane))

    def measure(self) -> None:
        """Say in the metrics how much is on its way."""
        metrics.put(metrics.MQTT_LANES, len(self._lanes))
        metrics.put(metrics.MQTT_IN_WORK, self._work)
        metrics.put(metrics.MQTT_BACKLOG, self._backlog)
        metrics.put(metrics.MQTT_BACKLOG_BYTES, self._backlog_bytes)

    def _retry(self, lane: _Lane) -> None:
        if self.closed:
            return
        if lane.work:  # what is still under way may be put off as well, and comes before
            self._later(RETRY_S, lambda: self._retry(lane))
            return
        again, lane.put_off = sorted(lane.put_off, key=lambda p: p.number), []
        lane.waiting.extendleft(reversed(again))
        for passage in again:
            self._count_waiting(lane, passage, 1)
        lane.blocked = False
        self._held[lane.project] = lane
        self._go_on(lane)

    # Work.

    def _has_room(self, lane: _Lane, size: int) -> bool:
        return lane.work < WORK - self._work and (
            not lane.work or lane.work_bytes + size <= WORK_BYTES - self._work_bytes
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
        if lane.waiting:
            self._fill(lane)
        if self._held:
            for other in list(self._held.values()):
                self._fill(other)
        if not lane.work and lane.empty and self._lanes.get(lane.project) is lane:
            del self._lanes[lane.project]

    def _fill(self, lane: _Lane) -> None:
        if lane.busy:
            return
        lane.busy = True  # work that ends at once calls back here
        while lane.waiting and not lane.blocked:
            passage = lane.waiting[0]
            if not self._has_room(lane, len(passage.delivery.payload)):
                break
            lane.waiting.popleft()
            self._count_waiting(lane, passage, -1)
            if not passage.delivery.stale():
                self._work_on(lane, passage)
        lane.busy = False
        lane.sifted = min(lane.sifted, len(lane.waiting))
        if not lane.waiting:
            self._held.pop(lane.project, None)

    # Backlog.

    def _keep(self, lane: _Lane, passage: Passage) -> None:
        size = len(passage.delivery.payload)
        if lane.waiting and self._is_full(lane, size):
            # Not for each message: looking at all that wait takes milliseconds.
            if len(lane.waiting) >= lane.sifted + _SIFT_AFTER:
                self._drop_stale(lane)
            if self._is_full(lane, size) and self._return(lane, passage):
                return
        lane.waiting.append(passage)
        self._count_waiting(lane, passage, 1)
        if not lane.blocked:
            self._held[lane.project] = lane

    def _is_full(self, lane: _Lane, size: int) -> bool:
        return (
            len(lane.waiting) >= BACKLOG - self._backlog
            or lane.backlog_bytes + size > BACKLOG_BYTES - self._backlog_bytes
        )

    def _drop_stale(self, lane: _Lane) -> None:
        """Forget what the broker delivers again by itself because its connection was lost."""
        kept = [passage for passage in lane.waiting if not passage.delivery.stale()]
        if len(kept) < len(lane.waiting):
            for passage in lane.waiting:
                self._count_waiting(lane, passage, -1)
            lane.waiting = collections.deque(kept)
            for passage in kept:
                self._count_waiting(lane, passage, 1)
        lane.sifted = len(kept)

    def _count_waiting(self, lane: _Lane, passage: Passage, sign: int) -> None:
        size = sign * len(passage.delivery.payload)
        lane.backlog_bytes += size
        self._backlog_bytes += size
        self._backlog += sign

    def _return(self, lane: _Lane, passage: Passage) -> bool:
        """Give a message back to the broker, if it has stored it and takes it back."""
        delivery = passage.delivery
        if not delivery.sequence:
            if not lane.returned:
                return False
            delivery.ack()  # nobody stores it: there is no room for it behind the others
            metrics.add(metrics.MQTT_DROPPED)
            return True
        if not delivery.put_back(PUT_BACK_S):
            return False
        metrics.add(metrics.MQTT_RETURNED)
        lane.returned[delivery.sequence] = self._now() + MISSED_S
        return True

    def _has_come_again(self, lane: _Lane, delivery: Delivery) -> bool:
        """Whether this is the message that the lane waits for, and there is room for it."""
        now = self._now()
        while lane.returned:
            first = next(iter(lane.returned))
            if first != delivery.sequence and lane.returned[first] >= now:
                return False
            if first == delivery.sequence and self._is_full(lane, len(delivery.payload)):
                return False
            del lane.returned[first]
            if first == delivery.sequence:
                return True
        return True
