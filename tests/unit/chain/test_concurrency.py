"""Several requests at the same time: when one fails, the others end."""

from __future__ import annotations

import asyncio

import pytest

from fieldbrook.chain.concurrency import gather_or_cancel


async def _given(value: int) -> int:
    await asyncio.sleep(0)
    return value


async def test_results_have_the_order_of_the_work() -> None:
    assert await gather_or_cancel(_given(1), _given(2), _given(3)) == [1, 2, 3]


async def test_an_error_ends_the_others() -> None:
    ended = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def failing() -> None:
        await asyncio.sleep(0)
        raise ValueError("no answer")

    with pytest.raises(ValueError, match="no answer"):
        await gather_or_cancel(endless(), failing())
    await ended.wait()


async def test_who_gives_up_ends_all() -> None:
    ended: list[int] = []

    async def endless(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    work = asyncio.create_task(gather_or_cancel(endless(1), endless(2)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await asyncio.sleep(0)
    assert sorted(ended) == [1, 2]
