"""Read turns: limits the time that one iteration of the event loop spends on HTTP and TLS clients.

Without a limit, each iteration handles for each connection up to 256 received pieces of a chunked
body, or frames of a WebSocket (Tornado), or 16 events (the fast path). With thousands of
connections, one iteration takes longer than the watchdog waits for a process.
"""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Callable
from functools import partial

SLICE_S = 0.01
_FEW, _MANY = 4, 64


class ReadTurns:
    """Limits the time of all connections' reads in an iteration of the loop; for use in the loop
    only.

    When the time is used up, further connections wait. In each later iteration some of them
    continue, beginning with the one that has waited longest. At first only a few continue, because
    each may have a head that takes 40 ms; after short iterations the number increases.
    """

    def __init__(
        self,
        slice_s: float = SLICE_S,
        clock: Callable[[], float] = time.perf_counter,
        *,
        fewest: int = 1,
    ) -> None:
        """Create the turns of some connections.

        Args:
            slice_s: how long the connections may take in one iteration of the loop.
            clock: the time in seconds.
            fewest: the smallest number of waiting connections that continue, even after a long
                iteration.
        """
        self._slice_s = slice_s
        self._fewest = fewest
        self._clock = clock
        self._ends_at: float | None = None
        self._is_scheduled = False
        self._at_once, self._began_at = _FEW, 0.0
        self._waiting: collections.deque[Callable[[], object]] = collections.deque()

    def may_go_on(self) -> bool:
        """Return whether a connection may process the bytes that it has read without waiting."""
        if self._waiting:
            return False
        now = self._clock()
        if self._ends_at is None:
            self._ends_at = now + self._slice_s
            self._schedule()
        return now < self._ends_at

    def call(self, go_on: Callable[[], object]) -> None:
        """Call `go_on` when a connection may continue."""
        self._waiting.append(go_on)
        self._schedule()

    async def wait(self) -> None:
        """Wait until a connection may continue."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.call(partial(_end, turn))
        await turn

    def _schedule(self) -> None:
        # Schedule this once per iteration. Otherwise a connection that waits again immediately
        # would get one turn, then two, then four in an iteration.
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._ends_at, self._is_scheduled = None, False
        began_at = self._clock()
        try:
            for _ in range(self._number(began_at)):
                self._waiting.popleft()()
                if self._clock() >= began_at + self._slice_s:
                    break
        finally:
            if self._waiting:
                self._schedule()

    def _number(self, now: float) -> int:
        """Return how many connections may continue now; fewer if the last iteration took long."""
        took, self._began_at = now - self._began_at, now
        if took > 2 * self._slice_s:
            self._at_once = max(self._fewest, self._at_once // 2)
        elif took < self._slice_s:
            self._at_once = min(_MANY, 2 * self._at_once)
        if not self._waiting:
            self._at_once = _FEW
        return min(self._at_once, len(self._waiting))


def _end(turn: asyncio.Future[None]) -> None:
    if not turn.done():  # a done turn was cancelled
        turn.set_result(None)
