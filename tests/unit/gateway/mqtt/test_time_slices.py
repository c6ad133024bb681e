"""Work of one client waits while the loop serves the others."""

from __future__ import annotations

import asyncio
from functools import partial

from fieldbrook.gateway.mqtt.connection.time_slices import ALL_S, SLICE_S, TimeSlices


class Clock:
    """Time that passes when work is done."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, slices: float) -> None:
        self.now += slices * SLICE_S


def test_much_work_of_one_holder_is_done_in_order_and_others_are_served_meanwhile() -> None:
    clock, order = Clock(), list[str]()

    def work(name: str) -> None:
        clock.work(0.6)
        order.append(name)

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        slices = TimeSlices(loop, clock)
        for number in range(8):
            slices.run_soon("hog", partial(work, f"hog {number}"))
        assert not slices.may_run("hog")
        slices.run_soon("other", partial(work, "other"))
        while len(order) < 9:
            await asyncio.sleep(0)
            order.append("turn")

    asyncio.run(serve())
    assert [name for name in order if name.startswith("hog")] == [f"hog {n}" for n in range(8)]
    assert order[:3] == ["hog 0", "hog 1", "other"]
    text = ",".join(name.split()[0] for name in order)
    assert "hog,hog,hog" not in text


def test_the_last_work_of_a_holder_waits_for_its_other_work_and_always_goes_on() -> None:
    clock, order = Clock(), list[str]()

    def work(slices: TimeSlices, name: str, *, last: bool) -> None:
        clock.work(0.5)
        order.append(name)
        if order.count(name) < 20:
            again = partial(slices.run, "a", partial(work, slices, name, last=last))
            slices.enqueue("a", again, last=last)

    async def serve() -> None:
        slices = TimeSlices(asyncio.get_running_loop(), clock)
        for name in ("refused 1", "refused 2"):
            slices.run("a", partial(work, slices, name, last=True))
        assert not slices.may_run("a", last=True)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert slices.may_run("a"), "the holder has time for messages of accepted clients"
        assert not slices.may_run("a", last=True), "earlier work waits"
        slices.run("a", partial(work, slices, "accepted", last=False))
        while len(order) < 60:
            await asyncio.sleep(0)

    asyncio.run(serve())
    accepted_until = max(at for at, name in enumerate(order) if name == "accepted")
    refused = [name for name in order[:accepted_until] if name != "accepted"]
    assert refused[:4] == ["refused 1", "refused 2"] * 2
    assert 10 <= len(refused) <= 25, "one piece for each slice of the others"


def test_work_that_has_waited_comes_before_what_came_after_it() -> None:
    clock, order = Clock(), list[int]()

    async def serve() -> None:
        slices = TimeSlices(asyncio.get_running_loop(), clock)

        def go_on(number: int) -> None:  # like a connection
            if slices.may_run("a", last=True):
                slices.run("a", partial(order.append, number))
            else:
                slices.enqueue("a", partial(go_on, number), last=True)

        def accepted() -> None:
            clock.work(1.0)
            slices.enqueue("a", partial(slices.run, "a", accepted))

        slices.run("a", accepted)
        for number in range(20):
            go_on(number)
        while len(order) < 20:
            await asyncio.sleep(0)

    asyncio.run(serve())
    assert order == list(range(20))


def test_work_that_fails_stops_neither_the_rest_nor_other_holders() -> None:
    clock, done = Clock(), list[int]()

    def fail() -> None:
        raise ValueError

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        failures: list[object] = []
        loop.set_exception_handler(lambda _, context: failures.append(context))
        slices = TimeSlices(loop, clock)
        slices.run("hog", lambda: clock.work(1.0))
        slices.enqueue("hog", lambda: slices.run("hog", fail))
        slices.enqueue("hog", lambda: done.append(1))
        slices.enqueue("other", lambda: done.append(2))
        while len(done) < 2:
            await asyncio.sleep(0)
        assert len(failures) == 1
        while slices.may_run("hog") is False:
            await asyncio.sleep(0)

    asyncio.run(serve())
    assert sorted(done) == [1, 2]


def test_hundreds_of_logins_that_flood_do_not_make_one_that_does_little_wait_for_all() -> None:
    clock, done = Clock(), list[bool]()

    def flood(slices: TimeSlices, name: str) -> None:
        clock.work(0.5)
        slices.enqueue(name, lambda: slices.run(name, partial(flood, slices, name)))

    async def serve() -> None:
        slices = TimeSlices(asyncio.get_running_loop(), clock)
        for number in range(300):
            slices.run_soon(f"hog {number}", partial(flood, slices, f"hog {number}"))
        while clock.now < 900 * SLICE_S:  # until each has had turns
            await asyncio.sleep(0)
        for _ in range(10):
            before = clock.now
            slices.run_soon("other", partial(done.append, True))
            while not done:
                await asyncio.sleep(0)
            done.clear()
            assert clock.now - before <= 2 * (ALL_S + SLICE_S)

    asyncio.run(serve())


def test_the_rest_of_a_piece_comes_before_what_waits_for_the_same_holder() -> None:
    clock, order = Clock(), list[str]()

    async def serve() -> None:
        slices = TimeSlices(asyncio.get_running_loop(), clock)

        def long(left: int) -> None:
            clock.work(1.1)
            order.append(f"long {left}")
            assert slices.is_used_up
            if left:
                slices.continue_later(partial(long, left - 1))

        slices.run_soon("hog", partial(long, 2))
        slices.run_soon("hog", partial(order.append, "next"))
        assert not slices.is_used_up  # nothing runs
        while len(order) < 4:
            await asyncio.sleep(0)

    asyncio.run(serve())
    assert order == ["long 2", "long 1", "long 0", "next"]
