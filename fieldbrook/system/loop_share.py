"""A share of an event loop, for long work that has to run in the loop."""

from __future__ import annotations

import asyncio
import time
from typing import Self

REST = 3  # the pause after a piece of work, as a multiple of its duration


class LoopShare:
    """A share of the event loop for work that must run in it: one piece at a time, and then a
    pause.

    `async with` waits for the turn and begins a piece. All such work together takes at most a
    quarter of the loop's time, and other callbacks of the loop wait for at most one piece.
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
        """End a piece that took at least `after_s`, pause, and begin the next one, without losing
        the turn."""
        took = time.monotonic() - self._began
        if took >= after_s:
            await asyncio.sleep(REST * took)
            self._began = time.monotonic()
