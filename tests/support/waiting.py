"""Waiting for conditions in coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.support.tools import LIMIT_S


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true; the test fails with TimeoutError if it never is."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.001)
