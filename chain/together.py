"""Several requests at the same time, which are cancelled when their caller has given up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def together(*works: Coroutine[Any, Any, Any]) -> list[Any]:
    """Run coroutines concurrently and return their results in this order.

    The first error is raised at once, and the other coroutines are cancelled. `asyncio.gather` lets
    them go on: their requests would wait for an endpoint that limits them, and hold up the next
    attempt.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
