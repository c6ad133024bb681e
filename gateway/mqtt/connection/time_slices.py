"""TimeSlices of the loop: the work that clients cause is done one slice of time after the other.

One small message may go to thousands of subscribers, and one read has thousands of messages. The
work of one holder (`Session.holder`) ends at a slice in each turn of the loop, and that of all
holders at two; the rest waits, and events are served meanwhile. Who has used least lately goes on
first, so that thousands of logins of one account do not make others wait for all of them.
"""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Callable

SLICE_S = 0.01
ALL_S = 2 * SLICE_S
_HALF_LIFE_S = 1.0
_FORGOTTEN_S = 1e-6


class TimeSlices:
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
        self._used_by_all = 0.0
        self._lately: dict[str, float] = {}
        self._halved_at = clock()
        self._waiting: dict[str, collections.deque[Callable[[], object]]] = {}
        self._serving: str | None = None
        self._doing: str | None = None
        self._began = 0.0
        self._is_scheduled = False

    def may(self, holder: str) -> bool:
        """Whether a holder has time left in this turn, and none of its earlier work waits."""
        if self._used.get(holder, 0.0) >= SLICE_S or self._used_by_all >= ALL_S:
            return False
        return holder not in self._waiting or self._serving == holder

    @property
    def is_over(self) -> bool:
        """Whether the work that is being done has used up its slice."""
        if self._doing is None:
            return False
        took = self._clock() - self._began
        used = self._used.get(self._doing, 0.0)
        return used + took >= SLICE_S or self._used_by_all + took >= ALL_S

    def do(self, holder: str, work: Callable[[], object]) -> None:
        """Do a piece of work and count its time."""
        if self._doing is not None:  # a part of a piece, which counts as a whole
            work()
            return
        self._doing, self._began = holder, self._clock()
        try:
            work()
        finally:
            self._doing = None
            took = self._clock() - self._began
            self._used[holder] = self._used.get(holder, 0.0) + took
            self._lately[holder] = self._lately.get(holder, 0.0) + took
            self._used_by_all += took
            self._schedule()

    def wait(self, holder: str, go_on: Callable[[], object]) -> None:
        """Call `go_on` in a later turn, after the work that has waited for longer."""
        self._waiting.setdefault(holder, collections.deque()).append(go_on)
        self._schedule()

    def go_on_later(self, work: Callable[[], object]) -> None:
        """Do the rest of the work that is being done in a later turn, before all that waits for
        the same holder. The slice is used up (`is_over`)."""
        holder = self._doing
        assert holder is not None
        queue = self._waiting.setdefault(holder, collections.deque())
        queue.appendleft(lambda: self.do(holder, work))
        self._schedule()

    def waiting(self, holder: str) -> int:
        """How much waits for the turn of a holder."""
        return len(self._waiting.get(holder, ()))

    def do_soon(self, holder: str, work: Callable[[], object]) -> None:
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
        self._used_by_all = 0.0
        self._forget()
        try:
            for holder in sorted(self._waiting, key=self._used_lately):
                if self._used_by_all >= ALL_S:
                    break
                self._serve(holder)
        finally:
            if self._waiting:
                self._schedule()

    def _used_lately(self, holder: str) -> float:
        return self._lately.get(holder, 0.0)

    def _forget(self) -> None:
        """Halve what was used for each half-life that has passed."""
        now = self._clock()
        halves = int((now - self._halved_at) / _HALF_LIFE_S)
        if halves:
            self._halved_at = now
            left = 0.5**halves
            self._lately = {
                holder: used * left
                for holder, used in self._lately.items()
                if used * left > _FORGOTTEN_S
            }

    def _serve(self, holder: str) -> None:
        """Continue waiting work, until a slice is used up or the rest moves to a later turn."""
        queue = self._waiting[holder]
        self._serving = holder
        try:
            before, used = -1.0, 0.0
            while queue and before < used < SLICE_S and self._used_by_all < ALL_S:
                queue.popleft()()
                before, used = used, self._used.get(holder, 0.0)
        finally:
            self._serving = None
            if not queue:
                del self._waiting[holder]
