"""Checkpoints before reads, requested from scripted workers at the other end of Unix sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fieldbrook.actors.wire import LOST, NOT_HERE, WRITE_LOG, worker_socket
from fieldbrook.core.errors import UnavailableError
from fieldbrook.gateway import pending_rows
from fieldbrook.gateway.pending_rows import PendingRows, flush_projects
from tests.support.scripted_worker import ScriptedWorker
from tests.support.waiting import until

STATE = (3, 99, "T", 0, "")


@asynccontextmanager
async def workers_in(run_dir: Path, count: int = 1) -> AsyncIterator[list[ScriptedWorker]]:
    workers = [ScriptedWorker(worker_socket(run_dir, str(n), 1)) for n in range(1, count + 1)]
    for worker in workers:
        await worker.start()
    yield workers
    for worker in workers:
        worker.die()
    await asyncio.sleep(0)  # the loop closes the connections


async def asked(worker: ScriptedWorker, times: int) -> None:
    await until(lambda: len(worker.frames) >= times)
    assert worker.bodies[-1] == (7, [WRITE_LOG])


async def test_every_worker_is_asked_and_the_one_that_runs_the_project_is_waited_for(
    tmp_path: Path,
) -> None:
    left = socket.socket(socket.AF_UNIX)  # the socket of a worker that was killed
    left.bind(str(worker_socket(tmp_path, "0", 1)))
    left.close()
    async with workers_in(tmp_path, 2) as (others, own):
        reading = asyncio.ensure_future(PendingRows(tmp_path).trace_state(7))
        await asked(others, 1)
        await asked(own, 1)
        others.send((7, NOT_HERE))
        await until(lambda: others.connections[0].closed)
        assert not reading.done()
        own.send((7, STATE))
        assert await reading == STATE


async def test_readers_that_come_during_a_checkpoint_share_the_next_one(tmp_path: Path) -> None:
    pending = PendingRows(tmp_path)
    async with workers_in(tmp_path) as (worker,):
        first = asyncio.ensure_future(pending.flush(7))
        await asked(worker, 1)
        later = [asyncio.ensure_future(pending.flush(7)) for _ in range(3)]
        later[0].cancel()  # its reader has disconnected; the others still wait
        worker.send((7, None))
        await first
        await asked(worker, 2)
        assert not any(each.done() for each in later[1:])
        worker.send((7, None))
        await asyncio.gather(*later[1:])
        assert len(worker.frames) == 2


async def test_pages_that_follow_a_project_ask_at_most_four_times_a_second(
    tmp_path: Path,
) -> None:
    now = 1000.0
    pending = PendingRows(tmp_path, lambda: now)
    async with workers_in(tmp_path) as (worker,):
        for times in (1, 2):
            following = asyncio.ensure_future(pending.flush_followed(7))
            await asked(worker, times)
            worker.send((7, None))
            await following
            await pending.flush_followed(7)
            assert len(worker.frames) == times
            now += 0.25


async def test_many_projects_are_asked_for_with_one_frame_and_answered_in_parts(
    tmp_path: Path,
) -> None:
    async with workers_in(tmp_path) as (worker,):
        asking = asyncio.ensure_future(flush_projects(tmp_path, [7, 8, 9]))
        await until(lambda: len(worker.frames) == 1)
        assert worker.bodies == [(7, [WRITE_LOG]), (8, [WRITE_LOG]), (9, [WRITE_LOG])]
        worker.send((9, NOT_HERE), (8, LOST))
        worker.send((7, None))
        assert await asking


async def test_a_busy_worker_holds_a_reader_up_for_a_limited_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_rows, "_LIMIT_S", 0.01)
    async with workers_in(tmp_path):
        assert not await flush_projects(tmp_path, [7], 0.01)
        with pytest.raises(UnavailableError, match="project 7 is busy"):
            await PendingRows(tmp_path).trace_state(7)


async def test_a_reader_waits_until_the_next_worker_has_read_the_journal_of_one_that_died(
    tmp_path: Path,
) -> None:
    dead = worker_socket(tmp_path, "0", 1)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(dead))  # a killed process does not remove its socket
    reading = asyncio.ensure_future(PendingRows(tmp_path).trace_state(7))
    next_one = ScriptedWorker(worker_socket(tmp_path, "0", 2))
    await next_one.start()
    dead.unlink()
    await asked(next_one, 1)
    next_one.send((7, STATE))
    assert await reading == STATE
    next_one.die()
    await asyncio.sleep(0)
