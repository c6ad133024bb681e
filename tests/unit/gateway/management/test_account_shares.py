"""The share of the event loop for requests of one account."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Callable

import pytest

from fieldbrook.gateway.management.account_shares import AccountShares


class Clock:
    """Time that passes when work is done."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds


def _turns(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> AccountShares:
    """Make AccountShares whose pauses only advance the clock, and let others continue."""
    go_on = asyncio.sleep

    async def rest(seconds: float) -> None:
        until = clock.now + seconds
        await go_on(0)
        clock.now = max(clock.now, until)

    monkeypatch.setattr("fieldbrook.gateway.management.account_shares.asyncio.sleep", rest)
    return AccountShares(clock, clock)


async def test_requests_of_one_account_leave_three_quarters_of_the_loop_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    turns = _turns(clock, monkeypatch)

    async def request() -> str:
        clock.work(0.25)
        return "done"

    assert await asyncio.gather(*(turns.run(1, request()) for _ in range(24))) == ["done"] * 24
    assert clock.now >= 4 * 22 * 0.25


async def test_a_request_of_another_account_comes_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, order = Clock(), list[int]()
    turns = _turns(clock, monkeypatch)

    async def request(account_id: int) -> None:
        clock.work(0.25)
        order.append(account_id)

    many = [turns.run(1, request(1)) for _ in range(10)]
    await asyncio.gather(*many, turns.run(2, request(2)))
    assert order.index(2) < 4


async def test_a_few_small_requests_do_not_wait() -> None:
    clock = Clock()
    turns, event = AccountShares(clock, clock), asyncio.Event()

    async def request() -> int:
        await event.wait()
        clock.work(0.001)
        return 7

    running = [asyncio.create_task(turns.run(1, request())) for _ in range(8)]
    await asyncio.sleep(0)
    event.set()
    assert await asyncio.gather(*running) == [7] * 8
    assert clock.now == pytest.approx(0.008)


async def test_many_small_requests_leave_three_quarters_of_the_loop_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, event = Clock(), asyncio.Event()
    turns = _turns(clock, monkeypatch)

    async def request() -> None:
        await event.wait()
        clock.work(0.001)

    running = [asyncio.create_task(turns.run(1, request())) for _ in range(1_000)]
    await asyncio.wait(running, timeout=0)
    event.set()
    await asyncio.gather(*running)
    assert clock.now > 3.4, "four times the second that the requests took, less their credit"


async def test_a_request_gets_its_own_errors_time_limits_and_end() -> None:
    turns, ended = AccountShares(), list[str]()

    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError

    async def is_late() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "late"
        return "never"

    async def is_cancelled() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    with pytest.raises(KeyError):
        await turns.run(1, fails())
    assert await turns.run(1, is_late()) == "late"
    task = asyncio.create_task(turns.run(1, is_cancelled()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cancelled"]


async def test_a_request_that_is_cancelled_while_it_rests_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, ended = Clock(), list[str]()
    turns = AccountShares(clock, clock)

    async def request() -> None:
        try:
            clock.work(60.0)
            await asyncio.sleep(0)
        finally:
            ended.append("yes")

    task = asyncio.create_task(turns.run(1, request()))
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["yes"]


async def test_what_a_request_had_open_is_released_with_its_error() -> None:
    """It does not wait for the garbage collector, because an open store keeps its disk space."""

    class Store:
        pass

    def failing() -> tuple[Callable[[], None], weakref.ref[Store]]:
        store = Store()

        def read() -> None:
            raise LookupError(str(store))

        return read, weakref.ref(store)

    async def work(read: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(None, read)

    gc.disable()
    try:
        read, store = failing()
        with contextlib.suppress(LookupError):
            await AccountShares().run(1, work(read))
        del read
        # The thread drops its work a moment after it has reported the result.
        while store() is not None:
            await asyncio.sleep(0.01)
    finally:
        gc.enable()
