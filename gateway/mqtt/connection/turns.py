"""Turns of the loop: deliveries that a client causes are made one slice of time after the other.

One small message may go to thousands of subscribers, and one read has thousands of messages. The
work of one holder (`Session.holder`) ends at a slice in each turn of the loop; the rest waits, and
all others are served meanwhile.
"""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Callable

SLICE_S = 0.01


class Turns:
    """Counts the time of each holder in a turn of the loop; all is called in it.

    Args:
        loop: the loop.
        clock: returns the time in seconds.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._used: dict[str, float] = {}
        self._waiting: dict[str, collections.deque[Callable[[], None]]] = {}
        self._serving: str | None = None
        self._is_scheduled = False

    def may(self, holder: str) -> bool:
        """Whether a holder has time left in this turn, and none of its earlier work waits."""
        if self._used.get(holder, 0.0) >= SLICE_S:
            return False
        return holder not in self._waiting or self._serving == holder

    def do(self, holder: str, work: Callable[[], None]) -> None:
        """Do a piece of work and count its time."""
        began = self._clock()
        try:
            work()
        finally:
            took = self._clock() - began
            self._used[holder] = self._used.get(holder, 0.0) + took
            self._schedule()

    def wait(self, holder: str, go_on: Callable[[], None]) -> None:
        """Call `go_on` in a later turn, after the work that has waited for longer."""
        self._waiting.setdefault(holder, collections.deque()).append(go_on)
        self._schedule()

    def do_soon(self, holder: str, work: Callable[[], None]) -> None:
        """Do a piece of work now, or in a later turn."""
        if self.may(holder):
            self.do(holder, work)
        else:
            self.wait(holder, lambda: self.do(holder, work))

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_scheduled = False
        self._used.clear()
        try:
            for holder in list(self._waiting):
                self._serve(holder)
        finally:
            if self._waiting:
                self._schedule()

    def _serve(self, holder: str) -> None:
        """Continue waiting work, until a slice is used up or the rest moves to a later turn."""
        queue = self._waiting[holder]
        self._serving = holder
        try:
            before, used = -1.0, 0.0
            while queue and before < used < SLICE_S:
                queue.popleft()()
                before, used = used, self._used.get(holder, 0.0)
        finally:
            self._serving = None
            if not queue:
                del self._waiting[holder]
