"""The order in which threads get a fair lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fieldbrook.system.fair_lock import FairLock
from tests.support.tools import LIMIT_S


class Threads:
    """Threads that hold a lock one after the other, and record the order."""

    def __init__(self, lock: FairLock) -> None:
        self.turns = list[str]()
        self._lock = lock
        self._threads = list[threading.Thread]()

    def begin(self, holder: str) -> None:
        waits = threading.Event()
        thread = threading.Thread(target=self._take, args=(holder, waits))
        thread.start()
        self._threads.append(thread)
        assert waits.wait(LIMIT_S)

    def _take(self, holder: str, waits: threading.Event) -> None:
        with self._lock.hold(holder, waits.set):
            self.turns.append(holder)

    def join(self) -> list[str]:
        for thread in self._threads:
            thread.join(LIMIT_S)
        return self.turns


@contextmanager
def _waiting(lock: FairLock) -> Iterator[Threads]:
    threads = Threads(lock)
    with lock.hold("a"):
        yield threads
    threads.join()


def test_many_threads_of_one_holder_delay_another_holder_by_one_turn() -> None:
    with _waiting(FairLock(waits_s=0.001)) as threads:
        for _ in range(5):
            threads.begin("a")
        for holder in ("b", "b", "c"):
            threads.begin(holder)
    assert "".join(threads.turns) == "abcabaaa"


def test_a_lock_is_free_again_after_an_error() -> None:
    lock = FairLock()
    began = time.monotonic()
    try:
        with lock.hold("a"):
            raise OSError
    except OSError:
        with lock.hold("a"):
            pass
    assert time.monotonic() - began < LIMIT_S
