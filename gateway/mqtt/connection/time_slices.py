"""Time slices: limits how long the work of MQTT clients occupies the event loop at a time.

One small message may go to thousands of subscribers, and one read may contain thousands of
messages. In each iteration of the loop, the work of one holder (`Session.holder`) may take one
slice, and the work of all holders two. The rest waits for a later iteration, so that the loop can
handle events in between. Waiting holders continue in the order of their recent use, the lowest
first, so that thousands of logins of one account do not delay other accounts.

Work of new connections, and of connections whose last messages were refused, is *last work* of its
holder (`last`). It runs after the other work of the holder, in a shorter slice, so that a device
whose events are accepted does not wait for it.
"""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Callable

SLICE_S = 0.01
LAST_S = 0.004
ALL_S = 2 * SLICE_S
_HALF_LIFE_S = 1.0
_FORGOTTEN_S = 1e-6


class TimeSlices:
    """Measures the time of each holder per iteration of the loop. Only the loop calls it.

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
        self._used_by_all = 0.0
        self._recent_use: dict[str, float] = {}
        self._halved_at = clock()
        self._waiting: dict[str, collections.deque[Callable[[], object]]] = {}
        self._waiting_last: dict[str, collections.deque[Callable[[], object]]] = {}
        self._serving: str | None = None
        self._running: str | None = None
        self._began = 0.0
        self._is_scheduled = False

    def may_run(self, holder: str, *, last: bool = False) -> bool:
        """Whether a holder has time left in this iteration, and none of its earlier work waits.

        Work that has waited runs as soon as it is called: in the queue again, it would run after
        later work.
        """
        if self._serving == holder:
            return True
        slice_s = LAST_S if last else SLICE_S
        if self._used.get(holder, 0.0) >= slice_s or self._used_by_all >= ALL_S:
            return False
        return holder not in self._waiting and not (last and holder in self._waiting_last)

    @property
    def is_used_up(self) -> bool:
        """Whether the running work has used up its slice."""
        if self._running is None:
            return False
        took = self._clock() - self._began
        used = self._used.get(self._running, 0.0)
        return used + took >= SLICE_S or self._used_by_all + took >= ALL_S

    def run(self, holder: str, work: Callable[[], object]) -> None:
        """Run a piece of work and measure its time."""
        if self._running is not None:  # nested work counts with the outer piece
            work()
            return
        self._running, self._began = holder, self._clock()
        try:
            work()
        finally:
            self._running = None
            took = self._clock() - self._began
            self._used[holder] = self._used.get(holder, 0.0) + took
            self._recent_use[holder] = self._recent_use.get(holder, 0.0) + took
            self._used_by_all += took
            self._schedule()

    def enqueue(self, holder: str, go_on: Callable[[], object], *, last: bool = False) -> None:
        """Call `go_on` in a later iteration, after earlier work of the same holder."""
        waiting = self._waiting_last if last else self._waiting
        waiting.setdefault(holder, collections.deque()).append(go_on)
        self._schedule()

    def continue_later(self, work: Callable[[], object]) -> None:
        """Run the rest of the running work in a later iteration, before the other waiting work of
        its holder. Call it when the slice is used up (`is_used_up`)."""
        holder = self._running
        assert holder is not None
        queue = self._waiting.setdefault(holder, collections.deque())
        queue.appendleft(lambda: self.run(holder, work))
        self._schedule()

    def waiting(self, holder: str) -> int:
        """Return the number of waiting pieces of work of a holder."""
        return len(self._waiting.get(holder, ()))

    def run_soon(self, holder: str, work: Callable[[], object]) -> None:
        """Run a piece of work now, or in a later iteration."""
        if self.may_run(holder):
            self.run(holder, work)
        else:
            self.enqueue(holder, lambda: self.run(holder, work))

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._begin_iteration)

    def _begin_iteration(self) -> None:
        self._is_scheduled = False
        self._used.clear()
        self._used_by_all = 0.0
        self._forget()
        try:
            waiting = self._waiting.keys() | self._waiting_last.keys()
            for holder in sorted(waiting, key=self._recent_use_of):
                if self._used_by_all >= ALL_S:
                    break
                self._serve(holder)
        finally:
            if self._waiting or self._waiting_last:
                self._schedule()

    def _recent_use_of(self, holder: str) -> float:
        return self._recent_use.get(holder, 0.0)

    def _forget(self) -> None:
        """Halve the recorded use for each half-life that has passed."""
        now = self._clock()
        halves = int((now - self._halved_at) / _HALF_LIFE_S)
        if halves:
            self._halved_at = now
            left = 0.5**halves
            self._recent_use = {
                holder: used * left
                for holder, used in self._recent_use.items()
                if used * left > _FORGOTTEN_S
            }

    def _serve(self, holder: str) -> None:
        """Run waiting work of a holder, and at least one piece of its *last work*."""
        self._serving = holder
        try:
            self._run_waiting(self._waiting, holder, SLICE_S)
            self._run_waiting(self._waiting_last, holder, LAST_S)
        finally:
            self._serving = None

    def _run_waiting(
        self,
        waiting: dict[str, collections.deque[Callable[[], object]]],
        holder: str,
        slice_s: float,
    ) -> None:
        """Run at least one piece, until the slice is used up or a piece waits again."""
        queue = waiting.get(holder)
        if queue is None:
            return
        try:
            more = True
            while queue and more:
                before = self._used.get(holder, 0.0)
                queue.popleft()()
                used = self._used.get(holder, 0.0)
                more = before < used < slice_s and self._used_by_all < ALL_S
        finally:
            if not queue:
                del waiting[holder]
