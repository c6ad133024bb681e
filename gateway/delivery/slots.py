"""Slots for concurrent calls, shared so that no holder can use all of them.

The limits are dynamic thresholds, as in `links.fair_queue`: a holder may have at most as many
slots as are still free. A single holder gets half of them, each of n busy ones gets 1/(n+1) or
more, and a holder without a slot always finds a free one.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slots:
    """A number of slots. If none is free, a caller waits, and holders take turns. For use in one
    event loop."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._used: collections.Counter[int] = collections.Counter()
        # In the order of their turns. A holder is listed while some of its calls wait.
        self._waiting: dict[int, collections.deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def hold(self, holder: int) -> AsyncIterator[None]:
        """Hold a slot during this block; wait for a free one before."""
        await self._take(holder)
        try:
            yield
        finally:
            self._give_back(holder)

    def _may_take(self, holder: int) -> bool:
        return self._used[holder] < self._free

    def _grant(self, holder: int) -> None:
        self._free -= 1
        self._used[holder] += 1

    async def _take(self, holder: int) -> None:
        if holder not in self._waiting and self._may_take(holder):
            self._grant(holder)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(holder, collections.deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the slot was granted in the same iteration
                self._give_back(holder)
            else:
                turn.cancel()
                self._pass_on()
            raise

    def _give_back(self, holder: int) -> None:
        self._free += 1
        self._used[holder] -= 1
        if not self._used[holder]:
            del self._used[holder]
        self._pass_on()

    def _pass_on(self) -> None:
        """Give free slots to waiting calls, one to each holder in turn."""
        granted = True
        while granted:
            granted = False
            for holder in list(self._waiting):
                turns = self._waiting[holder]
                while turns and turns[0].done():
                    turns.popleft()  # cancelled
                if turns and self._may_take(holder):
                    self._grant(holder)
                    turns.popleft().set_result(None)
                    granted = True
                    self._waiting[holder] = self._waiting.pop(holder)  # to the end of the order
                if not turns:
                    del self._waiting[holder]
