"""The threads that all projects of a process share."""

from __future__ import annotations

import threading

import pytest

from fieldbrook.actors.project.look_ahead.threads import LookAheadThreads
from tests.support.nodes import until
from tests.support.tools import LIMIT_S


class Meeting:
    """Work in which a number of threads wait for each other."""

    def __init__(self, threads: int) -> None:
        self._all = threading.Barrier(threads)
        self.names: set[str] = set()

    def help(self) -> None:
        self.names.add(threading.current_thread().name)
        self._all.wait(LIMIT_S)


def test_as_many_threads_help_at_once_as_there_are() -> None:
    threads, work = LookAheadThreads(3), Meeting(4)
    for _ in range(3):
        threads.put(work)
    work.help()  # the fourth thread is the caller
    threads.close()
    assert work.names == {"look-ahead:0", "look-ahead:1", "look-ahead:2", "MainThread"}


def test_no_thread_is_started_before_there_is_work_and_none_is_left() -> None:
    before = threading.active_count()
    threads, work = LookAheadThreads(2), Meeting(2)
    assert threading.active_count() == before
    threads.put(work)
    threads.put(work)
    threads.close()
    assert threading.active_count() == before


def test_work_that_all_threads_are_too_busy_for_is_awaited() -> None:
    threads, work = LookAheadThreads(1), Meeting(2)
    threads.put(work)
    until(lambda: not threads.awaited, "the thread has taken it")
    threads.put(work)
    assert threads.awaited is True
    work.help()
    work.help()
    threads.close()
    assert threads.awaited is False


def test_where_no_more_threads_can_start_those_that_did_do_the_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def start_one(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_one)
    threads, work = LookAheadThreads(3), Meeting(2)
    threads.put(work)
    work.help()
    threads.close()
    assert threads.count == 1
    assert "started only 1 of 3 look-ahead threads" in caplog.text
