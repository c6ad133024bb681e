"""A share of an event loop, for work that takes long and has to run in it."""

from __future__ import annotations

import asyncio
import time
from typing import Self

REST = 3  # how many times longer than a piece of work the loop is left to others


class LoopShare:
    """A share of the event loop for work that must run in it: one piece at a time, and then a rest.

    `async with` waits for the turn and begins a piece. However many wait, the work takes a quarter
    of the loop's time at most, and what else waits for the loop waits for one piece.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._began = 0.0

    async def __aenter__(self) -> Self:
        await self._turn.acquire()
        self._began = time.monotonic()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.rest()
        finally:
            self._turn.release()

    async def rest(self, after_s: float = 0.0) -> None:
        """End a piece that took at least `after_s`, and begin the next one, without giving the turn
        away."""
        took = time.monotonic() - self._began
        if took >= after_s:
            await asyncio.sleep(REST * took)
            self._began = time.monotonic()
