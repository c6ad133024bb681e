"""Long work leaves most of the event loop to others."""

from __future__ import annotations

import asyncio
import time

from fieldbrook.system.loop_share import LoopShare


def hold_the_loop(seconds: float) -> None:
    """Block the loop, like a read of a store."""
    time.sleep(seconds)


def test_work_in_the_loop_goes_piece_by_piece_and_leaves_most_of_the_time_to_others() -> None:
    share, piece_s, inside = LoopShare(), 0.01, list[int]()

    async def work(number: int) -> None:
        async with share:
            for _ in range(2):
                inside.append(number)
                hold_the_loop(piece_s)
                await share.rest()

    async def run() -> float:
        began = time.monotonic()
        await asyncio.gather(*(work(number) for number in range(5)))
        return time.monotonic() - began

    assert asyncio.run(run()) >= 10 * piece_s * 4
    assert inside == [number for number in range(5) for _ in range(2)]


def test_who_leaves_while_waiting_or_resting_keeps_no_turn() -> None:
    async def run() -> None:
        share = LoopShare()

        async def work() -> None:
            async with share:
                hold_the_loop(0.05)

        tasks = [asyncio.create_task(work()) for _ in range(3)]
        await asyncio.sleep(0)  # the first pauses now, the others wait
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(5), share:
            pass

    asyncio.run(run())
