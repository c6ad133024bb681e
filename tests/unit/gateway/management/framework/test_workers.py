"""Limits of concurrent work."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from fieldbrook.core.errors import TooManyRequestsError
from fieldbrook.core.model import ADMIN
from fieldbrook.gateway.management.framework.workers import (
    DOWNLOADS_LIMIT,
    DOWNLOADS_OF_ONE,
    DOWNLOADS_RESERVE,
    FOLLOWERS_LIMIT,
    FOLLOWERS_OF_ONE,
    FOLLOWERS_RESERVE,
    ConcurrencyLimit,
    MemoryShares,
    SharedPool,
    Workers,
)
from tests.support.management import started


def test_a_seat_is_free_again_when_its_block_ends_however_it_does() -> None:
    limit = ConcurrencyLimit("followers", 1, 1)
    for _ in range(3):
        with pytest.raises(KeyError), limit.hold(1):
            with pytest.raises(TooManyRequestsError, match="1 followers"), limit.hold(2):
                pytest.fail("there is but one")
            raise KeyError


def test_a_gateway_has_so_many_followers_and_no_more() -> None:
    limit = Workers().followers
    held = [limit.hold(n // FOLLOWERS_OF_ONE, administrator=True) for n in range(FOLLOWERS_LIMIT)]
    for one in held:
        one.__enter__()
    with pytest.raises(TooManyRequestsError), limit.hold(99, administrator=True):
        pytest.fail("all are taken")
    for one in held:
        one.__exit__(None, None, None)
    with limit.hold(99):
        assert True


def test_ordinary_accounts_leave_places_for_followers_of_administrators() -> None:
    limit, ordinary = Workers().followers, FOLLOWERS_LIMIT - FOLLOWERS_RESERVE
    assert ordinary > 4 * FOLLOWERS_OF_ONE, "four accounts do not take all the places of others"
    with ExitStack() as held:
        for number in range(ordinary):
            held.enter_context(limit.hold(number // FOLLOWERS_OF_ONE))
        refused = pytest.raises(TooManyRequestsError, match="places are for administrators")
        with refused, limit.hold(99):
            pytest.fail("the rest is for administrators")
        with limit.hold(99, administrator=True):
            assert True


def test_ordinary_accounts_leave_places_for_downloads_of_administrators(tmp_path: Path) -> None:
    server, _ = started(tmp_path)
    administrator = server.account("root", ADMIN).account
    limit, ordinary = Workers().downloads, DOWNLOADS_LIMIT - DOWNLOADS_RESERVE
    with ExitStack() as held:
        for number in range(ordinary):
            held.enter_context(limit.hold(number // DOWNLOADS_OF_ONE))
        refused = pytest.raises(TooManyRequestsError, match="places are for administrators")
        with refused, limit.hold_for(server.account("bob").account):
            pytest.fail("the rest is for administrators")
        with limit.hold_for(administrator):
            assert limit.count(administrator.account_id) == 1
    server.writer.close()


def test_an_account_with_many_followers_leaves_room_for_those_of_others() -> None:
    limit = Workers().followers
    with ExitStack() as held:
        for _ in range(FOLLOWERS_OF_ONE):
            held.enter_context(limit.hold(1))
        with pytest.raises(TooManyRequestsError, match="of the account"), limit.hold(1):
            pytest.fail("one account has them all")
        with limit.hold(2):
            assert True
    with limit.hold(1):
        assert True


def test_an_account_whose_uploads_take_minutes_leaves_a_thread_for_those_of_others() -> None:
    async def upload() -> None:
        pool, ends = SharedPool("uploads", 16, 8), threading.Event()
        slow = [asyncio.create_task(pool.run(1, ends.wait)) for _ in range(8)]
        try:
            assert await asyncio.wait_for(pool.run(2, lambda: "taken"), 10) == "taken"
            with pytest.raises(TooManyRequestsError, match="8 uploads of the account"):
                await pool.run(1, lambda: None)
            assert not any(task.done() for task in slow)
        finally:
            ends.set()
        assert all(await asyncio.gather(*slow))
        assert await pool.run(1, lambda: "again") == "again"

    asyncio.run(upload())


def test_all_accounts_together_have_so_many_uploads_and_no_more() -> None:
    async def upload() -> None:
        pool, ends = SharedPool("uploads", 4, 2), threading.Event()
        slow = [asyncio.create_task(pool.run(n, ends.wait)) for n in range(4)]
        await asyncio.sleep(0)  # each of them begins
        try:
            with pytest.raises(TooManyRequestsError, match="4 uploads"):
                await pool.run(9, lambda: None)
        finally:
            ends.set()
        assert all(await asyncio.gather(*slow))

    asyncio.run(upload())


def test_a_few_accounts_with_slow_uploads_leave_places_for_others() -> None:
    async def upload() -> None:
        pool, ends = SharedPool("uploads", 16, 8), threading.Event()
        slow = [asyncio.create_task(pool.run(n % 3, ends.wait)) for n in range(24)]
        await asyncio.sleep(0)  # each of them begins, or is refused
        other = asyncio.create_task(pool.run(9, lambda: "done"))
        await asyncio.sleep(0)
        assert not other.done()  # it waits for a thread
        with pytest.raises(TooManyRequestsError, match="are for accounts with fewer"):
            await pool.run(0, lambda: None)
        ends.set()
        assert await other == "done"
        taken = await asyncio.gather(*slow, return_exceptions=True)
        assert taken.count(True) == 12  # each account got as many as it had left free
        assert await pool.run(0, lambda: "again") == "again"

    asyncio.run(upload())


def test_an_upload_that_fails_gives_its_place_back() -> None:
    async def upload() -> None:
        pool = SharedPool("uploads", 1, 1)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await pool.run(1, lambda: 1 // 0)

    asyncio.run(upload())


def test_an_account_whose_answers_wait_leaves_memory_for_those_of_others() -> None:
    answers = MemoryShares("answers", 100)
    with ExitStack() as held:
        for _ in range(5):
            held.enter_context(answers.hold(1, 10))
        with pytest.raises(TooManyRequestsError, match="50 of the account"), answers.hold(1, 10):
            pytest.fail("it has what is left")
        held.enter_context(answers.hold(2, 25))
        with pytest.raises(TooManyRequestsError), answers.hold(2, 1):
            pytest.fail("it has what is left, too")
        with answers.hold(3, 12):
            assert True
    with answers.hold(1, 100):
        assert True


def test_an_account_with_many_searches_leaves_a_thread_for_those_of_others() -> None:
    async def search() -> None:
        workers, ends = Workers(), threading.Event()
        slow = [asyncio.create_task(workers.searches.run(1, ends.wait)) for _ in range(40)]
        try:
            await asyncio.sleep(0)  # each of them begins, or is refused
            assert await asyncio.wait_for(workers.searches.run(2, lambda: "found"), 10) == "found"
        finally:
            ends.set()
        done = await asyncio.gather(*slow, return_exceptions=True)
        assert any(isinstance(each, TooManyRequestsError) for each in done)

    asyncio.run(search())


async def test_commands_of_one_account_leave_places_to_others() -> None:
    workers, answer = Workers(), asyncio.Event()
    sent: dict[int, int] = {1: 0, 2: 0}

    async def command(account_id: int) -> None:
        async with workers.commands_of(account_id):
            sent[account_id] += 1
            await answer.wait()

    commands = [asyncio.create_task(command(1)) for _ in range(400)]
    commands.append(asyncio.create_task(command(2)))
    await asyncio.wait(commands, timeout=0)
    assert sent == {1: 32, 2: 1}
    answer.set()
    await asyncio.gather(*commands)
    assert sent == {1: 400, 2: 1}
