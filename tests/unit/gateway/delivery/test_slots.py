"""Slots that holders share."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.gateway.delivery.slots import Slots


class Calls:
    """Calls that hold slots until a test ends them."""

    def __init__(self, count: int) -> None:
        self.slots = Slots(count)
        self.running: list[int] = []
        self.tasks: list[tuple[int, asyncio.Task[None], asyncio.Event]] = []

    async def begin(self, *holders: int) -> None:
        for holder in holders:
            over = asyncio.Event()
            task = asyncio.create_task(self._call(holder, over))
            self.tasks.append((holder, task, over))
        await asyncio.sleep(0)

    async def _call(self, holder: int, over: asyncio.Event) -> None:
        async with self.slots.hold(holder):
            self.running.append(holder)
            try:
                await over.wait()
            finally:
                self.running.remove(holder)

    async def end(self, holder: int) -> None:
        """End the oldest call of a holder."""
        place = next(n for n, (one, _, _) in enumerate(self.tasks) if one == holder)
        _, task, over = self.tasks.pop(place)
        over.set()
        await task
        await asyncio.sleep(0)

    async def close(self) -> None:
        for _, task, _ in self.tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def test_one_holder_leaves_half_of_the_slots_and_the_next_ones_find_some() -> None:
    async def run() -> None:
        calls = Calls(8)
        await calls.begin(*[1] * 20)
        assert calls.running == [1] * 4
        await calls.begin(*[2] * 20)
        assert calls.running.count(2) == 2
        await calls.begin(3, 4)
        assert {3, 4} <= set(calls.running)
        await calls.close()

    asyncio.run(run())


def test_those_who_wait_get_free_slots_in_turns() -> None:
    async def run() -> None:
        calls = Calls(2)
        await calls.begin(1, 1, 1, 2)
        assert sorted(calls.running) == [1, 2]
        await calls.begin(3)
        assert 3 not in calls.running
        await calls.end(1)  # 1 has waited longer than 3, and takes its turn
        assert sorted(calls.running) == [1, 2]
        await calls.end(1)
        assert sorted(calls.running) == [2, 3]
        await calls.close()

    asyncio.run(run())


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["begin", "end", "cancel"]))))
def test_every_slot_is_free_again_after_calls_that_end_or_are_cancelled(
    steps: list[tuple[int, str]],
) -> None:
    async def run() -> None:
        calls = Calls(4)
        for holder, step in steps:
            own = [task for one, task, _ in calls.tasks if one == holder]
            if step == "begin":
                await calls.begin(holder)
            elif step == "cancel" and own:
                own[-1].cancel()
                calls.tasks = [each for each in calls.tasks if each[1] is not own[-1]]
                with suppress(asyncio.CancelledError):
                    await own[-1]
            elif step == "end" and holder in calls.running:
                await calls.end(holder)
            assert len(calls.running) <= 4
        await calls.close()
        await calls.begin(7, 7, 8, 9)
        assert sorted(calls.running) == [7, 7, 8, 9]
        await calls.close()

    asyncio.run(run())
