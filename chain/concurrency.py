"""Concurrent coroutines that are cancelled when one of them fails or their caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def gather_or_cancel(*works: Coroutine[Any, Any, Any]) -> list[Any]:
    """Run coroutines concurrently and return their results in the order of the arguments.

    The first error is raised at once, and the other coroutines are cancelled. `asyncio.gather`
    alone lets them continue. Their requests would stay in the queue of a rate-limited endpoint
    and delay the caller's next attempt.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
